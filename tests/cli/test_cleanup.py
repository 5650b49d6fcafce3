"""``intercom cleanup``: what goes, what stays, and what is in the way."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.client import cleaning, control, erasing
from intercom.election.locks import is_led, leader, take_locks
from intercom.errors import InboxLocked, IntercomError
from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.wire import envelope

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
STAYS = {"hub.lock", "spawn.lock", "hub.log", "channel.json"}


@pytest.fixture
def ann(agent: Make) -> Agent:
    """An agent that starts no hub by accident."""
    made = agent("ann")
    made.environ["INTERCOM_NO_SPAWN"] = "1"
    return made


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """A channel without a hub."""
    made = ChannelPaths(str(channel_dir), "default")
    made.prepare()
    return made


def leave(paths: ChannelPaths, session: str, *texts: str, calls: FileCalls | None = None) -> None:
    """Append messages to an inbox, as a command without a hub does."""
    for text in texts:
        message_id = f"msg_{text}"
        line = envelope.make(
            type="chat",
            message_id=message_id,
            from_session="ann",
            to_session=session,
            channel=paths.name,
            payload={"text": text},
            timestamp="2026-01-01T00:00:00.000000+00:00",
        )
        with Inbox(paths, session, calls=calls) as inbox:
            inbox.append(line, sender="ann", message_id=message_id)


def texts(paths: ChannelPaths, session: str) -> list[str]:
    """What lies unread in an inbox."""
    with Inbox(paths, session) as inbox:
        return [json.loads(record.line)["payload"]["text"] for record in inbox.read().records]


def files(paths: ChannelPaths) -> set[str]:
    """What is in the channel's directory."""
    return set(os.listdir(paths.directory))


@contextmanager
def listening(agent: Agent, **environ: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that listens."""
    agent.environ |= environ
    process = agent.start("listen")
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_connected(agent: Agent) -> bool:
    """Whether the hub has published that the agent is there."""
    return agent.session in control.published(agent.paths).get("active_sessions", ())


# -- all of it --------------------------------------------------------------------------------


def test_sessions_go_and_locks_settings_and_log_stay(ann: Agent) -> None:
    """An idle hub is ended first, and everything that is removed is named."""
    pid = ann.run("hub", "start", "--durability", "process").ok()["pid"]
    ann.run("init", "--name", "ann").ok()
    ann.run("send", "--to", "ann", "--text", "x").ok()
    ann.run("poll").ok()
    before = files(ann.paths)
    assert {"inbox_ann.ndjson", "offset_ann.json", "token_ann"} <= before
    inode = os.stat(ann.paths.lock).st_ino
    done = ann.run("cleanup").ok()
    assert (done["status"], done["stopped"], done["unread"]) == ("cleaned", pid, 0)
    assert files(ann.paths) == STAYS
    assert set(done["removed"]) >= {"inbox_ann.ndjson", "offset_ann.json", "token_ann", "hub.out"}
    assert done["removed"] == sorted(done["removed"])
    assert not is_led(ann.paths)
    assert os.stat(ann.paths.lock).st_ino == inode
    assert ann.run("hub", "start").ok()["status"] == "started"
    assert ann.run("hub", "status").ok()["durability"] == "process"
    assert ann.run("peers").ok()["absent"] == []


def test_as_text_it_says_what_was_removed(ann: Agent) -> None:
    """And if that is nothing, it says so."""
    ann.run("poll").ok()
    done = ann.run("cleanup", "--format", "text")
    assert "removed inbox_ann.ndjson\n" in done.out.decode()
    assert ann.run("cleanup", "--format", "text").out == b"nothing to remove\n"


def test_unread_messages_are_in_the_way(ann: Agent) -> None:
    """How many, whose, and how to see them; nothing is removed."""
    ann.run("poll").ok()
    leave(ann.paths, "bob", "one", "two")
    leave(ann.paths, "cem", "three")
    before = files(ann.paths)
    ended = ann.run("cleanup")
    assert (ended.status, ended.result["code"]) == (75, "IN_USE")
    assert ended.result["unread"] == {"bob": 2, "cem": 1}
    assert "3 messages" in ended.err
    see = f"intercom --dir {ann.base} --channel default poll --peek --session bob"
    assert see in ended.err
    assert files(ann.paths) - {"spawn.lock"} == before - {"spawn.lock"}
    assert ann.run(*see.split()[1:]).ok()["count"] == 2
    done = ann.run("cleanup", "--force").ok()
    assert done["unread"] == 3
    assert files(ann.paths) <= STAYS


def test_connected_sessions_are_in_the_way(agent: Make) -> None:
    """They are named; forced, they lose what they had, and go on with the next hub."""
    ann, bob = agent("ann"), agent("bob")
    with listening(bob) as ear:
        bob.wait_until(lambda: is_connected(bob))
        first = bob.hub_pid()
        ended = ann.run("cleanup")
        assert (ended.status, ended.result["code"]) == (75, "IN_USE")
        assert ended.result["sessions"] == ["bob"]
        assert bob.hub_pid() == first
        done = ann.run("cleanup", "--force").ok()
        assert done["stopped"] == first
        assert "inbox_bob.ndjson" in done["removed"]
        assert "token_bob" not in done["removed"]
        bob.wait_until(lambda: is_connected(bob) and bob.hub_pid() != first)
        ann.run("send", "--to", "bob", "--text", "after").ok()
        assert ear.stdout
        assert json.loads(ear.stdout.readline())["payload"]["text"] == "after"
        assert bob.run("send", "--to", "ann", "--text", "beside").ok()["status"] == "sent"


def test_a_command_that_follows_the_files_is_in_the_way_too(ann: Agent, agent: Make) -> None:
    """It is not connected, and uses the name nevertheless."""
    bob = agent("bob")
    with listening(bob, INTERCOM_TRANSPORT="spool"):
        bob.wait_until(lambda: erasing.Traces(bob.paths, "bob").is_used())
        ended = ann.run("cleanup")
    assert (ended.status, ended.result["sessions"]) == (75, ["bob"])
    ann.wait_until(lambda: not erasing.Traces(bob.paths, "bob").is_used())
    ann.run("cleanup").ok()


def test_a_hub_that_does_not_answer_is_in_the_way(
    ann: Agent, stopped: Callable[[int], None]
) -> None:
    """Forced or not: its files are its own as long as it has the lock."""
    pid = ann.run("hub", "start").ok()["pid"]
    ann.run("poll").ok()
    stopped(pid)
    before = files(ann.paths)
    for words in ([], ["--force"]):
        ended = ann.run("cleanup", *words)
        assert (ended.status, ended.result["cause"]) == (69, "silent")
        assert f"kill -CONT {pid}" in ended.err
    assert files(ann.paths) == before


def test_whoever_holds_the_lock_without_listening_is_in_the_way(paths: ChannelPaths) -> None:
    """Even by force nothing is removed, and no process is ended."""
    leave(paths, "bob", "one")
    locks = take_locks(paths)
    assert locks is not None
    try:
        with pytest.raises(IntercomError) as caught:
            cleaning.clear(paths, force=True)
    finally:
        locks.release()
    assert caught.value.code == "HUB_STUCK"
    assert texts(paths, "bob") == ["one"]


def test_no_hub_can_start_while_files_are_removed(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of its locks are held, and the right to start one."""
    leave(paths, "bob", "one")
    looked = []
    unlink = erasing.unlink

    def look(*args: Any) -> None:
        looked.append((is_led(paths), take_locks(paths), _is_locked(paths.spawn_lock)))
        unlink(*args)

    monkeypatch.setattr(erasing, "unlink", look)
    cleaning.clear(paths, force=True)
    assert looked
    assert set(looked) == {(True, None, True)}
    assert not is_led(paths)
    assert not _is_locked(paths.spawn_lock)


def _is_locked(path: str) -> bool:
    with open(path, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


class LateLocker(FileCalls):
    """Opens a file, and gets its lock when the file is gone."""

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.gone = threading.Event()

    def lock(self, fd: int, exclusive: bool) -> bool:
        """Lock, but the first time not before its time has come."""
        self.opened.set()
        assert self.gone.wait(60)
        return super().lock(fd, exclusive)


def test_who_is_about_to_append_writes_into_the_next_inbox(paths: ChannelPaths) -> None:
    """The lock that it gets is of a file without a name; it looks, and opens the new one."""
    leave(paths, "bob", "old")
    late = LateLocker()
    appender = threading.Thread(target=leave, args=(paths, "bob", "new"), kwargs={"calls": late})
    appender.start()
    assert late.opened.wait(60)
    assert cleaning.clear(paths, force=True).unread == 1
    assert not os.path.exists(paths.inbox("bob"))
    late.gone.set()
    appender.join()
    assert texts(paths, "bob") == ["new"]


def test_a_message_that_comes_at_the_last_moment_is_kept(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted again under the lock; what was removed before that is told."""
    for session in ("ann", "bob"):
        with Inbox(paths, session) as inbox:
            inbox.enrol()
    stop = control.stop

    def stop_late(paths: ChannelPaths) -> int | None:
        leave(paths, "bob", "late")
        return stop(paths)

    monkeypatch.setattr(control, "stop", stop_late)
    with pytest.raises(IntercomError) as caught:
        cleaning.clear(paths, force=False)
    assert caught.value.code == "IN_USE"
    assert caught.value.details["unread"] == {"bob": 1}
    assert caught.value.details["removed"] == ["inbox_ann.ndjson", "meta_ann.json"]
    assert texts(paths, "bob") == ["late"]


def test_an_inbox_that_others_keep_locked_is_left_alone(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Status 75 after two seconds, and how to find out who does."""
    monkeypatch.setattr(erasing, "PATIENCE", 0.1)
    leave(paths, "bob", "one")
    with open(paths.inbox("bob"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(InboxLocked) as caught:
            cleaning.clear(paths, force=True)
    assert f"fuser -v {paths.inbox('bob')}" in caught.value.remedy
    assert caught.value.exit_code == 75
    assert texts(paths, "bob") == ["one"]


def test_names_that_files_only_hash_are_removed_too(paths: ChannelPaths) -> None:
    """Somebody wrote to a very long name that nobody ever used."""
    long = "日" * 100
    leave(paths, long, "one")
    with pytest.raises(IntercomError) as caught:
        cleaning.clear(paths, force=False)
    assert sum(caught.value.details["unread"].values()) == 1
    assert cleaning.clear(paths, force=True).unread == 1
    assert not [name for name in files(paths) if name.startswith("inbox")]


def test_commands_and_cleanups_at_once_end_with_one_hub(agent: Make) -> None:
    """Whatever comes in between, each command is told the truth, and no second hub appears."""
    agents = [agent(f"a{number}") for number in range(6)]
    started = [one.start("send", "--to", "sink", "--text", "x") for one in agents]
    cleaners = [one.start("cleanup", "--force") for one in agents[:2]]
    ended = [(one.communicate(timeout=60), one.returncode) for one in started + cleaners]
    results = [json.loads(out) for (out, _err), _status in ended]
    assert [status for _, status in ended] == [0] * 8
    assert {one["status"] for one in results} <= {"sent", "spooled_offline", "cleaned"}
    # One that has given its lock back may take a moment to be gone, and so one that found it held.
    agents[0].wait_until(lambda: _hubs(agents[0]) == _leaders(agents[0]))


def _leaders(agent: Agent) -> list[str]:
    return [str(leader(agent.paths).get("pid"))] if is_led(agent.paths) else []


def _hubs(agent: Agent) -> list[str]:
    """Every hub process that serves the agent's directory."""
    return [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _command(entry) >= {b"daemon", os.fsencode(agent.base)}
    ]


def _command(entry: Path) -> set[bytes]:
    try:
        return set((entry / "cmdline").read_bytes().split(b"\0"))
    except OSError:
        return set()


# -- the litter of the dead -------------------------------------------------------------------


def make_old(path: str) -> None:
    """Let a file have been written two hours ago."""
    Path(path).touch()
    os.utime(path, (time.time() - 7200,) * 2)


def test_what_a_killed_hub_left_is_litter(ann: Agent) -> None:
    """Its socket, its list, its last words, old temporary files; sessions keep theirs."""
    pid = ann.run("hub", "start").ok()["pid"]
    ann.run("send", "--to", "bob", "--text", "x").ok()
    os.kill(pid, signal.SIGKILL)
    ann.wait_until(lambda: not is_led(ann.paths))
    make_old(ann.paths.file(".tmp-old"))
    Path(ann.paths.file(".tmp-new")).touch()
    with socket.socket(socket.AF_UNIX) as half_bound:
        half_bound.bind(ann.paths.file(".hub1234"))
    before = files(ann.paths)
    done = ann.run("cleanup", "--stale").ok()
    litter = {"hub.sock", "peers.json", "hub.out", ".tmp-old", ".hub1234"}
    assert (done["status"], done["stopped"]) == ("stale_cleaned", None)
    assert set(done["removed"]) == litter
    assert before - files(ann.paths) == litter
    assert ann.run("poll", "--session", "bob").ok()["count"] == 1


def test_what_a_living_hub_has_is_none(ann: Agent) -> None:
    """Only temporary files that nobody can still be writing go."""
    pid = ann.run("hub", "start").ok()["pid"]
    make_old(ann.paths.file(".tmp-old"))
    assert ann.run("cleanup", "--stale").ok()["removed"] == [".tmp-old"]
    assert ann.run("hub", "status").ok()["pid"] == pid


def test_what_has_a_socket_s_name_and_is_none_stays(paths: ChannelPaths) -> None:
    """A hub would not replace it either."""
    Path(paths.socket).write_text("mine")
    assert cleaning.sweep(paths).removed == []
    assert Path(paths.socket).read_text() == "mine"


def test_a_socket_that_had_to_move_is_removed_where_it_is(channel_dir: Path) -> None:
    """With the file that points to it."""
    paths = ChannelPaths(str(channel_dir / ("d" * 90)), "default")
    paths.prepare()
    assert paths.socket != paths.file("hub.sock")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(paths.socket)
    Path(paths.socket_pointer).write_text(paths.socket)
    assert cleaning.sweep(paths).removed == sorted([paths.socket, "hub.sock.at"])
    assert not os.path.lexists(paths.socket)


def test_a_probe_of_the_lock_does_not_save_litter(paths: ChannelPaths) -> None:
    """Somebody who only looks whether there is a hub holds its lock for a moment."""
    Path(paths.peers).write_text("{}")
    Path(paths.lock).touch(0o600)
    with open(paths.lock, "rb") as probe:
        fcntl.flock(probe, fcntl.LOCK_SH)
        release = threading.Timer(0.1, fcntl.flock, (probe.fileno(), fcntl.LOCK_UN))
        release.start()
        assert cleaning.sweep(paths).removed == ["peers.json"]
        release.join()


def test_stale_and_force_contradict_each_other(ann: Agent) -> None:
    """Usage."""
    assert ann.run("cleanup", "--stale", "--force").status == 2
