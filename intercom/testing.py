"""A whole hub in memory, for the tests of those who embed it.

The core, the protocol and the outflow are the real ones; only sockets, files and
the clock are replaced, by twins that pass the same contract tests as the real
ones. Nothing happens unless a test makes it happen: bytes move when a client
says something, time passes in :meth:`MemoryHub.advance`.

    >>> hub = MemoryHub("demo")
    >>> ada, bob = hub.client("ada"), hub.client("bob", features=["cursor"])
    >>> sent = ada.chat("bob", text="hello")
    >>> [line["payload"]["text"] for line in bob.heard("chat")]
    ['hello']
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any, cast

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionAborted, ConnectionDone
from twisted.internet.interfaces import (
    IHalfCloseableDescriptor,
    IPushProducer,
    IReactorTime,
    ITransport,
)
from twisted.internet.protocol import Protocol
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.core.hub import HubCore
from intercom.hub.factory import HubFactory
from intercom.hub.hub import Hub
from intercom.hub.registry import MemoryRegistry
from intercom.settings.limits import DEFAULTS, Limits
from intercom.spool.memory import MemorySpool
from intercom.wire import envelope
from intercom.wire.ndjson import Decoder, Encoder
from intercom.wire.notices import NoticeWriter

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


class MemoryClient:
    """One raw connection to a :class:`MemoryHub`: says lines, hears lines."""

    def __init__(self, hub: MemoryHub, transport: BoundedTransport) -> None:
        self._hub = hub
        self.transport = transport
        self.session = ""
        self._rest = b""
        self._lines: list[dict[str, Any]] = []

    def say(self, data: bytes | dict[str, Any]) -> None:
        """Send raw bytes, or one object as a line, and let everything happen that follows."""
        raw = data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n"
        self.transport.receive(raw)
        self._hub.pump()

    def register(self, session: str, **payload: Any) -> dict[str, Any]:
        """Claim a session id; returns the hub's last answer (a welcome, or an error)."""
        self.session = session
        self.say({"type": "register", "from_session": session, "payload": payload})
        answers = [line for line in self.lines if line["type"] in ("welcome", "error")]
        return answers[-1]

    def chat(self, to: str, message_id: str | None = None, **payload: Any) -> str:
        """Send a message; returns its id."""
        message_id = message_id or self._hub.new_id()
        self.say({"type": "chat", "id": message_id, "to_session": to, "payload": payload})
        return message_id

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Everything that the hub has said to it so far, decoded, in order."""
        data = bytearray(self._rest)
        self._hub.pump()
        while taken := self.transport.take():
            data += taken
            self._hub.pump()  # room makes the hub go on
        *whole, rest = data.split(b"\n")
        self._rest = bytes(rest)
        self._lines += [json.loads(line) for line in whole]
        return self._lines

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What it has heard of one type."""
        return [line for line in self.lines if line["type"] == kind]

    def hang_up(self) -> None:
        """Close the connection from its side."""
        self.transport.hang_up()
        self._hub.pump()


class MemoryHub:
    """A channel's hub without sockets, files or time of its own.

    :param durability: the channel's level, as for the real one.
    :param key: what connections made with ``local=False`` must show.
    :param limits: how much of everything it allows; what is stored is not bounded here.
    """

    def __init__(
        self,
        channel: str = "test",
        durability: str = "disk",
        key: str | None = None,
        limits: Limits = DEFAULTS,
    ) -> None:
        self._counter = itertools.count(1)
        self.clock = Clock()
        clock = cast(IReactorTime, self.clock)
        self.spool = MemorySpool(clock)
        self.registry = MemoryRegistry()
        decoder = Decoder(channel, self.new_id, self._timestamp)
        notice = NoticeWriter(channel, self.new_id, self._timestamp)
        self.core = HubCore(durability, envelope.digest, envelope.identify, notice, key, limits)
        self.left: list[str] = []
        self.hub = Hub(
            self.core,
            self.spool,
            self.registry,
            clock,
            self.left.append,
            lambda line: decoder.decode(line, None),
            limits,
        )
        self._factory = HubFactory(
            self.hub,
            decoder,
            Encoder(channel, self.new_id, self._timestamp, {"pid": 1, "version": "test"}),
            limits=limits,
        )
        self.started: Deferred[None] = self.hub.start()
        self.pump()

    def new_id(self) -> str:
        """A fresh message id; deterministic."""
        return f"msg_{next(self._counter):012x}"

    def _timestamp(self) -> str:
        return envelope.format_timestamp(self.clock.seconds())

    def pump(self) -> None:
        """Let everything happen that needs no time to pass."""
        for _round in range(1000):
            due = [c for c in self.clock.getDelayedCalls() if c.getTime() <= self.clock.seconds()]
            if not due:
                return
            self.clock.advance(0)
        raise AssertionError("the hub never comes to rest")

    def advance(self, seconds: float) -> None:
        """Let time pass, a tenth of a second at a time."""
        for _step in range(round(seconds * 10)):
            self.clock.advance(0.1)
            self.pump()

    def connect(self, local: bool = True) -> MemoryClient:
        """A new connection that has said nothing yet; not ``local`` is one over TCP."""
        address = UNIXAddress(None) if local else IPv4Address("TCP", "127.0.0.1", 1)
        protocol = self._factory.buildProtocol(address)
        transport = BoundedTransport(protocol, address)
        protocol.makeConnection(transport)
        return MemoryClient(self, transport)

    def client(self, session: str, **payload: Any) -> MemoryClient:
        """A new connection that has registered and was welcomed."""
        client = self.connect()
        answer = client.register(session, **payload)
        assert answer["type"] == "welcome", answer
        return client
