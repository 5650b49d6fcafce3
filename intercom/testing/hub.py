"""A whole hub in memory."""

from __future__ import annotations

import itertools
import posixpath
from typing import Any, cast

from twisted.internet.address import IPv4Address, UNIXAddress
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import (
    IReactorTime,
)
from twisted.internet.task import Clock

from intercom.core.bus.broker import Broker
from intercom.core.hub import HubCore
from intercom.hub.attendance import Attendance
from intercom.hub.doorway import DoorFactory
from intercom.hub.factory import HubFactory
from intercom.hub.hub import Hub
from intercom.hub.parts import bus_limits
from intercom.hub.pi.bus import Bus
from intercom.hub.pi.memory import MemoryBusFiles
from intercom.hub.registry import MemoryRegistry
from intercom.settings.limits import DEFAULTS, Limits
from intercom.spool.memory import MemorySpool
from intercom.testing.clients import MemoryClient, MemoryPiClient
from intercom.testing.transport import BoundedTransport
from intercom.wire import envelope
from intercom.wire.ndjson import Decoder, Encoder
from intercom.wire.notices import NoticeWriter


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
        self.left: list[str] = []
        self.files = MemoryBusFiles()
        attendance = Attendance(limits.connections, 0.0)
        bus = self._bus(channel, durability, clock, attendance, limits)
        self.core = HubCore(
            durability, envelope.digest, envelope.identify, notice, key, limits, bus.bridge.members
        )
        self.hub = Hub(
            self.core,
            self.spool,
            self.registry,
            clock,
            self.left.append,
            lambda line: decoder.decode(line, None),
            limits,
            attendance=attendance,
            bus=bus,
        )
        encoder = Encoder(channel, self.new_id, self._timestamp, {"pid": 1, "version": "test"})
        ndjson = HubFactory(self.hub, decoder, encoder, limits=limits)
        self._factory = DoorFactory(ndjson, bus)
        self._pi_factory = DoorFactory(ndjson, bus, for_pi=True)
        self.started: Deferred[None] = self.hub.start()
        self.pump()

    def _bus(
        self,
        channel: str,
        durability: str,
        clock: IReactorTime,
        attendance: Attendance,
        limits: Limits,
    ) -> Bus:
        """What serves the pi clients."""
        broker = Broker(
            draw=lambda: f"drawn-{next(self._counter)}",
            resolve=posixpath.normpath,
            channel=channel,
            level=durability,
            limits=bus_limits(limits),
        )
        return Bus(broker, self.spool, self.files, clock, 0.0, attendance, {}, self._unused)

    def _unused(self) -> None:
        self.left.append("no pi client was here for a while")

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
        return MemoryClient(self, self._connect(self._factory, local))

    def connect_pi(self, local: bool = True) -> MemoryPiClient:
        """The same for a pi client, where those look."""
        return MemoryPiClient(self, self._connect(self._pi_factory, local))

    def _connect(self, factory: DoorFactory, local: bool) -> BoundedTransport:
        address = UNIXAddress(None) if local else IPv4Address("TCP", "127.0.0.1", 1)
        protocol = factory.buildProtocol(address)
        transport = BoundedTransport(protocol, address)
        protocol.makeConnection(transport)
        return transport

    def client(self, session: str, **payload: Any) -> MemoryClient:
        """A new connection that has registered and was welcomed."""
        client = self.connect()
        answer = client.register(session, **payload)
        assert answer["type"] == "welcome", answer
        return client
