"""The hub's way to append: many entries to many inboxes, under locks that are never waited for.

Blocking, for one thread. Under an inbox's lock it looks first at what others appended
since its own last end: their lines are reported before ours, and of ours those are dropped
that theirs already hold. Then all entries for that inbox are written in one call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence

from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Record, Refused, Span, Written
from intercom.spool.book import Book
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.inboxfile import Busy, failure
from intercom.spool.known import Extent, is_known, session_of, take_census
from intercom.spool.recent import Key, RecentIds, Seen
from intercom.spool.synced import Directory, OpenFile, OpenFiles
from intercom.spool.tracked import News, TrackedInbox
from intercom.wire.envelope import MAX_LINE

_NOWHERE = Record(0, 0, b"")


class Work:
    """What came of one piece of the store's work.

    :ivar outcomes: for the listener, per inbox in file order.
    :ivar busy: entries whose inbox was locked, or has more news than one look takes: try again.
    :ivar busy_looks: the same for looks.
    :ivar claims: for each file that was written to, the tickets by durability level.
    :ivar damaged: lines of others that are no messages.
    :ivar torn: inboxes in which an unfinished line was ended.
    """

    def __init__(self) -> None:
        self.outcomes: list[Written | Refused | Appeared] = []
        self.busy: list[Entry] = []
        self.busy_looks: list[str] = []
        self.claims: list[tuple[OpenFile, dict[str, list[int]]]] = []
        self.damaged: list[tuple[str, Span]] = []
        self.torn: list[str] = []

    def tell(self, news: News) -> None:
        """Add what a look brought, in its order."""
        self.outcomes += news.appeared
        self.damaged += news.damaged
        self.torn += news.torn


class Store:
    """All inboxes of a channel, for the one who leads it.

    :param clock: epoch seconds, to be compared with the files' times.
    :param open_files: how many inboxes are kept open.
    :ivar syncing: whether written files are to be synced; False where the place forgets
        everything anyway.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls | None = None,
        clock: Callable[[], float] = time.time,
        open_files: int | None = None,
    ) -> None:
        self.syncing = True
        self._paths = paths
        self._calls = calls or FileCalls()
        self._clock = clock
        self._directory = Directory(paths.directory, self._calls)
        self._files = OpenFiles(self._directory, self._calls, open_files or _open_files())
        self._inboxes: dict[str, TrackedInbox] = {}
        self._initial: dict[str, Extent] = {}
        self._recent = RecentIds()

    def start(self) -> dict[str, float | None]:
        """Note where every inbox ends now: what is appended later is news.

        :return: the known sessions, each with the seconds since it last read.
        """
        self._directory.open()
        census = take_census(self._paths, self._calls, self._clock())
        self._initial = census.inboxes
        return census.sessions

    def work(self, looks: Iterable[str], entries: Sequence[Entry]) -> Work:
        """Look at some inboxes (encoded ids), then append; never waits, never raises OSError.

        An inbox that is busy is tried once more when all others are done.
        """
        done = Work()
        for encoded in looks:
            self._look(encoded, done)
        groups: dict[str, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(entry.inbox, []).append(entry)
        again = [inbox for inbox in groups if not self._append(inbox, groups, done)]
        for inbox in again:
            if not self._append(inbox, groups, done):
                done.busy += groups[inbox]
        return done

    def append_batch(self, entries: Sequence[Entry]) -> Work:
        """Append entries; see :meth:`work`."""
        return self.work((), entries)

    def close(self) -> None:
        """Sync what is unsynced, and let go of every file."""
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
            found = self._calls.stat(self._paths.inbox(session))
            if found is None or (inbox is not None and inbox.unchanged(found)):
                return
            inbox = inbox or self._track(session)
            held = self._lock(inbox.path, create=False)
            if held is None:
                return
            news = News()
            try:
                if not inbox.catch_up(*held, self._clock(), news):
                    done.busy_looks.append(encoded)
            finally:
                done.tell(news)
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
            if not group:
                return True
            inbox = self._inboxes.get(session) or self._track(session)
            held = self._lock(inbox.path, create=True)
            assert held is not None
            try:
                if inbox.is_new(*held):  # and perhaps its session was forgotten just now
                    stranger = not is_known(self._paths, self._calls, session)
                size = self._catch_up(inbox, *held, done)
                if size is None:
                    return False
                self._write(inbox, held[0], size, group, stranger, done)
            finally:
                self._calls.unlock(held[0].fd)
        except Busy:
            return False
        except (OSError, IntercomError) as error:
            if self._made_room(session, error):
                return self._append(session, groups, done)
            code, text = _reason(self._paths.inbox(session), error)
            done.outcomes += [Refused(e.ticket, session, code, text) for e in groups[session]]
        return True

    def _catch_up(
        self, inbox: TrackedInbox, file: OpenFile, found: os.stat_result, done: Work
    ) -> int | None:
        """Report others' lines and end a torn one; the file's size, None if there is more."""
        news = News()
        try:
            if not inbox.catch_up(file, found, self._clock(), news):
                return None
            return inbox.end_torn_line(file.fd, found.st_size, news)
        finally:
            done.tell(news)

    def _track(self, session: str) -> TrackedInbox:
        path = self._paths.inbox(session)
        book = Book(self._paths, session, self._calls, self._clock)
        then = self._initial.pop(os.path.basename(path), None)
        inbox = TrackedInbox(path, book, then, self._recent, self._calls)
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
                    done.outcomes.append(Refused(entry.ticket, session, "LINE_TOO_LONG", text))
                elif stranger and entry.only_known:
                    text = f"no session of this channel ever used the name {session!r}"
                    code = "TARGET_NOT_FOUND"
                    done.outcomes.append(Refused(entry.ticket, session, code, text, names))
                else:
                    groups[session].append(entry)
        return stranger

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

    # -- writing ------------------------------------------------------------------------------

    def _write(
        self,
        inbox: TrackedInbox,
        file: OpenFile,
        size: int,
        group: list[Entry],
        stranger: bool,
        done: Work,
    ) -> None:
        """Write a group's new lines in one call; what is to be told is mended if it fails."""
        session, generation, recent = inbox.session, inbox.generation, self._recent.get
        outcomes: list[Written | Refused] = []
        again: list[tuple[int, Entry, Seen]] = []
        fresh: dict[Key, Seen] = {}
        lines: list[bytes] = []
        end = size
        for entry in group:
            line = entry.line
            key = (session, generation, entry.sender, entry.message_id)
            seen = fresh.get(key) or recent(key)
            if seen is not None:
                again.append((len(outcomes), entry, seen))
            else:
                start, end = end, end + len(line) + 1
                fresh[key] = Seen(entry.digest, start, end)
                lines.append(line)
            record = Record(start, end, line) if seen is None else _NOWHERE
            known = not (stranger and entry.ask_known)
            told = Written(entry.ticket, session, record, generation, seen is not None, known)
            outcomes.append(told)
        inbox.end, error = self._write_lines(file.fd, size, lines, end)
        if again:
            self._find_earlier(file.fd, inbox.end, again, outcomes)
        if error is not None:
            fresh = {key: seen for key, seen in fresh.items() if seen.end <= inbox.end}
            _refuse_unwritten(outcomes, inbox, error)
        self._recent.add(fresh)
        done.outcomes += outcomes
        self._claim(file, group, outcomes, done)

    def _find_earlier(
        self,
        fd: int,
        end: int,
        again: list[tuple[int, Entry, Seen]],
        outcomes: list[Written | Refused],
    ) -> None:
        """Say of messages that came again where they stand, or that their id was taken."""
        for index, entry, seen in again:
            outcome = outcomes[index]
            if seen.digest != entry.digest:
                text = f"the id {entry.message_id!r} was used for another message"
                outcomes[index] = Refused(entry.ticket, entry.inbox, "MESSAGE_ID_REUSE", text)
            elif isinstance(outcome, Written):
                line = entry.line  # the same message, but perhaps for its time
                if seen.end <= end:
                    with contextlib.suppress(OSError):
                        line = self._calls.pread(fd, seen.end - seen.start - 1, seen.start)
                outcomes[index] = outcome._replace(record=Record(seen.start, seen.end, line))

    def _claim(
        self, file: OpenFile, group: list[Entry], outcomes: list[Written | Refused], done: Work
    ) -> None:
        """Note which tickets want to hear that what was written is safe."""
        levels: dict[str, list[int]] = {}
        for entry, outcome in zip(group, outcomes, strict=True):
            if type(outcome) is Written:
                try:
                    levels[entry.level].append(entry.ticket)
                except KeyError:
                    levels[entry.level] = [entry.ticket]
        if levels:
            if self.syncing:
                file.written += 1
            done.claims.append((file, levels))

    def _write_lines(
        self, fd: int, size: int, lines: list[bytes], end: int
    ) -> tuple[int, OSError | None]:
        """Append lines in one call, or none of them.

        :return: the byte up to which complete lines stand, and what went wrong.
        """
        if not lines:
            return size, None
        try:
            write_all(self._calls, fd, b"\n".join([*lines, b""]))
        except OSError as error:
            try:
                self._calls.ftruncate(fd, size)
            except OSError:
                # What stands there whole is stored, whatever we would like; a torn rest
                # is ended before the next append.
                left = self._calls.fstat(fd).st_size
                for line in lines:
                    if size + len(line) + 1 > left:
                        break
                    size += len(line) + 1
            return size, error
        return end, None


def _refuse_unwritten(
    outcomes: list[Written | Refused], inbox: TrackedInbox, error: OSError
) -> None:
    """Take back what was to be told of entries that are not in the file."""
    code, text = _reason(inbox.path, error)
    for index, outcome in enumerate(outcomes):
        if isinstance(outcome, Written) and outcome.record.end > inbox.end:
            outcomes[index] = Refused(outcome.ticket, inbox.session, code, text)


def _unfit(entry: Entry) -> bool:
    """Whether no reader would ever see this line as one message."""
    return len(entry.line) > MAX_LINE or b"\n" in entry.line


def _reason(path: str, error: Exception) -> tuple[str, str]:
    """Code and sentence of a refusal."""
    if isinstance(error, OSError):
        error = failure(path, error)
    assert isinstance(error, IntercomError)
    code = error.code if error.code == "DISK_FULL" else "SPOOL_FAILED"
    return code, f"{error.text}; {error.remedy}" if error.remedy else error.text


def _open_files() -> int:
    """How many inboxes to keep open: a quarter of what the process may open, at most 256."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 256 if soft == resource.RLIM_INFINITY else max(8, min(256, soft // 4))
