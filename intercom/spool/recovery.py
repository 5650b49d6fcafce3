"""What the next leader does with the journal of a hub that died.

The machine still runs under the boot that the journal names: the inboxes hold everything,
they are only to be synced before the journal may forget. Another boot: a power cut, and
what an inbox lacks is written again from the journal, in its place; where something else
stands there it is appended, known by sender and id. A failed sync left its mark: the kernel
may call lost pages clean, so everything is written anew before it is synced.

Blocking, standard library only. The caller holds the channel's lock.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable

from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.book import Book
from intercom.spool.boots import boots
from intercom.spool.calls import FileCalls
from intercom.spool.format import Cutter, Meta
from intercom.spool.inboxfile import CHUNK
from intercom.spool.journal import JournalRecord, discard, read_segments
from intercom.spool.locking import Busy, locked
from intercom.tuples import NamedTuple
from intercom.wire.envelope import identify

#: Left by a hub whose sync failed.
MARKER = "journal.failed"


class Recovery(NamedTuple):
    """What was found and done.

    :ivar power_cut: the journal was written before this boot.
    :ivar appended: how many messages each inbox had lost, wholly or in part, and has again.
    """

    power_cut: bool = False
    appended: dict[str, int] = {}


def recover(
    paths: ChannelPaths,
    calls: FileCalls,
    boot: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Recovery:
    """Bring the inboxes to what the journal promises, then remove it. Idempotent.

    A crash at any step is followed by another recovery from the same journal.

    :raise InboxLocked: an inbox that lost messages stays locked.
    :raise OSError: an inbox cannot be written or synced; the journal stays.
    """
    segments = read_segments(paths, calls)
    power_cut = any(segment.boot != boot for segment in segments)
    anew = power_cut or calls.stat(paths.file(MARKER)) is not None
    inboxes: dict[str, list[JournalRecord]] = {}
    for segment in segments:
        for record in segment.records:
            inboxes.setdefault(record.inbox, []).append(record)
    appended: dict[str, int] = {}
    for inbox, records in inboxes.items():
        if anew:
            count = _restore(paths, calls, inbox, records, sleep)
            if count:
                appended[inbox] = count
        else:
            _sync(paths, calls, inbox)
    if inboxes:
        calls.sync_names(paths.directory)
    discard(paths, calls)
    if calls.stat(paths.file(MARKER)) is not None:
        calls.unlink(paths.file(MARKER))
    return Recovery(power_cut, appended)


def is_due(paths: ChannelPaths, calls: FileCalls, boot: str) -> bool:
    """Whether a power cut lies between the journal and now: nobody may read before recovery."""
    return bool(boots(paths, calls) - {boot})


def _sync(paths: ChannelPaths, calls: FileCalls, inbox: str) -> None:
    """Sync an inbox that holds all; that needs no lock.

    Where that fails the next recovery must not try again: it might be told that all is well.
    """
    path = paths.inbox(inbox)
    try:
        fd = calls.open(path, os.O_RDWR)
    except FileNotFoundError:
        return  # forgotten since
    try:
        calls.sync(fd)
    except OSError as error:
        mark_failed(paths, calls)
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        calls.close(fd)


def mark_failed(paths: ChannelPaths, calls: FileCalls) -> None:
    """A sync failed: have the next recovery write anew what the journal holds."""
    with contextlib.suppress(OSError):
        calls.close(calls.open(paths.file(MARKER), os.O_WRONLY | os.O_CREAT))


def _restore(
    paths: ChannelPaths,
    calls: FileCalls,
    inbox: str,
    records: list[JournalRecord],
    sleep: Callable[[float], None],
) -> int:
    """Write anew what stands in an inbox, append what does not; how many were appended."""
    _end_compaction(paths, calls, inbox, sleep)
    # Not for appending: there pwrite would not write at its place.
    with _locked(paths, calls, inbox, os.O_RDWR | os.O_CREAT, sleep) as fd:
        assert fd is not None
        book = Book(paths, inbox, calls)
        generation = book.noted_generation()
        missing, count = [], 0
        for record in records:
            line = record.line + b"\n"
            if record.generation < generation:
                continue  # it was read, and the inbox emptied since
            left = _left_of(calls, fd, record.start, line)
            if left is None:
                missing.append(record)
                continue
            count += left != line
            _write(calls, fd, line, record.start)
        if missing:
            count += _append_unknown(calls, fd, missing, book, generation)
        calls.sync(fd)
        return count


def _end_compaction(
    paths: ChannelPaths, calls: FileCalls, inbox: str, sleep: Callable[[float], None]
) -> None:
    """Finish or undo a compaction that was under way; each of its steps was synced."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
    with _locked(paths, calls, inbox, flags, sleep) as fd:
        assert fd is not None
        book = Book(paths, inbox, calls)
        view = book.look(fd, calls.fstat(fd).st_size)
        marked = isinstance(view.meta, Meta) and view.meta.mark is not None
        if view.unfinished or marked:
            with contextlib.suppress(Busy):  # it is in order then
                book.settle(fd, calls.fstat(fd).st_size)


def _locked(
    paths: ChannelPaths, calls: FileCalls, inbox: str, flags: int, sleep: Callable[[float], None]
) -> contextlib.AbstractContextManager[int | None]:
    """The inbox, open and locked for us alone."""
    lost = f"the inbox of {inbox!r} lost messages in a power cut"
    text = f"{lost}, and another program keeps it locked"
    return locked(calls, paths.inbox(inbox), flags, text=text, sleep=sleep)


def _left_of(calls: FileCalls, fd: int, start: int, line: bytes) -> bytes | None:
    """What a power cut has left of a line in its place; None if something else stands there.

    That is a beginning of it, and zeros for what never reached the disk. Written there again
    it has the place that it had, and so has every position behind it. What was lost before it
    and is not in the journal (of a lower level) becomes one damaged line.
    """
    if start:
        before = calls.pread(fd, 1, start - 1)
        if before in (b"", b"\0"):
            _write(calls, fd, b"\n", start - 1)
        elif before != b"\n":
            return None
    left = calls.pread(fd, len(line), start)
    fits = all(byte in (0, whole) for byte, whole in zip(left, line, strict=False))
    return left if fits else None


def _append_unknown(
    calls: FileCalls, fd: int, records: list[JournalRecord], book: Book, generation: int
) -> int:
    """Append those that stand nowhere; a position behind the end must not pass over them."""
    _end_torn_line(calls, fd)
    size = calls.fstat(fd).st_size
    if book.look(fd, size).truth.raised:
        book.put_offset(Position(generation, size))
    unknown = _unknown(calls, fd, records)
    _write(calls, fd, b"".join(record.line + b"\n" for record in unknown), size)
    return len(unknown)


def _unknown(calls: FileCalls, fd: int, records: list[JournalRecord]) -> list[JournalRecord]:
    """Those of the records that stand nowhere in the inbox, each once."""
    wanted = {(record.sender, record.message_id) for record in records}
    cutter = Cutter(0)
    at = 0
    while piece := calls.pread(fd, CHUNK, at):
        cutter.feed(piece)
        at += len(piece)
        for found in cutter.records:
            identity = identify(found.line)
            if identity is not None:
                wanted.discard(identity[:2])
        cutter.records.clear()
    unknown = []
    for record in records:
        if (record.sender, record.message_id) in wanted:
            wanted.remove((record.sender, record.message_id))
            unknown.append(record)
    return unknown


def _end_torn_line(calls: FileCalls, fd: int) -> None:
    """End what is left of a lost line; if only its line feed was lost it is a message now."""
    size = calls.fstat(fd).st_size
    if size and calls.pread(fd, 1, size - 1) != b"\n":
        _write(calls, fd, b"\n", size)


def _write(calls: FileCalls, fd: int, data: bytes, at: int) -> None:
    done = 0
    while done < len(data):
        more = calls.pwrite(fd, memoryview(data)[done:], at + done)
        if not more:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done += more
