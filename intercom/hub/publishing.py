"""The list of live sessions, published once for all changes of a moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from intercom.hub.turn import TurnEnd
from intercom.interfaces import IRegistry


class Publisher:
    """Has the registry write who is live, one list after the other.

    :param turn: when what one turn changed is written.
    :param failed: an errback for what could not be written later on, and its name.
    """

    def __init__(self, registry: IRegistry, turn: TurnEnd, failed: Callable[..., Any]) -> None:
        self._registry = registry
        self._turn = turn
        self._failed = failed
        self._wanted: tuple[str, ...] | None = None
        self._waiting: list[Deferred[None]] = []
        self._scheduled = self._writing = False

    def now(self, sessions: tuple[str, ...]) -> Deferred[None]:
        """Write this list; fires when it, or a later one, is written.

        All that come while one is written share the next: the list has everybody in it.
        """
        done: Deferred[None] = Deferred()
        self._wanted = sessions
        self._waiting.append(done)
        self._write()
        return done

    def soon(self, sessions: tuple[str, ...]) -> None:
        """Write this list, or a later one, at the end of the turn."""
        self._wanted = sessions
        if not self._scheduled:
            self._scheduled = True
            self._turn.call(self._end_turn)

    def _end_turn(self) -> None:
        self._scheduled = False
        self._write()

    def _write(self) -> None:
        sessions = self._wanted
        if sessions is None or self._writing:
            return
        waiting, self._waiting, self._wanted = self._waiting, [], None
        self._writing = True
        self._registry.publish(sessions).addBoth(self._written, waiting)

    def _written(self, result: Any, waiting: list[Deferred[None]]) -> None:
        self._writing = False
        if isinstance(result, Failure) and not waiting:
            self._failed(result, "peers.json")
        for done in waiting:
            done.callback(result)
        self._write()
