"""An election storm as a program: ``storm_election.py '{"contenders": 8, "terms": 50, ...}'``.

Light processes campaign for one channel with the hub's own election, lead for some
milliseconds and resign, or are killed, told to go, or stopped for a while; a leader may leave
a forked child behind that holds its locks. ``cleaner`` deletes and replaces ``hub.lock`` and
``hub.sock`` meanwhile, as a cleaner of temporary directories does. ``originals`` are
contenders that know ``hub.lock`` only, as the original mesh's hubs do.

Every term is written down when it begins and when it ends, by its leader; the end of one
that was killed by who killed it. ``terms_of`` makes the checker's events of these.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

from storm_history import History
from storm_program import begin, fork
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from intercom.election.flock import FlockElection
from intercom.errors import AlreadyLed, CannotCreate
from intercom.paths import ChannelPaths

#: Seconds that a term lasts at most, that a stopped leader stands still, and between looks at
#: the locks.
TERM, STOPPED, LOOK = 0.03, 0.05, 0.002
#: How often a leader leaves a child behind that holds its locks.
WITH_CHILD = 0.15


class Contender:
    """One process that leads again and again, until it is killed."""

    def __init__(self, paths: ChannelPaths, history: History) -> None:
        self.paths = paths
        self.history = history
        self.random = random.Random(history.who)
        self.clock = Clock()
        self.election = FlockElection(self.clock, paths, "1.0", time.time())
        self.leaving = False

    def run(self) -> None:
        """Campaign and lead; SIGTERM ends the term in good order, and then the process."""
        signal.signal(signal.SIGTERM, self._leave)
        while not self.leaving:
            if self.campaign():
                self.lead()
            time.sleep(self.random.uniform(0, LOOK))

    def _leave(self, *_signal: object) -> None:
        self.leaving = True

    def campaign(self) -> bool:
        """Try to lead, for as long as the hub does."""
        outcome: list[Any] = []
        campaign: Deferred[None] = self.election.campaign()
        campaign.addBoth(outcome.append)
        while not outcome and not self.leaving:
            time.sleep(LOOK)
            self.clock.advance(LOOK)
        if not outcome:
            campaign.cancel()
        failure = outcome[0]
        if failure is not None and not self.leaving:
            failure.check(AlreadyLed, CannotCreate)
        return failure is None

    def lead(self) -> None:
        """Lead for a while, unless the locks are taken away."""
        self.tell("begin")
        until = time.monotonic() + self.random.uniform(0, TERM)
        child = self.leave_child() if self.random.random() < WITH_CHILD else None
        while self.election.holds() and time.monotonic() < until and not self.leaving:
            time.sleep(LOOK)
        if child is not None:
            os.kill(os.getpid(), signal.SIGKILL)  # the child leads on, and ends the term
        self.tell("end")
        self.election.resign()

    def leave_child(self) -> int:
        """Fork a child that holds the locks on, and says when it lets them go."""
        leader = os.getpid()
        assert self.election._locks is not None
        copies = [os.dup(fd) for fd in self.election._locks]  # a child closes those it knows of

        def hold() -> None:
            assert copies
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            time.sleep(2 * TERM)
            self.tell("end", pid=leader, by="child")

        return fork(hold, outlives=True)

    def tell(self, what: str, **more: Any) -> None:
        """Write down the beginning or the end of a term."""
        found = os.stat(self.paths.directory)
        key = f"{self.paths.directory} {found.st_ino}"
        self.history.tell("ok", "term", what=what, key=key, **{"pid": os.getpid()} | more)


class Original(Contender):
    """A hub that locks ``hub.lock`` alone, opened once for each campaign, as waiting does."""

    def run(self) -> None:
        while True:
            with open(self.paths.lock, "a") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                self.tell("begin")
                time.sleep(self.random.uniform(0, TERM))
                self.tell("end")
            time.sleep(self.random.uniform(0, 2 * TERM))


def clean(paths: ChannelPaths, history: History) -> None:
    """Delete or replace the lock and the socket, again and again."""
    chance = random.Random(0)
    while True:
        for path in (paths.lock, paths.socket):
            with contextlib.suppress(FileNotFoundError):
                if chance.random() < 0.5:
                    os.unlink(path)
                else:
                    fresh = paths.file("fresh")
                    Path(fresh).touch(0o600)
                    os.replace(fresh, path)
                history.tell("ok", "clean", path=path)
        time.sleep(chance.uniform(0, 2 * TERM))


class Driver:
    """Starts the contenders, ends leaders, and replaces those that are gone."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.paths = ChannelPaths(job["base"], job["channel"])
        self.directory = job["history"]
        self.history = History(self.directory, "election")
        self.random = random.Random(job.get("seed", 0))
        self.contenders: set[int] = set()
        self.others: list[int] = []
        self.names = 0
        self.job = job

    def start(self, kind: type[Contender]) -> int:
        """Fork one contender under a name of its own."""
        self.names += 1
        name = f"{kind.__name__.lower()}-{self.names}"
        return fork(lambda: kind(self.paths, History(self.directory, name)).run())

    def run(self) -> None:
        """Go on until there were enough terms, then end everybody."""
        Path(self.paths.lock).touch(0o600)
        if self.job.get("cleaner"):
            cleaner = History(self.directory, "cleaner")
            self.others.append(fork(lambda: clean(self.paths, cleaner)))
        self.others += [self.start(Original) for _ in range(self.job.get("originals", 0))]
        try:
            while self.count() < self.job["terms"]:
                while len(self.contenders) < self.job["contenders"]:
                    self.contenders.add(self.start(Contender))
                time.sleep(self.random.uniform(0, 3 * TERM))
                self.strike()
                self.bury()
        finally:
            for pid in [*self.contenders, *self.others]:
                self.kill(pid)

    def count(self) -> int:
        """Terms of ours that have ended so far."""
        files = Path(self.directory).glob("contender-*.ndjson")
        return sum(file.read_bytes().count(b'"end"') for file in files)

    def strike(self) -> None:
        """Do something to a contender, most likely the one that leads."""
        pid = self.leader()
        if pid not in self.contenders:
            return
        fate = self.random.choice(("kill", "term", "stop"))
        self.history.tell("ok", "strike", fate=fate)
        if fate == "kill":
            self.kill(pid)
        elif fate == "term":
            os.kill(pid, signal.SIGTERM)
        else:
            os.kill(pid, signal.SIGSTOP)
            time.sleep(STOPPED)
            os.kill(pid, signal.SIGCONT)

    def leader(self) -> int:
        """Who the lock file says leads."""
        try:
            return int(json.loads(Path(self.paths.lock).read_bytes())["pid"])
        except (OSError, ValueError, KeyError):
            return 0

    def kill(self, pid: int) -> None:
        """End a process; if it led, its term ended just before."""
        self.history.tell("ok", "term", what="killed", pid=pid)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.contenders.discard(pid)
        self.history.killed("contender")

    def bury(self) -> None:
        """Take note of contenders that have ended."""
        for pid in list(self.contenders):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self.contenders.remove(pid)
                assert status in (0, signal.SIGKILL), "a contender has failed"


def terms_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make a ``lead`` event of each term's beginning and end."""
    open_terms: dict[int, dict[str, Any]] = {}
    leads: list[dict[str, Any]] = []
    for event in sorted(events, key=lambda event: event["t"]):
        if event["op"] != "term":
            continue
        if event["what"] == "begin":
            open_terms[event["pid"]] = event
        elif event["what"] == "end" or event["pid"] in open_terms:
            begun = open_terms.pop(event["pid"], None)
            if begun is not None:
                lead = {"op": "lead", "begin": begun["t"], "end": event["t"]}
                leads.append(begun | lead)
    return leads


if __name__ == "__main__":
    Driver(begin()).run()
