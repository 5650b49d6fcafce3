"""The list of live sessions, published once for all changes of a turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred

from intercom.hub.turn import TurnEnd
from intercom.interfaces import IRegistry


class Publisher:
    """Has the registry write who is live.

    :param turn: when what one turn changed is written.
    :param failed: an errback for what could not be written later on, and its name.
    """

    def __init__(self, registry: IRegistry, turn: TurnEnd, failed: Callable[..., Any]) -> None:
        self._registry = registry
        self._turn = turn
        self._failed = failed
        self._waiting: tuple[str, ...] | None = None

    def now(self, sessions: tuple[str, ...]) -> Deferred[None]:
        """Write this list; what was to be written soon is in it."""
        self._waiting = None
        written: Deferred[None] = self._registry.publish(sessions)
        return written

    def soon(self, sessions: tuple[str, ...]) -> None:
        """Write this list, or a later one, at the end of the turn."""
        if self._waiting is None:
            self._turn.call(self._write)
        self._waiting = sessions

    def _write(self) -> None:
        sessions = self._waiting
        if sessions is not None:
            self.now(sessions).addErrback(self._failed, "peers.json")
