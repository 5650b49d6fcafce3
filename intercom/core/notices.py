"""What notices say that more than one part of the core writes. Pure."""

from __future__ import annotations

from typing import Any


def cancelled(sender: str, message_id: str) -> tuple[str, dict[str, Any]]:
    """A session took a message back that its receiver may have: a text, and the details."""
    text = f"{sender} took its message {message_id} back"
    return text, {"code": "CANCELLED", "session": sender}
