"""Standard input and output as a connection to the host: lines in, lines out.

Whoever writes a line learns when its last byte has left this process. Nothing else of the
program can write there: what is printed by accident goes to standard error.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IHalfCloseableProtocol, IPullProducer
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.wire.envelope import MAX_LINE
from intercom.wire.framing import LineCutter

#: Longest message of a host: a body may be written with six bytes a character.
MAX_MESSAGE = 8 * MAX_LINE
#: Unsent bytes over which the host is not read from.
HOLD_LIMIT = 4 * MAX_LINE


def secure_streams() -> tuple[int, int]:
    """Keep standard input and output for the host alone; return the descriptors to use.

    Children inherit neither. Reads of 0 find the end, and what is written to 1 goes to 2.
    """
    taken, given = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.close(nowhere)
    os.dup2(2, 1)
    return taken, given


@implementer(IPullProducer)
class _Outlet:
    """Writes lines, one batch after another, and says of each when it has left.

    A pull producer is told whenever all that was written has left. It is not the protocol,
    for whom being told to go on means to read.

    :param crowded: called with whether more waits than should.
    """

    def __init__(self, transport: Any, crowded: Callable[[bool], None]) -> None:
        self._transport = transport
        self._crowded = crowded
        self._waiting: list[tuple[bytes, Deferred[None]]] = []
        self._under_way: list[Deferred[None]] = []
        self._unsent = 0
        self._is_crowded = self._gone = False
        transport.registerProducer(self, False)

    def send(self, line: bytes) -> Deferred[None]:
        """Write a line; fires once it has left, fails if it never will."""
        written: Deferred[None] = Deferred()
        if self._gone:
            written.errback(Failure(ConnectionDone()))
            return written
        self._waiting.append((line, written))
        self._unsent += len(line)
        if not self._under_way:
            self._write_on()
        elif self._unsent > HOLD_LIMIT and not self._is_crowded:
            self._is_crowded = True
            self._crowded(True)
        return written

    @property
    def busy(self) -> bool:
        """Whether anything has not left yet."""
        return bool(self._under_way or self._waiting)

    def resumeProducing(self) -> None:
        """All that was written has left: say so, and write what has gathered."""
        left, self._under_way = self._under_way, []
        for written in left:
            written.callback(None)
        if not self._under_way:
            self._write_on()

    def stopProducing(self) -> None:
        """Nothing more will leave. Idempotent."""
        self._gone = True
        lost = self._under_way + [written for _line, written in self._waiting]
        self._under_way, self._waiting = [], []
        for written in lost:
            written.errback(Failure(ConnectionDone()))

    def _write_on(self) -> None:
        """Write everything that waits as one piece."""
        waiting, self._waiting = self._waiting, []
        self._under_way = [written for _line, written in waiting]
        self._unsent = sum(len(line) for line, _written in waiting)
        if waiting:
            self._transport.write(b"".join(line + b"\n" for line, _written in waiting))
        elif self._is_crowded:
            self._is_crowded = False
            self._crowded(False)


@implementer(IHalfCloseableProtocol)
class Pipes(LineReceiver):
    """The host's end of the pipes.

    It is a ``LineReceiver`` that cuts lines itself, in linear time, and goes on behind one
    that is too long.

    :param take: called with each line, None for one over :data:`MAX_MESSAGE`.
    :param ended: called once: the host says no more, or hears no more.
    """

    delimiter = b"\n"
    MAX_LENGTH = MAX_MESSAGE

    def __init__(self, take: Callable[[bytes | None], None], ended: Callable[[], None]) -> None:
        self._take = take
        self._ended: Callable[[], None] | None = ended
        self._cutter = LineCutter(MAX_MESSAGE)
        self._outlet: _Outlet | None = None

    def connectionMade(self) -> None:
        """Be told of everything that leaves."""
        self._outlet = _Outlet(self.transport, self._crowd)

    def _crowd(self, crowded: bool) -> None:
        """A host that does not take what it is told is not heard, either."""
        (self.pauseProducing if crowded else self.resumeProducing)()

    def dataReceived(self, data: bytes) -> None:
        """Cut lines and hand them on."""
        for line in self._cutter.feed(data):
            self._take(line)

    def lineReceived(self, line: bytes) -> None:
        """Hand on one line."""
        self._take(line)

    def readConnectionLost(self) -> None:
        """The host says no more."""
        if self._cutter.pending:
            self.dataReceived(b"\n")
        self._end()

    def writeConnectionLost(self) -> None:
        """The host hears no more."""
        self.stop()
        self._end()

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """Both are over."""
        self.stop()
        self._end()

    def send(self, line: bytes) -> Deferred[None]:
        """Write a line; fires once it has left, fails if it never will."""
        assert self._outlet is not None
        return self._outlet.send(line)

    @property
    def busy(self) -> bool:
        """Whether a line has not left yet."""
        return self._outlet is not None and self._outlet.busy

    def stop(self) -> None:
        """What has not left is not written any more. Idempotent."""
        if self._outlet is not None:
            self._outlet.stopProducing()

    def _end(self) -> None:
        ended, self._ended = self._ended, None
        if ended is not None:
            ended()
