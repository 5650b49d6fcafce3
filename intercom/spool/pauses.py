"""Things to be done after a pause, each at most once at a time."""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IDelayedCall, IReactorTime


class Pauses:
    """Named timers: what is asked for again before it was done is done once."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._calls: dict[str, IDelayedCall] = {}

    def after(self, pause: float, name: str, work: Callable[[], None]) -> None:
        """Do ``work`` in ``pause`` seconds, unless what has this name is to be done already."""
        if name not in self._calls:
            self._calls[name] = self._clock.callLater(pause, self._now, name, work)

    def cancel(self, *names: str) -> None:
        """Do these not; without names nothing of all."""
        for name in names or list(self._calls):
            call = self._calls.pop(name, None)
            if call is not None:
                call.cancel()

    def _now(self, name: str, work: Callable[[], None]) -> None:
        del self._calls[name]
        work()
