"""Work off the reactor's thread, strictly in order: with a thread, and step by step for tests."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool
from zope.interface import implementer

from intercom.errors import IntercomError
from intercom.interfaces import IWorker


def _gone() -> Deferred[Any]:
    return fail(IntercomError("this worker has ended", code="SHUTTING_DOWN"))


class _DaemonThread(Thread):
    """A thread that does not keep a process alive: work stuck in the kernel must not either."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs, daemon=True)


class _Pool(ThreadPool):
    threadFactory = _DaemonThread  # noqa: N815  Twisted's name


@implementer(IWorker)
class ThreadWorker:
    """Work in one thread of its own, which begins with the first piece of work.

    :param name: of the thread, for people who look at the process.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str) -> None:
        self._reactor = reactor
        self._pool = _Pool(1, 1, name)  # one thread: the default pool keeps no order
        self._quitting = False
        self._ended: list[Deferred[None]] | None = []

    def do(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """See ``IWorker``."""
        if self._quitting:
            return _gone()
        if not self._pool.started:
            self._pool.start()
        return deferToThreadPool(self._reactor, self._pool, work, *args)

    def quit(self) -> Deferred[None]:
        """See ``IWorker``."""
        if self._ended is None:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        self._ended.append(ended)
        if not self._quitting:
            # Joining the thread would block; behind all other work it returns at once.
            last = self.do(int) if self._pool.started else succeed(0)
            self._quitting = True
            last.addBoth(self._end)
        return ended

    def _end(self, _last: object) -> None:
        if self._pool.started:
            self._pool.stop()
        waiting, self._ended = self._ended or [], None
        for ended in waiting:
            ended.callback(None)


@implementer(IWorker)
class MemoryWorker:
    """The twin of :class:`ThreadWorker`: each piece of work waits for :meth:`perform`."""

    def __init__(self) -> None:
        self._todo: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._quitting = False

    def do(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """See ``IWorker``."""
        return _gone() if self._quitting else self._add(work, *args)

    def quit(self) -> Deferred[None]:
        """See ``IWorker``. Fires when everything that waits was performed."""
        self._quitting = True
        return self._add(lambda: None) if self._todo else succeed(None)

    def perform(self) -> bool:
        """Run the next piece; False if there was none."""
        if not self._todo:
            return False
        done, work, args = self._todo.popleft()
        result = maybeDeferred(work, *args)
        if not done.called:  # it may have been cancelled; the work is done all the same
            result.chainDeferred(done)
        else:
            result.addErrback(lambda _failure: None)
        return True

    def perform_all(self) -> None:
        """Run everything, what is added meanwhile too."""
        while self.perform():
            pass

    def _add(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        done: Deferred[Any] = Deferred()
        self._todo.append((done, work, args))
        return done
