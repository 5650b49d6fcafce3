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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from intercom.errors import SpoolError, StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Batch, Position
from intercom.spool.book import Book, View, last_boundary
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import HEAD, Cutter, Damaged, Mark, Stored, head_of
from intercom.spool.positions import advance, place, raise_generation
from intercom.wire.envelope import identify

#: Bytes read in one piece.
CHUNK = 1 << 20
#: A stored position that does not move is still renewed after so many seconds: its age
#: tells when the session last read.
RENEW_AFTER = 10.0

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Busy(Exception):
    """Another holds the inbox's lock at this moment."""


class Unsettled(Exception):
    """The offset file is unreadable; an original program may be rewriting it just now."""


def failure(path: str, error: OSError) -> SpoolError:
    """The refusal that tells of a failed system call on a spool's file."""
    code = "DISK_FULL" if error.errno in _FULL else "SPOOL_FAILED"
    remedy = "free some space: df -h" if error.errno in _FULL else ""
    reason = error.strerror or str(error)
    return SpoolError(f"{os.path.basename(path)}: {reason}", code=code, remedy=remedy)


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
    ) -> None:
        self.path = paths.inbox(session)
        self._calls = calls or FileCalls()
        self._book = Book(paths, session, self._calls, clock)

    def size(self) -> int:
        """The file's size in bytes, 0 if there is none."""
        found = self._calls.stat(self.path)
        return 0 if found is None else found.st_size

    def read(self, start: Position | None, limit: int, patient: bool = False) -> Batch:
        """Read complete lines: about ``limit`` bytes, at least one line if there is one.

        :param start: where to begin, None for the stored position.
        """
        with self._locked(os.O_RDONLY, exclusive=False) as fd:
            size = 0 if fd is None else self._calls.fstat(fd).st_size
            view = self._view(fd, size, patient and start is None)
            begin = view.truth.position
            if start is not None:
                begin = place(start, begin.generation, size, lambda at: self._boundary(fd, at))
            pieces = self._pieces(fd, begin.offset, size, max(limit, 1))
        cutter = Cutter(begin.offset)
        for piece in pieces:
            cutter.feed(piece)
        return Batch(
            start=begin,
            records=cutter.records,
            next=Position(begin.generation, cutter.next),
            at_end=cutter.next + cutter.pending >= size,
            damaged=cutter.damaged,
            warning=view.truth.warning if start is None else "",
        )

    def commit(
        self, positions: Sequence[Position], patient: bool = False
    ) -> tuple[list[Position | StalePosition], bool]:
        """Move the stored position to the furthest of ``positions``; all are judged alike.

        :return: for each what is stored now or why it is refused, and whether the whole
            inbox is read.
        """
        with self._locked(os.O_RDONLY | os.O_CREAT, exclusive=True) as fd:
            assert fd is not None
            size = self._calls.fstat(fd).st_size
            view = self._view(fd, size, patient)
            stored = before = self._book.settle(fd, size, view=view)
            results: list[Position | StalePosition] = []
            for wanted in positions:
                try:
                    stored = advance(stored, wanted, size, lambda at: self._boundary(fd, at))
                    results.append(stored)
                except StalePosition as stale:
                    results.append(stale)
            accepted = any(isinstance(result, Position) for result in results)
            if stored != before or (accepted and self._worth_renewing(view, stored)):
                self._book.put_offset(stored, self._book.foreign_at(view.stored))
        return results, stored.offset == size

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
                if size == 0:
                    self._calls.sync_names(os.path.dirname(self.path))
            except OSError as error:
                raise SpoolError(
                    f"the message is written but may not survive a power cut: {error.strerror}"
                ) from error
        return True

    def find(self, sender: str, message_id: str, after: int) -> bytes | None:
        """The line of a message that stands at or behind byte ``after``, None if none does."""
        with self._locked(os.O_RDONLY, exclusive=False) as fd:
            if fd is None:
                return None
            size = self._calls.fstat(fd).st_size
            return self._find(fd, self._since(fd, after, size), size, sender, message_id)

    def enrol(self) -> None:
        """Make the session known: its (empty) inbox and meta file. Idempotent."""
        with self._locked(os.O_RDONLY | os.O_CREAT, exclusive=True) as fd:
            assert fd is not None
            position = self._book.settle(fd, self._calls.fstat(fd).st_size)
            self._book.enrol(position.generation)

    def compact(self) -> bool:
        """Empty the inbox in place if all of it is read, in the next generation.

        Not done (False) while a line is unfinished or unread, or an original program,
        which knows no generations, moved the position within ten minutes.
        """
        with self._locked(os.O_RDWR, exclusive=True) as fd:
            if fd is None:
                return False
            size = self._calls.fstat(fd).st_size
            position = self._book.settle(fd, size)
            view = self._book.look(fd, size)
            if not size or position.offset != size or self._book.foreign_at(view.stored):
                return False
            assert isinstance(view.stored, Stored)
            if view.stored.generation is None:
                self._book.put_offset(position)
            generation = position.generation
            beginning = self._calls.pread(fd, min(size, HEAD), 0)
            mark = Mark(raise_generation(generation), size, head_of(beginning))
            self._book.put_meta(generation, mark, durable=True)
            self._calls.ftruncate(fd, 0)
            self._book.put_meta(mark.to, durable=True)
            self._book.put_offset(Position(mark.to, 0))
        return True

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


def open_locked(calls: FileCalls, path: str, flags: int, exclusive: bool) -> int | None:
    """Open and lock the file that ``path`` names; None if there is none and none is to be made.

    After locking, descriptor and path are compared: whoever replaced the file while we
    were on our way wants us to use the new one.

    :raise Busy: the lock is held.
    """
    for _ in range(100):
        try:
            fd = calls.open(path, flags)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise
            return None
        try:
            if not calls.lock(fd, exclusive):
                raise Busy
            named, held = calls.stat(path), calls.fstat(fd)
            if named is not None and (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
                return fd
        except BaseException:
            calls.close(fd)
            raise
        calls.close(fd)
    raise Busy
