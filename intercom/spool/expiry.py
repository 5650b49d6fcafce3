"""Which messages of an inbox are too old, or one too many. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from intercom.plain import suppress
from intercom.spool.format import Cutter
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line(NamedTuple):
    """A line of an inbox.

    :ivar message: whether it is a message, not damage.
    :ivar old: whether it is a message that is too old.
    """

    start: int
    end: int
    message: bool
    old: bool


class Choice(NamedTuple):
    """What to do with an inbox.

    :ivar needed: whether anything in it is too old, or there is too much.
    :ivar dropped: the unread messages that go.
    :ivar stay: the ranges of bytes that stay.
    """

    needed: bool
    dropped: list[Line]
    stay: list[tuple[int, int]]


class Lines:
    """Takes the bytes of an inbox piece by piece.

    :param oldest: what is older than this (epoch seconds) is too old, None for nothing.
    :ivar lines: all complete lines so far, in file order.
    """

    def __init__(self, oldest: float | None) -> None:
        self.lines: list[Line] = []
        self._oldest = oldest
        self._cutter = Cutter(0)

    @property
    def end(self) -> int:
        """The byte behind the last complete line."""
        return self._cutter.next

    def feed(self, data: bytes) -> None:
        """Take the bytes that follow those taken before."""
        cutter = self._cutter
        cutter.feed(data)
        found = [Line(one.start, one.end, False, False) for one in cutter.damaged]
        for record in cutter.records:
            old = self._oldest is not None and sent_at(record.line) < self._oldest
            found.append(Line(record.start, record.end, True, old))
        self.lines += sorted(found)
        cutter.damaged.clear()
        cutter.records.clear()


def choose(lines: Sequence[Line], read: int, torn: int, keep_bytes: int | None) -> Choice:
    """Decide what goes.

    :param lines: all of the inbox.
    :param read: the byte up to which it is read.
    :param torn: bytes of an unfinished last line, which stays.
    :param keep_bytes: how much may be kept, None for any amount.
    """
    size = torn + (lines[-1].end if lines else 0)
    room = size if keep_bytes is None else keep_bytes
    needed = size > room or any(line.old for line in lines)
    room -= torn
    stay: list[tuple[int, int]] = []
    dropped: list[Line] = []
    full = False
    for line in reversed(lines):
        if line.start < read:
            break
        full = full or room < line.end - line.start
        if full or line.old:
            if line.message:
                dropped.append(line)
            continue
        room -= line.end - line.start
        if stay and stay[-1][0] == line.end:
            stay[-1] = (line.start, stay[-1][1])
        else:
            stay.append((line.start, line.end))
    return Choice(needed, dropped[::-1], stay[::-1])


def sent_at(line: bytes) -> float:
    """When a message was sent by its envelope, epoch seconds; infinity where that is unreadable."""
    with suppress(ValueError, RecursionError, OverflowError, TypeError, KeyError):
        sent = datetime.fromisoformat(json.loads(line.decode("utf-8", "replace"))["timestamp"])
        return (sent if sent.tzinfo else sent.replace(tzinfo=UTC)).timestamp()
    return float("inf")
