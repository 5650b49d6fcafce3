"""Counts, ages and lengths of time in words."""

from __future__ import annotations

from intercom import moments
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def counted(count: int, noun: str) -> str:
    """``1 message``, ``2 messages``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def age(timestamp: object, now: float) -> str:
    """How long ago a message says that it was written; without a zone it is UTC.

    Empty where it does not say so readably.
    """
    sent = moment(timestamp)
    return "" if sent is None else since(now - sent)


def aged(line: bytes, envelope: Mapping[str, Any], now: float) -> bytes:
    """A message as JSON with its ``age`` behind all that it says itself.

    Models read it, and cannot tell how long ago a timestamp is. A message that has such a
    field, or no readable timestamp, stays as it is.
    """
    written = age(envelope.get("timestamp"), now)
    if not written or "age" in envelope:
        return line
    return line.rstrip()[:-1] + f',"age":"{written}"}}'.encode()


def moment(timestamp: object) -> float | None:
    """When a message says that it was written (epoch seconds), None if not readably."""
    try:
        return moments.read(str(timestamp))
    except (ValueError, OverflowError, OSError):
        return None


def since(seconds: float) -> str:
    """How long ago a moment of another's clock lies, which may differ from ours."""
    if -60 < seconds < 1:
        return "just now"
    if seconds < 0:
        return "dated in the future"
    return ago(seconds)


def ago(seconds: float) -> str:
    """A moment that lies so far back, in its largest unit."""
    return f"{lasting(seconds)} ago" if seconds >= 1 else "just now"


def lasting(seconds: float) -> str:
    """A length of time in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s"
