"""Reading, committing and emptying inboxes from the reactor: one thread, locks not waited for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.internet.task import deferLater
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.errors import InboxLocked, SpoolError
from intercom.interfaces import IWorker
from intercom.records import Batch, Moved, Position
from intercom.spool.files import SETTLE_PAUSE, SETTLE_TRIES
from intercom.spool.held import FIRST_PAUSE, LONGEST_PAUSE
from intercom.spool.hubinbox import HubInbox
from intercom.spool.inboxfile import Busy, Commit, Committed, Unsettled

#: Inboxes of this many bytes are emptied as soon as they are read.
WORTH_EMPTYING = 1 << 20
#: What is read is taken out of a partly read inbox once it is so many bytes, and no less
#: than half of them all: what is unread must be written anew.
WORTH_MOVING = 8 << 20

#: Seconds after a commit for which further ones of the same inbox gather. A busy listener
#: acknowledges message by message; each commit replaces a file, and holds the inbox's lock
#: against the appends that bring the next message. Where many inboxes are busy at once, so much
#: for each of them, up to a second: two hundred commits a second are a tenth of a processor.
COMMIT_PAUSE, COMMIT_SHARE, LONGEST_COMMIT_PAUSE = 0.2, 0.005, 1.0

_T = TypeVar("_T")


def _nothing(_moves: list[Moved]) -> None:
    """Take what nobody listens to."""


class InboxRequests:
    """What is asked of inboxes beside appending, in the order of asking for each inbox.

    :param reader: the worker that does it.
    :param open_inbox: makes an :class:`HubInbox`; called in the worker.
    :param patience: seconds to try for a lock that others hold.
    :param idle: called whenever a request is answered.
    :param moved: told what commits have brought about, before they are answered.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        reader: IWorker,
        open_inbox: Callable[[str], HubInbox],
        patience: float,
        idle: Callable[[], None],
        *,
        moved: Callable[[list[Moved]], None] = _nothing,
    ) -> None:
        self._clock = clock
        self._reader = reader
        self._open_inbox = open_inbox
        self._patience = patience
        self._idle = idle
        self._moved = moved
        self._running: set[Deferred[Any]] = set()
        self._commits: dict[str, list[tuple[Commit, Deferred[Position]]]] = {}
        self._pauses: dict[str, IDelayedCall] = {}
        self._urgent: set[str] = set()
        self._shrinking: set[str] = set()
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

    def ask(self, inbox: str, work: Callable[[HubInbox, bool], _T]) -> Deferred[_T]:
        """Do ``work(inbox file, patient)``; again while the lock is held or the offset unreadable.

        :raise InboxLocked: others keep the lock.
        """
        if self._closing:
            return _closed()
        answer = Deferred.fromCoroutine(self._persist(inbox, work))
        self._running.add(answer)
        return answer.addBoth(self._answered, answer)

    def commit(self, inbox: str, position: Position, state: str = "read") -> Deferred[Position]:
        """Move a stored position, at once; what comes until a moment later is done as one.

        What is read is taken out of an inbox where that is worth while.
        """
        if self._closing:
            return _closed()
        done: Deferred[Position] = Deferred()
        waiting = self._commits.get(inbox)
        if waiting is None:
            self._commits[inbox] = [(Commit(position, state), done)]
            self._commit_waiting(inbox)
        else:
            waiting.append((Commit(position, state), done))
        return done

    def read(self, inbox: str, start: Position | None, limit: int) -> Deferred[Batch]:
        """Read lines; from the stored position when all commits that came before are done."""
        waiting = None if start is not None or self._closing else self._commits.get(inbox)
        if not waiting:
            return self.ask(inbox, lambda file, patient: file.read(start, limit, patient))
        stored: Deferred[Batch] = Deferred()
        waiting[-1][1].addBoth(self._read_behind, stored, inbox, limit)
        self.hurry(inbox)
        return stored

    def _read_behind(self, result: _T, stored: Deferred[Batch], inbox: str, limit: int) -> _T:
        self.read(inbox, None, limit).chainDeferred(stored)
        return result

    def hurry(self, inbox: str) -> None:
        """Commit what has gathered now, or when the commit that runs is done."""
        if not self._commits.get(inbox):
            return
        pause = self._pauses.get(inbox)
        if pause is None:
            self._urgent.add(inbox)
        else:
            pause.cancel()
            self._commit_waiting(inbox)

    def _commit_waiting(self, inbox: str) -> None:
        self._pauses.pop(inbox, None)
        waiting = self._commits[inbox]
        if not waiting:
            del self._commits[inbox]
            return
        self._commits[inbox] = []
        wanted = [one for one, _ in waiting]
        answer = Deferred.fromCoroutine(
            self._persist(inbox, lambda file, patient: file.commit(wanted, patient))
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
        if self._closing or inbox in self._urgent:
            self._urgent.discard(inbox)
            self._commit_waiting(inbox)
        else:
            busy = min(LONGEST_COMMIT_PAUSE, COMMIT_SHARE * len(self._commits))
            pause = max(COMMIT_PAUSE, busy)
            self._pauses[inbox] = self._clock.callLater(pause, self._commit_waiting, inbox)

    def _committed(
        self,
        committed: Committed,
        inbox: str,
        waiting: list[tuple[Commit, Deferred[Position]]],
    ) -> None:
        if committed.moved:
            self._moved(committed.moved)
        for (_, done), stored in zip(waiting, committed.results, strict=True):
            if isinstance(stored, Position):
                done.callback(stored)
            else:
                done.errback(stored)
        if _is_worth_while(committed.stored.offset, committed.size):
            self._shrink(inbox, lambda file, _patient: file.compact())

    def others_moved(self, moves: Iterable[Moved]) -> None:
        """Others have moved positions: what is read there goes, too, where that is worth while."""
        for move in moves:
            if move.state != "shown" and move.end >= WORTH_EMPTYING:
                self._shrink(move.inbox, partial(_shrink_if_worth_while, move.end))

    def _shrink(self, inbox: str, work: Callable[[HubInbox, bool], bool]) -> None:
        """Take out of an inbox what is read, unless that is under way."""
        if inbox in self._shrinking or self._closing:
            return
        self._shrinking.add(inbox)
        asked = self.ask(inbox, work)
        asked.addErrback(
            lambda failure: self._log.warn(
                "what is read stays in {inbox}: {why}", inbox=inbox, why=failure.getErrorMessage()
            )
        )
        asked.addBoth(lambda _: self._shrinking.discard(inbox))

    async def _persist(self, inbox: str, work: Callable[[HubInbox, bool], _T]) -> _T:
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


def _is_worth_while(read: int, size: int) -> bool:
    """Whether an inbox of which so many bytes are read is to be made smaller."""
    return read >= (WORTH_EMPTYING if read == size else max(WORTH_MOVING, (size + 1) // 2))


def _shrink_if_worth_while(read: int, file: HubInbox, _patient: bool) -> bool:
    return _is_worth_while(read, file.size()) and file.compact()


def _tell_all(failure: Failure, waiting: list[tuple[Commit, Deferred[Position]]]) -> None:
    for _, done in waiting:
        done.errback(failure.value)


def _closed() -> Deferred[Any]:
    return fail(SpoolError("the spool is closed", code="SHUTTING_DOWN"))
