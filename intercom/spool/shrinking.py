"""Making an inbox smaller: what is read goes, and what is to be kept no longer.

Under the inbox's exclusive lock, in place, in the next generation. Blocking, standard
library only.
"""

from __future__ import annotations

from intercom.records import Record
from intercom.spool.aside import PIECE, Range
from intercom.spool.book import Book
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters, Letter
from intercom.spool.expiry import Lines, choose
from intercom.spool.format import Stored
from intercom.spool.trail import Trail


class Shrinking:
    """What may be taken out of one inbox.

    Nothing is, while an original program may be reading, which knows no generations: for
    ten minutes after it moved the position.

    :param fd: the inbox, open for reading and appending, under the exclusive lock.
    """

    def __init__(self, fd: int, calls: FileCalls, book: Book, trail: Trail) -> None:
        self._fd = fd
        self._calls = calls
        self._book = book
        self._trail = trail
        self._size = calls.fstat(fd).st_size
        self._position = book.settle(fd, self._size)

    def drop_read(self) -> bool:
        """Take out what is read; False if nothing is, or must not be taken."""
        read = self._position.offset
        if not read or not self._allowed():
            return False
        self._cut([(read, self._size)] if read < self._size else [])
        return True

    def drop_old(
        self, keep_bytes: int | None, oldest: float | None, dead: DeadLetters
    ) -> list[Record]:
        """Take out what is too old or too much; see ``InboxFile.expire``.

        :param oldest: epoch seconds.
        """
        lines = Lines(oldest)
        for start in range(0, self._size, PIECE):
            lines.feed(self._calls.pread(self._fd, min(PIECE, self._size - start), start))
        torn = [(lines.end, self._size)] if lines.end < self._size else []
        chosen = choose(lines.lines, self._position.offset, self._size - lines.end, keep_bytes)
        if not chosen.needed or not self._allowed():
            return []
        dropped = []
        for line in chosen.dropped:
            data = self._calls.pread(self._fd, line.end - line.start - 1, line.start)
            dropped.append(Record(line.start, line.end, data))
        dead.add([Letter("expired", self._book.session, record.line) for record in dropped])
        self._cut([*chosen.stay, *torn])
        return dropped

    def _allowed(self) -> bool:
        """Whether no reader is about that knows no generations; then the position names one."""
        view = self._book.look(self._fd, self._size)
        if self._book.foreign_at(view.stored):
            return False
        if isinstance(view.stored, Stored) and view.stored.generation is None:
            self._book.put_offset(self._position)
        return True

    def _cut(self, stays: list[Range]) -> None:
        generation = self._position.generation
        self._book.cut(self._fd, self._size, generation, stays)
        self._trail.note_cut(generation, self._position.offset, stays)
