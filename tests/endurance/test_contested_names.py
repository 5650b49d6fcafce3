"""Many who want one name, and those who speak as the hub."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

CONTENDERS = 50
#: What only a hub says.
HUBS_OWN = ("welcome", "receipt", "error", "sessions", "cursor", "notice", "shutdown")


def test_of_fifty_who_claim_a_name_at_once_one_has_it(hub: Any) -> None:
    """Each with a secret of its own: one is welcomed, and hears what is sent to the name."""
    one = hub("--durability", "process")
    raws = [one.connect() for _ in range(CONTENDERS)]
    barrier = threading.Barrier(CONTENDERS)

    def claim(number: int) -> tuple[str, dict[str, Any]]:
        raw = raws[number]
        barrier.wait()
        payload = {"features": ["receipts"], "token": f"{number:032x}"}
        raw.say("register", id="r", from_session="ceo", payload=payload)
        said = raw.until("welcome", "error")
        return said["type"], said["payload"]

    with ThreadPoolExecutor(CONTENDERS) as pool:
        ends = list(pool.map(claim, range(CONTENDERS)))
    assert Counter(kind for kind, _payload in ends) == {"welcome": 1, "error": CONTENDERS - 1}
    codes = {payload["code"] for kind, payload in ends if kind == "error"}
    assert codes == {"SESSION_COLLISION"}
    (winner,) = [raw for raw, (kind, _) in zip(raws, ends, strict=True) if kind == "welcome"]
    ada = one.connect("ada", "receipts")
    ada.chat("ceo", "for your eyes only")
    assert winner.until("chat")["payload"]["text"] == "for your eyes only"
    for raw in raws:
        if raw is not winner:
            assert b"eyes only" not in rest_of(raw)


def rest_of(raw: Any) -> bytes:
    """What a connection that the hub closes still has to tell."""
    raw.socket.settimeout(60)
    said = b""
    try:
        while data := raw.socket.recv(1 << 16):
            said += data
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize("kind", HUBS_OWN)
def test_nobody_speaks_as_the_hub(hub: Any, kind: str) -> None:
    """A line of a type that is the hub's goes to nobody, whatever name stands in it."""
    one = hub("--durability", "process")
    bob = one.connect("bob", "receipts", "progress")
    eve = one.connect("eve", "receipts")
    lie = {"state": "stored", "code": "TAKEN_OVER", "message": "leave", "status": "connected"}
    for speaker in ("eve", "hub"):
        eve.say(
            kind,
            id=f"x-{speaker}",
            from_session=speaker,
            to_session="bob",
            reply_to="m1",
            payload=lie,
        )
    eve.chat("bob", "canary")
    heard = []
    while (line := bob.read())["type"] != "chat":
        heard.append(line)
    assert line["payload"] == {"text": "canary"}
    assert line["from_session"] == "eve"
    assert "leave" not in json.dumps(heard)
    assert one.process.poll() is None


@pytest.mark.parametrize("name", ["hub", "*", "all"])
def test_names_that_mean_something_else_are_nobodys(hub: Any, name: str) -> None:
    one = hub("--durability", "process")
    raw = one.connect()
    raw.say("register", id="r", from_session=name, payload={"features": []})
    said = raw.until("welcome", "error")
    assert (said["type"], said["payload"].get("code")) == ("error", "BAD_SESSION_ID")
