"""The blocking connection: deadlines, and a sentence for each way of failing."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client import dial
from intercom.client.blocking import HubConnection
from intercom.client.dial import ConnectionLost, connect
from intercom.errors import HubUnavailable, IntercomError, UnsafePlace
from intercom.paths import ChannelPaths

Start = Callable[..., Any]


def opened(paths: ChannelPaths) -> HubConnection:
    """Connect to whatever listens."""
    return HubConnection(connect(paths), paths, "me")


# -- not reaching a hub -----------------------------------------------------------------------


def cause_of(paths: ChannelPaths) -> tuple[str, str]:
    """Why connecting fails: the cause, and what is said about it."""
    with pytest.raises(HubUnavailable) as caught:
        connect(paths, timeout=0.2)
    assert caught.value.exit_code == 69
    return caught.value.details["cause"], f"{caught.value.text} {caught.value.remedy}"


def test_no_socket_and_a_dead_socket_are_told_apart(paths: ChannelPaths) -> None:
    """Both name the command that starts a hub; neither removes anything."""
    cause, said = cause_of(paths)
    assert cause == "absent"
    assert "intercom --dir" in said
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(paths.socket)
    cause, said = cause_of(paths)
    assert cause == "refused"
    assert "hub start" in said
    assert os.path.exists(paths.socket)


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES])
def test_a_sandbox_is_called_a_sandbox(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A denied socket is not reported as a hub that is down."""

    class Denied(socket.socket):
        def connect(self, address: Any) -> None:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(dial, "socket", Denied)
    cause, said = cause_of(paths)
    assert cause == "denied"
    assert "sandbox" in said


def test_sockets_that_cannot_even_be_made_are_denied_too(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some sandboxes refuse ``socket`` itself."""

    def refuse(*_args: Any) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(dial, "socket", refuse)
    assert cause_of(paths)[0] == "denied"


def test_a_hub_whose_queue_is_full_is_silent(paths: ChannelPaths) -> None:
    """Stopped for so long that not even connections are taken any more."""
    with socket.socket(socket.AF_UNIX) as full:
        full.bind(paths.socket)
        full.listen(0)
        waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(paths.socket)
        assert cause_of(paths)[0] == "silent"
        for one in waiting:
            one.close()


def test_another_users_hub_is_sent_nothing(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says who listens, before the first byte."""
    monkeypatch.setattr(dial, "peer_credentials", lambda _sock: (4711, 65001))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(paths.socket)
        other.listen()
        with pytest.raises(UnsafePlace, match="65001"):
            connect(paths)
        seen, _address = other.accept()
        with seen:
            assert seen.recv(1) == b""


def test_roots_hub_is_trusted(paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root can do everything anyway."""
    monkeypatch.setattr(dial, "peer_credentials", lambda _sock: (1, 0))
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(paths.socket)
        other.listen()
        connect(paths).close()


def test_a_hub_that_accepts_and_never_answers_is_named(paths: ChannelPaths) -> None:
    """Its pid stands in the error, as does how to wake or end it."""
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(paths.socket)
        stopped.listen()
        with opened(paths) as hub:
            begun = time.monotonic()
            with pytest.raises(HubUnavailable) as caught:
                hub.register(timeout=0.2)
        assert time.monotonic() - begun < 20
    assert caught.value.details["cause"] == "silent"
    assert str(os.getpid()) in caught.value.text
    assert f"kill -CONT {os.getpid()}" in caught.value.remedy


def test_the_kernel_names_the_hub_and_the_lock_file_where_it_cannot(
    paths: ChannelPaths,
) -> None:
    """A pid to be killed must be the right one; a dead hub's may have stayed in the file."""
    gone = subprocess.Popen(["true"])
    gone.wait()
    with open(os.open(paths.lock, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
        file.write(f'{{"pid": {os.getpid()}, "version": "0"}}')
    assert f"kill -9 {os.getppid()}" in dial.silent(paths, os.getppid()).remedy
    assert f"kill -9 {os.getpid()}" in dial.silent(paths, None).remedy
    Path(paths.lock).write_text(f'{{"pid": {gone.pid}, "version": "0"}}')
    assert dial.silent(paths, None).details["pid"] is None


# -- the conversation -------------------------------------------------------------------------


def test_the_welcome_grants_what_it_says(paths: ChannelPaths, hub: Start) -> None:
    """Who registers shows id, token, role and wishes, and learns what was granted."""
    seen = []
    fake = hub(lambda side: seen.append(side.welcome("receipts")))
    with opened(paths) as one:
        one.register(features=("receipts", "cursor"), role="sender", token="t")
        assert one.features == {"receipts"}
        assert one.peers == ["bob"]
        assert one.hub["pid"] == 1
        assert not one.original
    fake.finish()
    assert seen[0]["from_session"] == "me"
    assert seen[0]["payload"] == {
        "features": ["receipts", "cursor"],
        "role": "sender",
        "token": "t",
    }


def test_an_original_hub_grants_nothing(paths: ChannelPaths, hub: Start) -> None:
    """A welcome that names no protocol is the original hub's."""
    hub(lambda side: side.welcome_as_original())
    with opened(paths) as one:
        one.register(features=("receipts",))
        assert one.original
        assert not one.features


def test_a_refused_claim_is_raised_as_what_the_hub_said(paths: ChannelPaths, hub: Start) -> None:
    """A collision keeps its code, sentence and exit status."""

    def refuse(side: Any) -> None:
        register = side.read()
        side.say("error", {"code": "SESSION_COLLISION", "message": "taken"}, register["id"])

    hub(refuse)
    with opened(paths) as one, pytest.raises(IntercomError, match="taken") as caught:
        one.register()
    assert caught.value.code == "SESSION_COLLISION"
    assert caught.value.exit_code == 77


def test_a_hub_that_hangs_up_is_lost_and_not_silent(paths: ChannelPaths, hub: Start) -> None:
    """So that the caller tries the next one."""
    hub(lambda side: side.read() and None, lambda side: None)
    for _ in range(2):
        with opened(paths) as one, pytest.raises(ConnectionLost):
            one.register()


def test_a_megabyte_goes_through_a_hub_that_talks_before_it_reads(
    paths: ChannelPaths, hub: Start
) -> None:
    """An original hub waits for readers that do not read; nobody may wait for the other."""

    def talkative(side: Any) -> None:
        side.welcome()
        for number in range(40):
            side.chat(f"msg_{number}", "x" * 20_000)
        assert len(side.read()["payload"]["text"]) == 1_000_000

    hub(talkative)
    with opened(paths) as one:
        one.register()
        line = b'{"type":"chat","payload":{"text":"%s"}}' % (b"y" * 1_000_000)
        one.send_line(line)
        ids = []
        while len(ids) < 40:
            received = one.receive(5)
            assert received is not None
            assert received.envelope is not None
            ids.append(received.envelope["id"])
    assert ids == [f"msg_{number}" for number in range(40)]


def test_only_the_answer_to_the_line_counts(paths: ChannelPaths, hub: Start) -> None:
    """Pushes, pings and others' receipts pass by; unreadable lines do no harm."""

    def busy(side: Any) -> None:
        side.welcome("receipts")
        asked = side.read()
        side.socket.sendall(b"this is no JSON\n\n")
        side.chat("msg_1", "hello")
        side.say("heartbeat", {})
        side.say("receipt", {"state": "stored"}, "msg_other")
        side.say("error", {"code": "BAD_JSON", "message": "of another line"}, "msg_other")
        side.say("receipt", {"state": "stored", "live": 2}, asked["id"])

    hub(busy)
    with opened(paths) as one:
        one.register()
        answer = one.answer_to(one.say("chat", {"text": "x"}), 5)
    assert answer.payload == {"state": "stored", "live": 2}


def test_no_answer_in_time_is_a_lost_connection(paths: ChannelPaths, hub: Start) -> None:
    """The same line may then be sent to the next hub."""

    def mute(side: Any) -> None:
        side.welcome()
        side.read()
        assert side.read() == {}

    hub(mute)
    with opened(paths) as one:
        one.register()
        with pytest.raises(ConnectionLost):
            one.answer_to(one.say("list", {}), 0.1)


def test_a_hub_that_shuts_down_is_tried_again(paths: ChannelPaths, hub: Start) -> None:
    """Its last word is not a refusal of our line."""

    def going(side: Any) -> None:
        side.welcome()
        side.say("error", {"code": "SHUTTING_DOWN", "message": "going"})

    hub(going)
    with opened(paths) as one:
        one.register()
        with pytest.raises(ConnectionLost):
            one.answer_to("msg_any", 5)
