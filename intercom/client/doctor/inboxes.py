"""Reading one inbox with its small files, as far as a diagnosis needs it.

Size, position and last byte are seen under the inbox's shared lock, which is given back at
once; the lines are read without it, the last :data:`MOST_BYTES` at most.
"""

from __future__ import annotations

import math
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass, field

from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Record, Span
from intercom.spool.book import Book, View, last_boundary
from intercom.spool.calls import FileCalls
from intercom.spool.expiry import sent_at
from intercom.spool.format import Cutter, Damaged
from intercom.spool.inboxfile import CHUNK
from intercom.spool.known import session_of
from intercom.spool.locking import Busy, open_locked
from intercom.wire.envelope import Identity, identify

#: Of a longer inbox only so many bytes are read, the last ones.
MOST_BYTES = 64 << 20
#: Seconds for which the lock may be busy before that is a finding.
PATIENCE = 0.3
_PAUSE = 0.01
#: How often a damaged position is looked at again: an original program rewrites it in place.
_LOOKS, _SETTLE = 3, 0.02
#: So many lines are compared with others of their id; beyond that nobody counts any more.
MOST_COMPARED = 2000
_ID = re.compile(rb'\{"id": ?("[^"\\]*")')
_ANY_ID = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*")')


@dataclass(slots=True)
class Content:
    """What the lines of an inbox tell.

    :ivar begin: where reading began.
    :ivar unread: messages behind the stored position, as far as they were read.
    :ivar bad: complete lines that are no message; ``long`` those that are too long.
    :ivar repeated: messages that stand before, too: same sender, id and content.
    :ivar oldest: when the first unread message was sent, ``newest`` the last of all; epoch
        seconds, None if there is none, or it does not say.
    """

    begin: int = 0
    unread: int = 0
    bad: list[Span] = field(default_factory=list)
    long: list[Span] = field(default_factory=list)
    repeated: list[Span] = field(default_factory=list)
    oldest: float | None = None
    newest: float | None = None


@dataclass(slots=True)
class Scan:
    """One inbox.

    :ivar session: None where only a hash of the id is left.
    :ivar exists: whether there is an inbox file.
    :ivar view: the true position; None without a session.
    :ivar busy: others kept the lock, so that what was seen may be in motion.
    :ivar torn: where an unfinished last line begins, None if there is none.
    :ivar trouble: why it could not be read, or None.
    """

    encoded: str
    path: str
    session: str | None
    exists: bool = False
    size: int = 0
    view: View | None = None
    busy: bool = False
    torn: int | None = None
    content: Content = field(default_factory=Content)
    trouble: IntercomError | OSError | None = None

    @property
    def offset(self) -> int:
        """The byte behind which messages are unread."""
        return 0 if self.view is None else self.view.truth.position.offset


def scan(paths: ChannelPaths, encoded: str, calls: FileCalls) -> Scan:
    """Read one inbox; that it cannot be read is told in the result.

    :param encoded: the session's id as it stands in file names.
    """
    path = paths.file(f"inbox_{encoded}.ndjson")
    found = Scan(encoded, path, session_of(paths, calls, encoded))
    try:
        for _ in range(3):
            fd, found.busy = _open(calls, path)
            try:
                _look(paths, calls, fd, found)
                if fd is None:
                    break
                found.content = _read(calls, fd, found.size, found.offset)
                if calls.fstat(fd).st_size >= found.size:
                    break  # else it was emptied meanwhile
            finally:
                if fd is not None:
                    calls.close(fd)
    except (OSError, IntercomError) as error:
        found.trouble = error
    return found


def _open(calls: FileCalls, path: str) -> tuple[int | None, bool]:
    """The inbox, locked, or not where others keep the lock: then True; None if there is none."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            return open_locked(calls, path, os.O_RDONLY, exclusive=False), False
        except Busy:
            if time.monotonic() > deadline:
                with suppress(FileNotFoundError):
                    return calls.open(path, os.O_RDONLY), True
                return None, False
            time.sleep(_PAUSE)


def _look(paths: ChannelPaths, calls: FileCalls, fd: int | None, found: Scan) -> None:
    """See size, position and last byte, then give the lock back."""
    found.exists = fd is not None
    found.size = 0 if fd is None else calls.fstat(fd).st_size
    if found.session is not None:
        book = Book(paths, found.session, calls)
        for _ in range(_LOOKS):
            found.view = book.look(fd, found.size)
            if not isinstance(found.view.stored, Damaged):
                break
            time.sleep(_SETTLE)
    found.torn = None
    if fd is not None:
        if found.size and calls.pread(fd, 1, found.size - 1) != b"\n":
            found.torn = last_boundary(calls, fd, found.size)
        calls.unlock(fd)


def _read(calls: FileCalls, fd: int, size: int, offset: int) -> Content:
    """Read the lines up to a size, or the last of them."""
    begin = last_boundary(calls, fd, size - MOST_BYTES) if size > MOST_BYTES else 0
    content, ids, cutter = Content(begin), _Ids(calls, fd), Cutter(begin)
    last: Record | None = None
    at = begin
    while at < size:
        piece = calls.pread(fd, min(CHUNK, size - at), at)
        if not piece:
            break
        at += len(piece)
        cutter.feed(piece)
        for record in cutter.records:
            ids.take(record)
            if record.start >= offset:
                if not content.unread:
                    content.oldest = _sent_at(record.line)
                content.unread += 1
        last = cutter.records[-1] if cutter.records else last
        cutter.records.clear()
    content.newest = None if last is None else _sent_at(last.line)
    content.long = [span for span in cutter.damaged if span.reason.startswith("longer")]
    content.bad = [span for span in cutter.damaged if not span.reason.startswith("longer")]
    content.repeated = ids.repeated
    return content


class _Ids:
    """The ids of an inbox's messages, to find the messages that stand twice.

    Different senders may use the same id, so lines of one id are looked at more closely.
    """

    def __init__(self, calls: FileCalls, fd: int) -> None:
        self.repeated: list[Span] = []
        self._calls = calls
        self._fd = fd
        self._first: dict[bytes, tuple[int, int]] = {}
        self._known: dict[bytes, set[Identity | None]] = {}
        self._compared = 0

    def take(self, record: Record) -> None:
        """Take the next message."""
        found = _ID.match(record.line) or _ANY_ID.search(record.line)
        if found is None:
            return
        key = found[1]
        if self._first.setdefault(key, (record.start, record.end)) == (record.start, record.end):
            return
        self._compared += 1
        if self._compared > MOST_COMPARED:
            return
        if key not in self._known:
            start, end = self._first[key]
            first = self._calls.pread(self._fd, end - start, start)
            self._known[key] = {identify(first.rstrip(b"\n"))}
        identity = identify(record.line)
        if identity is not None and identity in self._known[key]:
            self.repeated.append(Span(record.start, record.end, "the same message stands before"))
        self._known[key].add(identity)


def _sent_at(line: bytes) -> float | None:
    """When a message says that it was sent; None where that cannot be read."""
    at = sent_at(line)
    return at if math.isfinite(at) else None
