"""One inbox of the spool that is kept in memory. Standard library only."""

from __future__ import annotations

from typing import NamedTuple

from intercom.records import Batch, Moved, Position, Record, Shifted
from intercom.spool.expiry import Lines, choose
from intercom.spool.format import Cutter
from intercom.spool.positions import advance, place, raise_generation
from intercom.spool.recent import Seen
from intercom.spool.repeats import LOOK_BACK, leave_out
from intercom.wire.envelope import identify


class Kept(NamedTuple):
    """What is remembered of a message beyond its inboxes."""

    digest: bytes
    inboxes: list[str]
    at: float


class MemoryInbox:
    """One inbox: its bytes, its generation, and how far it was read.

    :ivar shown: the byte up to which messages were shown.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.generation = 1
        self.offset = 0
        self.shown = 0
        self.end = 0
        self.seen: dict[tuple[str, str], Seen] = {}
        self._cuts: dict[int, Shifted] = {}
        self._struck: dict[Position, int] = {}

    @property
    def position(self) -> Position:
        """The stored position."""
        return Position(self.generation, self.offset)

    def boundary(self, offset: int) -> int:
        """The last record boundary at or before a byte."""
        return self.data.rfind(b"\n", 0, offset) + 1

    def reset(self) -> None:
        """Empty it in the next generation."""
        self.data.clear()
        self.generation = raise_generation(self.generation)
        self.offset = self.end = self.shown = 0
        self.seen.clear()

    def cut(self, start: int) -> tuple[tuple[int, int], ...]:
        """Drop the bytes before ``start``; the others begin the next generation, unread.

        :return: what is left, as bytes of the generation that is over.
        """
        end, size = self.end, len(self.data)
        stays = ((start, size),) if start < size else ()
        self._begin_anew(bytes(self.data[start:]), stays)
        self.end = max(0, end - start)
        return stays

    def _begin_anew(self, left: bytes, stays: tuple[tuple[int, int], ...]) -> None:
        """Let what is left of this generation begin the next one."""
        over = self.generation
        self.reset()
        self.data += left
        self._cuts[over] = Shifted("", over, self.generation, stays)

    def expire(
        self, keep_bytes: int | None, oldest: float | None
    ) -> tuple[list[Record], tuple[tuple[int, int], ...] | None]:
        """Drop the oldest messages; see ``ISpool.expire``.

        :param oldest: what was sent before is too old, in seconds of the messages' own clock.
        :return: the unread ones that went, and what is left as :meth:`cut` tells it, None if
            nothing was done.
        """
        lines = Lines(oldest)
        lines.feed(bytes(self.data))
        size = len(self.data)
        chosen = choose(lines.lines, self.offset, size - lines.end, keep_bytes)
        if not chosen.needed:
            return [], None
        torn = [(lines.end, size)] if lines.end < size else []
        stays = (*chosen.stay, *torn)
        dropped = [
            Record(one.start, one.end, bytes(self.data[one.start : one.end - 1]))
            for one in chosen.dropped
        ]
        left = b"".join(bytes(self.data[start:end]) for start, end in stays)
        known = sum(max(0, min(end, self.end) - start) for start, end in stays)
        self._begin_anew(left, stays)
        self.end = known
        return dropped, stays

    def follow(self, position: Position) -> Position:
        """Where a position of an older generation is now; see ``Trail.follow``."""
        now = position
        while now.generation < self.generation:
            if now.generation not in self._cuts:
                return position
            now = self._cuts[now.generation].place(now)
        return now

    def move(self, inbox: str, wanted: Position, state: str, now: float) -> list[Moved]:
        """Commit a position; what that brought about.

        :raise StalePosition: see ``ISpool.commit``.
        """
        meant = self.follow(wanted)
        reached = advance(self.position, meant, len(self.data), self.boundary).offset
        start = self.offset
        if state == "shown":
            start, self.shown = max(start, self.shown), max(self.shown, reached)
        else:
            self.offset = reached
        moved = Moved(inbox, state, self.generation, start, reached, now)
        return [moved] if start < reached else []

    def skip(self, start: Position, end: int) -> None:
        """See ``ISpool.skip``."""
        here = self.follow(start)
        if here.generation == self.generation and here >= self.position:
            self._struck[here] = end - start.offset

    def skipped(self) -> dict[Position, int]:
        """See ``ISpool.skipped``."""
        found = {self.follow(place): length for place, length in self._struck.items()}
        return {
            place: place.offset + length
            for place, length in found.items()
            if place.generation == self.generation and place >= self.position
        }

    def unread(self) -> int:
        """How many messages lie behind the stored position."""
        return self.data.count(b"\n", self.offset)

    def news(self) -> list[Record]:
        """Complete lines that others appended since the last look."""
        cutter = Cutter(self.end)
        cutter.feed(bytes(self.data[self.end :]))
        self.end = cutter.next
        for record in cutter.records:
            found = identify(record.line)
            if found is not None:
                key = (found.sender, found.message_id)
                self.seen.setdefault(key, self._seen(found.digest, record))
        return cutter.records

    def _seen(self, digest: bytes, record: Record) -> Seen:
        return Seen(digest, self.generation, record.start, record.end)

    def read(self, start: Position | None, limit: int) -> Batch:
        """See ``ISpool.read``."""
        size = len(self.data)
        wanted = self.position if start is None else self.follow(start)
        begin = place(wanted, self.generation, size, self.boundary)
        stop = begin.offset + max(limit, 1)
        if self.boundary(min(stop, size)) <= begin.offset:  # not even one line
            stop = (self.data.find(b"\n", begin.offset) + 1) or size
        data = bytes(self.data[begin.offset : stop])
        cutter = Cutter(begin.offset)
        cutter.feed(data)
        back = max(0, begin.offset - LOOK_BACK)
        before = bytes(self.data[back : begin.offset])
        before = before.partition(b"\n")[2] if back else before
        records, repeated = leave_out(before, cutter.records)
        return Batch(
            start=begin,
            records=records,
            next=Position(begin.generation, cutter.next),
            at_end=cutter.next + cutter.pending >= size,
            damaged=cutter.damaged,
            repeated=repeated,
        )
