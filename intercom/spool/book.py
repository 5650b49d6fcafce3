"""The offset and meta files of one inbox, read and mended. Blocking, standard library only.

All of it happens under the inbox's lock: looking under either lock, writing under the
exclusive one. A crash between any two writes leaves a state that :meth:`Book.look`
reads rightly and :meth:`Book.settle` finishes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.format import (
    HEAD,
    Damaged,
    Mark,
    Meta,
    Stored,
    dump_meta,
    dump_offset,
    head_of,
    parse_meta,
    parse_offset,
)
from intercom.spool.positions import Resolution, resolve

#: An original program that wrote an offset may still be reading for this long, in seconds.
FOREIGN_READER = 600.0

_BLOCK = 1 << 16
_T = TypeVar("_T")


class View(NamedTuple):
    """What one look at an inbox's small files found."""

    truth: Resolution
    stored: Stored | Damaged | None
    meta: Meta | Damaged | None


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
            length = min(length, HEAD)
            return head_of(b"" if fd is None else self._calls.pread(fd, length, 0))

        return View(resolve(stored, meta, size, boundary, head), stored, meta)

    def settle(self, fd: int, size: int, at_least: int = 1, view: View | None = None) -> Position:
        """Under the exclusive lock: finish or undo what a crash left, write raised generations.

        :param at_least: raise the generation to this if it is lower (the caller knows of a
            reset that the small files do not show).
        :param view: what a look under this same lock has found.
        :return: the true stored position.
        """
        truth, stored, meta = view or self.look(fd, size)
        position = truth.position
        reset = truth.raised or position.generation < at_least
        if position.generation < at_least:
            position = Position(at_least, 0)
        marked = isinstance(meta, Meta) and meta.mark is not None
        if reset or marked or isinstance(meta, Damaged):
            self.put_meta(position.generation, durable=reset or marked)
        if reset or (truth.emptied and _generation(stored) != position.generation):
            self.put_offset(position)
        return position

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
        found = self._calls.stat(self._meta_path)
        return None if found is None else (found.st_ino, found.st_mtime_ns)

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
