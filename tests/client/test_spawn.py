"""Starting a hub: who does it, with what, and what is said when it fails."""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.client import spawn
from intercom.client.spawn import ensure_hub, hub_environment
from intercom.errors import CannotCreate, HubUnavailable
from intercom.paths import ChannelPaths

ROOT = str(Path(__file__).resolve().parents[2])


class Child:
    """A hub process that ended with a status, or (None) runs."""

    def __init__(self, status: int | None) -> None:
        self._status = status

    def poll(self) -> int | None:
        """As ``Popen.poll``."""
        return self._status


@pytest.fixture
def listener(paths: ChannelPaths) -> Iterator[socket.socket]:
    """What a hub would listen with, not bound yet."""
    with socket.socket(socket.AF_UNIX) as sock:
        yield sock


def test_a_hub_that_runs_is_used(paths: ChannelPaths, listener: socket.socket) -> None:
    """Nothing is started, no lock is touched."""
    listener.bind(paths.socket)
    listener.listen()
    ensure_hub(paths, environ={}).close()
    assert not os.path.exists(paths.spawn_lock)


def test_spawning_can_be_forbidden_and_connecting_too(paths: ChannelPaths) -> None:
    """Both are said in the error."""
    with pytest.raises(HubUnavailable) as caught:
        ensure_hub(paths, environ={"INTERCOM_NO_SPAWN": "1"})
    assert caught.value.details["cause"] == "absent"
    assert "INTERCOM_NO_SPAWN" in caught.value.remedy
    with pytest.raises(HubUnavailable) as caught:
        ensure_hub(paths, environ={"INTERCOM_TRANSPORT": "spool"})
    assert caught.value.details["cause"] == "denied"
    assert not os.path.exists(paths.spawn_lock)


def test_who_may_not_start_a_hub_waits_for_who_does(
    paths: ChannelPaths, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it listens, or the time is up."""
    monkeypatch.setattr(spawn, "_start", lambda *_args: pytest.fail("two spawners at once"))
    fd = os.open(paths.spawn_lock, os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(fd, fcntl.LOCK_EX)
    Path(paths.spawn_output).write_text("is ready\n")  # what one said that is gone
    with pytest.raises(HubUnavailable, match=r"keeps the right to start one$") as caught:
        ensure_hub(paths, environ={}, timeout=0.1)
    assert paths.spawn_lock in caught.value.remedy
    probed: list[float] = []

    def sleep(_seconds: float) -> None:
        probed.append(_seconds)
        if len(probed) == 3:
            listener.bind(paths.socket)
            listener.listen()

    monkeypatch.setattr(spawn.time, "sleep", sleep)
    ensure_hub(paths, environ={}).close()
    assert len(probed) == 3
    os.close(fd)


def test_a_hub_that_lost_the_election_is_started_again_if_the_winner_leaves(
    paths: ChannelPaths, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The winner may have been one that was about to end."""
    monkeypatch.setattr(spawn, "ANOTHER_LEADS", 0.05)
    started: list[float] = []

    def start(*_args: object) -> Child:
        started.append(time.monotonic())
        if len(started) == 1:
            return Child(0)
        listener.bind(paths.socket)
        listener.listen()
        return Child(None)

    monkeypatch.setattr(spawn, "_start", start)
    ensure_hub(paths, environ={}).close()
    assert len(started) == 2


@pytest.mark.parametrize(
    ("status", "kind"), [(73, CannotCreate), (1, HubUnavailable), (-9, HubUnavailable)]
)
def test_the_last_words_of_a_hub_that_failed_are_shown(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, status: int, kind: type[Exception]
) -> None:
    """And where the rest of them is."""
    Path(paths.spawn_output).write_text("".join(f"line {number}\n" for number in range(20)))
    monkeypatch.setattr(spawn, "_start", lambda *_args: Child(status))
    with pytest.raises(kind, match="line 19") as caught:
        ensure_hub(paths, environ={})
    assert "line 13" not in str(caught.value)
    assert paths.spawn_output in caught.value.remedy  # type: ignore[attr-defined]


def test_a_hub_that_could_not_even_say_so_had_no_room(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last words have no room on a full disk, either."""
    Path(paths.spawn_output).write_text("")
    monkeypatch.setattr(spawn, "_start", lambda *_args: Child(73))
    with pytest.raises(CannotCreate, match="without a word"):
        ensure_hub(paths, environ={})
    monkeypatch.setattr(spawn, "LEAST_ROOM", 1 << 62)
    with pytest.raises(CannotCreate, match="the disk is full") as caught:
        ensure_hub(paths, environ={})
    assert "df -h" in caught.value.remedy


def test_an_interpreter_that_cannot_be_run_is_no_riddle(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been removed with its environment while an agent runs in it."""
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(CannotCreate, match="/no/such/python"):
        ensure_hub(paths, environ={})


def test_a_hub_is_nobodys_agent_and_finds_this_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identities are left out; a relative path still leads where it led."""
    monkeypatch.chdir("/usr")
    environ = {
        "PYTHONPATH": "lib:/opt",
        "HOME": "/home/me",
        "INTERCOM_SESSION": "me",
        "INTERCOM_NO_SPAWN": "1",
        "CLAUDECODE": "1",
        "CODEX_SANDBOX": "1",
    }
    assert hub_environment(environ) == {
        "HOME": "/home/me",
        "PYTHONPATH": os.pathsep.join([ROOT, "/usr/lib", "/opt"]),
    }
    monkeypatch.setattr(spawn, "__file__", "/x/lib/python3/site-packages/intercom/client/spawn.py")
    assert "PYTHONPATH" not in hub_environment({})
