"""The twin of the spool without files and threads, for tests and for embedders who keep nothing.

Same rules, same order of outcomes, nothing by chance: what is asked happens when
:meth:`MemorySpool.perform` is called, or in the clock's next turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from twisted.internet.defer import Deferred, fail, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock
from zope.interface import implementer

from intercom.errors import SpoolError
from intercom.interfaces import ISpool, ISpoolListener
from intercom.records import (
    Appeared,
    Batch,
    Entry,
    Outcome,
    Position,
    Record,
    Refused,
    Remembered,
    Shifted,
    Written,
)
from intercom.spool.held import HeldEntries
from intercom.spool.memoryinbox import Kept, MemoryInbox
from intercom.spool.recent import Seen
from intercom.wire.envelope import MAX_LINE, identify

#: So many messages are remembered beyond their inboxes.
MOST = 100_000

_T = TypeVar("_T")


@implementer(ISpool)
class MemorySpool:
    """Inboxes in memory.

    :param clock: turns in which things happen by themselves; without one they wait for
        :meth:`perform`.
    :param history: what earlier spools stored, see :meth:`remembered`.
    :ivar clock: the given clock, or one of its own that a test may advance.
    :ivar inboxes: by session id.
    :ivar known: sessions that somebody ever used.
    :ivar history: what is told at :meth:`open` as stored by earlier spools.
    :ivar pushes: what was noted as pushed: inbox, generation, start, end.
    :ivar locked: inboxes whose lock somebody else holds; a test fills and empties it.
    :ivar refusals: code and sentence by inbox, for writes that are to fail.
    :ivar sync_failure: why syncs are to fail, or an empty string.
    :ivar reachable: the level that syncs really give.
    """

    def __init__(
        self, clock: IReactorTime | None = None, history: Sequence[Remembered] = ()
    ) -> None:
        self.inboxes: dict[str, MemoryInbox] = {}
        self.known: dict[str, float | None] = {}
        self.history = list(history)
        self.pushes: list[tuple[str, int, int, int]] = []
        self.locked: set[str] = set()
        self.refusals: dict[str, tuple[str, str]] = {}
        self.sync_failure = ""
        self.reachable = "disk"
        self.clock: Any = clock or Clock()
        self._turns = clock is not None
        self._todo: deque[Callable[[], None]] = deque()
        self._held = HeldEntries(self.clock, 2.0, self._wake)
        self._gathered: list[Entry] = []
        self._ids: dict[tuple[str, str], Kept] = {}
        self._waking = self._closing = self._closed = False
        self._closers: list[Deferred[None]] = []
        self._listener: ISpoolListener

    # -- for tests ----------------------------------------------------------------------------

    def perform(self) -> None:
        """Do everything that was asked, and what follows from it."""
        while self._todo:
            self._todo.popleft()()

    def inbox(self, session: str) -> MemoryInbox:
        """A session's inbox, made if there is none."""
        return self.inboxes.setdefault(session, MemoryInbox())

    def lines(self, session: str) -> list[bytes]:
        """The messages in an inbox."""
        return bytes(self.inbox(session).data).split(b"\n")[:-1]

    def remembered(self) -> list[Remembered]:
        """What a spool that follows this one is to remember, oldest first."""
        now = self.clock.seconds()
        return [
            Remembered(*key, kept.digest, tuple(kept.inboxes), max(0.0, now - kept.at))
            for key, kept in self._ids.items()
        ]

    def others_append(self, session: str, data: bytes) -> None:
        """Append bytes as another program would, and have it noticed."""
        self.inbox(session).data += data
        self._later(lambda: self._tell(self._look(session)))

    def others_read(self, session: str, seconds_ago: float | None) -> None:
        """Let a session be seen on disk."""
        self.known[session] = seconds_ago
        self._later(lambda: self._listener.seen({session: seconds_ago}))

    def others_commit(self, session: str, position: Position, state: str = "read") -> None:
        """Commit a position as another program would, and have it noticed."""
        moves = self.inbox(session).move(session, position, state, self.clock.seconds())
        self._later(lambda: self._listener.moved(moves) if moves else None)

    def others_forget(self, session: str) -> None:
        """Let a session's files be taken away."""
        self.inboxes.pop(session, None)
        self.known.pop(session, None)
        self._later(lambda: self._listener.forgotten([session]))

    # -- ISpool -------------------------------------------------------------------------------

    def open(self, listener: ISpoolListener) -> Deferred[None]:
        """See ``ISpool``."""
        self._listener = listener
        for inbox in self.inboxes.values():
            inbox.news()  # what stands there already is backlog
        now = self.clock.seconds()
        for one in self.history:
            kept = Kept(one.digest, list(one.inboxes), now - one.age)
            self._ids[one.sender, one.message_id] = kept

        def tell() -> None:
            if self.history:
                listener.remembered(list(self.history))
            listener.seen(dict(self.known))

        return self._answer(tell)

    def append(self, entries: Sequence[Entry]) -> None:
        """See ``ISpool``."""
        if self._closing:
            text = "the hub is shutting down"
            refused = [Refused(e.ticket, e.inbox, "SHUTTING_DOWN", text) for e in entries]
            self._later(lambda: self._tell(refused))
            return
        self._gathered += entries
        self._wake()

    def read(self, inbox: str, start: Position | None, limit: int) -> Deferred[Batch]:
        """See ``ISpool``."""
        return self._answer(lambda: self._kept(inbox).read(start, limit))

    def _kept(self, inbox: str) -> MemoryInbox:
        return self.inboxes.get(inbox) or MemoryInbox()

    def commit(self, inbox: str, position: Position, state: str = "read") -> Deferred[Position]:
        """See ``ISpool``."""

        def move() -> Position:
            kept = self.inbox(inbox)
            moves = kept.move(inbox, position, state, self.clock.seconds())
            if state != "shown":
                self.known[inbox] = 0.0
            if moves:
                self._listener.moved(moves)
            return kept.position

        return self._answer(move)

    def hurry(self, inbox: str) -> None:
        """See ``ISpool``; nothing gathers here."""

    def pushed(self, inbox: str, generation: int, start: int, end: int) -> None:
        """See ``ISpool``."""
        self.pushes.append((inbox, generation, start, end))

    def enrol(self, session: str) -> Deferred[None]:
        """See ``ISpool``."""

        def make() -> None:
            self.inbox(session)
            self.known.setdefault(session, None)

        return self._answer(make)

    def skip(self, inbox: str, start: Position, end: int, lost: bool) -> Deferred[None]:
        """See ``ISpool``."""
        return self._answer(lambda: self._kept(inbox).skip(start, end))

    def skipped(self, inbox: str) -> Deferred[dict[Position, int]]:
        """See ``ISpool``."""
        return self._answer(lambda: self._kept(inbox).skipped())

    def discard(self, inbox: str) -> Deferred[int]:
        """See ``ISpool``."""

        def remove() -> int:
            unread = self._kept(inbox).unread()
            self.others_forget(inbox)
            return unread

        return self._answer(remove)

    def compact(self, inbox: str) -> Deferred[bool]:
        """See ``ISpool``."""

        def empty() -> bool:
            kept = self._kept(inbox)
            if not kept.offset:
                return False
            over = kept.generation
            stays = kept.cut(kept.offset)
            self._shift(Shifted(inbox, over, kept.generation, stays))
            return True

        return self._answer(empty)

    def list_inboxes(self) -> Deferred[list[str]]:
        """See ``ISpool``."""
        return self._answer(lambda: list(self.inboxes))

    def expire(
        self, inbox: str, keep_bytes: int | None, older_than: float | None
    ) -> Deferred[list[Record]]:
        """See ``ISpool``."""

        def drop() -> list[Record]:
            kept = self._kept(inbox)
            oldest = None if older_than is None else self.clock.seconds() - older_than
            over = kept.generation
            dropped, stays = kept.expire(keep_bytes, oldest)
            if stays is not None:
                self._shift(Shifted(inbox, over, kept.generation, stays))
            return dropped

        return self._answer(drop)

    def close(self) -> Deferred[None]:
        """See ``ISpool``."""
        if not self._closing:
            self._closing = True
            self._held.hurry(1.0)
            self._later(self._finish)
        closed: Deferred[None] = Deferred()
        self._closers.append(closed)
        if self._closed:
            self._later(self._finish)
        return closed

    # -- what happens -------------------------------------------------------------------------

    def _later(self, work: Callable[[], None]) -> None:
        self._todo.append(work)
        if self._turns:
            self.clock.callLater(0, self._next)

    def _next(self) -> None:
        if self._todo:
            self._todo.popleft()()

    def _finish(self) -> None:
        """Say that it is closed once nothing is under way any more."""
        if self._held:
            self.clock.callLater(0.01, self._later, self._finish)
        elif self._gathered or self._todo:
            self._later(self._finish)
        else:
            self._closed = True
            closers, self._closers = self._closers, []
            for closed in closers:
                closed.callback(None)

    def _answer(self, work: Callable[[], _T]) -> Deferred[_T]:
        if self._closing:
            return fail(SpoolError("the spool is closed", code="SHUTTING_DOWN"))
        answer: Deferred[_T] = Deferred()

        def do() -> None:
            maybeDeferred(work).chainDeferred(answer)

        self._later(do)
        return answer

    def _shift(self, shifted: Shifted) -> None:
        self._later(lambda: self._tell([shifted, *self._look(shifted.inbox)]))

    def _wake(self) -> None:
        if not self._waking:
            self._waking = True
            self._later(self._write)

    def _write(self) -> None:
        self._waking = False
        gathered, self._gathered = self._gathered, []
        others = self._held.divert(gathered)
        entries = self._held.due() + others
        outcomes: list[Outcome] = []
        busy = [entry for entry in entries if entry.inbox in self.locked]
        levels: dict[str, list[int]] = {}
        for entry in entries:
            if entry.inbox not in self.locked:
                outcomes += self._look(entry.inbox, torn=True)
                outcome = self._append(entry)
                outcomes.append(outcome)
                if isinstance(outcome, Written):
                    levels.setdefault(entry.level, []).append(entry.ticket)
        given_up, released = self._held.settle(busy)
        if released:
            self._gathered[:0] = released
            self._wake()
        self._tell([*outcomes, *(one.outcome for one in given_up)])
        if levels:
            self._later(lambda: self._sync(levels))

    def _look(self, session: str, torn: bool = False) -> list[Appeared]:
        """What others appended; with ``torn`` a last line without a line feed gets one."""
        records = (kept := self._kept(session)).news()
        self._meet(session, records)
        if torn and kept.end < len(kept.data):
            kept.data += b"\n"
            records += kept.news()
            self._meet(session, records)
        return [Appeared(session, kept.generation, records)] if records else []

    def _meet(self, session: str, records: Sequence[Record]) -> None:
        """Remember the ids of what others appended, whatever becomes of the inbox."""
        for record in records:
            found = identify(record.line)
            if found is not None:
                one = self._ids.setdefault(found[:2], Kept(found.digest, [], self.clock.seconds()))
                if session not in one.inboxes:
                    one.inboxes.append(session)

    def _append(self, entry: Entry) -> Written | Refused:
        """One entry's outcome, and its line appended if it is new."""
        stranger = (entry.ask_known or entry.only_known) and entry.inbox not in self.known
        if len(entry.line) > MAX_LINE or b"\n" in entry.line:
            text = f"a line has at most {MAX_LINE} bytes and no line feed"
            return Refused(entry.ticket, entry.inbox, "LINE_TOO_LONG", text)
        if stranger and entry.only_known:
            text = f"no session of this channel ever used the name {entry.inbox!r}"
            names = tuple(sorted(self.known))
            return Refused(entry.ticket, entry.inbox, "TARGET_NOT_FOUND", text, names)
        if entry.inbox in self.refusals:
            return Refused(entry.ticket, entry.inbox, *self.refusals[entry.inbox])
        kept = self.inbox(entry.inbox)
        known = not (stranger and entry.ask_known)
        earlier = self._earlier(entry, kept)
        if earlier is not None:
            digest, record = earlier
            if digest != entry.digest:
                text = f"the id {entry.message_id!r} was used for another message"
                return Refused(entry.ticket, entry.inbox, "MESSAGE_ID_REUSE", text)
            return Written(entry.ticket, entry.inbox, record, kept.generation, True, known)
        start = len(kept.data)
        kept.data += entry.line + b"\n"
        kept.end = len(kept.data)
        key = (entry.sender, entry.message_id)
        kept.seen[key] = Seen(entry.digest, kept.generation, start, kept.end)
        self._remember(entry)
        record = Record(start, kept.end, entry.line)
        return Written(entry.ticket, entry.inbox, record, kept.generation, False, known)

    def _earlier(self, entry: Entry, kept: MemoryInbox) -> tuple[bytes, Record] | None:
        """The message that this inbox has or had by the same id: its digest, and its place."""
        key = (entry.sender, entry.message_id)
        seen, past = kept.seen.get(key), self._ids.get(key)
        if seen is not None:
            line = bytes(kept.data[seen.start : seen.end - 1])
            return seen.digest, Record(seen.start, seen.end, line)
        if past is not None and entry.inbox in past.inboxes:
            return past.digest, Record(0, 0, entry.line)  # it stands here no longer
        return None

    def _remember(self, entry: Entry) -> None:
        key = (entry.sender, entry.message_id)
        past = self._ids.get(key)
        if past is None or past.digest != entry.digest:
            past = self._ids[key] = Kept(entry.digest, [], self.clock.seconds())
        past.inboxes.append(entry.inbox)
        if len(self._ids) > MOST:
            del self._ids[next(iter(self._ids))]

    def _sync(self, levels: dict[str, list[int]]) -> None:
        for level, tickets in levels.items():
            if level == "disk" and self.sync_failure:
                self._listener.unsynced(tickets, self.sync_failure)
            else:
                self._listener.stored(tickets, self.reachable if level == "disk" else level)

    def _tell(self, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            self._listener.written(outcomes)
