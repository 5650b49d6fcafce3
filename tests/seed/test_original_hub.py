"""Our commands with the seed's own hub: nothing assumed of it, and nothing said untruly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest

Agent = Any  # see tests/conftest.py
Mesh = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def hub(mesh: Mesh) -> subprocess.Popen[bytes]:
    """The seed's hub, which leads the channel and keeps what it hears."""
    process: subprocess.Popen[bytes] = mesh.lead("--heard", str(mesh.scratch / "heard"))
    return process


def order(listener: subprocess.Popen[bytes], **fields: Any) -> None:
    """Have a listener send something."""
    assert listener.stdin
    listener.stdin.write(json.dumps({"action": "send", **fields}).encode() + b"\n")


def report(mesh: Mesh, listener: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a listener says next of what it was to send; its notes are passed over."""
    line = b""
    while not line.startswith(b"{"):
        line = mesh.next_bytes(listener.stderr)
    return dict(json.loads(line))


# -- sending ----------------------------------------------------------------------------------


def test_our_messages_reach_both_kinds_through_the_original_hub(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """One seen in the inbox file is stored; more than that this hub does not tell."""
    ann, bob = agent("ann"), agent("bob")
    assert bob.run("init").ok()["transport"] == "hub"
    for name in ("bob", "kira"):
        sent = ann.run("send", "--to", name, stdin="grüße 👋\n".encode()).ok()
        assert (sent["status"], sent["state"], sent["level"]) == ("sent", "stored", "process")
        assert sent["live"] is None
    assert bob.texts() == ["grüße 👋\n"]
    assert bob.texts() == []
    assert mesh.poll("kira") == ["grüße 👋\n"]


def test_nothing_is_asked_of_the_original_hub_but_what_the_seed_has(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """Whichever of our commands speaks to it: registers, and messages with eight fields."""
    ann, bob = agent("ann"), agent("bob")
    bob.run("init").ok()
    with mesh.listening(bob) as ours:
        ann.run("send", "--to", "bob", "--text", "one").ok()
        assert mesh.hears(ours, "one")
        order(ours, to="ann", text="two")
        assert report(mesh, ours)["status"] == "sent"
        ann.run("send", "--text", "three").ok()
        assert mesh.hears(ours, "three")
        ann.run("peers").ok()
        ann.wait_until(lambda: ann.texts() == ["two"])
        ann.run("ack", "--all").ok()
    heard = [json.loads(line) for line in (mesh.scratch / "heard").read_text().splitlines()]
    kinds = [line["type"] for line in heard]
    assert kinds == ["register", "register", "chat", "chat", "register", "chat", "register"]
    names = ["id", "type", "from_session", "to_session", "channel", "reply_to", "payload"]
    assert all(list(line) == [*names, "timestamp"] for line in heard)


def test_of_a_broadcast_nothing_is_claimed(mesh: Mesh, agent: Make, hub: object) -> None:
    """It reached who was connected; this hub does not say who that is."""
    ear = mesh.start("client", "listen", "--session", "kira")
    mesh.wait_until(lambda: mesh.active() == ["kira"])
    with mesh.listening(agent("bob")) as ours:
        sent = agent("ann").run("send", "--text", "to all").ok()
        assert (sent["status"], sent["state"], sent["recipients"]) == ("sent", None, None)
        assert mesh.hears(ours, "to all")
        assert mesh.hears(ear, "to all")


def test_a_message_of_a_megabyte_goes_through_the_original_hub(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """One that its way of writing would make too long for a line goes through the file."""
    ann, bob = agent("ann"), agent("bob")
    plain, wide = "x" * 1_000_000, "ü" * 400_000
    assert ann.run("send", "--to", "bob", stdin=plain.encode()).ok()["status"] == "sent"
    sent = ann.run("send", "--to", "bob", stdin=wide.encode())
    assert (sent.ok()["status"], sent.result["cause"]) == ("spooled_offline", "original")
    assert "original mesh" in sent.err
    assert bob.texts() == [plain, wide]
    assert ann.run("send", stdin=wide.encode()).status == 69


def test_what_the_original_hub_does_not_know_is_done_by_the_command(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """Strict messages, repetitions, and names that it would take for paths."""
    ann, bob = agent("ann"), agent("bob")
    ended = ann.run("send", "--to", "bobb", "--text", "x", "--strict")
    assert (ended.status, ended.result["code"]) == (68, "TARGET_NOT_FOUND")
    assert not os.path.exists(mesh.paths.inbox("bobb"))
    for _ in range(2):
        again = ann.run("send", "--to", "bob", "--text", "once", "--id", "msg_00000000000a").ok()
        assert again["state"] == "stored"
    assert again["duplicate"] is True
    assert bob.texts() == ["once"]
    odd = agent("bob")
    odd.environ["INTERCOM_SESSION"] = "../Jürgen"
    sent = ann.run("send", "--to", "../Jürgen", "--text", "found").ok()
    assert sent["cause"] == "original"
    assert odd.texts() == ["found"]


def test_a_reader_that_never_reads_holds_up_the_original_hub_and_not_us(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """Every message is in the file and said to be, in seconds; our listener stays."""
    deaf = mesh.talker()
    deaf.register("deaf")
    ann, bob = agent("ann"), agent("bob")
    for _ in range(3):
        begun = time.monotonic()
        sent = ann.run("send", "--to", "deaf", stdin=b"m" * 700_000).ok()
        assert (sent["status"], sent["state"]) == ("sent", "stored")
        assert time.monotonic() - begun < 20
    with mesh.listening(bob) as ours:
        for number in range(4):  # one is written to the hub, which then reads no more from us
            order(ours, to="deaf", text=str(number) + "m" * 300_000)
            assert report(mesh, ours)["status"] == ("spooled_offline" if number else "sent")
        ann.run("send", "--to", "bob", "--text", "still there?").ok()
        assert mesh.hears(ours, "still there?")
        assert ours.poll() is None
    deaf.socket.close()
    mesh.wait_until(lambda: len({one["id"] for one in mesh.stored("deaf")}) == 7)
    assert len(mesh.stored("deaf")) == 7


def test_a_session_that_listens_sends_through_the_file(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """The original hub knows one connection a session, and no tokens to join it by."""
    bob = agent("bob")
    with mesh.listening(bob) as ours:
        sent = bob.run("send", "--to", "kira", "--text", "beside").ok()
        assert (sent["status"], sent["cause"]) == ("spooled_offline", "session_collision")
        ended = bob.run("send", "--text", "to all")
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        assert not os.path.exists(mesh.paths.inbox("hub"))  # where that hub would never look
        assert ours.poll() is None
    assert mesh.poll("kira") == ["beside"]


def test_a_stopped_listener_is_taken_over_beside_the_original_hub(
    mesh: Mesh, agent: Make, hub: object, stopped: Callable[[int], None]
) -> None:
    """That hub knows no take-over and keeps the old connection: the file is followed instead."""
    ann, bob = agent("ann"), agent("bob")
    with mesh.listening(bob) as ours:
        stopped(ours.pid)
        try:
            ann.run("send", "--to", "bob", "--text", "one").ok()
            taken = bob.run("listen", "--takeover", "--once", "--timeout", "30")
            assert (taken.status, json.loads(taken.out)["payload"]["text"]) == (0, "one")
        finally:
            ours.send_signal(signal.SIGCONT)
        out, _ = ours.communicate(timeout=60)
        assert (ours.returncode, json.loads(out)["code"]) == (77, "TAKEN_OVER")
    assert bob.texts() == []


# -- who is here ------------------------------------------------------------------------------


def test_peers_answers_for_the_original_hub(
    mesh: Mesh, agent: Make, hub: subprocess.Popen[bytes]
) -> None:
    """Who is connected, whether or not the asking session is; and which hub says so."""
    ann, bob = agent("ann"), agent("bob")
    assert mesh.talker().register("kira")["type"] == "welcome"
    ann.run("poll").ok()
    with mesh.listening(bob):
        asked = ann.run("peers").ok()
        assert [row["session"] for row in asked["sessions"]] == ["bob", "kira"]
        assert asked["hub"] == {"pid": hub.pid, "version": None}
        beside = bob.run("peers")
        assert [row["session"] for row in beside.ok()["sessions"]] == ["bob", "kira"]
        assert beside.result["hub"]["pid"] == hub.pid
        assert "ann" in beside.result["absent"]
        assert "connected already" in beside.err
    mesh.wait_until(lambda: mesh.active() == ["kira"])


# -- listening --------------------------------------------------------------------------------


def test_listen_and_poll_share_a_position_with_the_original_hub_too(
    mesh: Mesh, agent: Make, hub: object
) -> None:
    """What lay unread, then what is pushed, each once; and neither poll shows it again."""
    ann, bob = agent("ann"), agent("bob")
    assert mesh.send("kira", "bob", "before")["status"] == "sent"
    with mesh.listening(bob) as ours:
        assert mesh.hears(ours, "before")
        for number in range(5):
            mesh.send("kira", "bob", f"theirs {number}")
        ann.run("send", "--to", "bob", "--text", "ours").ok()
        assert mesh.hears(ours, *(f"theirs {number}" for number in range(5)), "ours")
        mesh.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)
    assert mesh.poll("bob") == []
    ann.run("send", "--to", "bob", "--text", "after").ok()
    assert bob.texts() == ["after"]


def test_a_listener_goes_on_from_the_original_hub_to_ours(
    mesh: Mesh, agent: Make, hub: subprocess.Popen[bytes]
) -> None:
    """It dies, a command or the listener starts another; nothing is lost or shown twice."""
    ann, bob = agent("ann"), agent("bob")
    with mesh.listening(bob) as ours:
        ann.run("send", "--to", "bob", "--text", "one").ok()
        hub.kill()
        hub.wait()
        assert ann.run("send", "--to", "bob", "--text", "two").ok()["status"] == "sent"
        mesh.wait_until(lambda: mesh.published().get("hub_pid") == bob.hub_pid())
        mesh.wait_until(lambda: "bob" in mesh.active())
        assert ann.run("send", "--to", "bob", "--text", "three").ok()["live"] == 1
        assert mesh.hears(ours, "one", "two", "three")
    assert mesh.texts(mesh.stored("bob")) == ["one", "two", "three"]


# -- a hub that hangs or dies -----------------------------------------------------------------


def test_a_stopped_original_hub_is_named_by_its_own_pid(
    mesh: Mesh, agent: Make, stopped: Callable[[int], None]
) -> None:
    """Even where a hub of ours that was killed has left its pid in the lock file."""
    first = mesh.serve()
    first.kill()
    first.wait()
    hub = mesh.lead()
    agent("ann").run("poll").ok()
    stopped(hub.pid)
    sent = agent("ann").run("send", "--to", "kira", "--text", "around")
    assert (sent.ok()["status"], sent.result["cause"]) == ("spooled_offline", "silent")
    assert f"pid {hub.pid}" in sent.err
    assert str(first.pid) not in sent.err
    os.kill(hub.pid, signal.SIGCONT)
    assert mesh.poll("kira") == ["around"]


@pytest.mark.parametrize("moment", ["nothing", "register", "chat"])
def test_an_original_hub_that_dies_with_a_message_does_not_take_it_along(
    mesh: Mesh, agent: Make, hub: subprocess.Popen[bytes], moment: str
) -> None:
    """Killed before, between and behind our lines: the message is there, once, and said to be."""
    ann, heard = agent("ann"), mesh.scratch / "heard"
    heard.touch()
    sender = ann.start("send", "--to", "kira", "--text", "once")
    mesh.wait_until(lambda: moment == "nothing" or f'"{moment}"' in heard.read_text())
    hub.kill()
    out, err = sender.communicate(timeout=60)
    assert json.loads(out)["state"] == "stored", err
    assert mesh.texts(mesh.stored("kira")) == ["once"]


def test_an_original_hub_whose_socket_was_deleted_is_named_and_gone_around(
    mesh: Mesh, agent: Make, hub: subprocess.Popen[bytes]
) -> None:
    """It holds the lock and makes no other socket: nobody can reach it or take its place."""
    os.unlink(mesh.paths.socket)
    ann, bob = agent("ann"), agent("bob")
    begun = time.monotonic()
    sent = ann.run("send", "--to", "bob", "--text", "x")
    assert time.monotonic() - begun < 20
    assert (sent.ok()["status"], sent.result["cause"]) == ("spooled_offline", "absent")
    assert f"pid {hub.pid}" in sent.err
    assert bob.run("listen", "--once", "--timeout", "20").ok()["payload"]["text"] == "x"
    hub.terminate()
    hub.wait()
    assert ann.run("send", "--to", "bob", "--text", "y").ok()["status"] == "sent"
