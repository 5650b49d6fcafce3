"""One inbox as the hub knows it: how far it has seen, and what others did to it since.

Blocking, for one thread, everything under the inbox's exclusive lock. A few numbers are
kept for every inbox that was ever touched, so that each line of others is reported
exactly once, whoever opened the file first.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import NamedTuple

from intercom.errors import UnsafePlace
from intercom.records import Appeared, Position, Record, Shifted, Span
from intercom.spool.book import Book, last_boundary
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import Cutter
from intercom.spool.inboxfile import CHUNK
from intercom.spool.known import Extent
from intercom.spool.positions import raise_generation
from intercom.spool.recent import RecentIds, Seen, key_of
from intercom.spool.synced import OpenFile
from intercom.spool.trail import Trail
from intercom.wire.envelope import Identity, identify

#: How much of an inbox's tail is read for the ids in it where no history tells of them.
TAIL = 1 << 20
#: Others' lines are taken in pieces of about so many bytes; more waits for the next look.
LOOK = 4 << 20


class Met(NamedTuple):
    """A message that nobody had told of, where it stands, and by what it is known."""

    inbox: str
    generation: int
    identity: Identity
    start: int
    end: int


class News:
    """What looking at inboxes brought to light.

    :ivar met: messages that the history does not know yet.
    :ivar appeared: lines of others, per inbox in file order, and what became of places.
    :ivar damaged: lines of others that are no messages.
    :ivar torn: inboxes in which an unfinished line was ended.
    """

    def __init__(self) -> None:
        self.met: list[Met] = []
        self.appeared: list[Appeared | Shifted] = []
        self.damaged: list[tuple[str, Span]] = []
        self.torn: list[str] = []


class TrackedInbox:
    """What the hub remembers of one inbox.

    :param then: the file as it was when the hub began, None if there was none: what stood
        in it is backlog, what came later is news.
    :param recent: where messages of all inboxes are remembered.
    :param trail: the session's.
    :param told: up to where the history knows the messages, None if of none.
    :ivar end: the byte up to which everything is known; negative before the first look.
    """

    def __init__(
        self,
        path: str,
        book: Book,
        then: Extent | None,
        recent: RecentIds,
        calls: FileCalls,
        trail: Trail,
        told: Position | None = None,
    ) -> None:
        self.session = book.session
        self.path = path
        self.name = os.path.basename(path)
        self.end = -1
        self.generation = 0
        self._book = book
        self._then = then
        self._recent = recent
        self._calls = calls
        self._told = told
        self._trail = trail
        self._identity = (0, 0)
        self._stamp: tuple[int, int] | None = None

    def unchanged(self, found: os.stat_result) -> bool:
        """Whether the file is as we left it, as far as can be told without its lock."""
        return self.end == found.st_size and self._identity == (found.st_dev, found.st_ino)

    def is_new(self, file: OpenFile, found: os.stat_result) -> bool:
        """Whether the file is empty or not the one that we knew: nobody may know it any more."""
        return not found.st_size or (self.end >= 0 and file.identity != self._identity)

    def catch_up(self, file: OpenFile, found: os.stat_result, news: News) -> bool:
        """Take note of resets, and report others' lines; False if there are more of them.

        :param found: the file as it is now, under the lock.
        """
        fd, size = file.fd, found.st_size
        if self.end < 0:
            self._first_look(fd, found, news)
        elif file.identity != self._identity or size < self.end:
            self._reset(fd, size, news)  # a new file may have the old one's number
        elif self._book.stamp() != self._stamp:
            generation = self._book.settle(fd, size, at_least=self.generation).generation
            if generation != self.generation:
                self._begin_anew(generation, news)
            self._stamp = self._book.stamp()
        self._identity = file.identity
        if size == self.end:
            return True
        if self.end and self._calls.pread(fd, 1, self.end - 1) != b"\n":
            self._reset(fd, size, news)  # emptied, and grown again past its old end
        return self._report(fd, size, news)

    def end_torn_line(self, fd: int, size: int, news: News) -> int:
        """End a last line whose writer died, so that it cannot swallow ours; the new size.

        If only its line feed was missing it is a message now, and reported as one.
        """
        if self.end < size:
            write_all(self._calls, fd, b"\n")
            size += 1
            news.torn.append(self.session)
            self._report(fd, size, news)
        return size

    def _first_look(self, fd: int, found: os.stat_result, news: News) -> None:
        """Learn the ids of what the history does not tell of: its writer died, or is not ours."""
        size, then = found.st_size, self._then
        self.generation = self._book.settle(fd, size).generation
        shrunk = then is not None and size < then.size and then.stamp == self._book.stamp()
        if shrunk and not self._book.is_blank():
            # An original program has emptied it since, and knows no generations.
            at_least = raise_generation(self.generation)
            self.generation = self._book.settle(fd, size, at_least=at_least).generation
        self._stamp = self._book.stamp()
        self.end = last_boundary(self._calls, fd, self._backlog(found, news))
        told, start = self._told, max(0, self.end - TAIL)
        if told is not None and told.generation == self.generation and told.offset <= self.end:
            start = told.offset
        start = last_boundary(self._calls, fd, start)
        cutter = Cutter(start)
        while start < self.end:
            data = self._calls.pread(fd, min(CHUNK, self.end - start), start)
            if not data:
                break
            cutter.feed(data)
            start += len(data)
        self._remember(cutter.records, news)

    def _backlog(self, found: os.stat_result, news: News) -> int:
        """Where what stood in the file when the hub began ends now; a compaction is told."""
        then = self._then
        if then is None or then.identity != (found.st_dev, found.st_ino):
            return 0
        if then.size <= found.st_size:
            return then.size
        # Was it compacted since? Then its trail says what is left of that.
        before = Position(self.generation - 1, then.size)
        now = self._trail.follow(before, self.generation)
        if now.generation != self.generation:
            return 0
        with contextlib.suppress(OSError, UnsafePlace, KeyError):
            stays = self._trail.cuts()[before.generation].stays
            news.appeared.append(Shifted(self.session, before.generation, now.generation, stays))
        return now.offset

    def _reset(self, fd: int, size: int, news: News) -> None:
        """Somebody emptied, compacted or replaced the inbox.

        Where nothing but the inbox is left of the session it was forgotten: its generations
        begin anew, and nothing is written that would make it known again.
        """
        if self._book.is_blank():
            self._recent.forget(self.session)
            position = self._book.settle(fd, size)
        else:
            position = self._book.settle(fd, size, at_least=raise_generation(self.generation))
        self._begin_anew(position.generation, news)
        self._stamp = self._book.stamp()

    def _begin_anew(self, generation: int, news: News) -> None:
        """All that is in the inbox now is new, but for what a compaction has kept of it."""
        stays: tuple[tuple[int, int], ...] = ()
        if generation == self.generation + 1:
            with contextlib.suppress(OSError, UnsafePlace, KeyError):
                stays = self._trail.cuts()[self.generation].stays
        shifted = Shifted(self.session, self.generation, generation, stays)
        news.appeared.append(shifted)
        self.generation, self.end = shifted.place(Position(self.generation, self.end))

    def _report(self, fd: int, size: int, news: News) -> bool:
        """Report the complete lines behind the known end; False if this was not all."""
        base = at = self.end
        cutter = Cutter(base)
        while at < size and (at - base < LOOK or cutter.next == base):
            data = self._calls.pread(fd, min(CHUNK, size - at), at)
            if not data:
                break
            cutter.feed(data)
            at += len(data)
        self.end = cutter.next
        news.damaged += [(self.session, span) for span in cutter.damaged]
        if cutter.records:
            repeated = self._remember(cutter.records, news)
            news.appeared.append(Appeared(self.session, self.generation, cutter.records, repeated))
        return at >= size

    def _remember(self, records: Iterable[Record], news: News) -> frozenset[int]:
        """Keep the ids of messages; where those begin that were known before."""
        repeated = []
        for record in records:
            found = identify(record.line)
            if found is None:
                continue
            key = key_of(self.session, found.sender, found.message_id)
            seen = self._recent.get(key)
            if seen is not None:
                if seen[:2] == (found.digest, self.generation) and seen.start != record.start:
                    repeated.append(record.start)
            else:
                self._recent.add(
                    {key: Seen(found.digest, self.generation, record.start, record.end)}
                )
                news.met.append(Met(self.session, self.generation, found, record.start, record.end))
        return frozenset(repeated)
