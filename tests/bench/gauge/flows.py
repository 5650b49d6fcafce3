"""Who sends what to whom: the two kinds of ends, and the flow of messages between them."""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket

from gauge.dialects.base import Dialect
from gauge.texts import Arrivals, Ledger, Texts
from gauge.workloads import Workload


class End:
    """One connection of ours.

    :ivar number: of a sender, as its texts have it; senders of all flows count through.
    :ivar flow: what it has a part in, None if it is idle.
    :ivar frames: what it sends now, ready made; :ivar base: sequence number of the first.
    :ivar missing: how often each of them has still to arrive.
    :ivar parts: how many messages each frame is; each is confirmed by itself.
    :ivar limit: how many are to be sent for now.
    :ivar sent, arrived, confirmed: how many were.
    """

    def __init__(self, sock: socket, dialect: Dialect, flow: Flow | None, number: int) -> None:
        self.sock = sock
        self.dialect = dialect
        self.flow = flow
        self.number = number
        self.base = 0
        self.parts = 1
        self.frames: list[bytes] = []
        self.limit = self.sent = self.arrived = self.confirmed = 0
        self.sent_at: list[float] = []
        self.missing: list[int] = []
        self.unsaid: list[int] = []
        self.told = bytearray()
        self.unwritten = b""
        self.arrivals: Arrivals | None = None
        self.ledger: Ledger

    def sends(self, frames: list[bytes], copies: int, parts: int) -> None:
        """Give it something to send; each of it arrives ``copies`` times.

        All that it had sent before has arrived.
        """
        self.base += self.sent
        self.frames = frames
        self.parts = parts
        self.limit = self.sent = self.arrived = self.confirmed = 0
        self.sent_at = []
        self.missing = [copies] * len(frames)
        self.unsaid = [parts] * len(frames)
        self.told = bytearray(len(frames) * parts)

    def receives(self, size: int, ledger: Ledger) -> None:
        """Say what it must get."""
        self.arrivals = Arrivals(size)
        self.ledger = ledger

    @property
    def reads(self) -> bool:
        """Whether its messages arrive while more is sent."""
        return self.flow is None or self.flow.load.reads

    @property
    def settled(self) -> int:
        """How many of its messages are no longer under way."""
        if self.dialect.confirms:
            return min(self.arrived, self.confirmed) if self.reads else self.confirmed
        return self.arrived if self.reads else self.sent


class Flow:
    """The messages of one load, and how long each took.

    :param load: its shape.
    :param first: the number of its first sender.
    :param names: of its receivers.
    :ivar due: arrivals and confirmations that are still to come of what is to be sent.
    :ivar begun: when its sending began (:func:`time.perf_counter`).
    :ivar moved: when it last came any further.
    :ivar fate: what became of one whose receiver does not read; :ivar failed: it has ended.
    """

    def __init__(self, load: Workload, first: int, names: Sequence[str]) -> None:
        self.load = load
        self.first = first
        self.names = names
        self.senders: list[End] = []
        self.receivers: list[End] = []
        self.due = 0
        self.begun = self.moved = 0.0
        self.fate = ""
        self.failed = False
        self.arrival_s: list[float] = []
        self.receipt_s: list[float] = []
        self.late_s: list[float] = []
        self._texts = Texts(load.size)

    def expect(self, returns: bool) -> None:
        """Say to each end what it must get.

        :param returns: what a sender sends comes back to it.
        """
        load = self.load
        if returns:
            for sender in self.senders:
                sender.receives(load.size, Ledger({sender.number: 0}, 1))
        for index, receiver in enumerate(self.receivers):
            step = 1 if load.fan_out else load.receivers
            due = {
                sender.number: 0 if load.fan_out else (index - sender.number) % step
                for sender in self.senders
            }
            receiver.receives(load.size, Ledger(due, step))

    def fill(self, each: int) -> None:
        """Make so many messages for each sender to send."""
        names = self.names
        for sender in self.senders:
            numbers = range(sender.base + sender.sent, sender.base + sender.sent + each)
            if not self.load.fan_out:
                sender.sends(self._in_turn(sender, numbers, names), 1, 1)
                continue
            everyone = sender.dialect.everyone
            to = names if everyone is None else [everyone]
            sender.sends(self._to_all(sender, numbers, to), len(names), len(to))

    def _in_turn(self, sender: End, numbers: range, names: Sequence[str]) -> list[bytes]:
        frame, write, count, own = (
            sender.dialect.frame,
            self._texts.write,
            len(names),
            sender.number,
        )
        return [frame(names[(own + n) % count], n, write(own, n)) for n in numbers]

    def _to_all(self, sender: End, numbers: range, to: Sequence[str]) -> list[bytes]:
        frame, write, parts = sender.dialect.frame, self._texts.write, len(to)
        return [
            b"".join(
                frame(one, n * parts + part, write(sender.number, n)) for part, one in enumerate(to)
            )
            for n in numbers
        ]

    def start(self, now: float) -> None:
        """Begin to send what it was filled with."""
        self.begun = self.moved = now
        for sender in self.senders:
            sender.limit = len(sender.frames)
        self.count()

    def stop(self) -> None:
        """Send no more than was sent."""
        for sender in self.senders:
            sender.limit = sender.sent
        self.count()

    def count(self, all_of_it: bool = False) -> None:
        """Find out what is due.

        :param all_of_it: what a receiver has left unread, too.
        """
        self.due = 0
        for sender in self.senders:
            if sender.dialect.confirms:
                self.due += sender.limit - sender.confirmed
            elif not self.load.reads:
                self.due += sender.limit - sender.sent
            if self.load.reads or all_of_it:
                self.due += sender.limit - sender.arrived

    def allowed(self, sender: End, now: float) -> int:
        """How much of a sender's frames may be sent by now."""
        if not self.load.rate:
            return sender.limit
        return min(sender.limit, int((now - self.begun) * self.load.rate) + 1)

    def rest(self, now: float) -> float:
        """Seconds until more may be sent at the flow's pace; infinite where there is none."""
        rate = self.load.rate
        waits = [
            self.begun + sender.sent / rate - now
            for sender in self.senders
            if rate and sender.sent < sender.limit
        ]
        return min(waits, default=float("inf"))

    def sent(self, sender: End, count: int, now: float) -> None:
        """So many more of a sender's frames were sent."""
        if self.load.rate:
            first = sender.sent - count
            late = now - self.begun
            self.late_s += [late - n / self.load.rate for n in range(first, sender.sent)]
        if not self.load.reads:
            self.moved = now
            if not sender.dialect.confirms:
                self.due -= count

    @property
    def arrived(self) -> int:
        """Messages of the last filling that have arrived everywhere."""
        return sum(sender.arrived for sender in self.senders)

    def forget(self) -> None:
        """The times that were taken."""
        for samples in (self.arrival_s, self.receipt_s, self.late_s):
            samples.clear()

    def complaint(self) -> str:
        """What did not come."""
        sent = sum(sender.sent for sender in self.senders)
        unsaid = sent - sum(sender.confirmed for sender in self.senders)
        text = f"of {sent} messages {sent - self.arrived} did not arrive"
        return text + (f", {unsaid} were not confirmed" if self.senders[0].dialect.confirms else "")
