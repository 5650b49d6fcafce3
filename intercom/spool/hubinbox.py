"""What only the hub does to an inbox: strike one line off, and remove the whole. Blocking.

A line that is struck off stays where it is, and the inbox's trail says ``skipped`` of it:
positions of others do not change, and a crash leaves it struck off or not.
"""

from __future__ import annotations

import os

from intercom.records import Moved, Position, Record
from intercom.spool.deadletters import Letter
from intercom.spool.format import Cutter
from intercom.spool.inboxfile import InboxFile


class HubInbox(InboxFile):
    """An inbox, for the one who leads its channel."""

    def skip(self, start: Position, end: int, lost: bool) -> None:
        """Note that an unread line is to be shown to nobody; see ``ISpool.skip``."""
        with self._locked(os.O_RDWR | os.O_APPEND, exclusive=True) as fd:
            if fd is None:
                return
            stored = self._book.settle(fd, self._calls.fstat(fd).st_size)
            here = self._trail.follow(start, stored.generation)
            if here < stored or here.generation != stored.generation:
                return
            length = end - start.offset
            if lost:
                line = self._calls.pread(fd, length - 1, here.offset)
                self._dead.add([Letter("expired", self._session, line)])
            if here not in self._skipped(stored):
                behind = here.offset + length
                now = self._clock()
                moved = Moved(self._session, "skipped", *here, behind, now)
                self._trail.append([moved])

    def skipped(self) -> dict[Position, int]:
        """Where the unread lines begin of which :meth:`skip` was told, each with its end."""
        with self._looked() as (_fd, _size, view):
            return self._skipped(view.truth.position)

    def _skipped(self, stored: Position) -> dict[Position, int]:
        found = {}
        for move in self._trail.events():
            if move.state == "skipped":
                start = Position(move.generation, move.start)
                here = self._trail.follow(start, stored.generation)
                if here.generation == stored.generation and here >= stored:
                    found[here] = here.offset + move.end - move.start
        return found

    def discard(self) -> int:
        """Remove the inbox and its small files, its unread lines listed as dead letters.

        The inbox goes last: whoever comes between reads it again from its beginning.
        """
        with self._locked(os.O_RDWR | os.O_APPEND, exclusive=True) as fd:
            unread: list[Record] = []
            if fd is not None:
                size = self._calls.fstat(fd).st_size
                at = self._book.settle(fd, size).offset
                cutter = Cutter(at)
                cutter.feed(self._calls.pread(fd, size - at, at))
                unread = cutter.records
                self._dead.add([Letter("expired", self._session, one.line) for one in unread])
            self._book.remove()
            self._trail.remove()
            if fd is not None:
                self._calls.unlink(self.path)
            return len(unread)
