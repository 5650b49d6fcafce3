"""Work off the reactor's thread, strictly in order: with a thread, and step by step for tests."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any

from twisted.internet.defer import Deferred, fail, maybeDeferred, succeed
from twisted.internet.interfaces import IReactorFromThreads
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.errors import IntercomError
from intercom.interfaces import IWorker

#: What is to be done, and who waits for it.
_Piece = tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]


def _gone() -> Deferred[Any]:
    return fail(IntercomError("this worker has ended", code="SHUTTING_DOWN"))


@implementer(IWorker)
class ThreadWorker:
    """Work in one thread of its own, which begins with the first piece of work.

    A queue and a callback each way, and nothing between: Twisted's own pools cost twice the
    hand-over (docs/performance). The thread does not keep a process alive: work stuck in the
    kernel must not either.

    :param reactor: is told from the thread; a :class:`intercom.hub.poller.Poller` does too.
    :param name: of the thread, for people who look at the process.
    """

    def __init__(self, reactor: IReactorFromThreads, name: str) -> None:
        self._call = reactor.callFromThread
        self._name = name
        self._thread: Thread | None = None
        self._todo: SimpleQueue[_Piece | None] = SimpleQueue()
        self._quitting = False
        self._ended: list[Deferred[None]] | None = []

    def do(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """See ``IWorker``."""
        if self._quitting:
            return _gone()
        if self._thread is None:
            self._thread = Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
        done: Deferred[Any] = Deferred()
        self._todo.put((done, work, args))
        return done

    def _run(self) -> None:
        """The thread's life."""
        while True:
            piece = self._todo.get()
            if piece is None:
                return
            done, work, args = piece
            tell: Callable[[Any], None] = done.callback
            result: Any
            try:
                result = work(*args)
            except BaseException:
                tell, result = done.errback, Failure()
            with contextlib.suppress(OSError):  # it waits to be heard, only the bell is broken
                self._call(tell, result)
            del tell, result
            del piece, done, work, args  # nothing is kept alive while there is nothing to do

    def quit(self) -> Deferred[None]:
        """See ``IWorker``."""
        if self._ended is None:
            return succeed(None)
        ended: Deferred[None] = Deferred()
        self._ended.append(ended)
        if not self._quitting:
            # Joining the thread would block; behind all other work it returns at once.
            last = self.do(int) if self._thread is not None else succeed(0)
            self._quitting = True
            last.addBoth(self._end)
        return ended

    def _end(self, _last: object) -> None:
        if self._thread is not None:
            self._todo.put(None)
            self._thread.join()
        waiting, self._ended = self._ended or [], None
        for ended in waiting:
            ended.callback(None)


@implementer(IWorker)
class MemoryWorker:
    """The twin of :class:`ThreadWorker`: each piece of work waits for :meth:`perform`."""

    def __init__(self) -> None:
        self._todo: deque[_Piece] = deque()
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
