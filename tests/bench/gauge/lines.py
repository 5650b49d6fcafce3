"""The hub that one writes first with Twisted: ``LineReceiver``, ``json``, and no more.

Each line is parsed, its recipient looked up, the message printed anew and sent, and its
sender told. It keeps nothing. What our hub does in another way to be faster, and what
it does beyond this, are both seen beside it.

    python -m gauge.lines SOCKET
"""

from __future__ import annotations

import json
import sys
from typing import Any

from twisted.internet import reactor
from twisted.internet.endpoints import serverFromString
from twisted.internet.protocol import Factory
from twisted.protocols.basic import LineReceiver


class Peer(LineReceiver):
    """One connection; the first line says whose it is."""

    delimiter = b"\n"
    MAX_LENGTH = 1 << 20

    def __init__(self, peers: dict[str, Peer]) -> None:
        self._peers = peers
        self._name = ""

    def lineReceived(self, line: bytes) -> None:
        """Register, or pass on and confirm."""
        message = json.loads(line)
        if not self._name:
            self._name = message["from_session"]
            self._peers[self._name] = self
            self.say("welcome", message, {"features": ["receipts"]})
            return
        for peer in self._recipients(message["to_session"]):
            peer.print(message)
        self.say("receipt", message, {"state": "stored", "level": "nothing kept"})

    def _recipients(self, to: str) -> list[Peer]:
        if to == "*":
            return [peer for peer in self._peers.values() if peer is not self]
        return [self._peers[to]] if to in self._peers else []

    def say(self, kind: str, about: dict[str, Any], payload: dict[str, Any]) -> None:
        """Answer a message."""
        self.print({"type": kind, "reply_to": about["id"], "payload": payload})

    def print(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.sendLine(json.dumps(message, separators=(",", ":")).encode())

    def connectionLost(self, reason: Any = None) -> None:
        """Forget the name."""
        self._peers.pop(self._name, None)


class Peers(Factory):
    """All connections by their names."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}

    def buildProtocol(self, addr: Any) -> Peer:
        """One more."""
        return Peer(self._peers)


if __name__ == "__main__":
    serverFromString(reactor, f"unix:{sys.argv[1]}:backlog=256").listen(Peers())
    reactor.run()
