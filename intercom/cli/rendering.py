"""Messages as readable text for a terminal.

A body can neither move the cursor nor pass for another message: control and
bidirectional characters are escaped, and each of its lines, folded to the
width of the terminal, stands behind a bar at the left edge.
"""

from __future__ import annotations

import json
import unicodedata
from datetime import datetime
from typing import Any

#: Invisible, yet part of scripts and emoji: the two joiners.
_ALLOWED = frozenset("\u200c\u200d")
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
BAR = "  | "


def escape(text: str) -> str:
    """Write control, format and bidirectional characters as their escapes."""
    if text.isprintable():
        return text
    return "".join(
        c.encode("unicode_escape").decode()
        if unicodedata.category(c) in _ESCAPED and c not in _ALLOWED
        else c
        for c in text
    )


def fold(line: str, width: int) -> list[str]:
    """Cut a line into pieces that a terminal shows in ``width`` columns each, at least one."""
    pieces, start, used = [], 0, 0
    for at, character in enumerate(line):
        columns = 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if used + columns > width and at > start:
            pieces.append(line[start:at])
            start, used = at, 0
        used += columns
    pieces.append(line[start:])
    return pieces


def age(timestamp: object, now: float) -> str:
    """How long ago a message says that it was written."""
    try:
        seconds = now - datetime.fromisoformat(str(timestamp)).timestamp()
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
    if seconds < 1:
        return "just now"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} ago"
    return f"{int(seconds)} s ago"


def message(envelope: dict[str, Any], now: float, width: int) -> str:
    """One message: a line that says from whom, how old and which, then its body behind a bar."""
    head = [escape(str(envelope.get("from_session", "unknown")))]
    if envelope.get("to_session") in ("*", "all"):
        head.append("to everybody")
    head += [age(envelope.get("timestamp"), now), escape(str(envelope.get("id")))]
    if envelope.get("reply_to"):
        head.append(f"in reply to {escape(str(envelope['reply_to']))}")
    payload = dict(envelope.get("payload") or {})
    text = payload.pop("text", "")
    if not isinstance(text, str):
        text = json.dumps(text, ensure_ascii=False)
    lines = text.removesuffix("\n").split("\n") if text else []
    if payload:
        lines.append("+ " + json.dumps(payload, ensure_ascii=False))
    room = max(16, width - len(BAR))
    body = [BAR + piece for line in lines for piece in fold(_expand(line), room)]
    return "\n".join([", ".join(head), *body]) + "\n"


def _expand(line: str) -> str:
    """Make a line of a body safe: tabs as spaces, a final carriage return dropped."""
    return escape(line.removesuffix("\r").expandtabs(4))
