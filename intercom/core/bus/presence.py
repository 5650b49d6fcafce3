"""When a change of a session is told to others: at once, or once a second if nothing changed."""

from __future__ import annotations

HEARTBEAT_MS = 1000


class Presence:
    """When each connection's session was last shown to the others."""

    def __init__(self) -> None:
        self._shown: dict[int, int] = {}

    def shown(self, number: int, now: int) -> None:
        """It registered."""
        self._shown[number] = now

    def forget(self, number: int) -> None:
        """It left. Idempotent."""
        self._shown.pop(number, None)

    def is_due(self, number: int, changed: bool, now: int) -> bool:
        """Whether the others are told now; then they count as told."""
        due = changed or now - self._shown.get(number, now) >= HEARTBEAT_MS
        if due:
            self._shown[number] = now
        return due
