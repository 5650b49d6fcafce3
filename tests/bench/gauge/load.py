"""The load: all connections of one run, and the loop that serves them.

One ``epoll`` loop without any framework, so that what is measured is the server and not this.
"""

from __future__ import annotations

import json
import select
import time
from dataclasses import asdict, dataclass
from typing import Any

from gauge.addresses import connect
from gauge.dialects import DIALECTS
from gauge.flows import End, Flow
from gauge.texts import Broken
from gauge.workloads import Workload

#: Seconds without any progress after which messages count as lost.
PATIENCE = 15.0
#: Seconds after which a sender counts as blocked whose receiver does not read.
BLOCKED = 3.0
#: Longest wait for one event, seconds.
IDLE = 0.2

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
        return cls(**{**fields, "workload": Workload.from_fields(fields["workload"])})


class Load:
    """All connections of one run."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._flows: list[Flow] = []
        self._senders: list[End] = []
        self._ends: dict[int, End] = {}
        self._ready: set[End] = set()
        self._poll = select.epoll()

    # -- connecting

    def flow(self, load: Workload) -> Flow:
        """Connect all that a load needs; it has nothing to send yet."""
        kind = DIALECTS[self._job.dialect]
        taken = sum(len(flow.names) for flow in self._flows)
        numbers = range(taken, taken + load.receivers)
        names = [f"{self._job.prefix}-to-{number:04d}" for number in numbers]
        flow = Flow(load, len(self._senders), names)
        self._flows.append(flow)
        if not kind.returns:
            flow.receivers = [
                self._connect(name, True, flow=flow, number=number)
                for number, name in zip(numbers, names, strict=True)
            ]
        for number in range(flow.first, flow.first + load.senders):
            name = f"{self._job.prefix}-from-{number:04d}"
            flow.senders.append(self._connect(name, False, flow=flow, number=number))
        self._senders += flow.senders
        flow.expect(kind.returns)
        return flow

    def idle(self, count: int) -> None:
        """Connect so many that could receive, and to whom nobody sends."""
        for number in range(count):
            self._connect(f"{self._job.prefix}-idle-{number:05d}", True, flow=None, number=number)
            if not number % 64:
                self._turn(0.0)  # some servers tell all of each that comes

    def _connect(self, name: str, receives: bool, *, flow: Flow | None, number: int) -> End:
        sock = connect(self._job.address)
        dialect = DIALECTS[self._job.dialect](sock, name, self._job.channel)
        end = self._ends[sock.fileno()] = End(sock, dialect, flow, number)
        dialect.greet(receives)
        sock.setblocking(False)
        if not receives or end.reads:
            self._poll.register(sock, select.EPOLLIN)
        return end

    # -- the loop

    def run(self, seconds: float, *flows: Flow) -> None:
        """Have all sent that the flows were filled with, and wait until it is settled.

        :param seconds: after which no more is sent.
        :param flows: of several the last counts: when all its messages are through, the
            others end, too.
        """
        last = flows[-1]
        begun = quiet_since = time.perf_counter()
        for flow in flows:
            flow.start(begun)
            self._ready.update(flow.senders)
        ending = False
        while any(flow.due for flow in flows):
            now = time.perf_counter()
            if not ending and (now - begun > seconds or not last.due):
                ending = True
                for flow in flows:
                    flow.stop()
                continue
            if not last.load.reads and now - last.moved > BLOCKED:
                last.fate = "its sender was blocked"
                last.stop()
                last.due = 0
            if self._turn(self._pace(flows, now)):
                quiet_since = now
            elif now - quiet_since > PATIENCE:
                complaints = "; ".join(flow.complaint() for flow in flows)
                raise Broken(f"nothing for {PATIENCE:g} s; {complaints}")

    def wake(self, flow: Flow) -> None:
        """Read now what a flow's receivers have left unread, to its end.

        :raise Broken: a server that keeps messages has not kept them all.
        """
        if flow.failed:
            return
        flow.count(all_of_it=True)
        for receiver in flow.receivers:
            self._poll.register(receiver.sock, select.EPOLLIN)
        quiet_since = time.perf_counter()
        while flow.due:
            now = time.perf_counter()
            if self._turn(IDLE):
                quiet_since = now
            elif now - quiet_since > PATIENCE:
                if flow.receivers[0].dialect.keeps:
                    raise Broken(f"nothing for {PATIENCE:g} s; {flow.complaint()}")
                flow.fate = flow.complaint()
                flow.due = 0

    def _pace(self, flows: tuple[Flow, ...], now: float) -> float:
        """Send what may be sent now; seconds until there may be more."""
        for sender in self._ready:
            if sender.flow is not None:
                self._send(sender, sender.flow.allowed(sender, now))
        self._ready = {one for one in self._ready if self._goes_on(one)}
        if self._ready:
            return 0.0
        wait = IDLE
        for flow in flows:
            if flow.load.rate:
                for sender in flow.senders:
                    self._send(sender, flow.allowed(sender, now))
                wait = min(wait, flow.rest(now))
        return max(0.0, wait)

    @staticmethod
    def _goes_on(sender: End) -> bool:
        """Whether there is nothing but the socket to say when it has sent enough."""
        unasked = not sender.reads and not sender.dialect.confirms
        return unasked and not sender.unwritten and sender.sent < sender.limit

    def _send(self, sender: End, upto: int) -> None:
        """Send as far as the window and the socket allow."""
        flow = sender.flow
        assert flow is not None
        upto = min(upto, sender.settled + flow.load.window)
        if sender.unwritten or upto <= sender.sent:
            return
        frames = sender.frames[sender.sent : upto]
        now = time.perf_counter()
        sender.sent_at += [now] * len(frames)
        sender.sent = upto
        flow.sent(sender, len(frames), now)
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
        if 0 < wait < IDLE:  # epoll counts in milliseconds, and rounds up
            select.select([self._poll.fileno()], [], [], wait)
            wait = 0.0
        events = self._poll.poll(wait)
        for fd, event in events:
            end = self._ends[fd]
            try:
                if event & select.EPOLLOUT:
                    self._write(end, b"")
                    self._ready.add(end)
                if event & ~select.EPOLLOUT:
                    self._read(end)
            except (Broken, ConnectionError) as error:
                self._failed(end, error)
        return bool(events)

    def _failed(self, end: End, error: Exception) -> None:
        """A connection has ended, or what came is not what had to come.

        :raise Broken: this must not be; a receiver that does not read may meet it, where
            the server promises no more.
        """
        if end.reads or end.dialect.keeps or end.flow is None:
            raise error
        end.flow.fate = f"{str(error)[:100]}; {end.flow.complaint()}"
        end.flow.failed = True
        end.flow.stop()
        end.flow.due = 0
        self._poll.unregister(end.sock)

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
        index = sequence - sender.base
        sender.missing[index] -= 1
        if not sender.missing[index]:
            sender.arrived += 1
            flow = sender.flow
            assert flow is not None
            flow.due -= 1
            flow.arrival_s.append(now - sender.sent_at[index])
            self._ready.add(sender)

    def _confirmed(self, sender: End, number: int, now: float) -> None:
        """A message is confirmed; the last of those that one frame is counts."""
        parts = sender.parts
        index = number // parts - sender.base
        if not 0 <= index < sender.sent or sender.told[number - sender.base * parts]:
            raise Broken(f"{sender.dialect.name} was told of message {number} without reason")
        sender.told[number - sender.base * parts] = 1
        sender.unsaid[index] -= 1
        if sender.unsaid[index]:
            return
        sender.confirmed += 1
        flow = sender.flow
        assert flow is not None
        flow.due -= 1
        flow.moved = now
        flow.receipt_s.append(now - sender.sent_at[index])
        self._ready.add(sender)

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
    def notes(self) -> dict[str, Any]:
        """What the server said about itself."""
        return {k: v for end in self._ends.values() for k, v in end.dialect.notes.items()}
