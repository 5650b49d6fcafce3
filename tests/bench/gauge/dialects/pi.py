"""Length-prefixed JSON, as the extensions of pi speak it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from socket import socket
from typing import Any
from zlib import crc32

from gauge.dialects.base import GREETING, Dialect
from gauge.texts import Broken


class Pi(Dialect):
    """Length-prefixed JSON as a client of pi-intercom speaks it.

    A sender is told ``delivered``. A receiver says of each message what the client says when
    it shows one to its agent, and the hub tells the sender each time.
    """

    confirms = True
    receipts: tuple[dict[str, str], ...] = (
        {"status": "receiver_received"},
        {"status": "acknowledged", "detail": "accepted by receiver"},
        {"status": "injected"},
    )

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        super().__init__(sock, name, channel)
        self._rest = b""
        self._ids = f"{crc32(name.encode()):08x}-0000-4000-8000"

    def hello(self) -> dict[str, Any]:
        """What registers a session under our name."""
        numbers = {"pid": 1, "startedAt": _WHEN_MS, "lastActivity": _WHEN_MS}
        return {"session": {**self.about, **numbers}, "sessionId": self.name}

    @property
    def about(self) -> dict[str, Any]:
        """What any session says of itself."""
        said = {"cwd": "/project", "model": "bench/model", "status": "idle"}
        return {"name": f"agent {self.name}", **said}

    def greet(self, receives: bool) -> None:
        """Register, under the name that others send to."""
        self.sock.settimeout(GREETING)
        self.sock.sendall(packed({"type": "register", **self.hello()}))
        frames: list[bytes] = []
        while not frames:
            more = self.sock.recv(65536)
            if not more:
                raise Broken(f"the hub closed before it registered {self.name}")
            frames = self._cut(more)
        first = json.loads(frames[0])
        if (first["type"], first.get("sessionId")) != ("registered", self.name):
            raise Broken(f"the hub does not register {self.name}: {frames[0].decode()}")
        if receives and self.receipts:
            self.notes["acks"] = True

    def frame(self, to: str, number: int, text: str) -> bytes:
        """See :meth:`Dialect.frame`; ids look like the client's."""
        message_id = f"{self._ids}-{number:012x}"
        message = {"id": message_id, "timestamp": _WHEN_MS, "content": {"text": text}}
        return packed({"type": "send", "to": to, "message": message})

    def confirmed(self, data: bytes) -> Sequence[int]:
        """The messages of which these bytes say that they are delivered."""
        told = [body for kind, body in self._heard(data) if kind == b"delivered"]
        return [int(_MESSAGE_ID.findall(body)[0], 16) for body in told]

    def replies(self, data: bytes) -> bytes:
        """All receipts of each message in these bytes."""
        answers = []
        for kind, body in self._heard(data):
            if kind == b"message" and self.receipts:
                message_id = json.loads(body)["message"]["id"]
                for said in self.receipts:
                    receipt = {"messageId": message_id, "timestamp": _WHEN_MS, **said}
                    answers.append(packed({"type": "message_receipt", "receipt": receipt}))
        return b"".join(answers)

    def _heard(self, data: bytes) -> list[tuple[bytes, bytes]]:
        """Type and JSON of the frames that are complete now."""
        heard = []
        for body in self._cut(data):
            kind = _TYPE.match(body)
            if kind is None or kind[1] in _REFUSALS:
                raise Broken(f"the hub told {self.name}: {body[:2000].decode()}")
            heard.append((kind[1], body))
        return heard

    def _cut(self, data: bytes) -> list[bytes]:
        data, at, frames = self._rest + data, 0, []
        while len(data) >= at + 4:
            end = at + 4 + int.from_bytes(data[at : at + 4])
            if len(data) < end:
                break
            frames.append(data[at + 4 : end])
            at = end
        self._rest = data[at:]
        return frames


class PiSubagents(Pi):
    """The same frames as a client of pi-subagents speaks: it sends no receipts."""

    receipts = ()

    def hello(self) -> dict[str, Any]:
        """See :meth:`Pi.hello`."""
        return {"session": self.about, "requestedId": self.name, "topicFrames": True}


def packed(frame: dict[str, Any]) -> bytes:
    """A frame as it goes over the wire."""
    body = json.dumps(frame, separators=(",", ":")).encode()
    return len(body).to_bytes(4) + body


_WHEN_MS = 1_764_430_200_000
# Brokers of this dialect write the type first.
_TYPE = re.compile(rb'\{"type":"([a-z_]+)"')
_MESSAGE_ID = re.compile(rb'"messageId":"[0-9a-f-]{24}([0-9a-f]{12})"')
_REFUSALS = (b"delivery_failed", b"error")
