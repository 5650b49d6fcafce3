"""The hub's write-ahead journal: what makes a message safe from a power cut, with one sync.

A message at level ``disk`` is written to its inbox file, and, with everything else of its
batch, once more here: into one preallocated file that a single sync makes safe, however
many inboxes the batch touched. The inbox files follow in the background, always before the
journal forgets what it holds of them. After a power cut whoever leads the channel next
appends from the journal what an inbox lacks (:mod:`intercom.spool.recovery`).

Two segments take turns. Each begins with a header that names this boot of the machine and
a salt; behind it stand batches, each with its length and a checksum over salt and content,
so that neither a torn batch nor one that is left of an earlier use is taken for whole.

Blocking, for one thread. Standard library only.
"""

from __future__ import annotations

import errno
import json
import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from json.encoder import encode_basestring_ascii as quote

from intercom.paths import ChannelPaths
from intercom.records import Entry
from intercom.spool.boots import SEGMENTS, content, head_of
from intercom.spool.calls import FileCalls
from intercom.tuples import NamedTuple

#: Bytes of a segment: it begins small, since most channels are quiet, and doubles each time
#: it fills before the inboxes have caught up.
SMALLEST, LARGEST = 1 << 20, 16 << 20

_HEADER = b"intercom-journal 1 %s %s %d\n"
_BATCH = len(b"%08x %08x\n" % (0, 0))


class Unsafe(OSError):
    """A sync failed: the kernel may call lost pages clean, so no later sync proves anything."""


class JournalRecord(NamedTuple):
    """A line that was appended to an inbox at level ``disk``."""

    inbox: str
    generation: int
    start: int
    sender: str
    message_id: str
    line: bytes


class Segment(NamedTuple):
    """What a segment holds: when it was begun, under which boot, and its records in order."""

    number: int
    boot: str
    records: list[JournalRecord]


def dump(entry: Entry, generation: int, start: int) -> bytes:
    """Write a record; ``start`` is where the entry's line stands in its inbox."""
    head = (
        f"[{quote(entry.inbox)},{generation},{start},"
        f"{quote(entry.sender)},{quote(entry.message_id)}]\n"
    )
    return b"%s%s\n" % (head.encode(), entry.line)


class Journal:
    """The writer's side.

    :param boot: names this boot of the machine; another one later means a power cut.
    :param salt: draws eight bytes that no earlier use of a segment had.
    :param floor: so many bytes stay free on the file system, but never more than a tenth of
        it: a journal that fills the disk would leave no room for positions.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls,
        boot: str,
        salt: Callable[[], bytes] = lambda: os.urandom(8),
        floor: int = 0,
    ) -> None:
        self._paths = [paths.file(name) for name in SEGMENTS]
        self._directory = paths.directory
        self._calls = calls
        self._boot = boot
        self._draw = salt
        self._floor = floor
        self._fds = [-1, -1]
        self._sizes = [0, 0]
        self._wanted = SMALLEST
        self._turn = 1
        self._number = 0
        self._at = 0
        self._salt = b""

    @property
    def half_full(self) -> bool:
        """Whether it is time for what the other segment holds to be safe in the inboxes."""
        return self._at * 2 > self._sizes[self._turn]

    def has_room(self, length: int) -> bool:
        """Whether the current segment takes a batch of so many bytes."""
        return bool(self._salt) and self._at + _BATCH + length <= self._sizes[self._turn]

    def too_small_for(self, length: int) -> bool:
        """Whether not even an empty segment takes a batch of so many bytes."""
        return _BATCH + length > self._wanted

    def turn(self, full: bool) -> None:
        """Go on in the other segment: everything that it holds must be safe in the inboxes.

        :param full: the current one has filled before the inboxes had caught up, or would be
            too small for what comes next.
        :raise OSError: there is no room on the disk; nothing was lost.
        """
        if full:
            self._wanted = min(self._wanted * 2, LARGEST)
        other = 1 - self._turn
        if self._fds[other] < 0:
            self._open(other)
        if self._sizes[other] < self._wanted:
            self._grow(other)
        self._turn = other
        self._number += 1
        self._salt = self._draw().hex().encode()
        self._at = 0

    def write(self, records: Sequence[bytes]) -> None:
        """Write a batch and sync it; see :meth:`has_room`.

        :raise Unsafe: nothing of it may be called safe, now or later.
        :raise OSError: it could not be written; it may be made safe elsewhere.
        """
        content = b"".join(records)
        data = b"%08x %08x\n%s" % (_checksum(self._salt, content), len(content), content)
        if not self._at:
            head = _HEADER % (self._boot.encode(), self._salt, self._number)
            data = head + data
        fd = self._fds[self._turn]
        done = 0
        while done < len(data):
            more = self._calls.pwrite(fd, memoryview(data)[done:], self._at + done)
            if not more:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            done += more
        try:
            self._calls.sync(fd)
        except OSError as error:
            raise Unsafe(error.errno, error.strerror) from error
        self._at += len(data)

    def forget(self) -> None:
        """Everything that the segments hold is safe elsewhere: hold nothing. Not synced."""
        self._salt = b""
        for fd in self._fds:
            if fd >= 0:
                self._calls.pwrite(fd, b"\0", 0)

    def remove(self) -> None:
        """Everything is safe elsewhere, and nothing more will come: leave no file."""
        self.close()
        remove(self._paths, self._calls)

    def close(self) -> None:
        """Let go of the files. Idempotent."""
        for turn, fd in enumerate(self._fds):
            if fd >= 0:
                self._calls.close(fd)
                self._fds[turn] = -1
                self._sizes[turn] = 0
        self._salt = b""

    def _open(self, turn: int) -> None:
        self._fds[turn] = self._calls.open(self._paths[turn], os.O_RDWR | os.O_CREAT)
        self._sizes[turn] = self._calls.fstat(self._fds[turn]).st_size
        self._calls.sync_names(self._directory)

    def _grow(self, turn: int) -> None:
        """Make a segment as large as is wanted, or leave it as it was."""
        fd, size = self._fds[turn], self._sizes[turn]
        found = self._calls.space(self._directory)
        floor = min(self._floor, found.f_blocks * found.f_frsize // 10)
        try:
            if found.f_bavail * found.f_frsize - (self._wanted - size) < floor:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._calls.allocate(fd, self._wanted)
        except OSError:
            self._wanted = max(size, SMALLEST)
            self._calls.ftruncate(fd, size)  # a part may have been allocated
            raise
        self._sizes[turn] = self._wanted


def read_segments(paths: ChannelPaths, calls: FileCalls) -> list[Segment]:
    """What a channel's journal holds, the older segment first. Nothing is changed."""
    found = []
    for name in SEGMENTS:
        data = content(paths.file(name), calls)
        segment = parse(data) if data else None
        if segment is not None:
            found.append(segment)
    return sorted(found, key=lambda segment: segment.number)


def discard(paths: ChannelPaths, calls: FileCalls) -> None:
    """Remove the journal: all that it holds is safe in the inboxes."""
    remove([paths.file(name) for name in SEGMENTS], calls)


def remove(them: Iterable[str], calls: FileCalls) -> None:
    """Remove files that are there."""
    for path in them:
        if calls.stat(path) is not None:
            calls.unlink(path)


def parse(data: bytes) -> Segment | None:
    """Read a segment up to its last whole batch; None if it holds none."""
    head = head_of(data)
    if head is None:
        return None
    rest = data.partition(b"\n")[2]
    records: list[JournalRecord] = []
    at = 0
    while True:
        content = _batch(rest, at, head.salt)
        if content is None:
            break
        at += _BATCH + len(content)
        records += _records(content)
    return Segment(head.number, head.boot, records)


def _batch(data: bytes, at: int, salt: bytes) -> bytes | None:
    """The content of the batch at a place, None if no whole one stands there."""
    try:
        told, length = (int(word, 16) for word in data[at : at + _BATCH - 1].split(b" "))
    except ValueError:
        return None
    content = data[at + _BATCH : at + _BATCH + length]
    if len(content) != length or _checksum(salt, content) != told:
        return None
    return content


def _records(content: bytes) -> Iterable[JournalRecord]:
    at = 0
    while at < len(content):
        middle = content.index(b"\n", at)
        end = content.index(b"\n", middle + 1)
        inbox, generation, start, sender, message_id = json.loads(content[at:middle])
        line = content[middle + 1 : end]
        yield JournalRecord(inbox, generation, start, sender, message_id, line)
        at = end + 1


def _checksum(salt: bytes, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(salt))
