"""The hub's way to append: many entries to many inboxes, under locks that are never waited for.

Blocking, for one thread. Under an inbox's lock it looks first at what others appended
since its own last end: their lines are reported before ours, and of ours those are dropped
that theirs already hold. Then all entries for that inbox are written in one call. At last
the history is told of the whole batch, before anybody hears of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from intercom.errors import IntercomError
from intercom.names import HUB
from intercom.paths import ChannelPaths
from intercom.records import (
    Entry,
    Position,
    Refused,
    Remembered,
    Written,
)
from intercom.settings.limits import UNBOUNDED, Limits
from intercom.spool.appending import GroupWrite, reason
from intercom.spool.book import Book
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters, Letter
from intercom.spool.history import History
from intercom.spool.inboxfile import Busy
from intercom.spool.known import Extent, is_known, session_of, take_census
from intercom.spool.past import read_past
from intercom.spool.quota import Quota, Room
from intercom.spool.recent import RecentIds, key_of
from intercom.spool.synced import Directory, OpenFile, OpenFiles
from intercom.spool.tracked import News, TrackedInbox
from intercom.spool.trail import Trail
from intercom.spool.work import GivenUp, Push, Work
from intercom.wire.envelope import MAX_LINE

#: So many lost messages wait at most for the list of dead letters to be free.
MOST_LOST = 64


class Stock(NamedTuple):
    """What a store found when it began.

    :ivar sessions: the known ones, each with the seconds since it last read.
    :ivar remembered: messages that earlier hubs stored lately.
    """

    sessions: dict[str, float | None]
    remembered: Iterator[Remembered]


class Store:
    """All inboxes of a channel, for the one who leads it.

    :param clock: epoch seconds, to be compared with the files' times.
    :param open_files: how many inboxes are kept open.
    :param limits: how much may be stored.
    :ivar syncing: whether written files are to be synced; False where the place forgets
        everything anyway.
    :ivar history: what became of the last messages.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls | None = None,
        clock: Callable[[], float] = time.time,
        open_files: int | None = None,
        limits: Limits = UNBOUNDED,
    ) -> None:
        self.syncing = True
        self._paths = paths
        self._calls = calls or FileCalls()
        self._clock = clock
        self._directory = Directory(paths.directory, self._calls)
        self._files = OpenFiles(self._directory, self._calls, open_files or _open_files())
        self._quota = Quota(paths, self._calls, limits)
        self._inboxes: dict[str, TrackedInbox] = {}
        self._initial: dict[str, Extent] = {}
        self._recent = RecentIds()
        self._told: dict[str, Position] = {}
        self._lost: list[Letter] = []
        self.history = History(paths, self._directory, self._calls)

    def start(self, boot: str = "") -> Stock:
        """Note where every inbox ends now: what is appended later is news.

        After a recovery, if one is due (:mod:`intercom.spool.recovery`).

        :param boot: names this boot of the machine.
        """
        self._directory.open()
        past = read_past(self._paths, self._calls, self._clock(), boot, self._recent)
        self._told = past.ends
        self.history.go_on(past.messages, boot)
        census = take_census(self._paths, self._calls, self._clock())
        self._initial = census.inboxes
        self._quota.begin(census.inboxes)
        return Stock(census.sessions, past.remembered)

    def work(
        self,
        looks: Iterable[str],
        entries: Sequence[Entry],
        pushes: Iterable[Push] = (),
        given_up: Iterable[GivenUp] = (),
    ) -> Work:
        """Look at some inboxes (encoded ids), then append; never waits, never raises OSError.

        An inbox that is busy is tried once more when all others are done.

        :param pushes: what the history is to know beside; the same of ``given_up``.
        """
        done = Work()
        for one in given_up:
            self._note_refusal(*one)
        for push in pushes:
            self.history.pushed(*push)
        for encoded in looks:
            self._look(encoded, done)
        groups: dict[str, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(entry.inbox, []).append(entry)
        again = [inbox for inbox in groups if not self._append(inbox, groups, done)]
        for inbox in again:
            if not self._append(inbox, groups, done):
                done.busy += groups[inbox]
        for entry in done.busy:
            self.history.waiting(entry)
        done.trouble = self.history.write(self._clock())
        self._list_lost()
        return done

    def append_batch(self, entries: Sequence[Entry]) -> Work:
        """Append entries; see :meth:`work`."""
        return self.work((), entries)

    def close(self) -> None:
        """Sync what is unsynced, and let go of every file."""
        self.history.write(self._clock())
        self._list_lost()
        self.history.close()
        self._files.shrink(0)
        self._directory.close()

    # -- one inbox ----------------------------------------------------------------------------

    def _look(self, encoded: str, done: Work) -> None:
        """Report what others appended to one inbox, if anything; makes no file."""
        session = session_of(self._paths, self._calls, encoded)
        if session is None:  # a hash, and no session of ours: nobody listens as it
            return
        try:
            inbox = self._inboxes.get(session)
            path = self._paths.inbox(session)
            found = self._calls.stat(path)
            name = os.path.basename(path)
            self._quota.note(name, None if found is None else found.st_size)
            if found is None or (inbox is not None and inbox.unchanged(found)):
                return
            inbox = inbox or self._track(session)
            held = self._lock(inbox.path, create=False)
            if held is None:
                return
            news = News()
            try:
                if not inbox.catch_up(*held, news):
                    done.busy_looks.append(encoded)
            finally:
                done.tell(news, self.history)
                self._calls.unlock(held[0].fd)
        except Busy:
            done.busy_looks.append(encoded)
        except (OSError, IntercomError) as error:
            if self._made_room(session, error):
                self._look(encoded, done)
            # Else the next append to it, or its reader, will say what is wrong.

    def _append(self, session: str, groups: dict[str, list[Entry]], done: Work) -> bool:
        """Append one inbox's entries; False if they must wait (what is decided is taken out)."""
        try:
            stranger = self._admit(session, groups, done)
            group = groups[session]
            wanted = sum([len(entry.line) + 1 for entry in group])
            self._quota.make_room(wanted)
            inbox = self._inboxes.get(session)
            there = inbox is not None and self._quota.knows(inbox.name)
            if not group or (not there and self._refuse_newcomer(session, group, done)):
                return True
            inbox = inbox or self._track(session)
            held = self._lock(inbox.path, create=True)
            assert held is not None
            try:
                if inbox.is_new(*held):  # and perhaps its session was forgotten just now
                    stranger = not is_known(self._paths, self._calls, session)
                size = self._catch_up(inbox, *held, done)
                if size is None:
                    return False
                room = self._room(session, held[0], size, wanted)
                written = GroupWrite(
                    self._calls, self._recent, inbox, held[0], group, stranger, room
                )
                written.write(size)
                self._quota.note(inbox.name, inbox.end)
                self._account(inbox, held[0], group, written, done)
            finally:
                self._calls.unlock(held[0].fd)
        except Busy:
            return False
        except (OSError, IntercomError) as error:
            if self._made_room(session, error):
                return self._append(session, groups, done)
            no = Room(0, *reason(self._paths.inbox(session), error))
            self._refuse_all(groups[session], no, done)
        return True

    def _refuse_newcomer(self, session: str, group: list[Entry], done: Work) -> bool:
        """Refuse all of a group if its inbox would have to be made, and cannot be."""
        no = self._quota.newcomer(session, 1 + min([len(entry.line) for entry in group]))
        if no is not None:
            self._refuse_all(group, no, done)
        return no is not None

    def _refuse_all(self, group: list[Entry], no: Room, done: Work) -> None:
        refused = [no.refuse(entry) for entry in group]
        done.outcomes += refused
        if group:
            self._note(group, refused, 0)

    def _room(self, session: str, file: OpenFile, size: int, wanted: int) -> Room:
        """How much fits into an inbox, under its lock."""

        def read() -> int:
            book = Book(self._paths, session, self._calls, self._clock)
            return book.look(file.fd, size).truth.position.offset

        return self._quota.room(session, size, wanted, read)

    def _account(
        self,
        inbox: TrackedInbox,
        file: OpenFile,
        group: Sequence[Entry],
        written: GroupWrite,
        done: Work,
    ) -> None:
        """Note what was written: for those who wait, for the history, for the sync."""
        done.outcomes += written.outcomes
        self._note(group, written.outcomes, inbox.generation)
        claim = written.claim(self.syncing)
        if claim is not None:
            file.written += self.syncing
            done.claims.append(claim)

    def _note(
        self, group: Sequence[Entry], outcomes: Sequence[Written | Refused], generation: int
    ) -> None:
        """Tell the history what became of entries; a repetition is no news."""
        history, hub = self.history, group[0].inbox == HUB
        for entry, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Refused):
                self._note_refusal(entry, outcome)
            elif not outcome.duplicate and not hub:
                history.stored(entry, generation, outcome.record.start, outcome.record.end)

    def _note_refusal(self, entry: Entry, outcome: Refused) -> None:
        """Tell the history what was not kept; that an id is spent is no news.

        Nor is a disk that is filling up: what is left of it is not for writing down, again
        and again, that there is not enough. What may have been called stored, since its level
        is ``memory``, becomes a dead letter, unless this was a repetition.
        """
        if outcome.code == "MESSAGE_ID_REUSE" or not outcome.noted:
            return
        self.history.refused(entry, outcome, self._clock())
        stands = self._recent.get(key_of(entry.inbox, entry.sender, entry.message_id)) is not None
        if entry.level == "memory" and not stands and len(self._lost) < MOST_LOST:
            self._lost.append(Letter("refused", entry.inbox, entry.line, outcome.code))

    def _list_lost(self) -> None:
        """List dead letters; again later while another program writes the list."""
        if self._lost:
            with contextlib.suppress(Busy):
                with contextlib.suppress(OSError, IntercomError):
                    DeadLetters(self._paths, self._calls, self._clock).add(self._lost)
                self._lost = []

    def _catch_up(
        self, inbox: TrackedInbox, file: OpenFile, found: os.stat_result, done: Work
    ) -> int | None:
        """Report others' lines and end a torn one; the file's size, None if there is more."""
        news = News()
        try:
            if not inbox.catch_up(file, found, news):
                return None
            return inbox.end_torn_line(file.fd, found.st_size, news)
        finally:
            done.tell(news, self.history)

    def _track(self, session: str) -> TrackedInbox:
        path = self._paths.inbox(session)
        book = Book(self._paths, session, self._calls, self._clock)
        then = self._initial.pop(os.path.basename(path), None)
        told = self._told.pop(session, None)
        trail = Trail(self._paths, session, self._calls)
        inbox = TrackedInbox(path, book, then, self._recent, self._calls, trail, told)
        self._inboxes[session] = inbox
        return inbox

    def _admit(self, session: str, groups: dict[str, list[Entry]], done: Work) -> bool:
        """Refuse what must not be written; tell whether nobody ever used this session."""
        group = groups[session]
        asked = only = unfit = stranger = False
        for entry in group:
            asked = asked or entry.ask_known or entry.only_known
            only = only or entry.only_known
            unfit = unfit or _unfit(entry)
        if asked:
            stranger = not is_known(self._paths, self._calls, session)
        if unfit or (stranger and only):
            # What may fail comes first: an outcome told cannot be taken back.
            names = self._names() if stranger and only else ()
            groups[session] = []
            for entry in group:
                if _unfit(entry):
                    text = f"a line has at most {MAX_LINE} bytes and no line feed"
                    self._refuse(Refused(entry.ticket, session, "LINE_TOO_LONG", text), entry, done)
                elif stranger and entry.only_known:
                    text = f"no session of this channel ever used the name {session!r}"
                    code = "TARGET_NOT_FOUND"
                    self._refuse(Refused(entry.ticket, session, code, text, names), entry, done)
                else:
                    groups[session].append(entry)
        return stranger

    def _refuse(self, refused: Refused, entry: Entry, done: Work) -> None:
        done.outcomes.append(refused)
        self.history.refused(entry, refused, self._clock())

    def _names(self) -> tuple[str, ...]:
        return tuple(sorted(take_census(self._paths, self._calls, self._clock()).sessions))

    # -- locks and files ----------------------------------------------------------------------

    def _lock(self, path: str, create: bool) -> tuple[OpenFile, os.stat_result] | None:
        """An inbox's file, locked; None if it does not exist and is not to be made.

        :raise Busy: another holds the lock.
        """
        for _ in range(100):
            file = self._files.get(path) or self._open(path, create)
            if file is None:
                return None
            if not self._calls.lock(file.fd, exclusive=True):
                raise Busy
            found = self._calls.stat(path)
            if found is not None and (found.st_dev, found.st_ino) == file.identity:
                return file, found
            self._files.drop(path)  # replaced or removed: what the path names now counts
        raise Busy

    def _open(self, path: str, create: bool) -> OpenFile | None:
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if create else 0)
        try:
            fd = self._calls.open(path, flags)
        except FileNotFoundError:
            if create:
                raise
            return None
        found = self._calls.fstat(fd)
        return self._files.add(fd, path, (found.st_dev, found.st_ino))

    def _made_room(self, session: str, error: Exception) -> bool:
        """Whether a failure was for want of descriptors, and some were freed for another try.

        Nothing is written before all that a try needs is open, so that it can be repeated.
        """
        starved = isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        return starved and self._files.make_room(keep=self._paths.inbox(session))


def _unfit(entry: Entry) -> bool:
    """Whether no reader would ever see this line as one message."""
    return len(entry.line) > MAX_LINE or b"\n" in entry.line


def _open_files() -> int:
    """How many inboxes to keep open: a quarter of what the process may open, at most 256."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 256 if soft == resource.RLIM_INFINITY else max(8, min(256, soft // 4))
