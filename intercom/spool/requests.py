"""Reading, committing and emptying inboxes from the reactor: one thread, locks not waited for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.errors import InboxLocked, SpoolError, StalePosition
from intercom.interfaces import IWorker
from intercom.records import Position
from intercom.spool.files import SETTLE_PAUSE, SETTLE_TRIES
from intercom.spool.held import FIRST_PAUSE, LONGEST_PAUSE
from intercom.spool.inboxfile import Busy, InboxFile, Unsettled
from intercom.spool.tracked import RETRY_WINDOW

#: Inboxes of this many bytes are emptied once they are read, ...
WORTH_EMPTYING = 1 << 20
#: ... yet not before a hub that knows nothing but the files has no more use for the ids in
#: them: a sender whose hub died may send again for so long. One that has grown to
#: TOO_LARGE bytes is emptied all the same.
QUIET_S = RETRY_WINDOW
TOO_LARGE = 64 << 20

#: Seconds after a commit for which further ones of the same inbox gather. A busy listener
#: acknowledges message by message; each commit replaces a file, and holds the inbox's lock
#: against the appends that bring the next message.
COMMIT_PAUSE = 0.05

_T = TypeVar("_T")


class InboxRequests:
    """What is asked of inboxes beside appending, in the order of asking for each inbox.

    :param reader: the worker that does it.
    :param open_inbox: makes an :class:`InboxFile`; called in the worker.
    :param patience: seconds to try for a lock that others hold.
    :param idle: called whenever a request is answered.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        reader: IWorker,
        open_inbox: Callable[[str], InboxFile],
        patience: float,
        idle: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._open_inbox = open_inbox
        self._patience = patience
        self._idle = idle
        self._running: set[Deferred[Any]] = set()
        self._commits: dict[str, list[tuple[Position, Deferred[Position]]]] = {}
        self._pauses: dict[str, IDelayedCall] = {}
        self._emptying: dict[str, IDelayedCall] = {}
        self._closing = False

    def __bool__(self) -> bool:
        return bool(self._running)

    def close(self) -> None:
        """Take no more requests, and no longer try for locks."""
        self._closing = True
        pauses, self._pauses = self._pauses, {}
        for inbox, pause in pauses.items():
            pause.cancel()
            self._commit_waiting(inbox)
        for call in self._emptying.values():
            call.cancel()
        self._emptying.clear()

    def ask(self, inbox: str, work: Callable[[InboxFile, bool], _T]) -> Deferred[_T]:
        """Do ``work(inbox file, patient)``; again while the lock is held or the offset unreadable.

        :raise InboxLocked: others keep the lock.
        """
        if self._closing:
            return _closed()
        answer = Deferred.fromCoroutine(self._persist(inbox, work))
        self._running.add(answer)
        return answer.addBoth(self._answered, answer)

    def commit(self, inbox: str, position: Position) -> Deferred[Position]:
        """Move a stored position, at once; what comes until a moment later is done as one.

        An inbox that is read to its end, and large, is emptied after a while.
        """
        if self._closing:
            return _closed()
        done: Deferred[Position] = Deferred()
        waiting = self._commits.get(inbox)
        if waiting is None:
            self._commits[inbox] = [(position, done)]
            self._commit_waiting(inbox)
        else:
            waiting.append((position, done))
        return done

    def _commit_waiting(self, inbox: str) -> None:
        self._pauses.pop(inbox, None)
        waiting = self._commits[inbox]
        if not waiting:
            del self._commits[inbox]
            return
        self._commits[inbox] = []
        positions = [position for position, _ in waiting]
        answer = Deferred.fromCoroutine(
            self._persist(inbox, lambda file, patient: file.commit(positions, patient))
        )
        self._running.add(answer)
        answer.addCallbacks(
            self._committed, _tell_all, callbackArgs=(inbox, waiting), errbackArgs=(waiting,)
        )
        answer.addErrback(lambda failure: self._log.failure("a bug in the spool", failure))
        answer.addBoth(lambda _: self._pause(inbox))
        answer.addBoth(self._answered, answer)

    def _pause(self, inbox: str) -> None:
        """After a commit let others gather, unless there is no time."""
        if self._closing:
            self._commit_waiting(inbox)
        else:
            self._pauses[inbox] = self._clock.callLater(COMMIT_PAUSE, self._commit_waiting, inbox)

    def _committed(
        self,
        result: tuple[Sequence[Position | StalePosition], bool],
        inbox: str,
        waiting: list[tuple[Position, Deferred[Position]]],
    ) -> None:
        results, whole = result
        size = 0
        for (_, done), stored in zip(waiting, results, strict=True):
            if isinstance(stored, Position):
                size = max(size, stored.offset if whole else 0)
                done.callback(stored)
            else:
                done.errback(stored)
        if size >= WORTH_EMPTYING and not self._closing:
            self._empty_later(inbox, 0 if size >= TOO_LARGE else QUIET_S)

    def _empty_later(self, inbox: str, pause: float) -> None:
        """Empty an inbox once nothing was read in it for a while, if all of it is read then."""
        call = self._emptying.pop(inbox, None)
        if call is not None:
            call.cancel()
        self._emptying[inbox] = self._clock.callLater(pause, self._empty, inbox)

    def _empty(self, inbox: str) -> None:
        del self._emptying[inbox]
        self.ask(inbox, lambda file, _patient: file.compact()).addErrback(
            lambda failure: self._log.warn(
                "{inbox} is not emptied: {why}", inbox=inbox, why=failure.getErrorMessage()
            )
        )

    async def _persist(self, inbox: str, work: Callable[[InboxFile, bool], _T]) -> _T:
        deadline = self._clock.seconds() + self._patience
        pause, tries = FIRST_PAUSE, 1

        def attempt(patient: bool) -> _T:
            return work(self._open_inbox(inbox), patient)

        while True:
            try:
                done: _T = await self._reader.do(attempt, tries < SETTLE_TRIES)
                return done
            except Unsettled:
                tries += 1
                await deferLater(self._clock, SETTLE_PAUSE)
            except Busy:
                left = deadline - self._clock.seconds()
                if left <= 0 or self._closing:
                    raise InboxLocked(
                        f"another program keeps the inbox of {inbox!r} locked"
                    ) from None
                await deferLater(self._clock, min(pause, left))
                pause = min(pause * 2, LONGEST_PAUSE)

    def _answered(self, result: _T, answer: Deferred[Any]) -> _T:
        self._running.discard(answer)
        self._idle()
        return result


def _tell_all(failure: Failure, waiting: list[tuple[Position, Deferred[Position]]]) -> None:
    for _, done in waiting:
        done.errback(failure.value)


def _closed() -> Deferred[Any]:
    return fail(SpoolError("the spool is closed", code="SHUTTING_DOWN"))
