"""Mail that nobody read is kept for so long and no longer, where the channel says so."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger

from intercom.errors import IntercomError
from intercom.interfaces import ISpool
from intercom.names import HUB
from intercom.records import Record
from intercom.settings.limits import Limits

#: Seconds between two looks at all inboxes.
EVERY_S = 3600.0
#: A full inbox is looked at out of turn, but not more often than this.
HURRY_S = 60.0


class Retention:
    """Drops what is too old or too much, one inbox after the other, hourly and at the start.

    Whatever goes is a dead letter before it goes; then its senders are told.

    :param expired: told of an inbox and of the unread messages that were dropped from it.
    :param limits: ``retention_age`` and ``retention_size``; without either nothing is ever
        dropped, and nothing looked at.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        spool: ISpool,
        expired: Callable[[str, list[Record]], None],
        limits: Limits,
    ) -> None:
        self._clock = clock
        self._spool = spool
        self._expired = expired
        self._age, self._size = limits.retention_age, limits.retention_size
        self._hurried: dict[str, float] = {}
        self._stopped = False
        self._looking = LoopingCall(self.look)
        self._looking.clock = clock

    @property
    def wanted(self) -> bool:
        """Whether anything is ever dropped."""
        return self._age is not None or self._size is not None

    def start(self) -> None:
        """Look now, and every hour. The spool is open."""
        if self.wanted:
            self._looking.start(EVERY_S, now=True)

    def stop(self) -> None:
        """Begin no more looks. Idempotent."""
        self._stopped = True
        if self._looking.running:
            self._looking.stop()

    def look(self) -> Deferred[None]:
        """Look at all inboxes; never fails."""
        return self._do(self._look())

    def hurry(self, inbox: str) -> None:
        """An inbox is full: look at it now, unless that was done a moment ago."""
        now = self._clock.seconds()
        self._hurried = {name: at for name, at in self._hurried.items() if now - at < HURRY_S}
        if not self.wanted or inbox in self._hurried:
            return
        self._hurried[inbox] = now
        self._do(self._look_at(inbox))

    def _do(self, work: Coroutine[Deferred[Any], Any, None]) -> Deferred[None]:
        done = Deferred.fromCoroutine(work)
        return done.addErrback(lambda failure: self._log.failure("bug in the retention", failure))

    async def _look(self) -> None:
        try:
            inboxes = await self._spool.list_inboxes()
        except (IntercomError, OSError) as error:
            self._log.warn("old mail was not looked for: {why}", why=str(error))
            return
        for inbox in inboxes:
            if self._stopped:
                return
            await self._look_at(inbox)

    async def _look_at(self, inbox: str) -> None:
        if inbox == HUB:
            return  # what lies there is on its way
        try:
            dropped = await self._spool.expire(inbox, self._size, self._age)
        except (IntercomError, OSError) as error:
            self._log.warn("old mail stays in {inbox}: {why}", inbox=inbox, why=str(error))
            return
        if dropped:
            self._log.info("dropped from {inbox}: {count}", inbox=inbox, count=len(dropped))
            self._expired(inbox, dropped)
