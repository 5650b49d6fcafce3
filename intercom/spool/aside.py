"""What stays of an inbox, put aside while the inbox is cut down in place. Standard library only.

An inbox is never replaced by renaming, so what is to stay must leave it before it is
emptied, and come back. Meanwhile it lies in ``.keep_<session>``, synced before the first
byte of the inbox goes. Everything happens under the inbox's exclusive lock; when it is
done, and what a crash leaves to be done, is for :mod:`intercom.spool.book` to say.
"""

from __future__ import annotations

import os

from intercom import plainjson as json
from intercom.plain import contextmanager
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import Cutter, Keep
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Bytes copied or compared in one piece.
PIECE = 1 << 20

#: Bytes ``start`` to ``end`` of a file.
Range = tuple[int, int]


class Aside:
    """The file in which a part of one inbox waits.

    Every method raises OSError where the system refuses.
    """

    def __init__(self, path: str, calls: FileCalls) -> None:
        self._path = path
        self._calls = calls

    def exists(self) -> bool:
        """Whether anything lies aside."""
        return self._calls.stat(self._path) is not None

    def put(self, fd: int, ranges: Iterable[Range]) -> Keep:
        """Copy ranges of the inbox, one behind the other; synced, its name as well."""
        self.remove()
        with self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL) as aside:
            for start, end in ranges:
                self._copy(fd, start, end, aside)
            self._calls.sync(aside)
        self._calls.sync_names(os.path.dirname(self._path))
        return self.measure()

    def extend(self, keep: Keep, fd: int, start: int, end: int) -> Keep:
        """Add bytes ``start`` to ``end`` of the inbox to what lies aside; synced.

        :param keep: what lies aside; anything behind it was left by a crash within this.
        """
        with self._open(os.O_RDWR | os.O_APPEND | os.O_CREAT) as aside:
            self._calls.ftruncate(aside, keep.size)
            if keep.size and self._calls.pread(aside, 1, keep.size - 1) != b"\n":
                write_all(self._calls, aside, b"\n")
            self._copy(fd, start, end, aside)
            self._calls.sync(aside)
        return self.measure()

    def measure(self) -> Keep:
        """What lies aside now; nothing counts as no bytes."""
        return self._measure(None)

    def holds(self, keep: Keep) -> bool:
        """Whether what the mark speaks of lies aside, undamaged."""
        return self._measure(keep.size) == keep

    def pour(self, fd: int, keep: Keep) -> None:
        """Fill the empty inbox with what lies aside; synced."""
        with self._open(os.O_RDONLY) as aside:
            self._copy(aside, 0, keep.size, fd)
        self._calls.sync(fd)

    def added(self, fd: int, size: int, keep: Keep) -> int:
        """Where in a half refilled inbox the bytes begin that others appended to it.

        Programs of the original mesh do so without a look at what a crash has left: behind
        a line of ours, or within one.
        """
        same = self._common(fd, min(size, keep.size))
        if same in (size, keep.size):
            return same
        # Their line may begin as ours would have gone on.
        begin = self._calls.pread(fd, same, 0).rfind(b"\n") + 1
        line = self._calls.pread(fd, size - begin, begin).partition(b"\n")[0]
        for at in range(same - begin + 1):
            if line[at : at + 1] == b"{" and _is_object(line[at:]):
                return begin + at
        return same

    def lacking(self, fd: int, size: int) -> bool:
        """Whether the inbox was emptied: it lacks a message that lies aside, or begins with all."""
        keep = self.measure()
        if 0 < keep.size == self._common(fd, min(size, keep.size)):
            return True
        stands = {_hash(line) for line in self._lines(fd)}
        with self._open(os.O_RDONLY) as aside:
            return any(_hash(line) not in stands for line in self._lines(aside))

    def remove(self) -> None:
        """Take the file away, if it is there."""
        if self.exists():
            self._calls.unlink(self._path)

    # -----------------------------------------------------------------------------------------

    @contextmanager
    def _open(self, flags: int) -> Iterator[int]:
        fd = self._calls.open(self._path, flags)
        try:
            yield fd
        finally:
            self._calls.close(fd)

    def _pieces(self, fd: int, start: int, end: int) -> Iterator[bytes]:
        while start < end:
            piece = self._calls.pread(fd, min(PIECE, end - start), start)
            if not piece:
                return
            start += len(piece)
            yield piece

    def _copy(self, source: int, start: int, end: int, target: int) -> None:
        for piece in self._pieces(source, start, end):
            write_all(self._calls, target, piece)

    def _lines(self, fd: int) -> Iterator[bytes]:
        cutter = Cutter(0)
        for piece in self._pieces(fd, 0, self._calls.fstat(fd).st_size):
            cutter.feed(piece)
            yield from (record.line for record in cutter.records)
            cutter.records.clear()

    def _measure(self, limit: int | None) -> Keep:
        import hashlib  # seldom needed, and not for nothing

        content, size = hashlib.blake2b(digest_size=16), 0
        if self.exists():
            with self._open(os.O_RDONLY) as aside:
                end = self._calls.fstat(aside).st_size
                for piece in self._pieces(aside, 0, end if limit is None else min(limit, end)):
                    content.update(piece)
                    size += len(piece)
        return Keep(size, content.hexdigest())

    def _common(self, fd: int, length: int) -> int:
        """How many of the first ``length`` bytes the inbox and what lies aside share."""
        if not length:
            return 0
        same = 0
        with self._open(os.O_RDONLY) as aside:
            pairs = zip(self._pieces(fd, 0, length), self._pieces(aside, 0, length), strict=False)
            for ours, kept in pairs:
                if ours != kept:
                    pair = enumerate(zip(ours, kept, strict=False))
                    return same + next((at for at, (a, b) in pair if a != b), len(kept))
                same += len(ours)
        return same


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line.decode("utf-8", "replace")), dict)
    except (ValueError, RecursionError):
        return False


def _hash(line: bytes) -> bytes:
    import hashlib  # seldom needed, and not for nothing

    return hashlib.blake2b(line, digest_size=16).digest()
