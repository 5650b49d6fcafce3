"""Children of a hub, stopped hubs, and what the next hub and the commands say of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.task import Clock

from intercom.election.flock import FlockElection
from intercom.election.locks import already_led, holders, is_led, take_locks
from intercom.paths import ChannelPaths

#: Leads the channel, then makes a child that outlives it in one of three ways.
LEADER = """
import os, subprocess, sys, time
from intercom.election.locks import take_locks
from intercom.paths import ChannelPaths
paths = ChannelPaths(sys.argv[1], "default")
locks = take_locks(paths)
os.pwrite(locks.file, b'{"pid": %d}' % os.getpid(), 0)
copies = [os.dup(fd) for fd in locks] if sys.argv[2] == "copies" else []
if sys.argv[2] == "program":
    pid = subprocess.Popen(["sleep", "600"], close_fds=False).pid
else:
    pid = os.fork()
    if not pid:
        time.sleep(600)
print(pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def orphan(paths: ChannelPaths) -> Iterator[Callable[[str], int]]:
    """Have a leader die that has a child; the child's pid."""
    left: list[int] = []

    def make(how: str) -> int:
        leader = subprocess.Popen(
            [sys.executable, "-c", LEADER, paths.base, how], stdout=subprocess.PIPE, text=True
        )
        assert leader.stdout is not None
        pid = int(leader.stdout.readline())
        left.append(pid)
        assert is_led(paths)
        leader.kill()
        leader.wait()
        leader.stdout.close()
        os.kill(pid, 0)  # it lives
        return pid

    yield make
    for pid in left:
        os.kill(pid, signal.SIGKILL)


def wait_until_free(paths: ChannelPaths) -> None:
    """The kernel takes a dead process's locks away in its own time."""
    deadline = time.monotonic() + 60
    while is_led(paths):
        assert time.monotonic() < deadline, "somebody keeps the lock"
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["fork", "program"])
def test_a_leaders_child_does_not_keep_its_lock(
    paths: ChannelPaths, orphan: Callable[[str], int], how: str
) -> None:
    """Neither a program that it started, though told to leave descriptors open, nor a fork."""
    pid = orphan(how)
    wait_until_free(paths)
    assert pid not in holders(paths.lock)
    locks = take_locks(paths)
    assert locks is not None
    locks.release()


def test_a_child_that_was_given_the_lock_keeps_the_channel_and_is_named(
    paths: ChannelPaths, orphan: Callable[[str], int]
) -> None:
    """What no program of ours does: there is no second leader, and it is said who is in the way."""
    pid = orphan("copies")
    for _ in range(3):
        assert take_locks(paths) is None
    assert holders(paths.lock) == [pid]
    error = already_led(paths)
    assert error.text.endswith(f"{paths.lock} is kept open by pid {pid}")
    assert error.details == {}, "the dead leader is not named as one"


def test_a_hub_ends_in_peace_where_an_orphan_holds_the_lock(
    paths: ChannelPaths, orphan: Callable[[str], int]
) -> None:
    """It elects nobody else, and its last words name the process to be ended."""
    pid = orphan("copies")
    daemon = [sys.executable, "-m", "intercom", "daemon", "--dir", paths.base]
    root = str(Path(__file__).resolve().parents[2])
    environ = {**os.environ, "PYTHONPATH": root}
    ended = subprocess.run(daemon, capture_output=True, env=environ, timeout=60, check=False)
    said = (ended.stdout + ended.stderr).decode()
    assert ended.returncode == 0, said
    assert f"pid {pid}" in said, said
    assert not os.path.exists(paths.socket)
    os.kill(pid, signal.SIGKILL)
    wait_until_free(paths)


def test_a_forked_child_has_nothing_to_resign(paths: ChannelPaths) -> None:
    """It neither leads, nor empties its parent's lock file, nor closes what is not the lock."""
    election = FlockElection(Clock(), paths, "1.0", 1.0)
    election.campaign()
    assert election.holds()
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        spare = os.open("/dev/null", os.O_RDONLY)  # takes the number of one that was closed
        seen = election.holds()
        election.resign()
        os.fstat(spare)
        os.write(writer, b"led" if seen else b"free")
        os._exit(0)
    _pid, status = os.waitpid(pid, 0)
    os.close(writer)
    said = os.read(reader, 10)
    os.close(reader)
    assert (status, said) == (0, b"free")
    assert election.holds()
    assert json.loads(Path(paths.lock).read_bytes())["pid"] == os.getpid()
    election.resign()
    assert not is_led(paths)


def test_a_process_that_cannot_be_looked_into_is_passed_over(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's, one that has just ended, or a system that shows none."""
    locks = take_locks(paths)
    listdir = os.listdir

    def blind(path: str) -> Any:
        if path.startswith("/proc/") and path != "/proc":
            raise PermissionError
        return listdir(path)

    monkeypatch.setattr(os, "listdir", blind)
    assert holders(paths.lock) == []
    monkeypatch.setattr(os, "listdir", lambda _path: (_ for _ in ()).throw(FileNotFoundError()))
    assert holders(paths.lock) == []
    assert "does not say who it is" in already_led(paths).text
    assert locks is not None
    locks.release()
    locks.release()
