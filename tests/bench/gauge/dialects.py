"""How to speak to each kind of server: one object a connection, one class a protocol.

Arrivals are found in the bytes themselves (:mod:`gauge.texts`), the same for all; a
dialect greets, frames, finds the server's confirmations in what a sender is told, and
says what a receiver must answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from socket import socket
from typing import Any
from zlib import crc32

from gauge.texts import Broken
from intercom.wire import envelope

#: Seconds for a greeting.
GREETING = 20.0
#: The time is not what is measured.
_WHEN = envelope.format_timestamp(0.0)


class Dialect:
    """One connection's protocol. The base class frames lines and expects nothing back.

    :param name: under which it sends or receives.
    :param channel: where the server has several.
    :ivar confirms: the server tells a sender that it has taken a message.
    :ivar returns: what a connection sends comes back to itself, and goes nowhere else.
    :ivar everyone: an address that reaches all receivers at once; None where each needs
        a message of its own.
    :ivar notes: what the server said about itself, for the report.
    """

    confirms = False
    returns = False
    everyone: str | None = None

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        self.sock = sock
        self.name = name
        self.channel = channel
        self.notes: dict[str, Any] = {}

    def greet(self, receives: bool) -> None:
        """Make the connection ready (blocking); later bytes are read by the caller."""

    def frame(self, to: str, number: int, text: str) -> bytes:
        """What sends one message; ``number`` is unique among this connection's."""
        return self.envelope("chat", number, to, {"text": text}) + b"\n"

    def confirmed(self, data: bytes) -> Sequence[int]:
        """Find the numbers of messages that the server now says it has taken.

        A server that names none confirms in order: count on.

        :raise Broken: it refuses one.
        """
        return ()

    def replies(self, data: bytes) -> bytes:
        """What the receiver must say to these bytes."""
        return b""

    def envelope(self, kind: str, number: int, to: str, payload: dict[str, Any]) -> bytes:
        """An NDJSON line, without line feed."""
        return envelope.make(
            type=kind,
            message_id=f"msg_{number:012x}",
            from_session=self.name,
            to_session=to,
            channel=self.channel,
            payload=payload,
            timestamp=_WHEN,
        )


class Echo(Dialect):
    """No protocol: a server that sends back what it reads."""

    returns = True


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
        granted = welcome["payload"].get("features", [])
        self.confirms = "receipts" in granted
        self._answering = receives and "cursor" in granted
        if receives:
            self.notes["acks"] = self._answering

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


_REPLY_TO = re.compile(rb'"reply_to":"msg_([0-9a-f]{12})"')
_RECEIPT = b'"type":"receipt"'
_STORED = b'"state":"stored"'
_CURSOR = b'"type":"cursor"'
_ERROR = b'"type":"error"'


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
        if receives:
            self.notes["acks"] = bool(self.receipts)

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

#: By the name that a job gives to the load generator.
DIALECTS: dict[str, type[Dialect]] = {
    kind.__name__: kind for kind in (Echo, Ndjson, NdjsonLive, Pi, PiSubagents)
}
