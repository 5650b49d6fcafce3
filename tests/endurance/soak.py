"""A soak, as a script: many agents talk for a long time, and every minute somebody is killed.

    python tests/endurance/soak.py --minutes 30 --report soak.json

Two fifths of the agents send, two fifths listen, the others poll. Killed are, in turn, a hub, a
sender and a reader; a killed agent is replaced, a killed hub by whoever needs one next. At
the end the proof's checker judges every history: nothing acknowledged may be lost, doubled or out
of order. Memory and descriptors of hubs and of agents that were never killed have to stay flat:
for a hub, what it has at the same age is compared, early in the soak and late.

Exit status 0 if all is well, 1 if not; the figures go to standard output, and to ``--report``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "proof"), str(HERE), str(HERE.parents[1])]

from storm_place import Place, quantile  # noqa: E402  the path comes first

#: Seconds between two looks at the processes, and of a process's life that are not counted.
LOOK, YOUNG = 1.0, 5.0
#: What may grow from the first to the last third: bytes of memory, and descriptors.
MEMORY_SLACK, DESCRIPTOR_SLACK = 4 << 20, 5
#: A hub remembers so many messages, for repetitions, at so many bytes each as measured.
REMEMBERED, REMEMBERED_BYTES = 100_000, 640
#: Seconds from which on a soak has to have something to compare.
COMPARED_FROM = 60.0
#: The same over time, bytes an hour, where the soak is long enough to say so.
MEMORY_SLOPE, SLOPE_FROM = 1 << 20, 1800.0


class Sample(NamedTuple):
    """What a process had at a moment.

    :ivar at: seconds since the soak began; ``age``: since the process did.
    """

    at: float
    age: float
    memory: int
    descriptors: int


def look_at(pid: int, at: float, age: float) -> Sample | None:
    """Look at a process, None if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        fds = len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None
    return Sample(at, age, pages * os.sysconf("SC_PAGE_SIZE"), fds)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The slope of a line through points by least squares; 0 through fewer than two."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in points)
    return rise / spread if spread else 0.0


def growth(samples: Sequence[Sample], length: float) -> dict[str, float]:
    """How medians grow from the first third of a soak to its last, and the slope an hour."""
    grown = [one for one in samples if one.age >= YOUNG]
    early = [one for one in grown if one.at < length / 3]
    late = [one for one in grown if one.at > length * 2 / 3]

    def grew(name: str) -> float:
        """From one median to the other; nothing is known where either is of nothing."""
        medians = [quantile([float(getattr(x, name)) for x in of], 0.5) for of in (early, late)]
        return medians[1] - medians[0] if early and late else 0.0

    return {
        "memory": grew("memory"),
        "descriptors": grew("descriptors"),
        "memory_per_hour": 3600 * slope([(one.at, one.memory) for one in grown]),
        "memory_at_most": max((one.memory for one in grown), default=0),
        "descriptors_at_most": max((one.descriptors for one in grown), default=0),
        "early": len(early),
        "late": len(late),
    }


def complaints(
    what: str, found: dict[str, float], length: float, filling: float = 0.0
) -> list[str]:
    """What is not flat.

    :param filling: bytes by which a memory with a known bound may have filled up meanwhile.
    """
    said = []
    if length >= COMPARED_FROM and not (found["early"] and found["late"]):
        said.append(f"{what}: no samples to compare")
    if found["memory"] > MEMORY_SLACK + filling:
        said.append(f"{what}: memory grew by {found['memory'] / (1 << 20):.1f} MiB")
    if found["descriptors"] > DESCRIPTOR_SLACK:
        said.append(f"{what}: descriptors grew by {found['descriptors']:.0f}")
    rise = found["memory_per_hour"] - filling * 3600 / length
    if length >= SLOPE_FROM and rise > MEMORY_SLOPE:
        said.append(f"{what}: memory grows by {found['memory_per_hour'] / (1 << 20):.1f} MiB/h")
    return said


class Agent(NamedTuple):
    """One agent's process, and how it was started."""

    role: str
    session: str
    job: dict[str, Any]
    process: subprocess.Popen[bytes]
    since: float


class Soak:
    """The agents of one channel, who is killed when, and what was seen of them."""

    def __init__(self, place: Place, options: argparse.Namespace) -> None:
        self.place = place
        self.length: float = options.minutes * 60
        self.kill_every: float = options.kill_every
        self.chance = random.Random(options.seed)
        self.began = time.monotonic()
        self.hub_since = 0.0
        self.kills: dict[str, int] = defaultdict(int)
        self.hubs: list[Sample] = []
        self.agents: list[Sample] = []
        self.restarts: list[float] = []
        readers = [f"agent-{n:02}" for n in range(options.agents)]
        senders = [readers.pop() for _ in range(max(1, options.agents * 2 // 5))]
        pause = len(senders) / options.rate
        place.enrol(*readers)
        jobs = [("sender", name, {"to": readers, "pause": pause}) for name in senders]
        for number, name in enumerate(readers):
            role = "poller" if number % 3 == 2 else "listener"
            jobs.append((role, name, {"pause": 0.5} if role == "poller" else {}))
        self.pid = self._serving()
        self.live = [self._start(*job) for job in jobs]
        #: Never killed, so that what they have can be watched for the whole time.
        self.spared = self.live[:1] + self.live[len(senders) : len(senders) + 2]

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def _start(self, role: str, session: str, job: dict[str, Any]) -> Agent:
        return Agent(role, session, job, self.place.client(role, session, **job), self.now)

    def _serving(self) -> int:
        pid = self.place.serving()
        self.hub_since = self.now
        return pid

    def run(self) -> None:
        """Soak."""
        next_kill, turn = self.kill_every, 0
        while self.now < self.length:
            time.sleep(min(LOOK, max(0.0, self.length - self.now)))
            self.look()
            if self.now >= next_kill and self.now + YOUNG < self.length:
                (self.kill_hub, self.kill_sender, self.kill_reader)[turn % 3]()
                next_kill, turn = next_kill + self.kill_every, turn + 1
        self.place.history.led(self.place.paths.directory, *self._term(), f"hub {self.pid}")
        self.place.end([agent.process for agent in self.live])
        self.place.serving()  # what the last one had yet to do

    def look(self) -> None:
        """Note what the processes have; an agent that ended by itself has failed."""
        sample = look_at(self.pid, self.now, self.now - self.hub_since)
        self.hubs += [sample] if sample is not None else []
        for agent in self.live:
            assert agent.process.poll() is None, f"{agent.session} ended by itself"
        for agent in self.spared:
            sample = look_at(agent.process.pid, self.now, self.now - agent.since)
            self.agents += [sample] if sample is not None else []

    def _term(self) -> tuple[float, float]:
        """From when to when the present hub leads, at least, on the machine's clock."""
        return self.began + self.hub_since, time.monotonic()

    def kill_hub(self) -> None:
        """Kill the hub, and wait for the next."""
        begin, end = self._term()
        self.place.kill_hub(self.pid)
        self.place.history.led(self.place.paths.directory, begin, end, f"hub {self.pid}")
        killed = time.monotonic()
        self.pid = self._serving()
        self.restarts.append(time.monotonic() - killed)
        self.kills["hub"] += 1

    def kill_sender(self) -> None:
        """Kill one that sends."""
        self._kill(("sender",))

    def kill_reader(self) -> None:
        """Kill one that listens or polls."""
        self._kill(("listener", "poller"))

    def _kill(self, roles: tuple[str, ...]) -> None:
        candidates = [one for one in self.live if one.role in roles and one not in self.spared]
        if not candidates:
            return
        agent = self.chance.choice(candidates)
        self.place.kill(agent.process, agent.session)
        self.kills[agent.role] += 1
        self.live[self.live.index(agent)] = self._start(agent.role, agent.session, agent.job)

    def result(self) -> tuple[dict[str, Any], list[str]]:
        """The figures, and what is wrong."""
        report = self.place.judge()
        hub, agent = growth(self.hubs, self.length), growth(self.agents, self.length)
        wrong = [f"{kind}: {'; '.join(texts[:5])}" for kind, texts in report.anomalies.items()]
        wrong += report.vacuous(acked=1, delivered=1, kills=1)
        told = report.figures["acked"]
        filling = REMEMBERED_BYTES * min(told, REMEMBERED)
        wrong += complaints("hubs", hub, self.length, filling)
        wrong += complaints("agents", agent, self.length)
        figures = {
            **report.figures,
            "seconds": round(self.length),
            "kills by kind": dict(self.kills),
            "restart_p99": round(quantile(self.restarts, 0.99), 2),
            "hub": {name: round(value) for name, value in hub.items()},
            "agent": {name: round(value) for name, value in agent.items()},
        }
        return figures, wrong


def main(words: Sequence[str] | None = None) -> int:
    """Run one soak; its exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--agents", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="messages a second, of all")
    parser.add_argument("--kill-every", type=float, default=60.0, help="seconds")
    parser.add_argument("--level", default="process", choices=("memory", "process", "disk"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--place", default=tempfile.gettempdir(), help="where files are made")
    parser.add_argument("--report", type=Path, help="JSON file for the figures")
    options = parser.parse_args(words)
    if options.agents < 5 or options.rate <= 0:
        parser.error("at least 5 agents, and a rate above 0")
    scratch = Path(tempfile.mkdtemp(prefix="soak-", dir=options.place))
    base = tempfile.mkdtemp(prefix="ic-", dir=options.place)
    place = Place(base, options.level, scratch / "history")
    wrong = ["it was interrupted"]
    try:
        try:
            soak = Soak(place, options)
            soak.run()
            figures, wrong = soak.result()
        finally:
            place.close()
        text = json.dumps(figures | {"wrong": wrong}, indent=2)
        print(text)
        if options.report:
            options.report.write_text(text + "\n")
    finally:
        shutil.rmtree(base, ignore_errors=True)
        if wrong:
            print(f"the histories are kept: {scratch}", file=sys.stderr)
        else:
            shutil.rmtree(scratch)
    return 1 if wrong else 0


if __name__ == "__main__":
    os.umask(0o077)
    sys.exit(main())
