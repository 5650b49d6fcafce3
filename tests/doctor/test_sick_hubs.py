"""Hubs that are well, stopped, dead, foreign, or hold what guards nothing: real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.client import control
from intercom.client.doctor import examination, hubs
from intercom.client.doctor.findings import Finding
from intercom.client.doctor.patient import World
from intercom.client.doctor.sight import holder
from intercom.election.locks import take_locks
from intercom.errors import IntercomError
from intercom.spool import turns

Agent = Any  # see the conftest.py files
Clinic = Any
Make = Callable[[str], Agent]


@pytest.fixture
def ann(agent: Make) -> Agent:
    """An agent whose channel has a hub."""
    made = agent("ann")
    made.run("init", "--name", "ann").ok()
    return made


def codes(clinic: Clinic, **changes: Any) -> dict[str, Finding]:
    """Everything that is found, good or bad, by code."""
    world = World(**(vars(clinic.world) | changes))
    return {one.code: one for one in examination.examine(clinic.paths, world)}


def test_a_healthy_channel_with_a_hub_has_no_warning(ann: Agent, clinic: Clinic) -> None:
    """It is said who leads, since when, and as whom; nothing else is worth a word."""
    ann.run("send", "--to", "bob", "--text", "hello").ok()
    assert not [one for one in clinic.found().values() if one.severity != "note"]
    found = codes(clinic)["hub"]
    assert f"pid {ann.hub_pid()}, intercom " in found.text
    assert f"uid {os.geteuid()}, since " in found.text


def test_another_version_is_named(
    ann: Agent, clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the command that replaces the hub."""
    monkeypatch.setattr(hubs, "__version__", "99.0")
    found = clinic.found()["hub-version"]
    assert found.severity == "warning"
    assert "99.0" in found.text
    assert found.remedy.endswith("hub restart")


def test_a_stopped_hub_is_named_with_its_pid(
    ann: Agent, clinic: Clinic, stopped: Callable[[int], None]
) -> None:
    """And with what resumes or ends it. Nothing of it is swept away."""
    pid = ann.hub_pid()
    stopped(pid)
    found = clinic.found()["hub-stopped"]
    assert found.severity == "problem"
    assert f"pid {pid}" in found.text
    assert found.remedy == f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}"
    assert "stale-socket" not in clinic.found()
    assert not clinic.cure().done


def test_a_hub_with_all_its_connections_taken_is_named(agent: Make, clinic: Clinic) -> None:
    """It is well and nobody else's; what helps is another bound."""
    ann = agent("ann")
    ann.environ["INTERCOM_CONNECTIONS"] = "1"
    ann.run("init", "--name", "ann").ok()
    with socket.socket(socket.AF_UNIX) as taken:
        taken.connect(clinic.paths.socket)
        taken.sendall(b'{"type":"register","from_session":"bob"}\n')
        assert b"welcome" in taken.recv(1 << 16)
        found = clinic.found()
        assert "hub-foreign" not in found
        assert found["hub-full"].severity == "problem"
        assert f"pid {ann.hub_pid()}" in found["hub-full"].text
        assert " config connections " in found["hub-full"].remedy
        for _ in range(20):  # whenever it is that the hub says so and hangs up
            with pytest.raises(IntercomError) as refused:
                control.look(clinic.paths)
            assert refused.value.code == "TOO_MANY_SESSIONS"


def test_what_a_killed_hub_left_is_swept(ann: Agent, clinic: Clinic) -> None:
    """Socket and list; the next command starts another hub."""
    os.kill(ann.hub_pid(), signal.SIGKILL)
    ann.wait_until(lambda: "no-hub" in codes(clinic))
    assert {"stale-socket", "stale-peers"} <= clinic.found().keys()
    cured = clinic.cure()
    assert {"removed hub.sock", "removed peers.json"} <= set(cured.done)
    left = {one.code for one in cured.findings}
    assert not {"stale-socket", "stale-peers"} & left


def test_a_replaced_lock_file_is_named(
    ann: Agent, clinic: Clinic, stopped: Callable[[int], None]
) -> None:
    """A hub that runs leaves by itself; one that is stopped does not notice."""
    pid = ann.hub_pid()
    stopped(pid)
    lock = Path(clinic.paths.lock)
    moved = lock.with_name("hub.lock.moved")
    lock.rename(moved)
    try:
        found = codes(clinic)
        assert "was removed" in found["lock-replaced"].text
        lock.touch(mode=0o600)
        text = codes(clinic)["lock-replaced"].text
        assert f"pid {pid} keeps the channel's directory locked" in text
        assert "was replaced" in text
        assert text.endswith("it is stopped")
    finally:
        moved.rename(lock)  # by which it is found and ended


@contextmanager
def listener(path: str, answer: Callable[[bytes], bytes] | None = None) -> Iterator[None]:
    """A program that listens at a socket and does not lead; silent without ``answer``."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(16)
        threads: list[threading.Thread] = []

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                with peer:
                    line = peer.recv(1 << 16)
                    if answer is not None and line:
                        peer.sendall(answer(line))
                        peer.recv(1)

        if answer is not None:
            threads.append(threading.Thread(target=serve))
            threads[0].start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)
            for thread in threads:
                thread.join(60)
    os.unlink(path)


def pretend(line: bytes) -> bytes:
    """Answer as a hub does."""
    asked = json.loads(line)["id"]
    fields = {
        "id": "1",
        "type": "sessions",
        "from_session": "hub",
        "reply_to": asked,
        "payload": {"sessions": [], "hub": {"pid": 1, "version": "0.1.0"}},
    }
    return json.dumps(fields).encode() + b"\n"


@pytest.mark.parametrize("answer", [None, pretend])
def test_a_foreign_listener_is_named(
    clinic: Clinic, answer: Callable[[bytes], bytes] | None
) -> None:
    """Whether it answers or not: it leads nothing."""
    with listener(clinic.paths.socket, answer):
        found = clinic.found()
    assert found.keys() == {"hub-foreign"}
    assert found["hub-foreign"].severity == "problem"


def test_a_hub_whose_socket_does_not_come_is_named(clinic: Clinic) -> None:
    """It holds both locks, and nobody listens."""
    locks = take_locks(clinic.paths)
    assert locks is not None
    try:
        found = clinic.found()
    finally:
        locks.release()
    assert found.keys() == {"hub-unreachable"}
    assert "nobody listens at its socket" in found["hub-unreachable"].text


def test_a_socket_that_may_not_be_used_is_not_asked(ann: Agent, clinic: Clinic) -> None:
    """The lock tells that a hub leads; that is all, and no reason to worry."""
    environ = clinic.world.environ | {"INTERCOM_TRANSPORT": "spool"}
    found = codes(clinic, environ=environ)
    assert found["hub-unasked"].severity == "ok"
    assert f"pid {ann.hub_pid()}" in found["hub-unasked"].text


def test_a_failed_sync_is_a_problem_of_the_hub_that_runs(ann: Agent, clinic: Clinic) -> None:
    """It claims nothing any more, and is better replaced."""
    clinic.file("journal.failed").touch(mode=0o600)
    found = clinic.found()["sync-failed"]
    assert found.severity == "problem"
    assert found.remedy.endswith("hub restart")


@contextmanager
def sleeper(program: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that says when it has done something, and then only waits; it may be stopped."""
    program += "\nprint(flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", program, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.stdin.close()
            process.wait(60)


LOCK = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.flock(fd, fcntl.LOCK_EX)
"""


def test_a_lock_that_no_hub_holds_is_named(clinic: Clinic) -> None:
    """Nobody can lead as long as it is held."""
    with sleeper(LOCK, clinic.paths.lock) as process:
        found = clinic.found()["hub-unreachable"]
    assert found.severity == "problem"
    assert "holds the lock of the hub and is none" in found.text
    assert found.remedy.endswith((f"kill {process.pid}", "kill PID"))


def test_a_listener_in_a_leader_s_place_is_named(clinic: Clinic) -> None:
    """One process leads, another one answers."""
    with sleeper(LOCK, clinic.paths.lock) as process, listener(clinic.paths.socket, pretend):
        Path(clinic.paths.lock).write_text(json.dumps({"pid": process.pid}))
        found = clinic.found()["hub-foreign"]
    assert f"but pid {process.pid} leads" in found.text


def test_a_reader_counts_and_a_stopped_one_is_named(clinic: Clinic) -> None:
    """Mail for somebody who is there is nobody's worry, unless that one is stopped."""
    clinic.leave("1", age=3600)
    with sleeper("import sys") as process:
        who = turns.Holder(process.pid, "intercom listen", clinic.world.now)
        turn = turns.take(clinic.paths, "bob", who)
        assert turn is not None
        assert clinic.found() == {}
        process.send_signal(signal.SIGSTOP)
        found = clinic.found()["reader-stopped"]
        turn.close()
    assert found.severity == "warning"
    assert f"kill -CONT {process.pid}" in found.remedy
    assert "unread-without-reader" in clinic.found()


def test_whoever_starts_a_hub_is_seen(clinic: Clinic) -> None:
    """A note, or a problem if it is stopped, for nobody else can start one meanwhile."""
    with sleeper(LOCK, clinic.paths.spawn_lock) as process:
        assert clinic.found().keys() == {"spawn-busy"}
        process.send_signal(signal.SIGSTOP)
        known = holder(clinic.paths.spawn_lock)
        found = clinic.found()
    if known is None:
        pytest.skip("the kernel does not say here who holds a lock")
    assert f"kill -CONT {process.pid}" in found["spawn-stuck"].remedy


def test_the_holder_of_a_lock_is_found(clinic: Clinic) -> None:
    """Where the kernel lists locks; nobody is named where nobody has one."""
    with sleeper(LOCK, clinic.paths.lock) as process:
        assert holder(clinic.paths.lock) in (process.pid, None)
    assert holder(clinic.paths.lock) is None
    assert holder(str(clinic.file("absent"))) is None
