"""Raw connections to a hub in memory: they say what a test says, and keep what they hear."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from intercom.testing.transport import BoundedTransport
from intercom.wire.pi.frames import dump_frame

if TYPE_CHECKING:
    from intercom.testing.hub import MemoryHub


class _Connection:
    """One raw connection to a :class:`MemoryHub`."""

    def __init__(self, hub: MemoryHub, transport: BoundedTransport) -> None:
        self._hub = hub
        self.transport = transport
        self._rest = b""
        self._heard: list[dict[str, Any]] = []

    def _say(self, data: bytes) -> None:
        """Send bytes, and let everything happen that follows."""
        self.transport.receive(data)
        self._hub.pump()

    def _taken(self) -> bytes:
        """What the hub has said and was not cut yet."""
        data = bytearray(self._rest)
        self._hub.pump()
        while taken := self.transport.take():
            data += taken
            self._hub.pump()  # room makes the hub go on
        return bytes(data)

    def hang_up(self) -> None:
        """Close the connection from its side."""
        self.transport.hang_up()
        self._hub.pump()


class MemoryClient(_Connection):
    """One raw connection to a :class:`MemoryHub`: says lines, hears lines."""

    def __init__(self, hub: MemoryHub, transport: BoundedTransport) -> None:
        super().__init__(hub, transport)
        self.session = ""

    def say(self, data: bytes | dict[str, Any]) -> None:
        """Send raw bytes, or one object as a line, and let everything happen that follows."""
        self._say(data if isinstance(data, bytes) else json.dumps(data).encode() + b"\n")

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
        *whole, self._rest = self._taken().split(b"\n")
        self._heard += [json.loads(line) for line in whole]
        return self._heard

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What it has heard of one type."""
        return [line for line in self.lines if line["type"] == kind]


class MemoryPiClient(_Connection):
    """One raw connection of a pi client to a :class:`MemoryHub`: says frames, hears frames."""

    def say(self, data: bytes | dict[str, Any]) -> None:
        """Send raw bytes, or one frame, and let everything happen that follows."""
        self._say(data if isinstance(data, bytes) else dump_frame(data))

    def register(self, session_id: str, **session: Any) -> dict[str, Any]:
        """Register as a pi-intercom client does; returns what it heard last."""
        said = {"cwd": "/", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1, **session}
        self.say({"type": "register", "sessionId": session_id, "session": said})
        return self.frames[-1]

    def send(self, to: str, message_id: str, text: str = "", **message: Any) -> dict[str, Any]:
        """Send a message; returns what was said of it."""
        content = {"content": {"text": text}, "timestamp": 1}
        self.say({"type": "send", "to": to, "message": {"id": message_id, **content, **message}})
        kinds = ("delivered", "delivery_queued", "delivery_failed")
        outcomes = [one for one in self.frames if one["type"] in kinds]
        return [one for one in outcomes if one["messageId"] == message_id][-1]

    @property
    def frames(self) -> list[dict[str, Any]]:
        """Everything that the hub has said to it so far, in order."""
        data = self._taken()
        while len(data) >= 4 and len(data) >= 4 + int.from_bytes(data[:4]):
            end = 4 + int.from_bytes(data[:4])
            self._heard.append(json.loads(data[4:end]))
            data = data[end:]
        self._rest = data
        return self._heard

    def heard(self, kind: str) -> list[dict[str, Any]]:
        """What it has heard of one type."""
        return [frame for frame in self.frames if frame["type"] == kind]
