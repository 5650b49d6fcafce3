"""Commands that a listening agent writes to standard input, one JSON object a line.

``{"action": "send", "to": ID, "text": TEXT, "payload": OBJECT, "reply_to": ID, "id": ID,
"strict": BOOL}``; only ``action`` and one of ``text`` and ``payload`` must be there.
Standard library only.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any

from intercom.errors import IntercomError
from intercom.wire.envelope import MAX_LINE
from intercom.wire.framing import LineCutter

_CHUNK = 1 << 16
#: JSON can write a character of the body as six.
_LIMIT = 6 * MAX_LINE
_TEXTS = ("to", "text", "reply_to", "id")


@dataclass(frozen=True, slots=True)
class Order:
    """What one line asked for: a message to send."""

    to: str
    payload: dict[str, Any]
    reply_to: str | None
    message_id: str | None
    strict: bool


class Inlet:
    """Reads orders from a descriptor. ``fd`` is None once it has ended."""

    def __init__(self, fd: int | None) -> None:
        self.fd = fd
        self._cutter = LineCutter(_LIMIT)

    def read(self) -> list[Order | IntercomError]:
        """Take in what there is (call when readable); an error stands for a bad line."""
        assert self.fd is not None
        if not _may_read(self.fd):
            self.fd = None
            return []
        try:
            data = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.fd = None
            data = b"\n" if self._cutter.pending else b""
        return [_order(line) for line in self._cutter.feed(data) if line is None or line.strip()]


def _may_read(fd: int) -> bool:
    """Whether reading is harmless: from a terminal it would stop a job in the background."""
    if not os.isatty(fd):
        return True
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def _order(line: bytes | None) -> Order | IntercomError:
    """Read one line."""
    if line is None:
        return _bad(f"a line of standard input has over {_LIMIT} bytes", "LINE_TOO_LONG")
    try:
        asked: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        return _bad(f"not a JSON object: {error}", "BAD_JSON")
    if not isinstance(asked, dict) or asked.get("action") != "send":
        return _bad('a line must be an object with "action": "send"')
    for name in _TEXTS:
        if not isinstance(asked.get(name), str | None):
            return _bad(f"{name} must be a string")
    payload = asked.get("payload")
    if not isinstance(payload, dict | None):
        return _bad("payload must be an object")
    payload, text = dict(payload or {}), asked.get("text")
    if text is not None and "text" in payload:
        return _bad("text stands there twice: in the line and in its payload")
    if text is not None:
        payload["text"] = text
    if not payload:
        return _bad("a message needs text or payload")
    to = "*" if asked.get("to") is None else asked["to"]
    return Order(to, payload, asked.get("reply_to"), asked.get("id"), asked.get("strict") is True)


def _bad(text: str, code: str = "BAD_ENVELOPE") -> IntercomError:
    return IntercomError(text, code=code)
