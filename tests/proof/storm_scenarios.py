"""What may go wrong at one point, each as a scenario that fails where the product does.

A scenario takes a fresh place, has something go wrong in it, and demands a clean history.
All are tests by themselves; with a mutant put in, one of them has to fail.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import termios
import time
from collections import Counter
from pathlib import Path
from typing import Any

from checker import Report, check
from storm_election import terms_of
from storm_history import id_of, load
from storm_hub import ARMED
from storm_letters import SENDER, Letters
from storm_place import Place, state_of, until
from storm_torn import leave_torn_line

from intercom.client.dial import ConnectionLost
from intercom.spool.files import Inbox

READERS = ("ann", "ben", "cat", "dan")
CONTENDERS = 8
#: The first with somebody who deletes and replaces the files, the second among hubs of the
#: original mesh, which know one of the two locks.
ELECTIONS: dict[str, dict[str, Any]] = {
    "files deleted and replaced": {"cleaner": True},
    "among originals": {"originals": 2},
}


def start_hub(place: Place, **job: Any) -> subprocess.Popen[bytes]:
    """Start a hub of ours, and wait until it can be found."""
    hub = place.program("storm_hub.py", **job)

    def found() -> bool:
        assert hub.poll() is None, "the hub has ended at once"
        return place.hub_pid() == hub.pid and os.path.exists(place.paths.socket)

    until(found, "our hub")
    return hub


def wait_until_stopped(hub: subprocess.Popen[bytes]) -> None:
    """Wait until a hub has come to its point."""

    def stopped() -> bool:
        assert hub.poll() is None, "the hub ended before it came to its point"
        return state_of(hub.pid) == "T"

    until(stopped, "a hub that stops at its point")


def kill_stopped(place: Place, hub: subprocess.Popen[bytes], begun: float) -> None:
    """Kill a hub where it stands."""
    hub.send_signal(signal.SIGKILL)
    hub.wait(60)
    place.history.killed("hub")
    place.history.led(place.paths.directory, begun, time.monotonic(), f"hub {hub.pid}")


def kill_at(place: Place, point: list[Any]) -> None:
    """Acknowledged messages, then a broadcast in which the hub dies, then the retry."""
    place.enrol(*READERS)
    letters = Letters(place, everybody=READERS)
    read_once(place)
    hub = start_hub(place, stop=point)
    begun = time.monotonic()
    for reader in READERS:
        letters.deliver(letters.write(reader))
    Path(place.paths.file(ARMED)).touch()
    with place.connection(SENDER) as connection:
        broadcast = letters.write("*", "to all of you " * 300)
        letters.send(connection, broadcast)
        wait_until_stopped(hub)
        assert connection.receive(0) is None, "it was acknowledged before it was stored"
        place.observe(*READERS)
        kill_stopped(place, hub, begun)
    letters.deliver(broadcast)
    begun = time.monotonic()
    place.history.led(place.paths.directory, begun, time.monotonic(), f"hub {place.serving()}")
    report = place.judge()
    place.require(report, acked=5, kills=1, leaders=2)
    ids = [message_ids(place, reader) for reader in READERS]
    assert [found.count(broadcast) for found in ids] == [1, 1, 1, 1]
    if point[:2] == ["write", "inbox_"] and point[3] == "half":
        assert report.figures["torn"] == 1, "the torn line was not left as it was, and ended"


def read_once(place: Place) -> None:
    """Have every reader read lately: only then a broadcast is for it."""
    for reader in READERS:
        with Inbox(place.paths, reader) as inbox:
            inbox.commit(inbox.read().next)


def message_ids(place: Place, session: str) -> list[str]:
    """The ids in an inbox, in its order."""
    with Inbox(place.paths, session) as inbox:
        return [id_of(record.line) for record in inbox.read().records]


def kill_unpublished(place: Place) -> None:
    """The hub dies when its socket is bound, and has not got its name."""
    place.enrol(*READERS)
    letters = Letters(place)
    begun = time.monotonic()
    hub = place.program("storm_hub.py", stop=["publish", "", 1, "before"])
    wait_until_stopped(hub)
    assert not os.path.exists(place.paths.socket)
    assert len(sockets(place)) == 1
    kill_stopped(place, hub, begun)
    for reader in READERS:
        letters.deliver(letters.write(reader))
    assert sockets(place) == [place.paths.socket]
    place.history.led(place.paths.directory, time.monotonic(), time.monotonic(), "next")
    place.require(place.judge(), acked=4, kills=1, leaders=2)


def sockets(place: Place) -> list[str]:
    """The sockets in a channel's directory."""
    paths = map(place.paths.file, os.listdir(place.paths.directory))
    return [path for path in paths if stat.S_ISSOCK(os.lstat(path).st_mode)]


def send_with_broken_disk(place: Place) -> None:
    """Send where no sync succeeds, cut the power, and send again what was not acknowledged."""
    place.enrol("ann")
    letters = Letters(place)
    begun = time.monotonic()
    hub = start_hub(place, fault=True)
    letters.deliver(letters.write("ann"))
    before = contents(place)
    Path(place.paths.file(ARMED)).touch()
    message = letters.write("ann")
    acknowledged = False
    with contextlib.suppress(ConnectionLost), place.connection(SENDER) as connection:
        letters.send(connection, message)
        acknowledged = letters.settle(connection, message)["state"] == "stored"
    if acknowledged:
        place.kill_hub(hub.pid)
    assert hub.wait(60) != 0  # it left, for a sync had failed
    place.history.led(place.paths.directory, begun, time.monotonic(), f"hub {hub.pid}")
    os.unlink(place.paths.file(ARMED))
    lose_what_was_not_synced(place, before)
    if not acknowledged:
        letters.deliver(message)
    place.require(place.judge(), acked=2, leaders=1)


def contents(place: Place) -> dict[str, bytes]:
    """What a channel's files hold now."""
    files = [path for path in Path(place.paths.directory).iterdir() if path.is_file()]
    return {path.name: path.read_bytes() for path in files}


def lose_what_was_not_synced(place: Place, before: dict[str, bytes]) -> None:
    """Put the files back as they were, as a power cut would; nobody may be using them."""
    for name in set(contents(place)) - set(before):
        os.unlink(place.paths.file(name))
    for name, content in before.items():
        path = Path(place.paths.file(name))
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)


def kill_upon_receipt(place: Place) -> None:
    """The hub dies as soon as it has said ``stored``."""
    place.enrol("ann")
    letters = Letters(place)
    begun = time.monotonic()
    pid = place.serving()
    letters.deliver(letters.write("ann"))
    place.kill_hub(pid)
    place.history.led(place.paths.directory, begun, time.monotonic(), f"hub {pid}")
    place.serving()
    place.require(place.judge(), acked=1, kills=1, leaders=1)


def send_behind_torn_line(place: Place) -> None:
    """A writer dies in the middle of a line, then a message comes."""
    place.enrol("ann")
    letters = Letters(place)
    letters.deliver(letters.write("ann"))
    leave_torn_line(place, "ann")
    letters.deliver(letters.write("ann"))
    place.require(place.judge(), acked=2, torn=1)


def read_unended_line(place: Place) -> None:
    """A writer dies before a line's end; a reader comes, then a message, then the reader again."""
    place.enrol("ann")
    letters = Letters(place)
    letters.deliver(letters.write("ann"))
    unended = leave_torn_line(place, "ann", cut=0)
    poll_to_the_end(place, "ann")
    letters.deliver(letters.write("ann"))
    poll_to_the_end(place, "ann")
    place.require(place.judge(), acked=2, delivered=2)
    found = Path(place.paths.inbox("ann")).read_bytes()
    assert unended.encode() in found, "the line has not become a message"


def poll_to_the_end(place: Place, session: str) -> None:
    """Have a client read what is unread, in a process of its own."""
    reader = place.client("poller", session, count=2)
    assert reader.wait(60) == 0


def kill_poll_in_print(place: Place) -> None:
    """``intercom poll`` dies while it prints a long message; the next one shows it again."""
    place.enrol("ann")
    letters = Letters(place)
    long = letters.write("ann", "word " * 40_000)
    letters.deliver(long)
    command = ["-m", "intercom", "--dir", place.paths.base, "--channel", place.paths.name]
    command += ["poll", "--session", "ann", "--json"]
    reader = place.spawn(*command, stdout=subprocess.PIPE)
    with reader:
        until(lambda: is_full(reader.stdout), "a poll that prints")
        place.kill(reader, "poll")
    since = time.monotonic()
    again = place.spawn(*command, stdout=subprocess.PIPE)
    out, _ = again.communicate(timeout=60)
    for message in json.loads(out)["messages"]:
        line = letters.lines[message["id"]]
        assert json.loads(line)["payload"] == message["payload"]
        place.history.shown("ann", line, since)
    place.require(place.judge(), acked=1, kills=1)


def is_full(pipe: Any) -> bool:
    """Whether who writes into a pipe that nobody empties has to wait."""
    waiting = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
    return int.from_bytes(waiting, sys.byteorder) >= fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)


def send_in_a_row(place: Place) -> None:
    """Many messages on one connection, without waiting for a receipt."""
    place.enrol("ann")
    letters = Letters(place)
    names = [letters.write("ann", f"number {number}") for number in range(150)]
    with place.connection(SENDER) as connection:
        for name in names:
            letters.send(connection, name)
            time.sleep(0.001)  # the hub gets them in many turns
        for _ in names:
            letters.settle_next(connection)
    place.require(place.judge(), acked=len(names))


def elect_among_originals(place: Place) -> None:
    """A short storm in which the lock file is all that keeps two kinds of hubs apart."""
    report, _blows = run_election(place, "among originals", terms=60)
    place.require(report, leaders=40)


def run_election(
    place: Place, scene: str, terms: int, seed: int = 0
) -> tuple[Report, Counter[str]]:
    """Let them contend; what the checker says, and how often what was done to leaders."""
    job = {"contenders": CONTENDERS, "terms": terms, "seed": seed} | ELECTIONS[scene]
    storm = place.program("storm_election.py", **job)
    assert storm.wait(280) == 0, "the storm has failed"
    events = load(place.history_directory)
    blows = Counter(event["fate"] for event in events if event["op"] == "strike")
    blows["clean"] = sum(event["op"] == "clean" for event in events)
    blows["child"] = sum(event.get("by") == "child" for event in events)
    leads = terms_of(events)
    blows["original"] = sum(lead["who"].startswith("original") for lead in leads)
    return check(events + leads), blows
