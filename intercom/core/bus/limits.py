"""How fast a connection may speak, and how many may be connected without a session."""

from __future__ import annotations

import math

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The bounds of the pi clients' own broker.

    :ivar sessions: at once. :ivar unregistered: connections without a session.
    :ivar register_ms: for a connection to register. :ivar burst: frames at once.
    :ivar rate: frames a second beyond them. :ivar grace: frames beyond the burst that only
        wait, before a connection is cut off.
    :ivar idle_ms: nobody is here for so long before the hub goes.
    :ivar ask_ms: until an ask is given up.
    :ivar mailbox: letters of one sender that wait for sessions that are not here; its own
        oldest makes room. :ivar keep_ms: for so long a letter waits to be received.
    :ivar extensions: that a session may have. :ivar extension_bytes: of a message of one.
    """

    sessions: int = 128
    unregistered: int = 32
    register_ms: int = 1000
    burst: int = 240
    rate: int = 120
    grace: int = 30
    idle_ms: int = 5000
    ask_ms: int = 600_000
    mailbox: int = 256
    keep_ms: int = 24 * 60 * 60 * 1000
    extensions: int = 32
    extension_bytes: int = 16 * 1024


class Bucket:
    """How many frames a connection may say now."""

    __slots__ = ("_limits", "_then", "_tokens")

    def __init__(self, limits: Limits, now: int) -> None:
        self._limits = limits
        self._tokens = float(limits.burst)
        self._then = now

    def take(self, now: int) -> bool:
        """Whether one more may be handled now; then it is counted."""
        self._refill(now)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def is_flood(self, waiting: int, now: int) -> bool:
        """Whether so many that wait are more than a little patience would help."""
        self._refill(now)
        return waiting > self._tokens + self._limits.grace

    def next_at(self, now: int) -> int:
        """When the next one may be handled."""
        lacks = max(0.0, 1 - self._tokens)
        return now + math.ceil(lacks * 1000 / self._limits.rate)

    def _refill(self, now: int) -> None:
        if now > self._then:
            grown = self._tokens + (now - self._then) * self._limits.rate / 1000
            self._tokens = min(float(self._limits.burst), grown)
            self._then = now


class Lobby:
    """Connections without a session, the one that came first at the beginning."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: dict[int, int] = {}
        self._late: set[int] = set()

    def enter(self, number: int, now: int) -> int:
        """It was connected, or unregistered; until when it may wait."""
        self.leave(number)
        self._waiting[number] = now + self._limits.register_ms
        return self._waiting[number]

    def leave(self, number: int) -> None:
        """It has a session, or is gone. Idempotent."""
        self._waiting.pop(number, None)
        self._late.discard(number)

    def surplus(self) -> list[int]:
        """Who makes room for the others."""
        over = len(self._waiting) - self._limits.unregistered
        return list(self._waiting)[: max(0, over)]

    def overdue(self, now: int) -> tuple[list[int], bool]:
        """Whose time is over, and whether somebody else's is: look again at once.

        Nobody is sent away at the first look: what it said may lie in the kernel still.
        """
        late = [number for number, until in self._waiting.items() if now >= until]
        gone = [number for number in late if number in self._late]
        self._late.update(late)
        return gone, len(gone) < len(late)
