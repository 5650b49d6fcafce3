"""What one connection is still to be sent, joined, bounded, and never waited for.

Twisted's transport takes whatever is written and grows; so this producer stands
before it. While the transport has room, a turn's lines leave as one write.
When it asks for a pause, lines wait here, and over :data:`PUSH_LIMIT` the hub
is told, so that pushes stop and the inbox file becomes the buffer. Answers go
on, since they were caused by what the peer itself said; a peer that causes more
than :data:`ANSWER_LIMIT` of them unread is not read from either until it has
taken them. It is a producer of its own because the protocol must not be: a peer
slow to read pushes must still be heard.

The transport asks the reactor to write, which costs two system calls and a turn. So where a
poller reads (:mod:`intercom.hub.poller`), lines go to the socket at once, and the transport
gets only what the kernel does not take; until that has left, everything waits here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IPushProducer
from zope.interface import implementer

from intercom.hub.turn import TurnEnd

#: Unsent bytes over which a connection gets no more pushes (docs/protocol, "Delivery"). The line
#: that comes now does not count: one that is large must not cost a listener the next.
PUSH_LIMIT = 1024 * 1024
#: Unsent bytes over which a connection is not read from.
ANSWER_LIMIT = 2 * PUSH_LIMIT
#: Most bytes handed to the transport in one write.
CHUNK = 256 * 1024


@implementer(IPushProducer)
class Outflow:
    """The outgoing half of one connection.

    :param transport: where lines go (``ITransport``); this registers itself as its producer.
    :param turn: joins what one reactor turn writes.
    :param pause: called once when unsent bytes pass the push limit.
    :param hold: called once when they pass the answer limit.
    :param drained: called after either, when everything has left.
    :param ending: what is added to each line; frames that carry their length need none.
    """

    def __init__(
        self,
        transport: Any,
        turn: TurnEnd,
        pause: Callable[[], None],
        hold: Callable[[], None],
        drained: Callable[[], None],
        ending: bytes = b"\n",
    ) -> None:
        self._transport = transport
        self._turn = turn
        self._pause = pause
        self._hold = hold
        self._drained = drained
        self._ending = ending
        self._lines: list[bytes] = []
        self._unsent = 0
        self._stopped = False  # the transport asked for a pause
        self._scheduled = False
        self._over = 0  # how many limits are passed
        self._closed = False
        self._finish: Callable[[], None] | None = None
        self._handed = False  # the transport was given something, and may still have it
        self._send: Callable[[bytes], int] | None = None
        transport.registerProducer(self, True)

    def quicken(self, send: Callable[[bytes], int]) -> None:
        """Give lines to the socket itself, as ``socket.send`` does, from now on.

        The transport then tells of each time that it has nothing left (it has a pull producer),
        for what it was given must leave first. Nothing was given to it yet, or all stays as it is.
        """
        if not (self._handed or self._closed):
            self._send = send
            self._transport.unregisterProducer()
            self._transport.registerProducer(self, False)

    @property
    def unsent(self) -> int:
        """Bytes that wait here; what the transport took already is not counted."""
        return self._unsent

    @property
    def busy(self) -> bool:
        """Whether anything waits here."""
        return bool(self._lines)

    def write(self, line: bytes) -> None:
        """Send a line, to which its ending is added. Dropped once ``finish`` was called."""
        if self._closed:
            return
        self._lines.append(line)
        waited = self._unsent
        self._unsent += len(line) + len(self._ending)
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._turn.call(self.flush)
        if waited > PUSH_LIMIT:
            self._check_limits()

    def _check_limits(self) -> None:
        if self._over < 1:
            self._over = 1
            self._pause()
        if self._over < 2 and self._unsent > ANSWER_LIMIT:
            self._over = 2
            self._hold()

    def flush(self) -> None:
        """Hand over what the transport has room for, as one write where possible."""
        self._scheduled = False
        while self._lines and not self._stopped:
            taken, size = 0, 0
            for line in self._lines:
                taken += 1
                size += len(line) + len(self._ending)
                if size >= CHUNK:
                    break
            chunk = self._lines[:taken]
            del self._lines[:taken]
            self._unsent -= size
            chunk.append(b"")
            self._hand_over(self._ending.join(chunk))
        if self._lines or self._stopped:
            return
        if self._over:
            self._over = 0
            self._drained()
        if self._finish is not None and not self._lines:
            finish, self._finish = self._finish, None
            self._transport.unregisterProducer()
            finish()

    def _hand_over(self, data: bytes) -> None:
        if self._send is not None:
            try:
                sent = self._send(data)
            except OSError:  # it is full, or gone: the transport will find out
                sent = 0
            if sent == len(data):
                return
            self._stopped = True
            data = data[sent:]
        self._handed = True
        self._transport.write(data)

    def finish(self, then: Callable[[], None]) -> None:
        """Take nothing more; once everything was handed over, unregister and call ``then``."""
        if self._closed:
            return
        self._closed = True
        self._finish = then
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._turn.call(self.flush)

    # -- producer, called by the transport, from within write() as well, and repeatedly

    def pauseProducing(self) -> None:
        """The transport's buffer is full."""
        self._stopped = True

    def resumeProducing(self) -> None:
        """The transport's buffer is empty."""
        self._stopped = False
        self.flush()

    def stopProducing(self) -> None:
        """The connection is gone."""
        self._closed = self._stopped = True
        self._lines.clear()
        self._unsent = 0
        self._finish = None
