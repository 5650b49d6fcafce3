"""One socket for every dialect: the first byte of a connection says which it speaks.

A pi frame begins with its length, whose first byte is 0, since no frame has 16 MiB. A line of
NDJSON begins with ``{``, or with white space before it. Until a byte comes, a connection is
treated as one of those for whom the socket is: it waits in their lobby, and by their rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.address import UNIXAddress
from twisted.internet.interfaces import IAddress, IHalfCloseableProtocol
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.python.failure import Failure
from zope.interface import alsoProvides, noLongerProvides

from intercom.hub.factory import HubFactory
from intercom.hub.pi.bus import Bus
from intercom.hub.pi.protocol import PiProtocol
from intercom.hub.protocol import HubProtocol

_PI = 0
_NDJSON = b"{ \t\r\n"

Dialect = HubProtocol | PiProtocol


class Doorway(Protocol):
    """Listens for the first byte, then is whatever dialect that begins.

    :param first: makes the protocol for whom the socket is; ``other`` the one beside it.
    :param is_other: whether a first byte is the other's.
    """

    def __init__(
        self,
        first: Callable[[], Dialect],
        other: Callable[[], Dialect],
        is_other: Callable[[int], bool],
    ) -> None:
        self._speaker = first()
        self._other = other
        self._is_other = is_other

    def makeConnection(self, transport: Any) -> None:
        """Let the first one speak."""
        self._become(self._speaker, transport)

    def _become(self, speaker: Dialect, transport: Any) -> None:
        self._speaker = speaker
        if isinstance(speaker, PiProtocol):
            alsoProvides(self, IHalfCloseableProtocol)
        elif IHalfCloseableProtocol.providedBy(self):
            noLongerProvides(self, IHalfCloseableProtocol)
        speaker.makeConnection(transport)
        self.transport = transport

    def dataReceived(self, data: bytes) -> None:
        """Decide by the first byte; from then on the dialect gets all that comes."""
        if self._is_other(data[0]):
            transport = self.transport
            self._speaker.forsake()
            self._become(self._other(), transport)
        # No further call passes here: not one per chunk of a busy connection. And nothing is
        # kept for it: a thousand that are idle have two closures less each.
        del self._other, self._is_other
        self.dataReceived = self._speaker.dataReceived  # type: ignore[method-assign]
        self._speaker.dataReceived(data)

    def connectionLost(self, reason: Failure) -> None:  # type: ignore[override]
        """The connection is lost."""
        self._speaker.connectionLost(reason)

    def readConnectionLost(self) -> None:
        """The peer says no more; only asked of one that speaks pi."""
        assert isinstance(self._speaker, PiProtocol)
        self._speaker.readConnectionLost()

    def writeConnectionLost(self) -> None:
        """We say no more."""


class DoorFactory(ServerFactory):
    """Builds the connections of one socket.

    :param ndjson: makes those that speak NDJSON. :param bus: serves those that speak pi.
    :param for_pi: it is one of the places where pi clients look. :param alone: nothing else is
        spoken there: any program can make a browser send text to a port of this machine.
    """

    noisy = False

    def __init__(
        self, ndjson: HubFactory, bus: Bus, for_pi: bool = False, alone: bool = False
    ) -> None:
        self._ndjson = ndjson
        self._bus = bus
        self._for_pi = for_pi
        self._alone = alone

    def room(self) -> int:
        """How many connections more are served."""
        return self._ndjson.room()

    def refusal(self) -> bytes:
        """What one beyond them is told; a pi client would understand nothing."""
        said = self._ndjson.refusal()
        return b"" if self._for_pi else said

    def strict(self) -> DoorFactory:
        """The same for a port where only pi is spoken."""
        return DoorFactory(self._ndjson, self._bus, for_pi=True, alone=True)

    def buildProtocol(self, addr: IAddress | None) -> Doorway:
        """One a connection."""

        def pi() -> Dialect:
            local = isinstance(addr, UNIXAddress)
            return PiProtocol(self._bus, self._ndjson.turn, local, self._ndjson.poller)

        def ndjson() -> Dialect:
            return self._ndjson.buildProtocol(addr)

        if self._for_pi:
            lines = b"" if self._alone else _NDJSON
            door = Doorway(pi, ndjson, lambda byte: byte in lines)
        else:
            door = Doorway(ndjson, pi, lambda byte: byte == _PI)
        door.factory = self
        return door
