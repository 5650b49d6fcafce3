"""Builds the hub's protocols, for any stream endpoint."""

from __future__ import annotations

from twisted.internet.address import UNIXAddress
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from intercom.hub.protocol import HubProtocol
from intercom.hub.turn import TurnEnd
from intercom.interfaces import IHub
from intercom.wire.ndjson import Decoder, Encoder


class HubFactory(ServerFactory):
    """A connection over a Unix socket is trusted by kernel credentials; any other shows the key.

    :param hub: whom the connections talk to.
    :param decoder: makes messages of lines; :param encoder: makes lines of answers.
    :param trusted: let every connection in without a key (an embedder's own transports).
    """

    noisy = False

    def __init__(
        self, hub: IHub, decoder: Decoder, encoder: Encoder, trusted: bool = False
    ) -> None:
        self._hub = hub
        self._decoder = decoder
        self._encoder = encoder
        self._trusted = trusted
        self._turn = TurnEnd(hub.clock)

    def buildProtocol(self, addr: IAddress | None) -> HubProtocol:
        """One protocol a connection."""
        needs_key = not self._trusted and not isinstance(addr, UNIXAddress)
        protocol = HubProtocol(self._hub, self._decoder, self._encoder, self._turn, needs_key)
        protocol.factory = self
        return protocol
