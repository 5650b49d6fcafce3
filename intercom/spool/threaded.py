"""The spool of a running hub: blocking work in three threads, order kept, locks not waited for.

One thread appends, one syncs, one reads and commits. Entries gather while the writer is
busy and within a reactor turn; one job takes them all. Syncs gather in the same way (group
commit), so that a message waits for at most one sync before its own.

Reads, commits and compactions have a thread of their own, so that a long backlog delays no
append. Between it and the writer the inbox's lock decides, as it does between processes.
Whoever finds a lock held comes again from the reactor, after a growing pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.errors import SpoolError
from intercom.interfaces import ISpool, ISpoolListener, IWorker
from intercom.paths import ChannelPaths, file_level
from intercom.records import Batch, Entry, Moved, Position, Record, Refused
from intercom.settings.limits import UNBOUNDED, Limits
from intercom.spool.boots import boot_id
from intercom.spool.calls import FileCalls
from intercom.spool.commit import Committer
from intercom.spool.format import split_name
from intercom.spool.groupsync import GroupSync
from intercom.spool.held import HeldEntries
from intercom.spool.hubinbox import HubInbox
from intercom.spool.journal import Journal
from intercom.spool.known import forgotten, sight
from intercom.spool.pauses import Pauses
from intercom.spool.quota import sessions_with_inbox
from intercom.spool.recovery import Recovery, recover
from intercom.spool.requests import InboxRequests
from intercom.spool.store import Stock, Store
from intercom.spool.trail import Trails
from intercom.spool.watch import DirectoryWatch
from intercom.spool.work import GivenUp, Push, Work
from intercom.spool.worker import ThreadWorker

#: Seconds after which a lock that others hold is a refusal; fewer while the hub goes.
PATIENCE = 2.0
LAST_PATIENCE = 1.0
#: Seconds before a locked inbox is looked at again, and for which sightings gather.
LOOK_PAUSE = 0.1
SIGHT_PAUSE = 0.05
#: Seconds for which it may wait to be written what was pushed.
PUSHES_PAUSE = 0.2


@implementer(ISpool)
class ThreadedSpool:
    """The inboxes of one channel as files.

    :param reactor: needs time and threads, and is asked for file descriptors (inotify).
    :param paths: the channel, whose directory exists and is led by us.
    :param calls: the door to the file system; for tests, as all that follow.
    :param writer: appends. :param syncer: syncs. :param reader: does everything else.
    :param clock: epoch seconds. :param boot: names this boot of the machine.
    :param limits: how much may be stored. :param open_files: inboxes that are kept open.
    :param poller: hears the threads and says when a turn ends (``intercom.hub.poller``); the
        reactor does without one.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        paths: ChannelPaths,
        *,
        calls: FileCalls | None = None,
        writer: IWorker | None = None,
        syncer: IWorker | None = None,
        reader: IWorker | None = None,
        clock: Callable[[], float] = time.time,
        boot: Callable[[], str] = boot_id,
        limits: Limits = UNBOUNDED,
        open_files: int | None = None,
        poller: Any = None,
    ) -> None:
        self._reactor = reactor
        self._soon = poller.turn.call if poller else lambda work: reactor.callLater(0, work)
        self._paths, self._calls = paths, calls or FileCalls()
        self._clock, self._boot = clock, boot
        self._trouble, self._floor = "", limits.free_space
        self._writer = writer or ThreadWorker(poller or reactor, "spool-writer")
        self._syncer = syncer or ThreadWorker(poller or reactor, "spool-syncer")
        self._reader = reader or ThreadWorker(poller or reactor, "spool-reader")
        self._store = Store(paths, self._calls, clock, open_files, limits)
        self._trails = Trails(paths, self._calls)  # for the reader's thread
        self._held = HeldEntries(reactor, PATIENCE, self._wake)
        self._syncs = GroupSync(reactor, self._syncer, self._tell, self._nudge)
        self._requests = InboxRequests(
            reactor, self._reader, self._open_inbox, PATIENCE, self._nudge, moved=self._moved
        )
        self._watch = DirectoryWatch(reactor, paths.directory, self._reader, self._changed)
        self._listener: ISpoolListener | None = None
        self._opening = self._opened = self._closing = self._closed = False
        self._gathered: list[Entry] = []
        self._pushes, self._given_up = list[Push](), list[GivenUp]()
        self._writing = self._woken = False
        self._looks, self._looks_later, self._sightings = set[str](), set[str](), set[str]()
        self._pauses = Pauses(reactor)
        self._progress: Deferred[None] | None = None
        self._closers: list[Deferred[None]] = []

    # -- opening ------------------------------------------------------------------------------

    def open(self, listener: ISpoolListener) -> Deferred[None]:
        """See ``ISpool``."""
        self._listener = listener
        self._opening = True
        return Deferred.fromCoroutine(self._open())

    async def _open(self) -> None:
        try:
            await self._watch.start()  # before the census: nothing falls between the two
            await self._reader.do(self._trails.start, self._clock())
            stock, recovery = await self._writer.do(self._take_stock)
            self._opened = True
        finally:
            self._opening = False
            self._nudge()
        for inbox, count in recovery.appended.items():
            self._log.warn(
                "{count} messages were lost to {inbox} in a power cut, and are there again",
                count=count,
                inbox=inbox,
            )
        self._tell("remembered", stock.remembered)
        self._tell("seen", stock.sessions)
        self._wake()

    def _take_stock(self) -> tuple[Stock, Recovery]:
        """In the writer's thread: mend what a power cut left, then see what is there."""
        boot = self._boot()
        recovery = recover(self._paths, self._calls, boot)
        self._syncs.reachable = file_level(self._paths.directory)
        self._store.syncing = self._store.history.syncing = self._syncs.reachable == "disk"
        journal = None
        if self._store.syncing:
            journal = Journal(self._paths, self._calls, boot, floor=self._floor)
        self._syncs.committer = Committer(self._paths, self._calls, journal)
        return self._store.start(boot), recovery

    # -- appending ----------------------------------------------------------------------------

    def append(self, entries: Sequence[Entry]) -> None:
        """See ``ISpool``."""
        if self._closing:
            self._reactor.callLater(0, self._refuse, entries)
            return
        self._gathered += entries
        self._wake()

    def _refuse(self, entries: Sequence[Entry]) -> None:
        text = "the hub is shutting down"
        refused = [Refused(e.ticket, e.inbox, "SHUTTING_DOWN", text) for e in entries]
        if refused:
            self._tell("written", refused)

    def _wake(self) -> None:
        if not (self._writing or self._woken):  # else it goes when the writer is back, or soon
            self._woken = True
            self._soon(self._write_now)

    def _write_now(self) -> None:
        self._woken = False
        self._write()

    def _write(self) -> None:
        """Give the writer all that has gathered, if it is free."""
        if self._writing or not self._opened:
            return
        gathered, self._gathered = self._gathered, []
        others = self._held.divert(gathered)
        entries = self._held.due() + others
        looks, self._looks = self._looks, set()
        pushes, self._pushes = self._pushes, []
        given_up, self._given_up = self._given_up, []
        if entries or looks or pushes or given_up:
            self._writing = True
            done = self._writer.do(self._store.work, looks, entries, pushes, given_up)
            done.addCallbacks(self._wrote, self._broke, errbackArgs=(entries,))
            done.addErrback(self._bug)

    def _wrote(self, work: Work) -> None:
        self._writing = False
        given_up, released = self._held.settle(work.busy)
        self._given_up += given_up
        self._gathered[:0] = released
        if work.busy_looks and not self._closing:
            self._looks_later.update(work.busy_looks)
            self._pauses.after(LOOK_PAUSE, "look", self._look_again)
        self._write()  # the writer goes on while this is told
        for inbox, span in work.damaged:
            self._log.warn(
                "bytes {start} to {end} of {inbox} are no message: {reason}",
                inbox=inbox,
                **span._asdict(),
            )
        for inbox in work.torn:
            self._log.warn("ended an unfinished line in {inbox}", inbox=inbox)
        outcomes = [*work.outcomes, *(one.outcome for one in given_up)]
        if outcomes:
            self._tell("written", outcomes)
        if work.trouble != self._trouble:
            self._trouble = work.trouble
            self._log.error("the history is not written: {why}", why=work.trouble or "it is again")
        self._syncs.claim(work.claims, self._store.history.file)
        self._nudge()

    def _broke(self, failure: Failure, entries: list[Entry]) -> None:
        """A bug in the writer's work. What became of the entries is not known."""
        self._writing = False
        self._log.failure("the spool's writer has failed", failure)
        _, released = self._held.settle(())
        self._gathered[:0] = released
        text = "an internal error; the message may or may not be stored"
        refused = [Refused(e.ticket, e.inbox, "SPOOL_FAILED", text) for e in entries]
        self._tell("written", refused)
        self._wake()
        self._nudge()

    # -- what others do -----------------------------------------------------------------------

    def _changed(self, names: Iterable[str]) -> None:
        """Files of these names have changed."""
        for name in names:
            parts = split_name(name)
            if parts is not None and not self._closing:
                (self._looks if parts[0] == "inbox" else self._sightings).add(parts[1])
        if self._looks:
            self._wake()
        if self._sightings:
            self._pauses.after(SIGHT_PAUSE, "sight", self._sight)

    def _look_again(self) -> None:
        self._looks |= self._looks_later
        self._looks_later.clear()
        self._write()

    def _sight(self) -> None:
        names, self._sightings = self._sightings, set()
        found = self._reader.do(sight, self._paths, self._calls, names, self._clock())
        found.addCallback(lambda sessions: self._tell("seen", sessions))
        found.addErrback(self._bug)
        news = self._reader.do(self._trails.news, names)
        news.addCallback(self._others_moved)
        news.addErrback(self._bug)
        gone = self._reader.do(forgotten, self._paths, self._calls, names)
        gone.addCallback(self._miss)
        gone.addErrback(self._bug)

    def _others_moved(self, moves: Sequence[Moved]) -> None:
        self._moved(moves)
        self._requests.others_moved(moves)

    def _moved(self, moves: Sequence[Moved]) -> None:
        if moves:
            self._tell("moved", moves)

    def _miss(self, sessions: list[str]) -> None:
        if sessions:
            self._tell("forgotten", sessions)

    # -- reading ------------------------------------------------------------------------------

    def read(self, inbox: str, start: Position | None, limit: int) -> Deferred[Batch]:
        """See ``ISpool``."""
        return self._requests.read(inbox, start, limit)

    def _open_inbox(self, session: str) -> HubInbox:
        trail = self._trails.of(session)
        return HubInbox(self._paths, session, self._calls, self._clock, trail)

    def enrol(self, session: str) -> Deferred[None]:
        """See ``ISpool``."""
        return self._requests.ask(session, lambda file, _patient: file.enrol())

    def skip(self, inbox: str, start: Position, end: int, lost: bool) -> Deferred[None]:
        """See ``ISpool``."""
        return self._requests.ask(inbox, lambda file, _patient: file.skip(start, end, lost))

    def skipped(self, inbox: str) -> Deferred[dict[Position, int]]:
        """See ``ISpool``."""
        return self._requests.ask(inbox, lambda file, _patient: file.skipped())

    def discard(self, inbox: str) -> Deferred[int]:
        """See ``ISpool``."""
        done = self._requests.ask(inbox, lambda file, _patient: file.discard())
        return done.addCallback(self._discarded, inbox)

    def _discarded(self, unread: int, inbox: str) -> int:
        self._miss([inbox])
        return unread

    def compact(self, inbox: str) -> Deferred[bool]:
        """See ``ISpool``."""
        return self._requests.ask(inbox, lambda file, _patient: file.compact())

    def list_inboxes(self) -> Deferred[list[str]]:
        """See ``ISpool``."""
        if self._closing:
            return fail(SpoolError("the spool is closed", code="SHUTTING_DOWN"))
        return self._reader.do(sessions_with_inbox, self._paths, self._calls)

    def expire(
        self, inbox: str, keep_bytes: int | None, older_than: float | None
    ) -> Deferred[list[Record]]:
        """See ``ISpool``."""
        return self._requests.ask(inbox, lambda file, _patient: file.expire(keep_bytes, older_than))

    def commit(self, inbox: str, position: Position, state: str = "read") -> Deferred[Position]:
        """See ``ISpool``."""
        return self._requests.commit(inbox, position, state)

    def hurry(self, inbox: str) -> None:
        """See ``ISpool``."""
        self._requests.hurry(inbox)

    def pushed(self, inbox: str, generation: int, start: int, end: int) -> None:
        """See ``ISpool``."""
        self._pushes.append(Push(inbox, generation, start, end, self._clock()))
        if len(self._pushes) == 1 and not self._writing:
            self._pauses.after(PUSHES_PAUSE, "pushes", self._write)

    # -- closing ------------------------------------------------------------------------------

    def close(self) -> Deferred[None]:
        """See ``ISpool``."""
        if self._closed:
            return succeed(None)
        closed: Deferred[None] = Deferred()
        self._closers.append(closed)
        if not self._closing:
            self._closing = True
            Deferred.fromCoroutine(self._shut()).addErrback(self._bug)
        return closed

    async def _shut(self) -> None:
        self._watch.stop()
        self._pauses.cancel("look", "sight", "pushes")
        self._looks.clear()
        self._held.hurry(LAST_PATIENCE)
        self._requests.close()
        self._syncs.close()
        try:
            while self._busy():
                self._progress = Deferred()
                await self._progress
            self._refuse(self._gathered)  # never opened
            await self._writer.do(self._store.work, (), (), self._pushes, self._given_up)
            if self._opened:
                await self._syncer.do(self._syncs.committer.close, [])
            await self._writer.do(self._store.close)
        finally:
            for worker in (self._writer, self._syncer, self._reader):
                await worker.quit()
            self._closed = True
            closers, self._closers = self._closers, []
            for closed in closers:
                closed.callback(None)

    def _busy(self) -> bool:
        unwritten = self._writing or (self._opened and (self._gathered or self._held))
        return bool(self._opening or unwritten or self._syncs or self._requests)

    def _nudge(self) -> None:
        """Something was done that ``close`` may be waiting for."""
        progress, self._progress = self._progress, None
        if progress is not None:
            progress.callback(None)

    # -- small things -------------------------------------------------------------------------

    def _tell(self, what: str, *args: Any) -> None:
        """Call the listener; what it does wrong is its own bug, and ours goes on."""
        try:
            getattr(self._listener, what)(*args)
        except Exception:
            self._log.failure("the spool's listener has failed in {what}", what=what)

    def _bug(self, failure: Failure) -> None:
        self._log.failure("a bug in the spool", failure)
