"""What a poll finds in an inbox, and what it leaves there."""

from __future__ import annotations

from intercom.cli import output
from intercom.errors import ProtocolError
from intercom.records import Position, Record
from intercom.spool.files import Inbox
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope

if TYPE_CHECKING:
    from typing import Any

    from intercom.showing.blocks import Page


class Haul:
    """What was found.

    :ivar position: behind the last line looked at: there the next poll begins.
    :ivar places: where each message begins and ends.
    :ivar more: whether something is left behind it.
    :ivar cut: whether the last message is shown only in part, and so counts as unread.
    """

    def __init__(self, position: Position) -> None:
        self.position = position
        self.lines: list[bytes] = []
        self.messages: list[dict[str, Any]] = []
        self.places: list[tuple[Position, Position]] = []
        self.damaged = 0
        self.more = False
        self.cut = False

    def end_with_cut(self, page: Page) -> None:
        """Leave out what comes behind the first message that is over the page's limit."""
        from intercom.showing.blocks import is_whole  # where there is text to show

        for at, message in enumerate(self.messages):
            if not is_whole(message, page):
                self.end_behind(at + 1)
                self.position = self.places[at][0]
                self.cut = self.more = True
                return

    def end_behind(self, number: int) -> None:
        """Leave out what comes behind so many messages, at least one, if there is any."""
        if number < len(self.messages):
            del self.lines[number:], self.messages[number:], self.places[number:]
            self.position = self.places[-1][1]
            self.more, self.cut = True, False


class Left(NamedTuple):
    """What lies behind a haul.

    :ivar number: how many messages.
    :ivar next_id: id of the first, None where it has none or there is none.
    :ivar newest: timestamp of the last, as that says.
    """

    number: int = 0
    next_id: str | None = None
    newest: object = None


def fetch(inbox: Inbox, limit: int, start: Position | None = None) -> Haul:
    """Read up to ``limit`` messages behind a position, None for the stored one."""
    batch = inbox.read(start)
    if batch.warning:
        output.note(batch.warning)
    haul = Haul(batch.start)
    while True:
        haul.damaged += len(batch.damaged)
        for record in batch.records:
            if len(haul.lines) == limit:
                haul.more = True
                return haul
            haul.position = Position(batch.next.generation, record.end)
            try:
                haul.messages.append(envelope.parse(record.line))
                haul.lines.append(record.line)
                begin = Position(batch.next.generation, record.start)
                haul.places.append((begin, haul.position))
            except ProtocolError:
                haul.damaged += 1
        haul.position = batch.next
        if batch.at_end:
            return haul
        batch = inbox.read(batch.next)


def count_left(inbox: Inbox, position: Position) -> Left:
    """Count what lies behind a position."""
    first: Record | None = None
    last: Record | None = None
    number = 0
    while True:
        batch = inbox.read(position)
        if batch.records:
            first, last = first or batch.records[0], batch.records[-1]
        number += len(batch.records)
        if batch.at_end:
            break
        position = batch.next
    named = _fields(first).get("id")
    next_id = named if isinstance(named, str) else None
    return Left(number, next_id, _fields(last).get("timestamp"))


def _fields(record: Record | None) -> dict[str, Any]:
    """What a line says, nothing where it cannot be read."""
    if record is None:
        return {}
    try:
        return envelope.parse(record.line)
    except ProtocolError:
        return {}
