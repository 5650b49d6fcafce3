"""A blocking pi-subagents client for tests, as strict as the public one.

With topics it is the new client, which lists in parts; without it is the older one. It is
written from the protocol alone and shares no code with the hub.
"""

from __future__ import annotations

from typing import Any

from mesh_subagents_checks import Expected, restored
from pi_connection import FramedConnection
from pi_fields import Frame
from pi_frames_client import message

#: What a session says of itself where a test does not care.
SESSION: Frame = {"cwd": "/project", "model": "m"}


def register_frame(wished: str | None, topics: bool, /, **session: Any) -> Frame:
    """A ``register`` as the client says it."""
    frame: Frame = {"type": "register", "session": {**SESSION, **session}}
    if wished is not None:
        frame["requestedId"] = wished
    return {**frame, "topicFrames": True} if topics else frame


def update(topic: str, text: str, event: str = "update", **more: Any) -> Frame:
    """A TopicUpdate."""
    said = {"topic": topic, "text": text, "event": event, "revision": 1, "updatedAt": 9}
    return {**said, **more}


class SubagentsClient(FramedConnection):
    """One connection."""

    def __init__(self, path: str, topics: bool = True) -> None:
        super().__init__(path)
        self.topics = topics
        self.session_id = ""
        self._expected = Expected(topics)

    def _note(self, frame: Any, kind: Any) -> None:
        if kind == "register":
            self.joined = True
            self._expected.topics = frame.get("topicFrames") is True
        elif kind == "unregister":
            self.joined = False
            self._expected.farewells += 1
        elif kind == "list":
            asked = (frame.get("stream") is True, "change" in frame)
            self._expected.asked[frame.get("requestId", "")] = asked

    def _check(self, frame: Any) -> None:
        self._expected.check(frame)

    # -- what a client does

    def register(self, wished: str | None = None, **session: Any) -> str:
        """Register and wait for the welcome, which comes first; returns the session's id."""
        self.write(register_frame(wished, self.topics, **session))
        self.session_id = self.read()["sessionId"]
        return self.session_id

    def list(self, **change: Any) -> list[Frame]:
        """Who is here, put together; what a change was answered is in ``receipts``.

        All that this connection said before was handled then.
        """
        return self.listing(**change)["sessions"]

    def listing(self, **change: Any) -> Frame:
        """The same with ``receipts``, and ``error``."""
        self._requests += 1
        request = f"list {self._requests}"
        asked: Frame = {"type": "list", "requestId": request}
        if self.topics:
            asked["stream"] = True
        self.write({**asked, "change": change} if change else asked)
        rows: dict[str, Frame] = {}
        answer: Frame = {"receipts": []}
        while True:
            part = self.take("sessions", requestId=request)
            answer["receipts"] += part.get("receipts", [])
            for row in part["sessions"]:
                known = rows.setdefault(row["id"], row)
                for name in ("topics", "subscriptions"):
                    if known is not row and name in row:
                        known[name] += row[name]
            if not part.get("more"):
                error = {"error": part["error"]} if "error" in part else {}
                return {**answer, "sessions": list(rows.values()), **error}

    def ids(self) -> list[str]:
        return [row["id"] for row in self.list()]

    def publish(self, topic: str, text: str, event: str = "update", **more: Any) -> list[Frame]:
        """Publish; the receipts."""
        said = self.listing(action="publish", topic=update(topic, text, event, **more))
        assert "error" not in said, said
        found = said["receipts"]
        assert isinstance(found, list)
        return found

    def subscribe(self, topic: str, **more: Any) -> None:
        said = self.listing(action="subscribe", subscription={"topic": topic, **more})
        assert "error" not in said, said

    def send(self, to: str, message_id: str, text: str | None = None, **fields: Any) -> Frame:
        """Send a message; what the hub says of it."""
        said = message(message_id, text, **fields)
        self.write({"type": "send", "to": to, "message": said})
        return self.outcome(message_id)

    def mail(self) -> list[Frame]:
        """All message frames that have come, whole, once the hub has said all it has to say."""
        self.list()
        found = self.take_all("message")
        return [{**one, "message": restored(one["message"])} for one in found]
