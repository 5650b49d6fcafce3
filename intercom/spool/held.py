"""Entries whose inbox was locked: kept in order, tried again later, refused at last."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from intercom.records import Entry, Refused
from intercom.spool.work import GivenUp

#: Seconds before the second try; each further pause is twice as long, up to the longest.
FIRST_PAUSE = 0.001
LONGEST_PAUSE = 0.1


class _Queue:
    """What waits for one inbox, each entry with its deadline, the oldest first."""

    def __init__(self, waiting: list[tuple[float, Entry]]) -> None:
        self.waiting = waiting
        self.tried = 0
        self.ready = False
        self.pause = FIRST_PAUSE
        self.timer: IDelayedCall | None = None


class HeldEntries:
    """Entries that wait for their inbox's lock.

    A job takes what is :meth:`due` and :meth:`settle` tells how it went. Whatever comes for
    a held inbox meanwhile queues behind (:meth:`divert`), so that its order is kept.

    :param patience: seconds until an entry is refused (``INBOX_LOCKED``).
    :param wake: called when something is due.
    """

    def __init__(self, clock: IReactorTime, patience: float, wake: Callable[[], object]) -> None:
        self._clock = clock
        self._patience = patience
        self._wake = wake
        self._queues: dict[str, _Queue] = {}

    def __bool__(self) -> bool:
        return bool(self._queues)

    def divert(self, entries: list[Entry]) -> list[Entry]:
        """Take those entries whose inbox is held; the others are returned."""
        if not self._queues:
            return entries
        others: list[Entry] = []
        deadline = self._clock.seconds() + self._patience
        for entry in entries:
            queue = self._queues.get(entry.inbox)
            if queue is None:
                others.append(entry)
            else:
                queue.waiting.append((deadline, entry))
        return others

    def due(self) -> list[Entry]:
        """What is to be tried now, in the order of each inbox."""
        entries: list[Entry] = []
        for queue in self._queues.values():
            if queue.ready:
                queue.ready = False
                queue.tried = len(queue.waiting)
                entries += [entry for _, entry in queue.waiting]
        return entries

    def settle(self, busy: Iterable[Entry]) -> tuple[list[GivenUp], list[Entry]]:
        """A job has ended that could not append ``busy``.

        :return: entries that have waited too long, and entries that need not wait any more
            since the lock of their inbox was free; these go before all that come later.
        """
        still: dict[str, list[Entry]] = {}
        for entry in busy:
            still.setdefault(entry.inbox, []).append(entry)
        refused: list[GivenUp] = []
        released: list[Entry] = []
        for inbox, queue in [item for item in self._queues.items() if item[1].tried]:
            left = {entry.ticket for entry in still.pop(inbox, ())}
            tried, later = queue.waiting[: queue.tried], queue.waiting[queue.tried :]
            queue.tried = 0
            if left:
                queue.waiting = [held for held in tried if held[1].ticket in left] + later
                self._again(inbox, queue, refused)
            else:
                del self._queues[inbox]
                released += [entry for _, entry in later]
        deadline = self._clock.seconds() + self._patience
        for inbox, entries in still.items():
            queue = self._queues[inbox] = _Queue([(deadline, entry) for entry in entries])
            self._again(inbox, queue, refused)
        return refused, released

    def hurry(self, patience: float) -> None:
        """Wait no longer than ``patience`` seconds from now on."""
        self._patience = patience
        latest = self._clock.seconds() + patience
        for queue in self._queues.values():
            queue.waiting = [(min(at, latest), entry) for at, entry in queue.waiting]

    def _again(self, inbox: str, queue: _Queue, refused: list[GivenUp]) -> None:
        now = self._clock.seconds()
        while queue.waiting and queue.waiting[0][0] <= now:
            _, entry = queue.waiting.pop(0)
            text = f"another program keeps the inbox of {inbox!r} locked"
            refused.append(GivenUp(entry, Refused(entry.ticket, inbox, "INBOX_LOCKED", text)))
        if not queue.waiting:
            del self._queues[inbox]
            return
        pause = min(queue.pause, queue.waiting[0][0] - now)
        queue.pause = min(queue.pause * 2, LONGEST_PAUSE)
        queue.timer = self._clock.callLater(pause, self._due, queue)

    def _due(self, queue: _Queue) -> None:
        queue.timer = None
        queue.ready = True
        self._wake()
