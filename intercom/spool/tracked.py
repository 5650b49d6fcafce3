"""One inbox as the hub knows it: how far it has seen, and what others did to it since.

Blocking, for one thread, everything under the inbox's exclusive lock. A few numbers are
kept for every inbox that was ever touched, so that each line of others is reported
exactly once, whoever opened the file first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from intercom.records import Appeared, Record, Span
from intercom.spool.book import Book, last_boundary
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import Cutter
from intercom.spool.inboxfile import CHUNK
from intercom.spool.known import Extent
from intercom.spool.positions import raise_generation
from intercom.spool.recent import RecentIds, Seen
from intercom.spool.synced import OpenFile
from intercom.wire.envelope import identify

#: For so many seconds a client may try again what it sent to a hub that died.
RETRY_WINDOW = 600.0
#: How much of an inbox's tail is searched for what such a client had sent.
TAIL = 1 << 20
#: Others' lines are taken in pieces of about so many bytes; more waits for the next look.
LOOK = 4 << 20


class News:
    """What looking at inboxes brought to light.

    :ivar appeared: lines of others, per inbox in file order.
    :ivar damaged: lines of others that are no messages.
    :ivar torn: inboxes in which an unfinished line was ended.
    """

    def __init__(self) -> None:
        self.appeared: list[Appeared] = []
        self.damaged: list[tuple[str, Span]] = []
        self.torn: list[str] = []


class TrackedInbox:
    """What the hub remembers of one inbox.

    :param then: the file as it was when the hub began, None if there was none: what stood
        in it is backlog, what came later is news.
    :param recent: where messages of all inboxes are remembered.
    :ivar end: the byte up to which everything is known; negative before the first look.
    """

    def __init__(
        self,
        path: str,
        book: Book,
        then: Extent | None,
        recent: RecentIds,
        calls: FileCalls,
    ) -> None:
        self.session = book.session
        self.path = path
        self.end = -1
        self.generation = 0
        self._book = book
        self._then = then
        self._recent = recent
        self._calls = calls
        self._identity = (0, 0)
        self._stamp: tuple[int, int] | None = None

    def unchanged(self, found: os.stat_result) -> bool:
        """Whether the file is as we left it, as far as can be told without its lock."""
        return self.end == found.st_size and self._identity == (found.st_dev, found.st_ino)

    def is_new(self, file: OpenFile, found: os.stat_result) -> bool:
        """Whether the file is empty or not the one that we knew: nobody may know it any more."""
        return not found.st_size or (self.end >= 0 and file.identity != self._identity)

    def catch_up(self, file: OpenFile, found: os.stat_result, now: float, news: News) -> bool:
        """Take note of resets, and report others' lines; False if there are more of them.

        :param found: the file as it is now, under the lock.
        :param now: epoch seconds.
        """
        fd, size = file.fd, found.st_size
        if self.end < 0:
            self._first_look(fd, found, now)
        elif file.identity != self._identity or size < self.end:
            self._reset(fd, size)  # a new file may have the old one's number
        elif self._book.stamp() != self._stamp:
            generation = self._book.settle(fd, size, at_least=self.generation).generation
            if generation != self.generation:
                self.generation, self.end = generation, 0
            self._stamp = self._book.stamp()
        self._identity = file.identity
        if size == self.end:
            return True
        if self.end and self._calls.pread(fd, 1, self.end - 1) != b"\n":
            self._reset(fd, size)  # emptied, and grown again past its old end
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

    def _first_look(self, fd: int, found: os.stat_result, now: float) -> None:
        size, then = found.st_size, self._then
        self.generation = self._book.settle(fd, size).generation
        self._stamp = self._book.stamp()
        same = then is not None and then.identity == (found.st_dev, found.st_ino)
        old = then.size if then is not None and same and then.size <= size else 0
        self.end = last_boundary(self._calls, fd, old)
        if self.end and now - found.st_mtime < RETRY_WINDOW:
            start = last_boundary(self._calls, fd, max(0, self.end - TAIL))
            cutter = Cutter(start)
            while start < self.end:
                data = self._calls.pread(fd, min(CHUNK, self.end - start), start)
                if not data:
                    break
                cutter.feed(data)
                start += len(data)
            self._remember(cutter.records)

    def _reset(self, fd: int, size: int) -> None:
        """Somebody emptied or replaced the inbox: all that is in it now is new.

        Where nothing but the inbox is left of the session it was forgotten: its generations
        begin anew, and nothing is written that would make it known again.
        """
        if self._book.is_blank():
            self._recent.forget(self.session)
            position = self._book.settle(fd, size)
        else:
            position = self._book.settle(fd, size, at_least=raise_generation(self.generation))
        self.generation, self.end = position.generation, 0
        self._stamp = self._book.stamp()

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
            self._remember(cutter.records)
            news.appeared.append(Appeared(self.session, self.generation, cutter.records))
        return at >= size

    def _remember(self, records: Iterable[Record]) -> None:
        for record in records:
            found = identify(record.line)
            if found is not None:
                key = (self.session, self.generation, found.sender, found.message_id)
                self._recent.meet(key, Seen(found.digest, record.start, record.end))
