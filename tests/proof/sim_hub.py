"""A hub whose every turn, byte and second is in our hands, and that may die between two turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partialmethod
from typing import Any
from unittest.mock import patch

from twisted.internet.address import UNIXAddress
from twisted.internet.task import Clock

from intercom.spool.format import Cutter
from intercom.spool.memory import MemorySpool
from intercom.spool.memoryinbox import MemoryInbox
from intercom.testing import BoundedTransport, MemoryHub
from intercom.wire.envelope import identify

#: Limits that are small enough to be met by a few short messages.
SMALL = {
    "intercom.hub.outflow.PUSH_LIMIT": 3000,
    "intercom.hub.outflow.ANSWER_LIMIT": 6000,
    "intercom.hub.outflow.CHUNK": 700,
    "intercom.core.routing.READ_LIMIT": 700,
}
#: Bytes that a simulated socket takes before it asks for a pause.
SOCKET = 1500


def past_of(inbox: MemoryInbox) -> dict[int, tuple[bytes, int]]:
    """What an inbox held in its older generations, and how much of that went with them."""
    past: dict[int, tuple[bytes, int]] = inbox.__dict__.setdefault("past", {})
    return past


def _cut(inbox: MemoryInbox, start: int, cut: Callable[[MemoryInbox, int], Any]) -> Any:
    past_of(inbox)[inbox.generation] = (bytes(inbox.data), start)
    return cut(inbox, start)


@contextmanager
def small_limits() -> Iterator[None]:
    """Let limits be met by a few short messages, and inboxes remember what they held."""
    with ExitStack() as stack:
        cut = MemoryInbox.cut
        remembering = partialmethod(_cut, cut=cut)
        stack.enter_context(patch.object(MemoryInbox, "cut", remembering))
        for name, value in SMALL.items():
            stack.enter_context(patch(name, value))
        yield


class StepClock(Clock):
    """A clock that can also do one due call, and no more."""

    def step(self) -> bool:
        """Do the next call that is due; False if there is none."""
        if not self.calls or self.calls[0].getTime() > self.seconds():
            return False
        call: Any = self.calls.pop(0)
        call.called = 1
        call.func(*call.args, **call.kw)
        return True


class SimTransport(BoundedTransport):
    """A socket whose reader takes as many bytes as it likes."""

    def take_some(self, count: int) -> bytes:
        """The peer reads at most so many bytes."""
        taken = bytes(self.unread[:count])
        del self.unread[:count]
        if taken and not self.unread and self._producer is not None:
            self._producer.resumeProducing()
        self._finish_if_read()
        return taken


class SimHub(MemoryHub):
    """One life of a channel's hub.

    :param before: the spool of the life before this one, None for the first.
    :param number: of this life, so that no id is drawn in two of them.
    """

    def __init__(self, durability: str, before: MemorySpool | None, number: int) -> None:
        def spool(clock: Any) -> MemorySpool:
            if before is None:
                return MemorySpool(clock)
            # What was written outlives the hub; what waits to be written does not.
            made = MemorySpool(clock, before.remembered())
            made.inboxes, made.known = before.inboxes, before.known
            return made

        with (
            patch("intercom.testing.hub.MemorySpool", spool),
            patch("intercom.testing.hub.Clock", StepClock),
        ):
            super().__init__("test", durability)
        self._counter = itertools.count(number * 1_000_000)

    def dial(self) -> SimTransport:
        """A new connection that has said nothing yet."""
        address = UNIXAddress(None)
        protocol = self._factory.buildProtocol(address)
        transport = SimTransport(protocol, address, SOCKET)
        protocol.makeConnection(transport)
        return transport

    def step(self) -> bool:
        """One turn of whatever is due; False if nothing is."""
        clock: Any = self.clock
        done: bool = clock.step()
        return done


def all_lines(data: bytes) -> list[tuple[int, int, bytes]]:
    """The messages in an inbox's bytes, with their places."""
    cutter = Cutter(0)
    cutter.feed(data)
    return [(record.start, record.end, record.line) for record in cutter.records]


def stored_lines(data: bytes) -> list[tuple[int, int, bytes]]:
    """The same without second copies of a message, which nobody is shown."""
    lines, seen = [], set()
    for start, end, line in all_lines(data):
        found = identify(line)
        key = found[:2] if found is not None else line
        if key not in seen:
            lines.append((start, end, line))
        seen.add(key)
    return lines
