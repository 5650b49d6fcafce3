"""The end of a reactor turn, when what one turn gathered is let go at once; and waiting."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger


class TurnEnd:
    """Runs each callable once, in order, after the events of the present turn.

    One delayed call serves all connections, so that a turn which touches a
    hundred of them costs one timer and a hundred joined writes. Who handles many
    events in a row (:class:`intercom.hub.poller.Poller`) ends the turn itself,
    and there is no timer at all.
    """

    _log = Logger()

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: list[Callable[[], None]] = []
        self._held = False

    def call(self, action: Callable[[], None]) -> None:
        """Run ``action`` at the end of this turn. The caller sees to it that it asks once."""
        if not self._waiting and not self._held:
            self._clock.callLater(0, self._run)
        self._waiting.append(action)

    def begin(self) -> None:
        """Events follow until :meth:`end`."""
        self._held = True

    def end(self) -> None:
        """They are over: run what waits, and what that asks for."""
        while self._waiting:
            self._run()
        self._held = False

    def _run(self) -> None:
        waiting, self._waiting = self._waiting, []
        for action in waiting:
            try:
                action()
            except Exception:
                self._log.failure("an action at the end of a turn failed")


async def until(clock: IReactorTime, reached: Callable[[], bool], within: float) -> None:
    """Wait for a condition, a little at a time, but for so many seconds at most."""
    deadline = clock.seconds() + within
    while not reached() and clock.seconds() < deadline:
        await deferLater(clock, 0.01)
