"""The offset and meta files of one inbox, read and mended. Blocking, standard library only.

All of it happens under the inbox's lock: looking under either lock, writing under the
exclusive one. A crash between any two writes leaves a state that :meth:`Book.look`
reads rightly, or calls unfinished, and that :meth:`Book.settle` finishes.
"""

from __future__ import annotations

import time

from intercom.names import file_name
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.aside import Aside, Range
from intercom.spool.calls import FileCalls
from intercom.spool.format import (
    HEAD,
    Damaged,
    Keep,
    Mark,
    Meta,
    Stored,
    dump_meta,
    dump_offset,
    head_of,
    parse_meta,
    parse_offset,
)
from intercom.spool.known import stamp_of
from intercom.spool.locking import Busy
from intercom.spool.positions import Resolution, raise_generation, resolve, was_emptied
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    _T = TypeVar("_T")

#: An original program that wrote an offset may still be reading for this long, in seconds.
FOREIGN_READER = 600.0

_BLOCK = 1 << 16


class View(NamedTuple):
    """What one look at an inbox's small files found.

    :ivar unfinished: a part of the inbox lies aside; what is in it counts only when
        :meth:`Book.settle` has been called under the exclusive lock.
    """

    truth: Resolution
    stored: Stored | Damaged | None
    meta: Meta | Damaged | None
    unfinished: bool = False


class Book:
    """The small files of one inbox.

    :ivar session: whose inbox it is.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        calls: FileCalls,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.session = session
        self._offset_path = paths.offset(session)
        self._meta_path = paths.meta(session)
        self._aside = Aside(paths.file(f".keep_{file_name(session)}"), calls)
        self._calls = calls
        self._clock = clock

    def look(self, fd: int | None, size: int) -> View:
        """Work out the true position; nothing is written.

        :param fd: the inbox, None if it does not exist.
        """
        stored = self._parsed(self._offset_path, parse_offset)
        meta = self._parsed(self._meta_path, parse_meta)

        def boundary(offset: int) -> int:
            return 0 if fd is None else last_boundary(self._calls, fd, offset)

        def head(length: int) -> str:
            return self._head(fd, length)

        if isinstance(meta, Meta):
            unfinished = meta.mark is not None and meta.mark.keep is not None
        else:
            unfinished = self._aside.exists()
        return View(resolve(stored, meta, size, boundary, head), stored, meta, unfinished)

    def noted_generation(self) -> int:
        """The generation that the small files name, whatever the inbox's size seems to say.

        For use after a power cut, when an offset past the end says what was lost.
        """
        told = [1]
        for known in (
            self._parsed(self._meta_path, parse_meta),
            self._parsed(self._offset_path, parse_offset),
        ):
            if isinstance(known, Meta | Stored) and known.generation is not None:
                told.append(known.generation)
        return max(told)

    def settle(self, fd: int, size: int, at_least: int = 1, view: View | None = None) -> Position:
        """Under the exclusive lock: finish or undo what a crash left, write raised generations.

        :param at_least: raise the generation to this if it is lower (the caller knows of a
            reset that the small files do not show).
        :param fd: open for reading and appending.
        :param view: what a look under this same lock has found.
        :return: the true stored position.
        :raise Busy: the inbox was unfinished and is in order now; its size is another.
        """
        view = view or self.look(fd, size)
        if view.unfinished:
            self._finish(fd, size, view)
            raise Busy
        self._aside.remove()  # left by somebody who died before the first byte was cut
        truth, stored, meta, _ = view
        position = truth.position
        reset = truth.raised or position.generation < at_least
        if position.generation < at_least:
            position = Position(at_least, 0)
        marked = isinstance(meta, Meta) and meta.mark is not None
        if reset or marked or isinstance(meta, Damaged):
            self.put_meta(position.generation, durable=reset or marked)
        if reset or (truth.emptied and _generation(stored) != position.generation):
            self.put_offset(position, self.foreign_at(stored))
        return position

    def cut(self, fd: int, size: int, generation: int, stays: Sequence[Range]) -> None:
        """Leave of an inbox nothing but some ranges, in place, all of it unread, crash-safe.

        It is in the next generation then. The offset file must name a generation, for what
        an original program wrote would count in the next one as well.

        :param fd: open for reading and appending, settled under the exclusive lock.
        :param stays: whole lines (and an unfinished last one), in file order.
        """
        mark = Mark(raise_generation(generation), size, self._head(fd, size))
        try:
            if stays:
                self._calls.sync(fd)  # or after a power cut it might seem to have been cut
                mark = mark._replace(keep=self._aside.put(fd, stays))
            self.put_meta(generation, mark, durable=True)
        except OSError:
            self._aside.remove()
            raise
        self._calls.ftruncate(fd, 0)
        if mark.keep is not None:
            self._refill(fd, mark, mark.keep)
        else:
            self.put_meta(mark.to, durable=True)
            self.put_offset(Position(mark.to, 0))

    def _refill(self, fd: int, mark: Mark, keep: Keep) -> None:
        """Bring back what lies aside into the empty inbox, and close the books."""
        self._aside.pour(fd, keep)
        self._close(mark)

    def _close(self, mark: Mark) -> None:
        # The position first: an original program's would count in the new generation.
        self.put_offset(Position(mark.to, 0))
        self.put_meta(mark.to, durable=True)
        self._aside.remove()

    def _finish(self, fd: int, size: int, view: View) -> None:
        """Undo a cut that had not begun, or finish it; what others appended since stays, last."""
        generation, mark, keep = self._unfinished(fd, size, view)
        if mark is None or keep is None:  # the inbox holds all that lies aside
            self.put_meta(generation, durable=True)
            self._aside.remove()
            return
        intact = not was_emptied(mark, size, lambda length: self._head(fd, length))
        start = mark.size if intact else self._aside.added(fd, size, keep)
        if start < size and (intact or start < keep.size):
            # Others have appended: that lies aside, too, before the inbox is emptied (again).
            keep = self._aside.extend(keep, fd, start, size)
            mark = Mark(mark.to, size, self._head(fd, size), keep, forward=True)
            self.put_meta(generation, mark, durable=True)
            start = 0
        if intact or start < keep.size:
            self._calls.ftruncate(fd, 0)
            self._refill(fd, mark, keep)
        else:
            self._calls.sync(fd)
            self._close(mark)

    def _unfinished(self, fd: int, size: int, view: View) -> tuple[int, Mark | None, Keep | None]:
        """What is to be finished: the generation before, and the mark, with what lies aside.

        Where the mark or what it describes is damaged, nothing that exists anywhere is lost.
        """
        generation, keep = view.truth.position.generation, self._aside.measure()
        mark = None
        if isinstance(view.meta, Meta):
            generation, mark = view.meta.generation, view.meta.mark
            assert mark is not None
            assert mark.keep is not None
            emptied = was_emptied(mark, size, lambda length: self._head(fd, length))
            whole = self._aside.holds(mark.keep)
            if not emptied and not mark.forward:
                return generation, None, None
            if whole:
                return generation, mark, mark.keep
        elif not self._aside.lacking(fd, size):
            return generation, None, None
        # Never taken for intact: what is in the inbox is a part, as far as can be known.
        to = raise_generation(generation) if mark is None else mark.to
        mark = Mark(to, size + 1, "", keep, forward=True)
        self.put_meta(generation, mark, durable=True)
        return generation, mark, keep

    def _head(self, fd: int | None, length: int) -> str:
        beginning = b"" if fd is None else self._calls.pread(fd, min(length, HEAD), 0)
        return head_of(beginning)

    def remove(self) -> None:
        """Take the small files away: of this inbox nobody has read anything."""
        for path in (self._offset_path, self._meta_path):
            if self._calls.stat(path) is not None:
                self._calls.unlink(path)
        self._aside.remove()

    def enrol(self, generation: int) -> None:
        """Make the meta file that shows the session to be known, if there is none."""
        if self._calls.stat(self._meta_path) is None:
            self.put_meta(generation)

    def put_offset(self, position: Position, foreign_at: float | None = None) -> None:
        """Replace the offset file."""
        data = dump_offset(position, self.session, self._clock(), foreign_at)
        self._calls.replace(self._offset_path, data, durable=False)

    def put_meta(self, generation: int, mark: Mark | None = None, durable: bool = False) -> None:
        """Replace the meta file."""
        self._calls.replace(
            self._meta_path, dump_meta(self.session, generation, mark), durable=durable
        )

    def foreign_at(self, stored: Stored | Damaged | None) -> float | None:
        """When an original program last moved the position, None if none did lately."""
        at = None
        if isinstance(stored, Damaged) or (stored is not None and stored.generation is None):
            found = self._calls.stat(self._offset_path)
            at = found.st_mtime if found is not None else None
        elif stored is not None:
            at = stored.foreign_at
        # A time in the future (the clock was set back) counts as now.
        return at if at is not None and self._clock() - at < FOREIGN_READER else None

    def offset_age(self) -> float | None:
        """Seconds since the offset file was written, None if there is none."""
        found = self._calls.stat(self._offset_path)
        return None if found is None else self._clock() - found.st_mtime

    def is_blank(self) -> bool:
        """Whether there is neither of the small files."""
        return self._calls.stat(self._meta_path) is None and (
            self._calls.stat(self._offset_path) is None
        )

    def stamp(self) -> tuple[int, int] | None:
        """What changes whenever the meta file is replaced; None while there is none."""
        return stamp_of(self._calls, self._meta_path)

    def _parsed(self, path: str, parse: Callable[[bytes], _T]) -> _T | Damaged | None:
        data = self._calls.small(path)
        if data is None:
            return None
        try:
            return parse(data)
        except Damaged as damage:
            return damage


def last_boundary(calls: FileCalls, fd: int, offset: int) -> int:
    """The last record boundary at or before a byte of the inbox."""
    length = 1  # it is nearly always right here
    while offset > 0:
        start = max(0, offset - length)
        found = calls.pread(fd, offset - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        offset, length = start, _BLOCK
    return 0


def _generation(stored: Stored | Damaged | None) -> int | None:
    return stored.generation if isinstance(stored, Stored) else None
