"""A blocking pi-intercom client for tests, as strict as the public one.

It is written from the protocol alone and shares no code with the hub, so that a mistake there
is not made here a second time.
"""

from __future__ import annotations

from typing import Any

from pi_client_checks import check_frame
from pi_connection import MAX_FRAME, PATIENCE_S, Address, Ended, FramedConnection, packed
from pi_fields import Frame

__all__ = [
    "MAX_FRAME",
    "PATIENCE_S",
    "SESSION",
    "Ended",
    "PiClient",
    "message",
    "packed",
    "register_frame",
]

#: What a session says of itself where a test does not care.
SESSION: Frame = {"cwd": "/project", "model": "m", "pid": 1, "startedAt": 2, "lastActivity": 3}


def register_frame(session_id: str | None = None, **more: Any) -> Frame:
    """A ``register``: ``session`` changes what the session says, the rest is of the frame."""
    frame = {"type": "register", "session": {**SESSION, **more.pop("session", {})}, **more}
    return frame if session_id is None else {**frame, "sessionId": session_id}


def message(message_id: str, text: str | None = None, **fields: Any) -> Frame:
    """A message; by default its text tells its id."""
    said = f"text of {message_id}" if text is None else text
    return {"id": message_id, "timestamp": 5, "content": {"text": said}, **fields}


class PiClient(FramedConnection):
    """One connection.

    :ivar registered: by what it was told it has a session.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.registered = False
        self._farewells = 0

    def _note(self, frame: Any, kind: Any) -> None:
        if kind in ("register", "unregister"):
            self.joined = kind == "register"
            self._farewells += not self.joined

    def _check(self, frame: Any) -> None:
        if self._farewells and frame.get("type") in ("registered", "health_ok"):
            self.registered = False
            self._farewells -= 1
        check_frame(frame, self.registered)
        self.registered = self.registered or frame["type"] == "registered"

    # -- what a client does

    def register(self, session_id: str | None = None, **more: Any) -> str:
        """Register and wait for the welcome, which comes first; returns the session's id."""
        self.write(register_frame(session_id, **more))
        welcome = self.read()
        assert welcome["type"] == "registered", welcome
        assert session_id in (None, welcome["sessionId"])
        return str(welcome["sessionId"])

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

    def ask(self, to: str, message_id: str, text: str | None = None, **fields: Any) -> Frame:
        return self.send(to, message_id, text, expectsReply=True, **fields)

    def reply(self, to: str, message_id: str, reply_to: str, **fields: Any) -> Frame:
        return self.send(to, message_id, replyTo=reply_to, **fields)

    def receipt(self, message_id: str, status: str = "injected") -> None:
        said = {"messageId": message_id, "status": status, "timestamp": 6}
        self.write({"type": "message_receipt", "receipt": said})

    def mail(self) -> list[str]:
        """The ids of all messages that have come, once the hub has said all it has to say."""
        self.list()
        return [one["message"]["id"] for one in self.take_all("message")]
