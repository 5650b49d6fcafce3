"""The load generator: sends, receives, checks every message, and times them.

It runs in a process of its own, ``python -m gauge.load``, which reads a :class:`Job` as
JSON from standard input and writes its figures as JSON to standard output. One ``epoll``
loop serves all connections, so that what is measured is the server and not this.
"""

from __future__ import annotations

import gc
import json
import select
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass
from socket import socket
from typing import Any

from gauge.addresses import connect
from gauge.dialects import DIALECTS
from gauge.dialects.base import Dialect
from gauge.texts import Arrivals, Broken, Ledger, Texts
from gauge.usage import Meter, memory_mib
from gauge.workloads import Workload

#: Seconds without any progress after which messages count as lost.
PATIENCE = 15.0
#: Longest wait for one event, seconds.
IDLE = 0.2
#: Seconds to go on listening at the end for what must not come.
AFTERMATH = 0.1
#: Of each sender's messages, the part that is sent before times are taken: by then inboxes
#: exist and caches are warm.
WARM_UP = 0.05

_buffer = memoryview(bytearray(1 << 18))


@dataclass
class Job:
    """What one load generator is to do.

    :ivar address: where the server listens; :ivar pid: the server's process.
    :ivar prefix: begins the names of all connections: a server that is not ours may
        remember those of earlier runs.
    :ivar seconds: after this time no more is sent, and the run is judged by what was.
    """

    workload: Workload
    dialect: str
    address: str
    channel: str
    pid: int
    prefix: str
    seconds: float

    def to_json(self) -> str:
        """As the load generator reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The other way round."""
        fields = json.loads(text)
        return cls(**{**fields, "workload": Workload(**fields["workload"])})


class End:
    """One connection of ours.

    :ivar frames: what it sends, ready made; empty for a receiver.
    :ivar missing: how often each of them has still to arrive.
    :ivar parts: how many messages each frame is; each is confirmed by itself.
    :ivar limit: how many are to be sent for now.
    :ivar sent, arrived, confirmed: how many were.
    """

    def __init__(self, sock: socket, dialect: Dialect) -> None:
        self.sock = sock
        self.dialect = dialect
        self.frames: list[bytes] = []
        self.limit = self.sent = self.arrived = self.confirmed = 0
        self.sent_at: list[float] = []
        self.missing: list[int] = []
        self.parts = 1
        self.unsaid: list[int] = []
        self.told = bytearray()
        self.unwritten = b""
        self.arrivals: Arrivals | None = None
        self.ledger: Ledger

    def sends(self, frames: list[bytes], copies: int, parts: int) -> None:
        """Give it something to send; each of it arrives ``copies`` times."""
        self.frames = frames
        self.parts = parts
        self.missing = [copies] * len(frames)
        self.unsaid = [parts] * len(frames)
        self.told = bytearray(len(frames) * parts)

    def receives(self, size: int, ledger: Ledger) -> None:
        """Say what it must get."""
        self.arrivals = Arrivals(size)
        self.ledger = ledger

    @property
    def settled(self) -> int:
        """How many of its messages are no longer under way."""
        return min(self.arrived, self.confirmed) if self.dialect.confirms else self.arrived


class Load:
    """All connections of one run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._senders: list[End] = []
        self._receivers: list[End] = []
        self._ends: dict[int, End] = {}
        self._ready: set[End] = set()
        self._poll = select.epoll()
        self._begun = 0.0
        self._due = 0  # arrivals and confirmations that are still to come in this part
        self.arrival_s: list[float] = []
        self.receipt_s: list[float] = []
        self.late_s: list[float] = []

    # -- before

    def open(self) -> None:
        """Connect, and make all that will be sent."""
        job, load = self._job, self._job.workload
        kind = DIALECTS[job.dialect]
        receivers = [f"{job.prefix}-to-{n:04d}" for n in range(load.receivers)]
        if not kind.returns:
            self._receivers = [self._connect(name, receives=True) for name in receivers]
        for number in range(load.senders):
            sender = self._connect(f"{job.prefix}-from-{number:04d}", receives=False)
            sender.sends(*self._frames(sender.dialect, number, receivers))
            self._senders.append(sender)
            if kind.returns:
                sender.receives(load.size, Ledger({number: 0}, 1))
        for number, receiver in enumerate(self._receivers):
            step = 1 if load.fan_out else load.receivers
            due = {s: 0 if load.fan_out else (number - s) % step for s in range(load.senders)}
            receiver.receives(load.size, Ledger(due, step))

    def _connect(self, name: str, receives: bool) -> End:
        sock = connect(self._job.address)
        dialect = DIALECTS[self._job.dialect](sock, name, self._job.channel)
        end = self._ends[sock.fileno()] = End(sock, dialect)
        dialect.greet(receives)
        sock.setblocking(False)
        self._poll.register(sock, select.EPOLLIN)
        return end

    def _frames(
        self, dialect: Dialect, sender: int, receivers: list[str]
    ) -> tuple[list[bytes], int, int]:
        """What one sender sends, how often each of it arrives, and how many messages it is."""
        load, texts = self._job.workload, Texts(self._job.workload.size)
        numbers = range(load.messages // load.senders)
        count = len(receivers)
        if not load.fan_out:
            frames = [
                dialect.frame(receivers[(sender + n) % count], n, texts.write(sender, n))
                for n in numbers
            ]
            return frames, 1, 1
        to = receivers if dialect.everyone is None else [dialect.everyone]
        parts = len(to)
        frames = [
            b"".join(
                dialect.frame(one, n * parts + part, texts.write(sender, n))
                for part, one in enumerate(to)
            )
            for n in numbers
        ]
        return frames, count, parts

    # -- the loop

    def run(self, part: float, seconds: float) -> None:
        """Have this part of all messages sent, and wait until they arrived and are confirmed.

        :param seconds: after which no more is sent.
        """
        self._set_limits([int(len(sender.frames) * part) for sender in self._senders])
        begun = self._begun = quiet_since = time.perf_counter()
        first = [sender.sent for sender in self._senders]
        self._ready = set(self._senders)
        while self._due:
            now = time.perf_counter()
            if now - begun > seconds:
                self._set_limits([sender.sent for sender in self._senders])
            wait = self._pace(first, now)
            if self._turn(wait):
                quiet_since = now
            elif now - quiet_since > PATIENCE:
                raise Broken(self._complaint())

    def _set_limits(self, limits: list[int]) -> None:
        self._due = 0
        for sender, limit in zip(self._senders, limits, strict=True):
            sender.limit = limit
            self._due += limit - sender.arrived
            self._due += limit - sender.confirmed if sender.dialect.confirms else 0

    def _pace(self, first: list[int], now: float) -> float:
        """Send what may be sent now; seconds until there may be more."""
        rate = self._job.workload.rate
        if not rate:
            for sender in self._ready:
                self._send(sender, sender.limit)
            self._ready.clear()
            return IDLE
        wait = IDLE
        for sender, start in zip(self._senders, first, strict=True):
            due = start + int((now - self._begun) * rate) + 1
            before = sender.sent
            self._send(sender, min(due, sender.limit))
            for n in range(before, sender.sent):
                self.late_s.append(sender.sent_at[n] - self._begun - (n - start) / rate)
            if sender.sent < sender.limit:
                wait = min(wait, self._begun + (sender.sent - start) / rate - now)
        return max(0.0, wait)

    def _send(self, sender: End, upto: int) -> None:
        """Send as far as the window and the socket allow."""
        upto = min(upto, sender.settled + self._job.workload.window)
        if sender.unwritten or upto <= sender.sent:
            return
        frames = sender.frames[sender.sent : upto]
        sender.sent_at += [time.perf_counter()] * len(frames)
        sender.sent = upto
        self._write(sender, frames[0] if len(frames) == 1 else b"".join(frames))

    def _write(self, end: End, data: bytes) -> None:
        """Write what the socket takes, and see to the rest when it takes more."""
        waited = bool(end.unwritten)
        data = end.unwritten + data
        try:
            written = end.sock.send(data)
        except BlockingIOError:
            written = 0
        end.unwritten = data[written:]
        if waited != bool(end.unwritten):
            events = select.EPOLLIN | (select.EPOLLOUT if end.unwritten else 0)
            self._poll.modify(end.sock, events)

    def _turn(self, wait: float) -> bool:
        """Deal with what has happened; False if nothing did within ``wait`` seconds."""
        if wait < IDLE:  # epoll counts in milliseconds, and rounds up
            select.select([self._poll.fileno()], [], [], wait)
            wait = 0.0
        events = self._poll.poll(wait)
        for fd, event in events:
            end = self._ends[fd]
            if event & select.EPOLLOUT:
                self._write(end, b"")
                self._ready.add(end)
            if event & ~select.EPOLLOUT:
                self._read(end)
        return bool(events)

    def _read(self, end: End) -> None:
        size = end.sock.recv_into(_buffer)
        now = time.perf_counter()
        if not size:
            raise Broken(f"the server has disconnected {end.dialect.name}")
        data = bytes(_buffer[:size])
        if end.arrivals is not None:
            for number, sequence in end.arrivals.feed(data):
                end.ledger.enter(number, sequence)
                self._arrived(self._senders[number], sequence, now)
        if end.frames:
            for number in end.dialect.confirmed(data):
                self._confirmed(end, number, now)
        else:
            answer = end.dialect.replies(data)
            if answer:
                self._write(end, answer)

    def _arrived(self, sender: End, sequence: int, now: float) -> None:
        """A copy of a message is there; the last one counts."""
        sender.missing[sequence] -= 1
        if not sender.missing[sequence]:
            sender.arrived += 1
            self._due -= 1
            self.arrival_s.append(now - sender.sent_at[sequence])
            self._ready.add(sender)

    def _confirmed(self, sender: End, number: int, now: float) -> None:
        """A message is confirmed; the last of those that one frame is counts."""
        sequence = number // sender.parts
        if sequence >= sender.sent or sender.told[number]:
            raise Broken(f"{sender.dialect.name} was told of message {number} without reason")
        sender.told[number] = 1
        sender.unsaid[sequence] -= 1
        if sender.unsaid[sequence]:
            return
        sender.confirmed += 1
        self._due -= 1
        self.receipt_s.append(now - sender.sent_at[sequence])
        self._ready.add(sender)

    def _complaint(self) -> str:
        sent = sum(sender.sent for sender in self._senders)
        lost = sent - sum(sender.arrived for sender in self._senders)
        unsaid = sent - sum(sender.confirmed for sender in self._senders)
        text = f"nothing for {PATIENCE:g} s; of {sent} messages {lost} did not arrive"
        confirms = self._senders[0].dialect.confirms
        return text + (f", {unsaid} were not confirmed" if confirms else "")

    # -- after

    def listen_on(self, seconds: float) -> None:
        """Go on listening: whatever arrives now is one too many."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            self._turn(0.02)

    def close(self) -> None:
        """Let go of all connections."""
        for end in self._ends.values():
            end.sock.close()
        self._poll.close()

    @property
    def settled(self) -> int:
        """Messages that have arrived everywhere."""
        return sum(sender.arrived for sender in self._senders)

    @property
    def notes(self) -> dict[str, Any]:
        """What the server said about itself."""
        return {k: v for end in self._ends.values() for k, v in end.dialect.notes.items()}


def delays(name: str, seconds: list[float]) -> dict[str, float]:
    """Percentiles, in microseconds."""
    ordered = sorted(seconds)
    return {
        f"{name}_{mark}_us": ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e6
        for mark, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        if ordered
    }


def measure(job: Job) -> dict[str, Any]:
    """Do a job.

    :raise Broken: a message was lost, repeated, damaged, out of order or refused.
    """
    with closing(Load(job)) as load:
        load.open()
        load.run(WARM_UP, job.seconds)
        warm = load.settled
        for samples in (load.arrival_s, load.receipt_s, load.late_s):
            samples.clear()
        meter = Meter(job.pid)
        load.run(1.0, job.seconds)
        used = meter.read()
        messages = load.settled - warm
        load.listen_on(AFTERMATH)
        # Positions that were acknowledged last are still being written when all has arrived.
        used["server_cpu_s"] = meter.read()["server_cpu_s"]
    if job.workload.fan_out:
        messages *= job.workload.receivers
    return {
        "messages": messages,
        "messages_per_s": messages / used["seconds"],
        "cpu_s_per_100k": used["server_cpu_s"] * 1e5 / messages,
        **delays("arrival", load.arrival_s),
        **delays("receipt", load.receipt_s),
        **delays("late", load.late_s),
        **used,
        "memory_mib": memory_mib(job.pid),
        "notes": load.notes,
    }


def main(read: Callable[[], str] = sys.stdin.read) -> int:
    """Do the job on standard input; a server that failed is told on standard error, status 1."""
    gc.disable()  # its pauses would be taken for the server's
    try:
        result = measure(Job.from_json(read()))
    except (Broken, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
