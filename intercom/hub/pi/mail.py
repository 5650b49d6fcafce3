"""Letters in inboxes, for the bus: read without those that are struck off, and moved past."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.core.bus import effects as fx
from intercom.core.bus.broker import Broker
from intercom.errors import IntercomError, SpoolError
from intercom.interfaces import ISpool
from intercom.records import Batch, Position, Shifted

#: Bytes of one read.
READ_LIMIT = 256 * 1024
#: How often what is read of an inbox that was just made smaller is read again.
_TRIES = 3
#: Why a letter is struck off that its sender did not take back.
_LOST = frozenset({"E_DELIVERY_EVICTED", "E_DELIVERY_EXPIRED", "E_DELIVERY_FAILED"})


class Mail:
    """What the broker asks of inboxes, and hears of when it is done.

    :param feed: gives the broker one input, with the time, and performs what it answers.
    """

    _log = Logger()

    def __init__(self, spool: ISpool, feed: Callable[..., None], broker: Broker) -> None:
        self._spool = spool
        self._feed = feed
        self._broker = broker
        self._struck: dict[str, dict[Position, int]] = {}
        self._generations: dict[str, int] = {}
        self._ahead: dict[str, int] = {}

    async def restore(self, inbox: str) -> None:
        """Let the broker look through all that is unread in an inbox; it shows it to nobody."""
        start: Position | None = None
        while True:
            try:
                batch = await self._read(inbox, start)
            except (IntercomError, OSError) as error:
                self._log.error("{inbox} cannot be read: {why}", inbox=inbox, why=str(error))
                return
            self._feed(self._broker.found, inbox, batch)
            if batch.at_end or batch.next == start:
                return
            start = batch.next

    async def _read(self, inbox: str, start: Position | None) -> Batch:
        """Lines of an inbox that are not struck off."""
        if inbox not in self._struck:
            found = await self._spool.skipped(inbox)
            self._struck.setdefault(inbox, {}).update(found)
        batch: Batch = await self._spool.read(inbox, start, READ_LIMIT)
        self._check_generation(inbox, batch.start.generation)
        struck = self._struck[inbox]
        if not struck:
            return batch
        generation = batch.start.generation
        left = [one for one in batch.records if Position(generation, one.start) not in struck]
        return batch._replace(records=left)

    def _check_generation(self, inbox: str, generation: int) -> None:
        """See that it was told before what is read how an inbox was made smaller.

        Reading and writing are different threads; the other one will say it in a moment.

        :raise SpoolError: it was not; read again. Is it never told, what is read counts.
        """
        known, tries = self._generations.get(inbox, generation), self._ahead.get(inbox, 0)
        if generation > known and tries < _TRIES:
            self._ahead[inbox] = tries + 1
            raise SpoolError("it was made smaller just now")
        self._ahead.pop(inbox, None)
        self._generations[inbox] = max(known, generation)

    def read(self, effect: fx.Read) -> None:
        """See :class:`fx.Read`."""
        start = None if effect.start is None else Position(*effect.start)

        def unreadable(failure: Failure) -> None:
            failure.trap(IntercomError, OSError)
            why = failure.getErrorMessage()
            self._log.warn("{inbox} cannot be read: {why}", inbox=effect.inbox, why=why)
            self._feed(self._broker.unreadable, effect.inbox)

        reading = Deferred.fromCoroutine(self._read(effect.inbox, start))
        reading.addCallbacks(
            lambda batch: self._feed(self._broker.found, effect.inbox, batch), unreadable
        )
        reading.addErrback(self._bug)

    def commit(self, effect: fx.Commit) -> None:
        """See :class:`fx.Commit`; what is struck off is passed as ``skipped``, not as read."""
        inbox, goal = effect.inbox, Position(effect.generation, effect.offset)
        struck = self._struck.get(inbox, {})
        for start in sorted(one for one in struck if one < goal):
            end = struck.pop(start)
            self._commit(inbox, start, "read")
            self._commit(inbox, Position(start.generation, end), "skipped")
        self._tell(self._commit(inbox, goal, "read"), effect.ticket)

    def _commit(self, inbox: str, position: Position, state: str) -> Deferred[Any]:
        committing: Deferred[Any] = self._spool.commit(inbox, position, state)
        committing.addCallback(lambda _: True)
        return committing.addErrback(self._not_done, "moved past", inbox)

    def _tell(self, doing: Deferred[Any], ticket: int) -> None:
        """Tell the broker whether something was done."""
        doing.addCallback(lambda ok: self._feed(self._broker.saved, ticket, bool(ok)))

    def skip(self, effect: fx.Skip) -> None:
        """See :class:`fx.Skip`."""
        start = Position(effect.generation, effect.start)
        self._struck.setdefault(effect.inbox, {})[start] = effect.end
        skipping = self._spool.skip(effect.inbox, start, effect.end, effect.code in _LOST)
        skipping.addCallback(lambda _: True)
        skipping.addErrback(self._not_done, "struck off", effect.inbox)
        self._tell(skipping, effect.ticket)

    def discard(self, effect: fx.Discard) -> None:
        """See :class:`fx.Discard`."""
        self._struck.pop(effect.inbox, None)
        self._generations.pop(effect.inbox, None)
        removing = self._spool.discard(effect.inbox)
        removing.addCallback(
            lambda unread: self._log.info(
                "removed {inbox}: {unread} unread", inbox=effect.inbox, unread=unread
            )
        )
        removing.addErrback(self._not_done, "removed", effect.inbox)

    def shifted(self, news: Shifted) -> None:
        """An inbox was compacted: what is struck off stands elsewhere now."""
        if news.inbox in self._generations:
            self._generations[news.inbox] = news.into
        struck = self._struck.get(news.inbox)
        if struck:
            moved = {}
            for start, end in struck.items():
                behind = news.place(Position(start.generation, end))
                moved[news.place(start)] = behind.offset
            self._struck[news.inbox] = moved

    def _not_done(self, failure: Failure, what: str, inbox: str) -> None:
        """Nothing is lost by it: what is not moved past is brought again."""
        if failure.check(IntercomError, OSError):
            why = failure.getErrorMessage()
            self._log.warn("{inbox} is not {what}: {why}", inbox=inbox, what=what, why=why)
        else:
            self._bug(failure)

    def _bug(self, failure: Failure) -> None:
        self._log.failure("bug in the bus's mail", failure)
