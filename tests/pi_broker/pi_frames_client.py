"""A blocking pi-intercom client for tests, as strict as the public one.

It is written from the protocol alone and shares no code with the hub, so that a mistake there
is not made here a second time.
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any

from pi_client_checks import Frame, Rejected, check_frame

Address = str | tuple[str, int]

#: Seconds to wait for something that has to come.
PATIENCE_S = 20.0
MAX_FRAME = 1 << 20
#: What a session says of itself where a test does not care.
SESSION: Frame = {"cwd": "/project", "model": "m", "pid": 1, "startedAt": 2, "lastActivity": 3}


class Ended(Exception):
    """The hub ended the connection."""


# -- frames -----------------------------------------------------------------------------------


def packed(*frames: Any) -> bytes:
    """Frames as they go over the wire."""
    parts = []
    for frame in frames:
        body = json.dumps(frame, ensure_ascii=False).encode()
        parts.append(len(body).to_bytes(4) + body)
    return b"".join(parts)


def register_frame(session_id: str | None = None, **more: Any) -> Frame:
    """A ``register``: ``session`` changes what the session says, the rest is of the frame."""
    frame = {"type": "register", "session": {**SESSION, **more.pop("session", {})}, **more}
    return frame if session_id is None else {**frame, "sessionId": session_id}


def message(message_id: str, text: str | None = None, **fields: Any) -> Frame:
    """A message; by default its text tells its id."""
    said = f"text of {message_id}" if text is None else text
    return {"id": message_id, "timestamp": 5, "content": {"text": said}, **fields}


class PiClient:
    """One connection.

    :ivar arrived: frames that came and were not taken yet, in order.
    :ivar texts: the JSON of each of them, as it came.
    :ivar joined: by what it said it has a session; ``registered``: by what it was told.
    """

    def __init__(self, address: Address) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.registered = False
        self.arrived: list[Frame] = []
        self.texts: list[str] = []
        self._bytes = b""
        self._requests = 0
        self.joined = False
        self._farewells = 0

    def __enter__(self) -> PiClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- writing and reading

    def write(self, *frames: Any) -> None:
        """Say frames, all in one write."""
        for frame in frames:
            kind = frame.get("type") if isinstance(frame, dict) else None
            if kind in ("register", "unregister"):
                self.joined = kind == "register"
                self._farewells += not self.joined
        self.write_bytes(packed(*frames))

    def write_bytes(self, data: bytes, piece: int | None = None) -> None:
        """Say any bytes, so many at a time."""
        self.socket.settimeout(PATIENCE_S)
        for at in range(0, len(data), piece or max(1, len(data))):
            self.socket.sendall(data[at : at + (piece or len(data))])

    def read(self) -> Frame:
        """The next frame, and it is taken."""
        if not self.arrived:
            self._receive()
        self.texts.pop(0)
        return self.arrived.pop(0)

    def take(self, kind: str, **fields: Any) -> Frame:
        """The first frame of this type with these fields; what came before it is kept."""
        at = 0
        while True:
            while at == len(self.arrived):
                self._receive()
            frame = self.arrived[at]
            if frame["type"] == kind and all(frame.get(name) == fields[name] for name in fields):
                self.texts.pop(at)
                return self.arrived.pop(at)
            at += 1

    def ended(self) -> list[Frame]:
        """Wait until the hub ends the connection; what it said before, and was not taken."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                self._receive()
        except Ended:
            frames, self.arrived, self.texts = self.arrived, [], []
            return frames
        raise AssertionError("the hub does not stop talking")

    def _receive(self) -> None:
        """Wait for one more frame.

        :raise Ended: no more will come.
        """
        while (text := self._cut()) is None:
            self.socket.settimeout(PATIENCE_S)
            try:
                data = self.socket.recv(1 << 18)
            except TimeoutError:
                raise AssertionError(f"nothing comes; so far: {self.arrived}") from None
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            if not data:
                if self._bytes:
                    raise Rejected(f"half a frame, and the end: {self._bytes[:200]!r}")
                raise Ended
            self._bytes += data
        frame = json.loads(text)
        if self._farewells and frame.get("type") in ("registered", "health_ok"):
            self.registered = False
            self._farewells -= 1
        check_frame(frame, self.registered)
        self.registered = self.registered or frame["type"] == "registered"
        self.arrived.append(frame)
        self.texts.append(text)

    def _cut(self) -> str | None:
        if len(self._bytes) < 4:
            return None
        length = int.from_bytes(self._bytes[:4])
        if not 0 < length <= MAX_FRAME:
            raise Rejected(f"a frame of {length} bytes")
        if len(self._bytes) < 4 + length:
            return None
        body, self._bytes = self._bytes[4 : 4 + length], self._bytes[4 + length :]
        return body.decode()

    # -- what a client does

    def register(self, session_id: str | None = None, **more: Any) -> str:
        """Register and wait for the welcome, which comes first; returns the session's id."""
        self.write(register_frame(session_id, **more))
        welcome = self.read()
        assert welcome["type"] == "registered", welcome
        assert session_id in (None, welcome["sessionId"])
        return str(welcome["sessionId"])

    def unregister(self) -> None:
        self.write({"type": "unregister"})

    def health(self) -> Frame:
        self._requests += 1
        self.write({"type": "health", "requestId": f"health {self._requests}"})
        return self.take("health_ok", requestId=f"health {self._requests}")

    def list(self) -> list[Frame]:
        """Who is here. All that this connection said before was handled then."""
        self._requests += 1
        self.write({"type": "list", "requestId": f"list {self._requests}"})
        rows = self.take("sessions", requestId=f"list {self._requests}")["sessions"]
        assert isinstance(rows, list)
        return rows

    def ids(self) -> list[str]:
        """The ids of who is here."""
        return [row["id"] for row in self.list()]

    def send(self, to: str, message_id: str, text: str | None = None, **fields: Any) -> Frame:
        """Send a message; what the hub says of it, ``delivered`` or ``delivery_failed``."""
        exact = {name: fields.pop(name) for name in ("targetId", "targetEpoch") if name in fields}
        said = message(message_id, text, **fields)
        self.write({"type": "send", "to": to, "message": said, **exact})
        return self.outcome(message_id)

    def outcome(self, message_id: str) -> Frame:
        """The next thing that the hub says of a message of ours."""
        at = 0
        while True:
            while at == len(self.arrived):
                self._receive()
            frame = self.arrived[at]
            if frame["type"].startswith("deliver") and frame["messageId"] == message_id:
                self.texts.pop(at)
                return self.arrived.pop(at)
            at += 1

    def ask(self, to: str, message_id: str, text: str | None = None, **fields: Any) -> Frame:
        return self.send(to, message_id, text, expectsReply=True, **fields)

    def reply(self, to: str, message_id: str, reply_to: str, **fields: Any) -> Frame:
        return self.send(to, message_id, replyTo=reply_to, **fields)

    def receipt(self, message_id: str, status: str = "injected") -> None:
        said = {"messageId": message_id, "status": status, "timestamp": 6}
        self.write({"type": "message_receipt", "receipt": said})

    def presence(self, **fields: Any) -> None:
        self.write({"type": "presence", **fields})

    def mail(self) -> list[str]:
        """The ids of all messages that have come, once the hub has said all it has to say."""
        self.list()
        found = [one["message"]["id"] for one in self.arrived if one["type"] == "message"]
        kept = [
            (frame, text)
            for frame, text in zip(self.arrived, self.texts, strict=True)
            if frame["type"] != "message"
        ]
        self.arrived = [frame for frame, _ in kept]
        self.texts = [text for _, text in kept]
        return found
