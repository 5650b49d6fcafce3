"""Leadership within one process, for tests and for those who embed a hub."""

from __future__ import annotations

from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from zope.interface import implementer

from intercom.errors import AlreadyLed
from intercom.interfaces import IElection


class Venue:
    """Where elections are held: one leader at most.

    :ivar leader: who leads, None while nobody does. Setting it to None deposes the
        leader, as replacing the lock file does on disk.
    """

    def __init__(self) -> None:
        self.leader: MemoryElection | None = None


@implementer(IElection)
class MemoryElection:
    """Lead a :class:`Venue`. A venue is never busy for a moment, so nothing is retried.

    :param venue: shared by all contenders.
    :param details: what losers are told of this one (``pid``, ``version``, ``started``).
    """

    def __init__(self, venue: Venue, **details: Any) -> None:
        self._venue = venue
        self._details = details

    def campaign(self) -> Deferred[None]:
        """See :meth:`IElection.campaign`; fires at once."""
        leader = self._venue.leader
        if leader is None:
            self._venue.leader = self
        elif leader is not self:
            return fail(AlreadyLed("another hub leads this venue", details=leader._details))
        return succeed(None)

    def resign(self) -> None:
        """See :meth:`IElection.resign`."""
        if self._venue.leader is self:
            self._venue.leader = None

    def holds(self) -> bool:
        """See :meth:`IElection.holds`."""
        return self._venue.leader is self
