"""Processes that are stopped while they hold a lock, and hubs that are stopped while they lead.

The long form stops INTERCOM_STUCK holders.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from storm_place import quantile, record

from intercom.client.blocking import HubConnection
from intercom.client.dial import connect
from intercom.client.outbox import compose, deliver
from intercom.client.tokens import own_token
from intercom.election.locks import take_locks
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths

STUCK = int(os.environ.get("INTERCOM_STUCK", "50"))

#: Holds many locks at once, as many stopped processes would.
HOLD = """
import fcntl, sys, time
how = fcntl.LOCK_SH if sys.argv[1] == "shared" else fcntl.LOCK_EX
files = [open(path, "ab+") for path in sys.argv[2:]]
for file in files:
    fcntl.flock(file, how)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stuck() -> Iterator[Callable[..., None]]:
    """Stopped processes that hold the locks of files, one each."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*files: str, how: str = "exclusive") -> None:
        fresh = []
        for file in files:
            command = [sys.executable, "-S", "-c", HOLD, how, file]
            fresh.append(subprocess.Popen(command, stdout=subprocess.PIPE))
        started.extend(fresh)
        for process in fresh:
            assert process.stdout is not None
            assert process.stdout.readline() == b"locked\n"
            process.send_signal(signal.SIGSTOP)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def send_to_stuck(
    hub: Any, paths: ChannelPaths, stuck: Any, count: int, how: str
) -> dict[str, Any]:
    """Send to stuck inboxes and to others at once; what each sender saw."""
    one = hub("--durability", "process")
    names = [f"stuck-{number}" for number in range(count)]
    ada, eve = one.connect("ada", "receipts"), one.connect("eve", "receipts")
    for name in (*names, "free"):
        ada.chat(name, "before")
        ada.until("receipt")
    stuck(*map(paths.inbox, names), how=how)
    waits: list[float] = []
    done = threading.Event()

    def talk() -> None:
        while not done.is_set():
            began = time.monotonic()
            eve.chat("free", f"{len(waits)}")
            assert eve.until("receipt")["payload"]["state"] == "stored"
            waits.append(time.monotonic() - began)

    with ThreadPoolExecutor(1) as pool:
        talking = pool.submit(talk)
        began = time.monotonic()
        for name in names:
            ada.chat(name, "blocked")
        receipts = [ada.until("receipt")["payload"] for _ in names]
        took = time.monotonic() - began
        done.set()
        talking.result()
    return {"hub": one, "ada": ada, "receipts": receipts, "took": took, "waits": waits}


@pytest.mark.parametrize(("count", "how"), [(1, "shared"), (10, "exclusive")])
def test_stuck_inboxes_refuse_and_all_others_are_as_ever(
    hub: Any, paths: ChannelPaths, stuck: Any, stored: Any, count: int, how: str
) -> None:
    """However many are stuck: each is told when patience is over, and the end waits for none."""
    found = send_to_stuck(hub, paths, stuck, count, how)
    codes = Counter(receipt.get("code") for receipt in found["receipts"])
    assert codes == {"INBOX_LOCKED": count}
    assert all(receipt["retryable"] for receipt in found["receipts"])
    assert 1.5 < found["took"] < 15.0, "two seconds are promised, for all of them together"
    assert len(found["waits"]) > 20, "somebody else waited for a stuck lock"
    assert stored("free") == ["before", *map(str, range(len(found["waits"])))]
    found["ada"].chat("stuck-0", "still blocked while the hub ends")
    assert found["hub"].stop() < 8.0
    assert stored("stuck-0") == ["before"]


@pytest.mark.slow
def test_many_stuck_inboxes(hub: Any, paths: ChannelPaths, stuck: Any) -> None:
    alone = send_to_stuck(hub, paths, stuck, 0, "shared")
    alone["hub"].stop()
    found = send_to_stuck(hub, paths, stuck, STUCK, "exclusive")
    assert {receipt.get("code") for receipt in found["receipts"]} == {"INBOX_LOCKED"}
    ending = found["hub"].stop()
    p99 = quantile(found["waits"], 0.99)
    record("stuck locks", {"told_s": found["took"], "p99": p99, "stop_s": ending})
    assert found["took"] < 3.5
    assert p99 < 0.5
    assert ending < 3.0


def test_a_stuck_commit_delays_its_own_session_only(
    hub: Any, paths: ChannelPaths, stuck: Any, intercom: Any
) -> None:
    """A reader is stopped with the lock under which positions move: two seconds, and a reason."""
    one = hub("--durability", "process")
    ada, bob = one.connect("ada", "receipts"), one.connect("bob", "cursor", "receipts")
    ada.chat("bob", "hello")
    pushed = bob.until("chat")
    ada.until("receipt")
    stuck(paths.inbox("bob"))
    size = os.path.getsize(paths.inbox("bob"))
    bob.say("ack", id="a1", payload={"offset": size, "generation": 1})
    ada.chat("carol", "others go on")
    assert ada.until("receipt")["payload"]["state"] == "stored"
    ended = intercom("poll", session="bob")
    assert (ended.status, ended.result["code"]) == (75, "INBOX_LOCKED"), ended.err
    assert pushed["payload"]["text"] == "hello"
    assert not os.path.exists(paths.offset("bob")) or b'"offset":0' in Path(
        paths.offset("bob")
    ).read_bytes().replace(b" ", b"")
    assert one.stop() < 8.0


# -- a stopped hub -----------------------------------------------------------------------------

CLIENTS = 200


@pytest.fixture
def stop(stopped: Callable[[int], None]) -> Callable[[Any], None]:
    """Stop a hub as by Ctrl-Z, after it has served somebody."""

    def warm_and_stop(hub: Any) -> None:
        hub.connect("warm", "receipts").close()
        stopped(hub.pid)

    return warm_and_stop


def ask(paths: ChannelPaths, number: int) -> tuple[float, IntercomError | None]:
    """Register as every client does; how long that took, and what was said of the hub."""
    began = time.monotonic()
    error = None
    try:
        with HubConnection(connect(paths), paths, f"c{number}") as connection:
            connection.register(timeout=3.0)
    except IntercomError as said:
        error = said
    return time.monotonic() - began, error


def test_a_stopped_hub_is_named_to_everybody_and_followed_by_nobody(
    hub: Any, paths: ChannelPaths, intercom: Any, stop: Callable[[Any], None]
) -> None:
    """Two hundred come; each is told in time, nobody leads beside it, and then all is well."""
    one = hub("--durability", "process")
    stop(one)
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        command = pool.submit(intercom, "peers")
        asking = [pool.submit(ask, paths, number) for number in range(CLIENTS)]
        assert take_locks(paths) is None, "a second leader"
        ends = [each.result() for each in asking]
        ended = command.result()
    for took, error in ends:
        assert error is not None
        assert (error.code, error.details["cause"]) == ("HUB_UNAVAILABLE", "silent")
        assert f"pid {one.pid}" in error.text
        assert f"kill -CONT {one.pid}" in error.remedy
        assert took < 30.0
    assert (ended.status, f"pid {one.pid}" in ended.err) == (69, True), ended.err
    one.process.send_signal(signal.SIGCONT)
    ada, bob = one.connect("ada", "receipts"), one.connect("bob")
    ada.chat("bob", "all well")
    assert bob.until("chat")["payload"]["text"] == "all well"
    assert json.loads(Path(paths.lock).read_bytes())["pid"] == one.pid
    assert one.stop() < 10.0


def test_messages_to_a_stopped_hub_arrive_once_through_the_files(
    hub: Any, paths: ChannelPaths, stored: Any, stop: Callable[[Any], None]
) -> None:
    """The hub had them in its socket when it was stopped, and finds them stored when it goes on."""
    one = hub("--durability", "process")
    stop(one)
    letters = []
    for number in range(20):
        letter = compose(
            paths, f"s{number}", "bob", {"text": f"t{number}"}, message_id=f"m{number}"
        )
        letters.append((letter, own_token(paths, f"s{number}")))
    with ThreadPoolExecutor(len(letters)) as pool:
        ends = list(pool.map(lambda one: deliver(paths, *one, patience=3.0), letters))
    assert {end.status for end in ends} == {"spooled_offline"}
    assert {end.cause for end in ends} == {"silent"}
    assert all(f"pid {one.pid}" in end.reason for end in ends)
    one.process.send_signal(signal.SIGCONT)
    bob = one.connect("bob", "cursor")
    texts = {bob.until("chat")["payload"]["text"] for _ in letters}
    assert texts == {f"t{number}" for number in range(20)}
    ada = one.connect("ada", "receipts")
    ada.chat("bob", "last")
    ada.until("receipt")
    assert sorted(stored("bob")) == sorted([*texts, "last"])
    assert one.stop() < 10.0


@pytest.mark.parametrize("words", [("peers",), ("send", "--to", "bob", "--text", "x")])
def test_each_command_says_that_the_hub_is_stopped(
    hub: Any, agent: Callable[[str], Any], words: tuple[str, ...], stop: Callable[[Any], None]
) -> None:
    """And which process it is, and how to go on, whether it can do without it or not."""
    one = hub("--durability", "process")
    stop(one)
    began = time.monotonic()
    ended = agent("ada").run(*words)
    took = time.monotonic() - began
    said = ended.out.decode() + ended.err
    assert f"pid {one.pid}" in said, said
    assert f"kill -CONT {one.pid}" in said, said
    assert took < 30.0
    assert ended.status in (0, 69), said


def test_it_is_known_why_a_client_gave_up(paths: ChannelPaths) -> None:
    """Where nobody leads there is nobody to name."""
    with pytest.raises(IntercomError) as absent:
        connect(paths)
    assert absent.value.details["cause"] == "absent"
