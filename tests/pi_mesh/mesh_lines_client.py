"""A blocking NDJSON client for tests: raw lines, and strict about what it was granted.

It is written from the protocol alone and shares no code with the hub.
"""

from __future__ import annotations

import json
import time
from typing import Any

from pi_connection import PATIENCE_S, Connection
from pi_fields import Rejected

Line = dict[str, Any]

_FIELDS = frozenset(
    ("id", "type", "from_session", "to_session", "channel", "reply_to", "payload", "timestamp")
)
#: What is told without being asked for, and what must have been asked for.
_ALWAYS = frozenset({"welcome", "chat", "heartbeat", "error", "sessions"})
_GRANTED = {"receipt": "receipts", "cursor": "cursor", "presence": "presence"}


class LinesClient(Connection):
    """One connection.

    :ivar welcome: the payload with which it was let in.
    """

    unit = "line"

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.session_id = ""
        self.welcome: Line = {}
        self._count = 0

    def write(self, *lines: Line) -> None:
        """Say lines, all in one write."""
        texts = [json.dumps(line, ensure_ascii=False) + "\n" for line in lines]
        self.write_bytes("".join(texts).encode())

    def _cut(self) -> str | None:
        if b"\n" not in self._bytes:
            return None
        text, _, self._bytes = self._bytes.partition(b"\n")
        return text.decode()

    def _check(self, line: Line) -> None:
        kind = line.get("type")
        if not set(line) >= _FIELDS:
            raise Rejected(f"not an envelope: {line}")
        if not self.welcome and kind not in ("welcome", "error"):
            raise Rejected(f"before the welcome: {line}")
        if kind not in _ALWAYS and _GRANTED.get(str(kind)) not in self.welcome["features"]:
            raise Rejected(f"nobody asked for this: {line}")

    # -- what a client does

    def register(self, session_id: str, *features: str, **payload: Any) -> Line:
        """Register and wait for the welcome, which comes first."""
        said = {"features": list(features), **payload}
        self.write({"type": "register", "from_session": session_id, "payload": said})
        first = self.read()
        assert first["type"] == "welcome", first
        self.welcome, self.session_id = first["payload"], session_id
        assert set(features) <= set(self.welcome["features"]), self.welcome
        return self.welcome

    def beat(self) -> None:
        """Wait until all that was said was handled."""
        self._count += 1
        mark = f"beat-{self.session_id}-{self._count}"
        self.write({"type": "heartbeat", "id": mark})
        self.take("heartbeat", reply_to=mark)

    def list(self) -> list[Line]:
        """The rows of who is here."""
        self._count += 1
        mark = f"list-{self.session_id}-{self._count}"
        self.write({"type": "list", "id": mark})
        rows = self.take("sessions", reply_to=mark)["payload"]["sessions"]
        assert isinstance(rows, list)
        return rows

    def ids(self) -> list[str]:
        return [row["session"] for row in self.list()]

    def chat(self, to: str, message_id: str, payload: Line, **fields: Any) -> Line:
        """Send a message; the payload of its receipt."""
        said = {"type": "chat", "id": message_id, "to_session": to, "payload": payload}
        self.write({**said, **fields})
        receipt: Line = self.take("receipt", reply_to=message_id)["payload"]
        return receipt

    def acknowledge(self) -> None:
        """Say that all that has come was dealt with, up to the last cursor."""
        cursor = self.take_all("cursor")[-1]
        self.write({"type": "ack", "payload": dict(cursor["payload"])})
        self.beat()

    def mail(self, *expected: str) -> list[Line]:
        """All messages that have come; those of these ids are waited for."""
        deadline = time.monotonic() + PATIENCE_S
        self.beat()
        while not set(expected) <= {one["id"] for one in self.arrived if one["type"] == "chat"}:
            assert time.monotonic() < deadline, (expected, self.arrived)
            self._receive()
        return self.take_all("chat")
