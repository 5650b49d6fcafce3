"""What the core asks of inboxes, and hears of when it is done: reads and commits."""

from __future__ import annotations

from collections.abc import Callable

from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.core import effects as fx
from intercom.errors import IntercomError
from intercom.interfaces import IRouter, ISpool


class Errands:
    """Runs them.

    :param feed: gives the core one input, with the time, and performs what it answers.
    """

    _log = Logger()

    def __init__(self, spool: ISpool, core: IRouter, feed: Callable[..., None]) -> None:
        self._spool = spool
        self._core = core
        self._feed = feed

    def read(self, effect: fx.ReadInbox) -> None:
        """See :class:`fx.ReadInbox`."""

        def unreadable(failure: Failure) -> None:
            failure.trap(IntercomError, OSError)
            self._feed(self._core.inbox_unreadable, effect.connection, _typed(failure))

        reading = self._spool.read(effect.inbox, effect.start, effect.limit)
        reading.addCallbacks(
            lambda batch: self._feed(self._core.inbox_read, effect.connection, batch), unreadable
        )
        reading.addErrback(lambda failure: self._log.failure("reading an inbox failed", failure))

    def commit(self, effect: fx.CommitPosition) -> None:
        """See :class:`fx.CommitPosition`."""
        committing = self._spool.commit(effect.inbox, effect.position, effect.state)
        committing.addErrback(self._commit_refused, effect)

    def _commit_refused(self, failure: Failure, effect: fx.CommitPosition) -> None:
        if failure.check(IntercomError, OSError):
            why = effect.connection, _typed(failure), effect.message_id
            self._feed(self._core.commit_refused, *why)
        else:
            self._log.failure("a commit failed", failure)

    def pushed(self, effect: fx.NotePushed) -> None:
        """See :class:`fx.NotePushed`."""
        self._spool.pushed(effect.inbox, effect.generation, effect.start, effect.end)

    def enrol(self, effect: fx.EnrolSession) -> None:
        """See :class:`fx.EnrolSession`."""

        def failed(failure: Failure) -> None:
            failure.trap(IntercomError, OSError)
            self._log.error("enrolment could not be written: {why}", why=failure.getErrorMessage())

        enrolling = self._spool.enrol(effect.session)
        enrolling.addErrback(failed)
        enrolling.addErrback(lambda failure: self._log.failure("enrolment failed", failure))


def _typed(failure: Failure) -> IntercomError:
    """An error with a code, whatever was raised."""
    if isinstance(failure.value, IntercomError):
        return failure.value
    return IntercomError(failure.getErrorMessage(), code="SPOOL_FAILED")
