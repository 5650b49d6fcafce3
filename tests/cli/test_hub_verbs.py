"""``intercom hub``: real hubs, started, looked at, replaced and ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.client import control
from intercom.election.locks import is_led, take_locks
from intercom.errors import IntercomError

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
ORIGINAL = Path(__file__).resolve().parents[1] / "seed" / "original_hub.py"


@pytest.fixture
def ann(agent: Make) -> Agent:
    """An agent that starts no hub by accident."""
    made = agent("ann")
    made.environ["INTERCOM_NO_SPAWN"] = "1"
    return made


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that end with the test."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


# -- start ------------------------------------------------------------------------------------


def test_a_started_hub_serves_when_the_command_returns(ann: Agent) -> None:
    """Its pid is told; it stays; one that runs already is no failure."""
    started = ann.run("hub", "start").ok()
    assert (started["status"], started["pid"]) == ("started", ann.hub_pid())
    assert ann.run("send", "--to", "ann", "--text", "x").ok()["status"] == "sent"
    again = ann.run("hub", "start").ok()
    assert (again["status"], again["pid"]) == ("running", started["pid"])
    assert ann.run("hub", "status").ok()["idle_exit"] is None


def test_a_hub_is_started_with_the_daemons_options_and_keeps_them(ann: Agent) -> None:
    """Through a restart, too."""
    ann.run("hub", "start", "--durability", "process", "--idle-exit", "77").ok()
    for _ in range(2):
        said = ann.run("hub", "status").ok()
        assert (said["durability"], said["level"], said["idle_exit"]) == ("process", "process", 77)
        ann.run("hub", "restart").ok()
    ended = ann.run("hub", "start", "--durability", "wish")
    assert ended.status == 2
    assert "'memory', 'process', 'disk'" in ended.err


def test_options_for_a_hub_that_runs_already_are_not_dropped_in_silence(ann: Agent) -> None:
    """It is said how to have them; a bad one is refused as if none ran."""
    bad = ("hub", "start", "--idle-exit", "banana")
    assert (ann.run(*bad).status, os.path.exists(ann.paths.lock)) == (2, False)
    pid = ann.run("hub", "start").ok()["pid"]
    assert ann.run(*bad).status == 2
    assert ann.run("hub", "start", "--listen", "tcp:65536").status == 2
    assert ann.run("hub", "start", "--listen", "nonsense:1").status == 2
    plain = ann.run("hub", "start")
    assert ("options" in plain.ok(), plain.err) == (False, "")
    how = "config durability memory; intercom config idle_exit 5; intercom hub restart"
    ended = ann.run("hub", "start", "--durability", "memory", "--idle-exit", "5")
    assert (ended.ok()["pid"], ended.result["options"]) == (pid, "ignored")
    assert f"not applied; to have them: intercom {how}\n" in ended.err
    ended = ann.run("daemon", "--durability", "memory")
    assert ended.status == 0
    where = f"intercom --dir {ann.base} --channel default"
    assert f"not applied; to have them: {where} config durability memory; " in ended.err
    assert ann.run("hub", "status").ok()["durability"] == "disk"


def test_a_place_that_is_taken_is_said_in_a_line(ann: Agent) -> None:
    """By whatever starts the hub: status 73, the place, and no traceback."""
    del ann.environ["INTERCOM_NO_SPAWN"]
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"tcp:{other.getsockname()[1]}:interface=127.0.0.1"
        for place in (taken, f"tcp:0:interface=127.0.0.1:backlog={1 << 40}"):
            ann.run("config", "listen", place).ok()
            for words in (["daemon"], ["hub", "start"], ["peers"]):
                ended = ann.run(*words)
                assert ended.status == 73, (words, ended.err)
                assert f"cannot listen at {place}: " in ended.err
                assert "Traceback" not in ended.err


def test_a_hub_that_cannot_start_says_why(ann: Agent) -> None:
    """With its own last words, and the status of a command that needed it."""
    ann.run("poll").ok()
    os.mkdir(ann.paths.socket)
    ended = ann.run("hub", "start")
    assert ended.status == 73
    assert "last words" in ended.err
    assert "mv " in ended.err


# -- status -----------------------------------------------------------------------------------


def test_the_status_of_no_hub_is_69_and_starts_none(agent: Make) -> None:
    """Nothing is made, not even a directory; what to do is said."""
    one = agent("one")
    ended = one.run("hub", "status")
    assert (ended.status, ended.result["cause"]) == (69, "absent")
    assert f"intercom --dir {one.base} --channel default hub start" in ended.result["remedy"]
    assert not os.listdir(one.base)


def test_the_status_tells_how_a_hub_runs(ann: Agent) -> None:
    """Looking makes nobody present, and claims no name."""
    before = time.time()
    pid = ann.run("hub", "start", "--idle-exit", "99").ok()["pid"]
    said = ann.run("hub", "status").ok()
    assert (said["status"], said["pid"], said["sessions"]) == ("running", pid, [])
    assert before - 1 < said["started"] < time.time() + 1
    assert 0 <= said["idle"] < time.time() - before
    assert (said["idle_exit"], said["socket"]) == (99, ann.paths.socket)
    assert said["level"] in ("disk", "process")
    assert os.path.exists(said["log"])
    assert not [name for name in os.listdir(ann.paths.directory) if "unknown" in name]
    text = ann.run("hub", "status", "--format", "text").out.decode()
    assert text.startswith(f"hub of channel default: running, pid {pid}\n")
    assert "leaves after 99 s" in text
    assert ann.paths.socket in text


def test_the_status_names_the_connected(
    agent: Make, processes: list[subprocess.Popen[bytes]]
) -> None:
    """As long as they are; then it is idle."""
    bob = agent("bob")
    processes.append(bob.start("listen"))
    bob.wait_until(lambda: "bob" in control.published(bob.paths).get("active_sessions", ()))
    said = bob.run("hub", "status").ok()
    assert (said["sessions"], said["idle"]) == (["bob"], None)
    text = bob.run("hub", "status", "--format", "text").out.decode()
    assert "sessions   bob" in text
    assert "idle" not in text


def test_a_stopped_hub_is_told_in_time(ann: Agent, stopped: Callable[[int], None]) -> None:
    """It accepts and does not answer: its pid, and how to resume it."""
    pid = ann.run("hub", "start").ok()["pid"]
    stopped(pid)
    begun = time.monotonic()
    with pytest.raises(IntercomError) as caught:
        control.look(ann.paths)
    assert time.monotonic() - begun < 10.0
    assert caught.value.details == {"cause": "silent", "pid": pid}
    ended = ann.run("hub", "status")
    assert (ended.status, ended.result["cause"]) == (69, "silent")
    assert f"kill -CONT {pid}" in ended.err


def test_what_is_no_hub_but_holds_the_lock_is_told(ann: Agent) -> None:
    """As by a command that removes files; it is not called "no hub runs"."""
    ann.run("poll").ok()
    locks = take_locks(ann.paths)
    assert locks is not None
    try:
        ended = ann.run("hub", "status")
    finally:
        locks.release()
    assert (ended.status, ended.result["code"]) == (75, "HUB_STUCK")
    assert f"fuser -v {ann.paths.lock}" in ended.err


# -- stop -------------------------------------------------------------------------------------


def test_a_hub_that_was_told_to_stop_has_left_when_the_command_returns(ann: Agent) -> None:
    """The lock is free, the process gone; to stop nothing is no failure."""
    pid = ann.run("hub", "start").ok()["pid"]
    ended = ann.run("hub", "stop").ok()
    assert (ended["status"], ended["pid"], ended["sessions"]) == ("stopped", pid, [])
    assert not is_led(ann.paths)
    ann.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert ann.run("hub", "stop").ok()["status"] == "not_running"


def test_stopping_says_who_will_start_another(
    agent: Make, processes: list[subprocess.Popen[bytes]]
) -> None:
    """A listener that loses its hub gets itself one."""
    bob = agent("bob")
    processes.append(bob.start("listen"))
    bob.wait_until(lambda: "bob" in control.published(bob.paths).get("active_sessions", ()))
    first = bob.hub_pid()
    ended = bob.run("hub", "stop")
    assert (ended.ok()["pid"], ended.ok()["sessions"]) == (first, ["bob"])
    assert "bob will start another" in ended.err
    bob.wait_until(lambda: is_led(bob.paths))


def test_a_process_that_the_lock_file_names_wrongly_is_left_alone(
    ann: Agent, processes: list[subprocess.Popen[bytes]]
) -> None:
    """The kernel says who listens; where the file says another, nobody is ended."""
    pid = ann.run("hub", "start").ok()["pid"]
    processes.append(subprocess.Popen(["sleep", "600"]))
    innocent = processes[0].pid
    written = Path(ann.paths.lock).read_bytes()
    Path(ann.paths.lock).write_text(json.dumps({"pid": innocent}))
    try:
        ended = ann.run("hub", "stop")
        assert (ended.status, ended.result["code"]) == (75, "HUB_STUCK")
        assert ended.result["pid"] == innocent
        assert "no process was ended" in ended.err
        assert processes[0].poll() is None
        assert ann.run("hub", "status").ok()["pid"] == pid
    finally:
        Path(ann.paths.lock).write_bytes(written)
    assert ann.run("hub", "stop").ok()["pid"] == pid


def test_a_hub_that_does_not_end_is_named_after_five_seconds(
    ann: Agent, stopped: Callable[[int], None]
) -> None:
    """Status 75, its pid, and what ends it; resumed, it ends as it was told."""
    pid = ann.run("hub", "start").ok()["pid"]
    stopped(pid)
    ended = ann.run("hub", "stop")
    assert (ended.status, ended.result["code"], ended.result["pid"]) == (75, "HUB_STUCK", pid)
    assert f"kill -CONT {pid}" in ended.err
    assert f"kill -9 {pid}" in ended.err
    os.kill(pid, signal.SIGCONT)
    ann.wait_until(lambda: not is_led(ann.paths))


def test_an_original_hub_is_looked_at_and_stopped(
    ann: Agent, processes: list[subprocess.Popen[bytes]]
) -> None:
    """It writes nothing into its lock, tells nothing, and unlinks the lock when it goes."""
    words = [sys.executable, str(ORIGINAL), "--dir", str(ann.base), "--channel", "default"]
    ann.paths.prepare()
    processes.append(subprocess.Popen(words, stderr=subprocess.PIPE))
    ann.wait_until(lambda: control.published(ann.paths))
    said = ann.run("hub", "status").ok()
    assert (said["original"], said["pid"]) == (True, processes[0].pid)
    assert (said["sessions"], said["version"], said["level"]) == ([], None, None)
    text = ann.run("hub", "status", "--format", "text").out.decode()
    assert "an original hub runs" in text
    assert ann.run("hub", "stop").ok()["pid"] == processes[0].pid
    assert processes[0].wait(60) == 0
    assert not is_led(ann.paths)


# -- restart ----------------------------------------------------------------------------------


def test_a_hub_that_leaves_when_idle_is_replaced_by_one_that_does(agent: Make) -> None:
    """A command started it on demand, and so is its successor run."""
    one = agent("one")
    one.run("init").ok()
    first = one.run("hub", "status").ok()
    assert first["idle_exit"] is not None
    done = one.run("hub", "restart").ok()
    assert (done["status"], done["old_pid"]) == ("restarted", first["pid"])
    second = one.run("hub", "status").ok()
    assert (second["pid"], second["idle_exit"]) == (done["pid"], first["idle_exit"])
    one.run("hub", "stop").ok()
    done = one.run("hub", "restart").ok()
    assert (done["status"], done["old_pid"]) == ("started", None)
    assert one.run("hub", "status").ok()["idle_exit"] is None


def test_a_hub_that_does_not_answer_is_not_replaced(
    ann: Agent, stopped: Callable[[int], None]
) -> None:
    """It still leads, and could go on at any time."""
    pid = ann.run("hub", "start").ok()["pid"]
    stopped(pid)
    ended = ann.run("hub", "restart")
    assert (ended.status, ended.result["cause"]) == (69, "silent")
    os.kill(pid, signal.SIGCONT)
    assert ann.run("hub", "status").ok()["pid"] == pid


@pytest.mark.parametrize("place", ["nonsense:1", "tcp:79999"])
def test_a_hub_whose_successor_could_not_start_is_left_alone(ann: Agent, place: str) -> None:
    """78, with the place that cannot be; once none runs, whoever needs one is told as much."""
    pid = ann.run("hub", "start").ok()["pid"]
    content = json.loads(Path(ann.paths.settings).read_text()) | {"listen": [place]}
    Path(ann.paths.settings).write_text(json.dumps(content))
    ended = ann.run("hub", "restart")
    assert (ended.status, ended.result["code"]) == (78, "BAD_CONFIG")
    assert place in ended.result["message"]
    assert ann.run("hub", "status").ok()["pid"] == pid
    ann.run("hub", "stop").ok()
    for words in (["daemon"], ["hub", "start"]):
        ended = ann.run(*words)
        assert ended.status == 78, ended.err
        assert place in ended.err
        assert "Traceback" not in ended.err


class Ear:
    """A session that listens, and may send by lines of standard input."""

    def __init__(self, agent: Agent) -> None:
        self.process = agent.start("listen")
        self.shown: list[str] = []
        self.reports: list[dict[str, Any]] = []
        for stream, take in (
            (self.process.stdout, lambda line: self.shown.append(line["payload"]["text"])),
            (self.process.stderr, self.reports.append),
        ):
            threading.Thread(target=self._read, args=(stream, take), daemon=True).start()
        agent.wait_until(
            lambda: agent.session in control.published(agent.paths).get("active_sessions", ())
        )

    @staticmethod
    def _read(stream: Any, take: Callable[[dict[str, Any]], object]) -> None:
        for line in stream:
            if line.startswith(b"{"):  # standard error has notes as well
                take(json.loads(line))

    def send(self, text: str) -> None:
        """Order a message to bob."""
        order = {"action": "send", "to": "bob", "text": text}
        self.process.stdin.write(json.dumps(order).encode() + b"\n")

    def end(self) -> None:
        """End it, and close what leads to it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()


def test_restarts_under_load_lose_nothing_and_show_nothing_twice(agent: Make) -> None:
    """Two hundred numbered messages by three senders, one of them a process each time."""
    bob, ann, cem, dan = (agent(name) for name in ("bob", "ann", "cem", "dan"))
    ears = [Ear(one) for one in (bob, ann, cem)]
    outcomes: list[str] = []

    def send_by_command() -> None:
        for number in range(20):
            ended = dan.run("send", "--to", "bob", "--text", f"dan {number}")
            outcomes.append(ended.ok()["state"])

    def send_by_line() -> None:
        for number in range(90):
            ears[1].send(f"ann {number}")
            ears[2].send(f"cem {number}")
            time.sleep(0.03)  # the load is spread over several restarts

    threads = [threading.Thread(target=work) for work in (send_by_command, send_by_line)]
    try:
        for thread in threads:
            thread.start()
        hubs = set()
        while threads[0].is_alive() or len(hubs) < 3:
            hubs.add(bob.run("hub", "restart").ok()["pid"])
        for thread in threads:
            thread.join()
        bob.wait_until(lambda: len(ears[0].shown) >= 200)
        bob.wait_until(lambda: all(len(ear.reports) >= 90 for ear in ears[1:]))
        bob.wait_until(lambda: bob.run("poll", "--peek").ok()["count"] == 0)
    finally:
        for ear in ears:
            ear.end()
    assert max(Counter(ears[0].shown).values()) == 1
    for name, count in (("ann", 90), ("cem", 90), ("dan", 20)):
        heard = [text for text in ears[0].shown if text.startswith(name)]
        assert heard == [f"{name} {number}" for number in range(count)]
    assert outcomes == ["stored"] * 20
    assert {report["state"] for ear in ears[1:] for report in ear.reports} == {"stored"}
    assert len(hubs) >= 3
