"""Group commit: one sync serves everything that was written while the one before it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.interfaces import IWorker
from intercom.spool.calls import FileCalls
from intercom.spool.synced import OpenFile, sync_files

#: Seconds before what nobody waits for is synced, so that it is safe within one second.
BACKGROUND = 0.5


class GroupSync:
    """Says what is safe, and has the rest synced.

    :param worker: where files are synced.
    :param tell: calls the spool's listener: the method's name, and its arguments.
    :param idle: called after each sync.
    :ivar reachable: the safest level that the channel's place can give.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        worker: IWorker,
        calls: FileCalls,
        tell: Callable[..., None],
        idle: Callable[[], None],
    ) -> None:
        self.reachable = "disk"
        self._clock = clock
        self._worker = worker
        self._calls = calls
        self._tell = tell
        self._idle = idle
        self._waiting: dict[OpenFile, list[int]] = {}
        self._stale: set[OpenFile] = set()
        self._running = self._closing = False
        self._timer: IDelayedCall | None = None

    def __bool__(self) -> bool:
        return self._running or bool(self._waiting)

    def claim(self, claims: Sequence[tuple[OpenFile, dict[str, list[int]]]]) -> None:
        """Entries were written: for each file their tickets, by the level asked for."""
        at_once: dict[str, list[int]] = {}
        for file, levels in claims:
            for level, tickets in levels.items():
                if level == "disk" and self.reachable == "disk":
                    self._waiting.setdefault(file, []).extend(tickets)
                    continue
                reached = "process" if level == "disk" else level
                at_once.setdefault(reached, []).extend(tickets)
                if self.reachable == "disk":
                    self._stale.add(file)
        for level, tickets in at_once.items():
            self._tell("stored", tickets, level)
        if self._stale and self._closing:
            self._sync_stale()
        elif self._stale and self._timer is None:
            self._timer = self._clock.callLater(BACKGROUND, self._sync_stale)
        self._sync()

    def close(self) -> None:
        """Sync everything at once from now on."""
        self._closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._sync_stale()

    def _sync_stale(self) -> None:
        self._timer = None
        for file in self._stale:
            self._waiting.setdefault(file, [])
        self._stale.clear()
        self._sync()

    def _sync(self) -> None:
        if self._running or not self._waiting:
            return
        batch, self._waiting = self._waiting, {}
        self._stale.difference_update(batch)
        self._running = True
        done = self._worker.do(sync_files, list(batch), self._calls)
        done.addBoth(self._synced, batch)
        done.addErrback(lambda failure: self._log.failure("a bug in the spool", failure))

    def _synced(self, result: Any, batch: dict[OpenFile, list[int]]) -> None:
        self._running = False
        self._sync()
        broken = ""
        if isinstance(result, Failure):
            broken = "an internal error"
            self._log.failure("the spool's syncer has failed", result)
        safe: list[int] = []
        for file, tickets in batch.items():
            problem = broken or file.failed
            if not problem:
                safe += tickets
                continue
            self._log.error("not synced: {problem}", problem=problem, tickets=len(tickets))
            if tickets:
                self._tell("unsynced", tickets, problem)
        if safe:
            self._tell("stored", safe, "disk")
        self._idle()
