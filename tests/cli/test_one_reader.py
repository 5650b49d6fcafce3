"""One reads at a time: turns, take-overs, and readers that are stopped, killed or orphaned."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from intercom.spool import turns

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
#: Both ways to hear: through a hub, and from the file alone.
WAYS = pytest.mark.parametrize("way", ["auto", "spool"])


def reads(agent: Agent) -> int | None:
    """The process that has the agent's turn."""
    found = turns.turn_of(agent.paths, agent.session)
    return None if found is None else found.pid


def connected(agent: Agent) -> bool:
    """Whether a hub says that the agent is connected."""
    try:
        return agent.session in json.loads(Path(agent.paths.peers).read_bytes())["active_sessions"]
    except (OSError, ValueError):
        return False


@contextmanager
def listening(agent: Agent, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """An agent that listens and has its turn; with a hub it is connected, too."""
    process = agent.start("listen", *words)
    try:
        agent.wait_until(lambda: reads(agent) == process.pid, 60)
        if agent.environ.get("INTERCOM_TRANSPORT") != "spool":
            agent.wait_until(lambda: connected(agent), 60)
        yield process
    finally:
        process.kill()
        process.communicate()


def next_text(stream: IO[bytes] | None) -> str:
    """What the next message of a listener says."""
    assert stream is not None
    assert select.select((stream,), (), (), 60.0)[0], "the line did not come"
    return str(json.loads(stream.readline())["payload"]["text"])


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, str]:
    """How a process ended, and what it had said."""
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err.decode()


def send(agent: Agent, to: Agent, *texts: str) -> None:
    for text in texts:
        agent.run("send", "--to", to.session, "--text", text).ok()


# -- polls ------------------------------------------------------------------------------------


def test_two_polls_at_once_show_each_of_many_messages_once(agent: Make) -> None:
    bob = agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = "spool"
    bob.run("poll").ok()
    with open(bob.paths.inbox("bob"), "ab") as file:
        for number in range(500):
            message = {"id": f"m{number}", "type": "chat", "from_session": "ann", "payload": {}}
            file.write(json.dumps(message).encode() + b"\n")
    seen: Counter[str] = Counter()
    busy = rounds = 0
    while seen.total() < 500:
        rounds += 1
        assert rounds < 60, "the polls come to no end"
        polls = [bob.start("poll", "--limit", "60") for _ in range(2)]
        for poll in polls:
            status, out, err = ended(poll)
            assert (status, err) == (0, "")
            result = json.loads(out)
            if "reading" in result:
                assert result["count"] == 0
                assert result["reading"]["program"] == "intercom poll"
                busy += 1
            seen.update(one["id"] for one in result["messages"])
    assert set(seen.values()) == {1}
    assert len(seen) == 500
    assert bob.run("poll").ok()["count"] == 0


def test_a_poll_beside_a_poll_that_shows_finds_the_turn_busy(agent: Make) -> None:
    """Its output is not taken, so it has shown nothing yet and still has the turn."""
    ann, bob = agent("ann"), agent("bob")
    send(ann, bob, *(["x" * 60_000] * 3))
    slow = bob.start("poll")
    bob.wait_until(lambda: reads(bob) == slow.pid, 60)
    bob.wait_until(lambda: select.select((slow.stdout,), (), (), 0)[0], 60)
    found = bob.run("poll").ok()
    assert (found["count"], found["messages"], found["unread"]) == (0, [], 3)
    assert found["reading"]["pid"] == slow.pid
    assert found["reading"]["program"] == "intercom poll"
    assert found["reading"]["since"].startswith("20")
    text = bob.run("poll", "--format", "text")
    assert text.status == 0
    assert f"process {slow.pid} (intercom poll) reads" in text.out.decode()
    status, out, _ = ended(slow)
    assert (status, json.loads(out)["count"]) == (0, 3)
    assert bob.run("poll").ok()["count"] == 0


def test_of_two_polls_that_wait_one_shows_the_message(agent: Make) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.run("poll").ok()
    polls = [bob.start("poll", "--wait", "60") for _ in range(2)]
    bob.wait_until(lambda: turns.reader_of(bob.paths, "bob") is not None, 60)
    send(ann, bob, "one")
    bob.wait_until(lambda: any(poll.poll() is not None for poll in polls), 60)
    first, second = sorted(polls, key=lambda poll: poll.poll() is None)
    assert json.loads(ended(first)[1])["count"] == 1
    send(ann, bob, "two")
    found = json.loads(ended(second)[1])
    assert [one["payload"]["text"] for one in found["messages"]] == ["two"]


def test_a_poll_that_waits_leaves_the_turn_to_others(agent: Make) -> None:
    bob = agent("bob")
    bob.run("poll").ok()
    waiting = bob.start("poll", "--wait", "60")
    bob.wait_until(lambda: turns.reader_of(bob.paths, "bob") is not None, 60)
    found = turns.reader_of(bob.paths, "bob")
    assert found is not None
    assert found.pid == waiting.pid
    assert "reading" not in bob.run("poll").ok()
    waiting.kill()
    waiting.communicate()
    assert turns.reader_of(bob.paths, "bob") is None


@WAYS
def test_a_poll_beside_a_listener_says_who_reads(agent: Make, way: str) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with listening(bob) as ear:
        begun = time.monotonic()
        for words in (["poll"], ["poll", "--wait", "50"]):
            found = bob.run(*words).ok()
            assert (found["count"], found["reading"]["pid"]) == (0, ear.pid)
            assert found["reading"]["program"] == "intercom listen"
        assert time.monotonic() - begun < 40  # it does not wait for what another will show
        send(ann, bob, "hello")
        assert next_text(ear.stdout) == "hello"
        bob.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0, 60)
    assert bob.run("poll").ok()["messages"] == []


def test_peek_takes_no_turn_and_says_who_reads(agent: Make) -> None:
    ann, bob = agent("ann"), agent("bob")
    send(ann, bob, "one")
    found = bob.run("poll", "--peek").ok()
    assert (found["count"], "reading" in found) == (1, False)
    turn = turns.take(bob.paths, "bob", turns.Holder(os.getpid(), "a test", time.time()))
    assert turn is not None
    found = bob.run("poll", "--peek").ok()
    assert (found["count"], found["reading"]["pid"]) == (1, os.getpid())
    text = bob.run("poll", "--peek", "--format", "text").out.decode()
    assert f"process {os.getpid()} (a test) reads" in text
    turn.close()
    assert bob.texts() == ["one"]


# -- listeners --------------------------------------------------------------------------------


@WAYS
def test_a_second_listener_is_refused_with_a_reason(agent: Make, way: str) -> None:
    bob = agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with listening(bob) as ear:
        refused = bob.run("listen", "--once", "--timeout", "30")
        assert (refused.status, refused.result["code"]) == (77, "SESSION_COLLISION")
        assert f"process {ear.pid} (intercom listen)" in refused.result["message"]
        assert "--takeover" in refused.result["remedy"]
        assert refused.result["reading"]["pid"] == ear.pid
        assert ear.poll() is None


@WAYS
def test_a_killed_listener_leaves_its_turn_at_once(agent: Make, way: str) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with listening(bob) as ear:
        ear.send_signal(signal.SIGKILL)
        ear.wait(60)
        send(ann, bob, "one")
        found = bob.run("poll").ok()
        assert [one["payload"]["text"] for one in found["messages"]] == ["one"]


@WAYS
def test_a_stopped_listener_is_taken_over_and_ends_when_it_wakes(
    agent: Make, way: str, stopped: Callable[[int], None]
) -> None:
    """What came while it was stopped is shown by its successor, and by nobody else."""
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with listening(bob) as old:
        send(ann, bob, "before")
        assert next_text(old.stdout) == "before"
        bob.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0, 60)
        stopped(old.pid)
        try:
            send(ann, bob, "one", "two")
            assert bob.run("listen", "--timeout", "1").status == 77
            with listening(bob, "--takeover") as new:
                assert [next_text(new.stdout), next_text(new.stdout)] == ["one", "two"]
                old.send_signal(signal.SIGCONT)
                status, out, err = ended(old)
                assert status == 77
                assert [line for line in out.splitlines() if b'"chat"' in line] == []
                assert json.loads(out)["code"] == "TAKEN_OVER"
                assert "taken over" in err
                send(ann, bob, "three")
                assert next_text(new.stdout) == "three"
                assert new.poll() is None
                bob.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0, 60)
        finally:
            old.send_signal(signal.SIGCONT)
    assert bob.run("poll").ok()["count"] == 0


def test_a_listener_that_was_taken_over_ends_even_if_its_successor_has_ended(
    agent: Make, stopped: Callable[[int], None]
) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = "spool"
    with listening(bob) as old:
        stopped(old.pid)
        send(ann, bob, "one")
        taken = bob.run("listen", "--takeover", "--once", "--timeout", "60")
        assert (taken.status, json.loads(taken.out)["payload"]["text"]) == (0, "one")
        send(ann, bob, "two")
        old.send_signal(signal.SIGCONT)
        status, out, _ = ended(old)
        assert (status, json.loads(out)["code"]) == (77, "TAKEN_OVER")
    assert bob.texts() == ["two"]


@WAYS
def test_a_healthy_listener_is_taken_over_too(agent: Make, way: str) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with listening(bob) as old, listening(bob, "--takeover") as new:
        status, out, _ = ended(old)
        assert (status, json.loads(out)["code"]) == (77, "TAKEN_OVER")
        send(ann, bob, "hello")
        assert next_text(new.stdout) == "hello"


def test_a_stopped_poll_is_taken_over_and_commits_nothing(agent: Make) -> None:
    """It was stopped between reading and committing, and says that it shows the rest in vain."""
    ann, bob = agent("ann"), agent("bob")
    send(ann, bob, *(["x" * 60_000] * 3))
    slow = bob.start("poll")
    bob.wait_until(lambda: select.select((slow.stdout,), (), (), 0)[0], 60)
    slow.send_signal(signal.SIGSTOP)
    taken = bob.run("listen", "--takeover", "--once", "--timeout", "60")
    assert taken.status == 0
    assert len(taken.out.splitlines()) == 3
    slow.send_signal(signal.SIGCONT)
    status, _, err = ended(slow)
    assert status == 77
    assert "will be shown again" in err or "taken over" in err
    assert bob.run("poll").ok()["count"] == 0


def test_there_may_be_nobody_to_take_over(agent: Make) -> None:
    ann, bob = agent("ann"), agent("bob")
    send(ann, bob, "one")
    taken = bob.run("listen", "--takeover", "--once", "--timeout", "60")
    assert (taken.status, json.loads(taken.out)["payload"]["text"]) == (0, "one")


# -- parents ----------------------------------------------------------------------------------

#: Starts a listener whose output goes to a file, says its pid, and stays.
STARTER = """
import os, subprocess, sys, time
with open(sys.argv[1], "wb") as out, open(sys.argv[2], "wb") as err:
    child = subprocess.Popen(sys.argv[3:], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
print(child.pid, flush=True)
time.sleep(600)
"""


@contextmanager
def started(agent: Agent, place: Path, *words: str) -> Iterator[tuple[Any, int]]:
    """A listener with a parent of its own."""
    files = [str(place / "out"), str(place / "err")]
    parent = subprocess.Popen(
        [sys.executable, "-c", STARTER, *files, *agent.command("listen", *words)],
        stdout=subprocess.PIPE,
        cwd=agent.project,
        env=agent.environ,
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    try:
        agent.wait_until(lambda: reads(agent) == pid, 60)
        yield parent, pid
    finally:
        parent.kill()
        parent.communicate()
        if reads(agent) == pid:
            os.kill(pid, signal.SIGKILL)
            agent.wait_until(lambda: reads(agent) != pid, 60)


@WAYS
def test_a_listener_without_its_parent_ends_and_leaves_its_mail(
    agent: Make, tmp_path: Path, way: str
) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with started(bob, tmp_path) as (parent, _pid):
        parent.kill()
        parent.wait(60)
        bob.wait_until(lambda: reads(bob) is None, 60)
        send(ann, bob, "one")
        assert (tmp_path / "out").read_bytes() == b""
        said = tmp_path / "err"
        bob.wait_until(lambda: "that started it has ended" in said.read_text())
        assert bob.texts() == ["one"]


@WAYS
def test_mail_that_waits_when_the_parent_dies_is_not_shown(
    agent: Make, tmp_path: Path, way: str, stopped: Callable[[int], None]
) -> None:
    """Stopped meanwhile, so that it meets both at once when it wakes."""
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = way
    with started(bob, tmp_path) as (parent, pid):
        if way != "spool":
            bob.wait_until(lambda: connected(bob), 60)
        stopped(pid)
        parent.kill()
        parent.wait(60)
        send(ann, bob, "one")
        os.kill(pid, signal.SIGCONT)
        bob.wait_until(lambda: reads(bob) is None, 60)
        assert (tmp_path / "out").read_bytes() == b""
        assert bob.texts() == ["one"]


def test_a_listener_may_be_told_to_stay(agent: Make, tmp_path: Path) -> None:
    ann, bob = agent("ann"), agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = "spool"
    with started(bob, tmp_path, "--keep") as (parent, pid):
        parent.kill()
        parent.wait(60)
        send(ann, bob, "one")
        bob.wait_until(lambda: b'"one"' in (tmp_path / "out").read_bytes(), 60)
        assert reads(bob) == pid


# -- receivers that cannot lock ---------------------------------------------------------------


def test_the_hub_reads_for_a_client_that_has_no_locks(agent: Make) -> None:
    """While it is connected a poll says so; when it has gone, all is unread as before."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("hub", "start").ok()
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(bob.paths.socket)
        client.sendall(b'{"type":"register","from_session":"bob"}\n')
        bob.wait_until(lambda: reads(bob) is not None, 60)
        send(ann, bob, "one")
        found = bob.run("poll").ok()
        assert (found["count"], found["unread"]) == (0, 1)
        assert (found["reading"]["pid"], found["reading"]["program"]) == (
            os.getpid(),
            "connected to the hub",
        )
        refused = bob.run("listen", "--timeout", "1")
        assert (refused.status, refused.result["code"]) == (77, "SESSION_COLLISION")
    bob.wait_until(lambda: reads(bob) is None, 60)
    assert bob.texts() == ["one"]


def test_the_hub_is_not_in_the_way_of_a_listener(agent: Make) -> None:
    bob = agent("bob")
    with listening(bob) as ear:
        deadline = time.monotonic() + 5  # the hub looks every second or two
        while time.monotonic() < deadline:
            assert reads(bob) == ear.pid
            time.sleep(0.1)
    with listening(bob) as again:
        assert reads(bob) == again.pid


# -- who reads, for everybody -----------------------------------------------------------------


def test_peers_tells_reading_from_no_reader(agent: Make) -> None:
    ann, bob, cem = agent("ann"), agent("bob"), agent("cem")
    cem.run("poll").ok()
    last = time.time() - 31 * 60 - 5
    os.utime(cem.paths.offset("cem"), (last, last))
    with listening(bob) as ear:
        send(ann, cem, "one", "two")
        found = ann.run("peers").ok()
        (row,) = found["sessions"]
        assert (row["reader"]["state"], row["reader"]["pid"]) == ("reading", ear.pid)
        assert (row["unread"], row["oldest_unread_age"]) == (0, None)
        away = {one["session"]: one for one in found["away"]}
        assert away["cem"]["reader"]["state"] == "none"
        assert away["cem"]["unread"] == 2
        assert 0 <= away["cem"]["oldest_unread_age"] < 600
        assert set(away) == set(found["absent"])
        text = ann.run("peers", "--format", "text").out.decode()
        assert f"  bob, pid {ear.pid}: reading\n" in text
        assert "  cem: no reader for 31 min, 2 unread, the oldest " in text
