"""A blocking pi-subagents client for tests, as strict as the public one.

With topics it is the new client, which lists in parts; without it is the older one. It is
written from the protocol alone and shares no code with the hub.
"""

from __future__ import annotations

import json
import socket
from typing import Any

from mesh_subagents_checks import Expected, Frame, restored
from pi_frames_client import MAX_FRAME, PATIENCE_S, Ended, Rejected, message, packed

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


class SubagentsClient:
    """One connection.

    :ivar arrived: frames that came and were not taken yet, in order.
    :ivar texts: the JSON of each of them, as it came.
    :ivar joined: by what it said it has a session.
    """

    def __init__(self, path: str, topics: bool = True) -> None:
        self.topics = topics
        self.socket = socket.socket(socket.AF_UNIX)
        try:
            self.socket.connect(path)
        except OSError:
            self.socket.close()
            raise
        self.session_id = ""
        self.joined = False
        self.arrived: list[Frame] = []
        self.texts: list[str] = []
        self._expected = Expected(topics)
        self._bytes = b""
        self._requests = 0

    def __enter__(self) -> SubagentsClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- writing and reading

    def write(self, *frames: Any) -> None:
        """Say frames, all in one write."""
        for frame in frames:
            self._note(frame)
        self.write_bytes(packed(*frames))

    def _note(self, frame: Any) -> None:
        """Know what may be the answer."""
        kind = frame.get("type") if isinstance(frame, dict) else None
        if kind == "register":
            self.joined = True
            self._expected.topics = frame.get("topicFrames") is True
        elif kind == "unregister":
            self.joined = False
            self._expected.farewells += 1
        elif kind == "list":
            asked = (frame.get("stream") is True, "change" in frame)
            self._expected.asked[frame.get("requestId", "")] = asked

    def write_bytes(self, data: bytes) -> None:
        self.socket.settimeout(PATIENCE_S)
        self.socket.sendall(data)

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
        try:
            while True:
                self._receive()
        except Ended:
            frames, self.arrived, self.texts = self.arrived, [], []
            return frames

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
        self._expected.check(frame)
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

    def register(self, wished: str | None = None, **session: Any) -> str:
        """Register and wait for the welcome, which comes first; returns the session's id."""
        self.write(register_frame(wished, self.topics, **session))
        self.session_id = self.read()["sessionId"]
        return self.session_id

    def unregister(self) -> None:
        self.write({"type": "unregister"})

    def presence(self, **fields: Any) -> None:
        self.write({"type": "presence", **fields})

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

    def mail(self) -> list[Frame]:
        """All message frames that have come, whole, once the hub has said all it has to say."""
        self.list()
        found = [one for one in self.arrived if one["type"] == "message"]
        kept = [
            (frame, text)
            for frame, text in zip(self.arrived, self.texts, strict=True)
            if frame["type"] != "message"
        ]
        self.arrived = [frame for frame, _ in kept]
        self.texts = [text for _, text in kept]
        return [{**one, "message": restored(one["message"])} for one in found]
