"""Group commit: one sync serves everything that was written while the one before it ran."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.interfaces import IWorker
from intercom.spool.commit import Committer
from intercom.spool.pauses import Pauses
from intercom.spool.synced import OpenFile
from intercom.spool.work import Claim

#: Seconds before what nobody waits for is synced, so that it is safe within one second.
BACKGROUND = 0.5
#: Seconds before the inboxes begin to catch up with the journal in a quiet moment.
QUIET = 2.0


class GroupSync:
    """Says what is safe, and has the rest synced.

    :param worker: where files are synced, by ``committer``.
    :param tell: calls the spool's listener: the method's name, and its arguments.
    :param idle: called after each sync.
    :ivar committer: set before the first claim.
    :ivar reachable: the safest level that the channel's place can give.
    """

    _log = Logger()

    def __init__(
        self,
        clock: IReactorTime,
        worker: IWorker,
        tell: Callable[..., None],
        idle: Callable[[], None],
    ) -> None:
        self.reachable = "disk"
        self.committer: Committer
        self._worker = worker
        self._tell = tell
        self._idle = idle
        self._waiting: list[int] = []
        self._records: list[bytes] = []
        self._logged: set[OpenFile] = set()
        self._direct: set[OpenFile] = set()
        self._stale: set[OpenFile] = set()
        self._running = self._closing = self._unsettled = self._failed = False
        self._pauses = Pauses(clock)

    def __bool__(self) -> bool:
        return self._running or bool(self._waiting or self._direct)

    def claim(self, claims: Sequence[Claim], beside: OpenFile | None = None) -> None:
        """Entries were written.

        :param beside: a file that must be safe before the journal forgets them.
        """
        at_once: dict[str, list[int]] = {}
        for file, levels, records in claims:
            for level, tickets in levels.items():
                if level == "disk" and self.reachable == "disk":
                    self._waiting += tickets
                    self._logged.add(file)
                    continue
                reached = "process" if level == "disk" else level
                at_once.setdefault(reached, []).extend(tickets)
                if self.reachable == "disk":
                    self._stale.add(file)
            self._records += records
        if beside is not None and self._logged:
            self._logged.add(beside)
        for level, tickets in at_once.items():
            self._tell("stored", tickets, level)
        if self._stale and self._closing:
            self._sync_stale()
        elif self._stale:
            self._pauses.after(BACKGROUND, "stale", self._sync_stale)
        self._sync()

    def close(self) -> None:
        """Sync everything at once from now on."""
        self._closing = True
        self._pauses.cancel()
        self._sync_stale()

    def _sync_stale(self) -> None:
        self._direct |= self._stale
        self._stale.clear()
        self._sync()

    def _sync(self) -> None:
        """Begin a sync, if none runs and there is something to make safe."""
        if self._running or not (self._waiting or self._direct):
            return
        tickets, self._waiting = self._waiting, []
        records, self._records = self._records, []
        logged, self._logged = self._logged, set()
        direct, self._direct = self._direct, set()
        self._stale -= direct
        self._unsettled = self._unsettled or bool(logged)
        self._do(tickets, self.committer.commit, records, logged, direct)

    def _settle(self) -> None:
        """In a quiet moment: bring one inbox file up to what the journal has of it."""
        if not self._running and not self._closing and not self._failed:
            self._do([], self.committer.settle)

    def _do(self, tickets: list[int], work: Callable[..., Any], *args: Any) -> None:
        self._running = True
        done = self._worker.do(work, *args)
        done.addBoth(self._done, tickets)
        done.addErrback(lambda failure: self._log.failure("a bug in the spool", failure))

    def _done(self, result: Any, tickets: list[int]) -> None:
        self._running = False
        problem = self.committer.problem
        if isinstance(result, Failure):
            problem = "an internal error"
            self._log.failure("the spool's syncer has failed", result)
        elif result is not None:
            self._unsettled = result
        self._sync()
        if problem:
            self._tell_unsafe(tickets, problem)
        elif tickets:
            self._tell("stored", tickets, "disk")
        if self._unsettled and not self._closing:
            self._pauses.after(0.0 if result is True else QUIET, "settle", self._settle)
        self._idle()

    def _tell_unsafe(self, tickets: list[int], problem: str) -> None:
        """Once for those who wait for nothing, and to everybody who does."""
        if tickets or not self._failed:
            self._log.error("not synced: {problem}", problem=problem, tickets=len(tickets))
            self._tell("unsynced", tickets, problem)
        self._failed = True
