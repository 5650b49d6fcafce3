"""Waiting for news, for a time at most, and for the time passing in threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Thread
from typing import Any, ParamSpec, TypeVar

from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Bell:
    """Rung when something may have come; wakes everybody who waits.

    :param clock: ``IReactorTime``.
    """

    def __init__(self, clock: Any) -> None:
        self._clock = clock
        self._waiting: list[Deferred[None]] = []

    def ring(self) -> None:
        """Something may have come."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.called:
                one.callback(None)

    async def wait(
        self, seconds: float, interrupt: Callable[[Callable[[], None]], None] | None = None
    ) -> None:
        """Wait for the bell, but no longer than so many seconds.

        :param interrupt: is given what ends the waiting at once.
        """
        waiting: Deferred[None] = Deferred()
        self._waiting.append(waiting)

        def wake() -> None:
            if not waiting.called:
                waiting.callback(None)

        late = self._clock.callLater(max(0.0, seconds), wake)
        if interrupt is not None:
            interrupt(wake)
        await waiting
        if waiting in self._waiting:
            self._waiting.remove(waiting)
        if late.active():
            late.cancel()


class Threads:
    """Runs what blocks elsewhere than in the reactor's thread.

    :param reactor: an ``IReactorFromThreads``.
    """

    def __init__(self, reactor: Any, most: int = 16) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, most, "bridge")
        # One may be waiting for a hub to start, and must not keep the process from ending.
        daemons: Any = partial(Thread, daemon=True)
        self._pool.threadFactory = daemons

    def start(self) -> None:
        """Be ready for work. What is under way when the process ends is not waited for."""
        self._pool.start()

    def call(self, work: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> Deferred[_T]:
        """Run it, and fire with its result."""
        return deferToThreadPool(self._reactor, self._pool, work, *args, **kwargs)
