"""NDJSON, as our hub speaks it and as any other may."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from socket import socket

from gauge.dialects.base import GREETING, Dialect
from gauge.texts import Broken


class Ndjson(Dialect):
    """NDJSON as any hub speaks it, with whatever features it grants.

    Receivers ask for ``cursor`` and acknowledge at each read; senders ask for ``receipts``.
    """

    everyone = "*"
    features: tuple[str, ...] = ("receipts", "cursor")

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        super().__init__(sock, name, channel)
        self._rest = b""
        self._answering = False
        self._acks = 0

    def greet(self, receives: bool) -> None:
        """Register, and see what is granted."""
        asked = [name for name in self.features if receives or name != "cursor"]
        hello = self.envelope("register", 0xFFFFFFFFFFFF, "hub", {"features": asked})
        self.sock.settimeout(GREETING)
        self.sock.sendall(hello + b"\n")
        data = b""
        while b"\n" not in data:
            more = self.sock.recv(65536)
            if not more:
                raise Broken(f"the hub closed before it welcomed {self.name}")
            data += more
        line, _, self._rest = data.partition(b"\n")
        welcome = json.loads(line)
        if welcome["type"] != "welcome":
            raise Broken(f"the hub does not welcome {self.name}: {line.decode()}")
        granted = welcome.get("payload", {}).get("features", [])
        self.confirms = "receipts" in granted
        self._answering = receives and "cursor" in granted
        self.keeps = self._answering
        if self._answering:
            self.notes["acks"] = True

    def confirmed(self, data: bytes) -> Sequence[int]:
        """The messages whose receipts these bytes complete."""
        lines = self._lines(data)
        if not lines or not self.confirms:
            return ()
        numbers = _REPLY_TO.findall(lines)
        if not len(numbers) == lines.count(_STORED) == lines.count(_RECEIPT):
            raise Broken(f"not every message was stored: {lines[:2000].decode()}")
        if numbers and "level" not in self.notes:
            at = lines.index(_RECEIPT)
            line = lines[lines.rfind(b"\n", 0, at) + 1 : lines.index(b"\n", at)]
            self.notes["level"] = json.loads(line)["payload"]["level"]
        return [int(number, 16) for number in numbers]

    def replies(self, data: bytes) -> bytes:
        """An acknowledgement of the last position in these bytes."""
        lines = self._lines(data)
        at = lines.rfind(_CURSOR) if self._answering else -1
        if at < 0:
            return b""
        line = lines[lines.rfind(b"\n", 0, at) + 1 : lines.index(b"\n", at)]
        position = json.loads(line)["payload"]
        self._acks += 1
        return self.envelope("ack", self._acks, "hub", position) + b"\n"

    def _lines(self, data: bytes) -> bytes:
        """The lines that are complete now."""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        lines = data[:end]
        at = lines.find(_ERROR)
        if at >= 0:
            line = lines[lines.rfind(b"\n", 0, at) + 1 : lines.index(b"\n", at)]
            raise Broken(f"the hub told {self.name}: {line.decode()}")
        return lines


class NdjsonLive(Ndjson):
    """NDJSON whose receivers take live pushes only, as the original clients do."""

    features = ("receipts",)


class NdjsonIds(Ndjson):
    """NDJSON of a hub that promises nothing, but answers each line with one that has its id."""

    features = ()

    def greet(self, receives: bool) -> None:
        """See :meth:`Ndjson.greet`."""
        super().greet(receives)
        self.confirms = True

    def confirmed(self, data: bytes) -> Sequence[int]:
        """The messages whose ids these bytes complete."""
        return [int(number, 16) for number in _ID.findall(self._lines(data))]


_ID = re.compile(rb'"msg_([0-9a-f]{12})"')
_REPLY_TO = re.compile(rb'"reply_to":"msg_([0-9a-f]{12})"')
_RECEIPT = b'"type":"receipt"'
_STORED = b'"state":"stored"'
_CURSOR = b'"type":"cursor"'
_ERROR = b'"type":"error"'
