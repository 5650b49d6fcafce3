"""One inbox, one operation at a time: open, lock without waiting, work, let go.

What commands do through :class:`intercom.spool.files.Inbox` and the hub through its
reader thread; the hub's own appends, which keep descriptors open, are in
:mod:`intercom.spool.store`. Blocking, standard library only. Nothing here ever waits
for a lock: :class:`Busy` tells the caller to come again, in a way that suits it.
"""

from __future__ import annotations

import errno
import os
import time

from intercom.errors import SpoolError, StalePosition
from intercom.paths import ChannelPaths
from intercom.plain import contextmanager
from intercom.records import Batch, Moved, Position, Record
from intercom.spool.book import Book, View, last_boundary
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import Cutter, Damaged, Stored
from intercom.spool.locking import Busy as Busy
from intercom.spool.locking import open_locked as open_locked
from intercom.spool.positions import advance, place
from intercom.spool.repeats import LOOK_BACK, leave_out
from intercom.spool.trail import STATES, Trail
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire.envelope import identify

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from intercom.spool.deadletters import DeadLetters

#: Bytes read in one piece.
CHUNK = 1 << 20
#: A stored position that does not move is still renewed after so many seconds: its age
#: tells when the session last read.
RENEW_AFTER = 10.0

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Unsettled(Exception):
    """The offset file is unreadable; an original program may be rewriting it just now."""


def failure(path: str, error: OSError) -> SpoolError:
    """The refusal that tells of a failed system call on a spool's file."""
    code = "DISK_FULL" if error.errno in _FULL else "SPOOL_FAILED"
    remedy = "free some space: df -h" if error.errno in _FULL else ""
    reason = error.strerror or str(error)
    return SpoolError(f"{os.path.basename(path)}: {reason}", code=code, remedy=remedy)


class Commit(NamedTuple):
    """A position to commit: up to there messages are ``read``, ``skipped`` or ``shown``."""

    position: Position
    state: str = "read"


class Committed(NamedTuple):
    """What became of commits.

    :ivar results: for each what is stored now or why it is refused.
    :ivar moved: what this brought about, behind what others had and the trail's follower
        (see :class:`Trail`) does not know yet.
    :ivar stored: the stored position.
    :ivar size: the inbox's size in bytes.
    """

    results: list[Position | StalePosition]
    moved: list[Moved]
    stored: Position
    size: int


class InboxFile:
    """The operations on one inbox, each under its lock.

    All raise :class:`Busy`, and ``SpoolError`` (``SPOOL_FAILED``, ``DISK_FULL``) where the
    system refuses. Those that need the stored position raise :class:`Unsettled` while
    ``patient`` and its file is unreadable; otherwise they begin at the generation's start.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        calls: FileCalls | None = None,
        clock: Callable[[], float] = time.time,
        trail: Trail | None = None,
    ) -> None:
        self.path = paths.inbox(session)
        self._session = session
        self._calls = calls or FileCalls()
        self._clock = clock
        self._book = Book(paths, session, self._calls, clock)
        self._trail = trail or Trail(paths, session, self._calls)
        self._paths = paths

    def size(self) -> int:
        """The file's size in bytes, 0 if there is none."""
        found = self._calls.stat(self.path)
        return 0 if found is None else found.st_size

    def read(self, start: Position | None, limit: int, patient: bool = False) -> Batch:
        """Read complete lines: about ``limit`` bytes, at least one line if there is one.

        :param start: where to begin, None for the stored position.
        """
        with self._looked(patient and start is None) as (fd, size, view):
            begin = view.truth.position
            if start is not None:
                start = self._trail.follow(start, begin.generation)
                begin = place(start, begin.generation, size, lambda at: self._boundary(fd, at))
            data = b"".join(self._pieces(fd, begin.offset, size, max(limit, 1)))
            before = b"" if not data else self._before(fd, begin.offset)
        cutter = Cutter(begin.offset)
        cutter.feed(data)
        records, repeated = leave_out(before, cutter.records)
        return Batch(
            start=begin,
            records=records,
            next=Position(begin.generation, cutter.next),
            at_end=cutter.next + cutter.pending >= size,
            damaged=cutter.damaged,
            warning=view.truth.warning if start is None else "",
            repeated=repeated,
        )

    def commit(
        self,
        wanted: Sequence[Commit],
        patient: bool = False,
        fence: Callable[[], None] | None = None,
    ) -> Committed:
        """Move the stored position to the furthest that is wanted; all are judged alike.

        What was thereby read or skipped, and what was shown, goes on the session's trail
        afterwards; commits that follow each other in one state are one event.

        :param fence: called under the lock; if it raises, nothing is committed.
        """
        for one in wanted:
            if one.state not in STATES:
                raise ValueError(f"no message is ever {one.state!r} by a commit")
        moving = any(one.state != "shown" for one in wanted)
        flags = os.O_RDWR | os.O_APPEND | (os.O_CREAT if moving else 0)
        with self._locked(flags, exclusive=True) as fd:
            if fence is not None:
                fence()
            size = 0 if fd is None else self._calls.fstat(fd).st_size
            view = self._view(fd, size, patient)
            before = view.truth.position if fd is None else self._book.settle(fd, size, view=view)
            done = self._judge(fd, size, before, wanted)
            stored = done.stored
            accepted = moving and any(isinstance(one, Position) for one in done.results)
            if stored != before or (accepted and self._worth_renewing(view, stored)):
                self._book.put_offset(stored, self._book.foreign_at(view.stored))
            return done._replace(moved=self._trail.append(done.moved))

    def _judge(
        self, fd: int | None, size: int, stored: Position, wanted: Sequence[Commit]
    ) -> Committed:
        """What becomes of commits; nothing is written."""
        results: list[Position | StalePosition] = []
        moved: list[Moved] = []
        shown = -1
        for position, state in wanted:
            # A compaction is no affair of who reads: what was told before it is understood.
            now = self._trail.follow(position, stored.generation)
            try:
                reached = advance(stored, now, size, lambda at: self._boundary(fd, at))
            except StalePosition as stale:
                results.append(stale)
                continue
            start = stored.offset
            if state == "shown":
                shown = self._trail.shown(stored.generation) if shown < 0 else shown
                start = max(start, min(shown, size))
                shown = max(shown, reached.offset)
            else:
                stored = reached
            results.append(stored)
            self._add(moved, state, Position(stored.generation, start), reached.offset)
        return Committed(results, moved, stored, size)

    def _add(self, moved: list[Moved], state: str, start: Position, end: int) -> None:
        """Note that bytes have reached a state, as one event with what came right before."""
        last = moved[-1] if moved else None
        if start.offset >= end:
            return
        if last is not None and (last.state, last.end) == (state, start.offset):
            moved[-1] = last._replace(end=end)
        else:
            now = self._clock()
            moved.append(Moved(self._session, state, start.generation, start.offset, end, now))

    def settle(self) -> None:
        """Put in order what a crash left half done; nothing is written where that is nothing."""
        with self._looked():
            pass

    def append(self, line: bytes, sender: str, message_id: str, after: int) -> bool:
        """Append a line, synced, unless (sender, id) already stands at or behind byte ``after``.

        :return: False if it stood there and nothing was appended.
        :raise SpoolError: nothing of it is in the file, unless the text says otherwise.
        """
        with self._locked(os.O_RDWR | os.O_APPEND | os.O_CREAT, exclusive=True) as fd:
            assert fd is not None
            size = self._calls.fstat(fd).st_size
            self._book.settle(fd, size)
            begin = self._since(fd, after, size)
            if size and self._calls.pread(fd, 1, size - 1) != b"\n":
                # Whatever its writer died of: it must not swallow our line, and is a
                # message now if only its line feed was missing.
                write_all(self._calls, fd, b"\n")
                size += 1
            if self._find(fd, begin, size, sender, message_id) is not None:
                return False
            try:
                write_all(self._calls, fd, line + b"\n")
            except OSError:
                self._cut_back(fd, size)
                raise
            try:
                self._calls.sync(fd)
                # Whoever made the file may not have brought its name to the disk yet.
                self._calls.sync_names(os.path.dirname(self.path))
            except OSError as error:
                raise SpoolError(
                    f"the message is written but may not survive a power cut: {error.strerror}"
                ) from error
        return True

    def find(self, sender: str, message_id: str, after: int) -> bytes | None:
        """The line of a message that stands at or behind byte ``after``, None if none does."""
        with self._looked() as (fd, size, _view):
            if fd is None:
                return None
            return self._find(fd, self._since(fd, after, size), size, sender, message_id)

    def enrol(self) -> None:
        """Make the session known: its (empty) inbox and meta file. Idempotent."""
        with self._locked(os.O_RDWR | os.O_APPEND | os.O_CREAT, exclusive=True) as fd:
            assert fd is not None
            position = self._book.settle(fd, self._calls.fstat(fd).st_size)
            self._book.enrol(position.generation)

    def compact(self) -> bool:
        """Take what is read out of the inbox, in place; what is unread begins a generation.

        Not done (False) where nothing is read, or an original program, which knows no
        generations, moved the position within ten minutes.
        """
        with self._locked(os.O_RDWR | os.O_APPEND, exclusive=True) as fd:
            if fd is None:
                return False
            from intercom.spool.shrinking import Shrinking  # seldom needed, and not for nothing

            return Shrinking(fd, self._calls, self._book, self._trail).drop_read()

    def expire(self, keep_bytes: int | None, older_than: float | None) -> list[Record]:
        """Drop the oldest messages, so that the inbox keeps at most so many bytes.

        Where anything is dropped, all that is read goes. Unread messages that go are listed
        as dead letters first. An unfinished last line stays. Nothing is done while an
        original program, which knows no generations, may be reading (ten minutes).

        :param older_than: drop also what is older, in seconds, by its envelope's
            timestamp; one that cannot be read says nothing.
        :return: the unread messages that were dropped, in their order.
        """
        with self._locked(os.O_RDWR | os.O_APPEND, exclusive=True) as fd:
            if fd is None:
                return []
            oldest = None if older_than is None else self._clock() - older_than
            from intercom.spool.shrinking import Shrinking

            shrinking = Shrinking(fd, self._calls, self._book, self._trail)
            return shrinking.drop_old(keep_bytes, oldest, self._dead)

    @property
    def _dead(self) -> DeadLetters:
        """Where messages are listed before they go."""
        from intercom.spool.deadletters import DeadLetters  # seldom needed, and not for nothing

        return DeadLetters(self._paths, self._calls, self._clock)

    # -- under the lock -----------------------------------------------------------------------

    @contextmanager
    def _locked(self, flags: int, exclusive: bool) -> Iterator[int | None]:
        """The inbox open and locked; None if it does not exist and is not to be made."""
        fd = None
        try:
            fd = open_locked(self._calls, self.path, flags, exclusive)
            yield fd
        except OSError as error:
            raise failure(self.path, error) from error
        finally:
            if fd is not None:
                self._calls.close(fd)

    @contextmanager
    def _looked(self, patient: bool = False) -> Iterator[tuple[int | None, int, View]]:
        """The inbox under the shared lock, its size, and a look at its small files.

        :raise Busy: it was unfinished, too, and is in order now.
        """
        with self._locked(os.O_RDONLY, exclusive=False) as fd:
            size = 0 if fd is None else self._calls.fstat(fd).st_size
            view = self._view(fd, size, patient)
            if fd is None or not view.unfinished:
                yield fd, size, view
                return
        with self._locked(os.O_RDWR | os.O_APPEND, exclusive=True) as fd:
            if fd is not None:
                self._book.settle(fd, self._calls.fstat(fd).st_size)
        raise Busy

    def _view(self, fd: int | None, size: int, patient: bool) -> View:
        view = self._book.look(fd, size)
        if patient and isinstance(view.stored, Damaged):
            raise Unsettled
        return view

    def _worth_renewing(self, view: View, stored: Position) -> bool:
        if not isinstance(view.stored, Stored) or view.stored.generation != stored.generation:
            return True
        age = self._book.offset_age()
        return age is None or not 0 <= age < RENEW_AFTER

    def _boundary(self, fd: int | None, offset: int) -> int:
        return 0 if fd is None else last_boundary(self._calls, fd, offset)

    def _cut_back(self, fd: int, size: int) -> None:
        try:
            self._calls.ftruncate(fd, size)
        except OSError as error:
            raise SpoolError(
                f"a part of the message may be left in the inbox: {error.strerror}"
            ) from error

    def _before(self, fd: int | None, offset: int) -> bytes:
        """The whole lines right before a record boundary."""
        start = max(0, offset - LOOK_BACK)
        if fd is None or not offset:
            return b""
        data = self._calls.pread(fd, offset - start, start)
        return data.partition(b"\n")[2] if start else data

    def _pieces(self, fd: int | None, start: int, size: int, limit: int) -> list[bytes]:
        """The first ``limit`` bytes, or more: on to the end of a line if none ends there."""
        pieces: list[bytes] = []
        ended = fd is None
        while start < size and not (ended and limit <= 0):
            assert fd is not None
            piece = self._calls.pread(fd, min(CHUNK, size - start, limit or CHUNK), start)
            if not piece:
                break
            start += len(piece)
            if limit > 0:
                limit -= len(piece)
            elif b"\n" in piece:
                piece = piece[: piece.index(b"\n") + 1]
            ended = ended or b"\n" in piece
            pieces.append(piece)
        return pieces

    def _since(self, fd: int, after: int, size: int) -> int:
        """Where to look for what came after a size that was noted; in a smaller file everywhere."""
        return self._boundary(fd, after) if 0 <= after <= size else 0

    def _find(self, fd: int, start: int, size: int, sender: str, message_id: str) -> bytes | None:
        """The line of a message that stands in the file from ``start`` on."""
        cutter = Cutter(start)
        plain = message_id.isascii() and message_id.replace("_", "").replace("-", "").isalnum()
        wanted = message_id.encode() if plain else b""  # others may stand there escaped
        while start < size:
            piece = self._calls.pread(fd, CHUNK, start)
            if not piece:
                break
            cutter.feed(piece)
            start += len(piece)
            for record in cutter.records:
                found = identify(record.line) if wanted in record.line else None
                if found is not None and found[:2] == (sender, message_id):
                    return record.line
            cutter.records.clear()
        return None
