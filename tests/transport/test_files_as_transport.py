"""The inbox files carry messages where sockets do not: each way is told truthfully, once."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest


def one_line(process: Any) -> dict[str, Any]:
    return dict(json.loads(process.stdout.readline()))


def test_a_sandboxed_session_and_a_free_one_hear_each_other(place: Any) -> None:
    """Sockets are denied on one side only; a hub runs on the other."""
    assert place.run("init", "--name", "free")[0] == 0
    status, ready, _error = place.run("init", "--name", "boxed", sandboxed=True)
    assert (status, ready["status"], ready["transport"]) == (0, "ready", "spool")
    listener = place.start("listen", "--session", "free")
    status, sent, _error = place.run(
        "send", "--session", "boxed", "--to", "free", sandboxed=True, body="from the box"
    )
    assert (status, sent["status"], sent["state"]) == (0, "spooled_offline", "stored")
    assert sent["cause"] == "denied"
    assert one_line(listener)["payload"]["text"] == "from the box"
    assert place.run("send", "--session", "free", "--to", "boxed", body="from outside")[0] == 0
    assert place.texts("boxed", sandboxed=True) == ["from outside"]
    assert place.texts("boxed", sandboxed=True) == []


def test_a_sandboxed_listener_hears_what_comes(place: Any) -> None:
    place.run("init", "--name", "free")
    listener = place.start("listen", "--session", "boxed", sandboxed=True)
    place.run("send", "--session", "free", "--to", "boxed", body="1")
    assert one_line(listener)["payload"]["text"] == "1"
    place.run("send", "--session", "free", "--to", "boxed", body="2")
    assert one_line(listener)["payload"]["text"] == "2"


def test_a_sandboxed_broadcast_goes_through_the_inbox_of_a_living_hub(
    place: Any, wait_until: Any
) -> None:
    for name in ("ada", "bob"):
        place.run("init", "--name", name)
    listener = place.start("listen", "--session", "ada")
    wait_until(lambda: "ada" in [one["session"] for one in place.run("peers")[1]["sessions"]])
    status, sent, error = place.run(
        "send", "--session", "boxed", sandboxed=True, body="to everybody"
    )
    assert (status, sent["status"], sent["state"]) == (0, "spooled_offline", "stored"), error
    assert one_line(listener)["payload"]["text"] == "to everybody"
    assert place.texts("bob") == ["to everybody"]
    assert place.texts("boxed", sandboxed=True) == []  # never to its sender


def test_without_any_hub_a_broadcast_ends_with_69_and_direct_messages_still_go(place: Any) -> None:
    status, sent, error = place.run("send", "--session", "boxed", sandboxed=True, body="all")
    assert (status, sent["status"], sent["code"]) == (69, "error", "HUB_UNAVAILABLE")
    assert "--to" in error
    status, sent, _error = place.run(
        "send", "--session", "boxed", "--to", "bob", sandboxed=True, body="one"
    )
    assert (status, sent["status"]) == (0, "spooled_offline")
    assert place.texts("bob") == ["one"]


def test_what_the_hub_must_refuse_comes_back_as_a_notice(place: Any, wait_until: Any) -> None:
    place.run("init", "--name", "ada")
    wrong = {
        "id": "m1",
        "type": "chat",
        "from_session": "ada",
        "to_session": "*",
        "channel": "another",
        "reply_to": None,
        "payload": {"text": "x"},
        "timestamp": "t",
    }
    path = place.channel / "inbox_hub.ndjson"
    path.touch(mode=0o600)
    with path.open("ab") as file:
        file.write(json.dumps(wrong).encode() + b"\n")
    wait_until(lambda: place.ids_in_file("ada"), "a notice")
    status, result, _error = place.run("poll", "--session", "ada")
    (notice,) = result["messages"]
    assert (status, notice["from_session"], notice["reply_to"]) == (0, "hub", "m1")
    assert notice["payload"]["notice"]["code"] == "CHANNEL_MISMATCH"


def test_a_hub_reads_what_was_left_for_it_while_none_ran(
    place: Any, wait_until: Any, stopped: Callable[[int], None]
) -> None:
    for name in ("ada", "bob"):
        place.run("init", "--name", name)
    stopped(place.hub_pid())  # alive by its lock, deaf by its socket
    status, sent, error = place.run("send", "--session", "ada", sandboxed=True, body="later")
    assert (status, sent["status"], sent["state"]) == (0, "spooled_offline", None), error
    assert "not taken" in sent["reason"]
    os.kill(place.hub_pid(), signal.SIGKILL)
    assert place.run("peers")[0] == 0  # starts another
    assert wait_until(lambda: place.texts("bob"), "the message") == ["later"]
    assert place.texts("bob") == []


CAUSES = {
    "denied": "denied",
    "spool": "denied",
    "absent": "absent",
    "refused": "refused",
    "silent": "silent",
}


@pytest.mark.parametrize("why", CAUSES)
def test_whatever_keeps_the_hub_from_answering_the_message_is_kept_and_the_cause_named(
    place: Any, why: str, stopped: Callable[[int], None]
) -> None:
    place.run("init", "--name", "ada")
    pid = place.hub_pid()
    environment = {"INTERCOM_NO_SPAWN": "1"}
    if why == "spool":
        environment["INTERCOM_TRANSPORT"] = "spool"
    elif why == "absent":
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60
        while (place.channel / "hub.sock").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
    elif why == "refused":
        os.kill(pid, signal.SIGKILL)
    elif why == "silent":
        stopped(pid)
    status, sent, _error = place.run(
        "send",
        "--session",
        "ada",
        "--to",
        "bob",
        sandboxed=why == "denied",
        body="x",
        **environment,
    )
    if why == "silent":
        os.kill(pid, signal.SIGCONT)
    assert (status, sent["status"], sent["cause"]) == (0, "spooled_offline", CAUSES[why])
    assert sent["reason"]
    assert len(place.ids_in_file("bob")) == 1


def test_the_reasons_are_told_apart(place: Any, stopped: Callable[[int], None]) -> None:
    """Five situations, five sentences."""
    place.run("init", "--name", "ada")
    words = ["send", "--session", "ada", "--to", "bob"]
    reasons = {
        place.run(*words, sandboxed=True, body="x")[1]["reason"],
        place.run(*words, body="x", INTERCOM_TRANSPORT="spool")[1]["reason"],
    }
    stopped(place.hub_pid())
    reasons.add(place.run(*words, body="x")[1]["reason"])
    os.kill(place.hub_pid(), signal.SIGKILL)
    reasons.add(place.run(*words, body="x", INTERCOM_NO_SPAWN="1")[1]["reason"])
    (place.channel / "hub.sock").unlink()
    reasons.add(place.run(*words, body="x", INTERCOM_NO_SPAWN="1")[1]["reason"])
    assert len(reasons) == 5, reasons
