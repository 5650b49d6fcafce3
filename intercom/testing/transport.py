"""A transport in memory that behaves as a socket does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IPushProducer,
    ITransport,
)
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

#: Bytes that a real transport hands to a protocol at once.
CHUNK = 65536
#: Unread bytes over which a real transport asks its producer to pause.
CAPACITY = 65536


@implementer(ITransport, IHalfCloseableDescriptor)
class BoundedTransport:
    """One side of a connection that behaves as a socket does, where ``StringTransport`` does not.

    It pauses its producer while more than ``capacity`` bytes are unread, hands over at
    most 64 KiB at once, and knows half-closing and aborting.

    :ivar unread: what the protocol wrote and the peer has not taken yet.
    :ivar stalled: the peer reads nothing until this is set to False again.
    """

    disconnecting = False

    def __init__(self, protocol: Protocol, peer: Any, capacity: int = CAPACITY) -> None:
        self._protocol = protocol
        self._peer = peer
        self._capacity = capacity
        self._producer: IPushProducer | None = None
        self._incoming = bytearray()
        self._reading = True
        self._finishing = False
        self.unread = bytearray()
        self.stalled = False
        self.write_closed = False
        self.connected = True

    # -- what the protocol calls

    def write(self, data: bytes) -> None:
        """Take bytes for the peer."""
        if not self.connected or self.write_closed or self._finishing:
            return
        self.unread += data
        if self._producer is not None and len(self.unread) > self._capacity:
            self._producer.pauseProducing()

    def writeSequence(self, iovec: Iterable[bytes]) -> None:
        """Take several pieces as one."""
        self.write(b"".join(iovec))

    def registerProducer(self, producer: IPushProducer, streaming: bool) -> None:
        """Remember whom to pause."""
        assert streaming, "only push producers are supported"
        self._producer = producer

    def unregisterProducer(self) -> None:
        """Forget it."""
        self._producer = None

    def pauseProducing(self) -> None:
        """Hand nothing over."""
        self._reading = False

    def resumeProducing(self) -> None:
        """Hand over what came meanwhile."""
        self._reading = True
        self._hand_over()

    def stopProducing(self) -> None:
        """End the connection, as a real transport does."""
        self.loseConnection()

    def loseConnection(self, reason: Failure | None = None) -> None:
        """End once everything written is read."""
        self.disconnecting = self._finishing = True
        self._reading = False
        self._finish_if_read()

    def loseWriteConnection(self) -> None:
        """Write nothing more, go on reading."""
        self.write_closed = True

    def writeConnectionLost(self, reason: Failure) -> None:
        """Part of the interface; nobody calls it here."""

    def readConnectionLost(self, reason: Failure) -> None:
        """Part of the interface; nobody calls it here."""

    def abortConnection(self) -> None:
        """End at once; what the kernel has taken the peer may still read."""
        del self.unread[self._capacity :]
        self._lose(Failure(ConnectionAborted()))

    def getPeer(self) -> Any:
        """The address that the test gave."""
        return self._peer

    def getHost(self) -> Any:
        """The same kind of address."""
        return self._peer

    # -- what the test calls

    def receive(self, data: bytes) -> None:
        """Bytes arrive from the peer."""
        self._incoming += data
        self._hand_over()

    def take(self) -> bytes:
        """The peer reads everything there is."""
        if self.stalled:
            return b""
        taken = bytearray()
        while self.unread:
            taken += self.unread
            self.unread.clear()
            if self._producer is not None:
                self._producer.resumeProducing()
        self._finish_if_read()
        return bytes(taken)

    def hang_up(self) -> None:
        """The peer closes: what it had sent is handed over first."""
        if self._reading:
            self._hand_over()
        self._lose(Failure(ConnectionDone()))

    def _hand_over(self) -> None:
        while self._incoming and self._reading and self.connected:
            chunk = bytes(self._incoming[:CHUNK])
            del self._incoming[:CHUNK]
            self._protocol.dataReceived(chunk)

    def _finish_if_read(self) -> None:
        if self._finishing and not self.unread:
            self._lose(Failure(ConnectionDone()))

    def _lose(self, reason: Failure) -> None:
        if self.connected:
            self.connected = False
            self._protocol.connectionLost(reason)
