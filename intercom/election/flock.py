"""Leadership of a channel by two kernel locks that vanish with their holder.

The locks themselves are in :mod:`intercom.election.locks`; here they are campaigned for.
"""

from __future__ import annotations

import json
import os

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from intercom.election.locks import Locks, already_led, take_locks
from intercom.interfaces import IElection
from intercom.paths import ChannelPaths

#: How long a busy lock is tried again, since probes hold it for a moment.
PATIENCE_S = 0.3
RETRY_S = 0.03


@implementer(IElection)
class FlockElection:
    """Lead a channel by holding ``flock`` on its directory and on its ``hub.lock``.

    The locks are tried without waiting, in the reactor's thread: two system calls,
    and the only file access that happens there.

    :param reactor: for the pauses between tries.
    :param paths: the channel; its directory must exist.
    :param version: version of this program, written into the lock file for people.
    :param started: epoch seconds at which this hub began, written there too.
    """

    def __init__(
        self, reactor: IReactorTime, paths: ChannelPaths, version: str, started: float
    ) -> None:
        self._reactor = reactor
        self._paths = paths
        self._version = version
        self._started = started
        self._locks: Locks | None = None

    def campaign(self) -> Deferred[None]:
        """See :meth:`IElection.campaign`; fires at once where both locks are free.

        Cancelling it ends the campaign.

        :raise CannotCreate: the directory or the lock file cannot be opened.
        :raise UnsafePlace: the lock file is not ours, or locks keep nobody out there.
        """
        return Deferred.fromCoroutine(self._campaign())

    async def _campaign(self) -> None:
        deadline = self._reactor.seconds() + PATIENCE_S
        while self._locks is None:
            self._locks = take_locks(self._paths)
            if self._locks is not None:
                break
            if self._reactor.seconds() >= deadline:
                raise already_led(self._paths)
            await deferLater(self._reactor, RETRY_S)
        self._sign(self._locks)

    def resign(self) -> None:
        """See :meth:`IElection.resign`; the lock file is emptied before it is let go.

        A forked child of the leader has nothing to resign, and touches nothing.
        """
        locks, self._locks = self._locks, None
        if locks is None or not locks.held:
            return
        try:
            os.ftruncate(locks.file, 0)
        finally:
            locks.release()

    def holds(self) -> bool:
        """See :meth:`IElection.holds`: both names still lead to what we have locked."""
        locks = self._locks
        return locks is not None and locks.held and locks.in_place(self._paths)

    def _sign(self, locks: Locks) -> None:
        """Write who leads into the lock file, in place: its inode is what is locked."""
        text = {"pid": os.getpid(), "version": self._version, "started": self._started}
        os.ftruncate(locks.file, 0)
        os.pwrite(locks.file, json.dumps(text).encode(), 0)
