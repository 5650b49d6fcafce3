"""Builds the hub's protocols, for any stream endpoint."""

from __future__ import annotations

from twisted.internet.address import UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory
from twisted.logger import Logger

from intercom.core.limits import Pace, too_many
from intercom.hub.poller import Poller
from intercom.hub.protocol import HubProtocol
from intercom.hub.turn import TurnEnd
from intercom.interfaces import IHub
from intercom.settings.limits import DEFAULTS, Limits
from intercom.wire.ndjson import Decoder, Encoder


class HubFactory(ServerFactory):
    """A connection over a Unix socket is trusted by kernel credentials; any other shows the key.

    :param hub: whom the connections talk to.
    :param decoder: makes messages of lines; :param encoder: makes lines of answers.
    :param trusted: let every connection in without a key (an embedder's own transports).
    :param limits: how fast each may speak.
    :param poller: reads them, where there is one; see :mod:`intercom.hub.poller`.
    """

    _log = Logger()
    noisy = False

    def __init__(
        self,
        hub: IHub,
        decoder: Decoder,
        encoder: Encoder,
        trusted: bool = False,
        limits: Limits = DEFAULTS,
        poller: Poller | None = None,
    ) -> None:
        self._hub = hub
        self._decoder = decoder
        self._encoder = encoder
        self._trusted = trusted
        self._limits = limits
        self._full = False
        self.poller = poller
        self.turn = TurnEnd(hub.clock) if poller is None else poller.turn

    def room(self) -> int:
        """How many connections more are served."""
        return self._hub.room()

    def refusal(self) -> bytes:
        """What one beyond them is told, with its line feed; the log hears of the first."""
        if not self._full:
            self._full = True
            self._log.warn("no room for another connection: {most}", most=self._limits.connections)
        return self._encoder.encode(too_many()) + b"\n"

    def buildProtocol(self, addr: IAddress | None) -> HubProtocol:
        """One protocol a connection."""
        self._full = False
        needs_key = not self._trusted and not isinstance(addr, UNIXAddress)
        pace = Pace(self._limits.message_rate, self._limits.byte_rate, self._hub.clock.seconds())
        parts = self._hub, self._decoder, self._encoder, self.turn
        protocol = HubProtocol(*parts, needs_key, pace, self.poller)
        protocol.factory = self
        return protocol
