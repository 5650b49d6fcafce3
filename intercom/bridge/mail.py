"""What lies in a session's inbox, for a tool to show. Blocking, standard library only.

A message counts as read when the result that shows it whole has been written out. One that
is shown in part does not, and nothing behind it is shown with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from intercom.errors import IntercomError, ProtocolError
from intercom.names import HUB
from intercom.records import Batch, Position, Record
from intercom.spool.files import Inbox
from intercom.wire import envelope

#: Answers that were shown before what lies before them: so many are remembered.
REMEMBERED = 1024

Key = tuple[str, str]


class Item(NamedTuple):
    """A message, and where it begins and ends."""

    line: bytes
    message: dict[str, Any]
    start: Position
    end: Position

    @property
    def key(self) -> Key:
        """By which it is known again."""
        return str(self.message.get("from_session")), str(self.message.get("id"))


class Look(NamedTuple):
    """What was found behind the stored position.

    :ivar end: behind the last line that was looked at for ``items``.
    :ivar damaged: lines among them that are no messages.
    :ivar more: how many messages lie behind ``end``.
    :ivar told: those of the messages shown before that still lie there.
    """

    items: list[Item]
    end: Position
    damaged: int
    more: int
    told: frozenset[Key]


def look(inbox: Inbox, limit: int, told: frozenset[Key]) -> Look:
    """Find the first unread messages.

    :param told: messages that were shown before, and are passed over.
    """
    items: list[Item] = []
    met: set[Key] = set()
    end, damaged, more = inbox.read(None, 0).start, 0, 0
    for batch in _batches(inbox, None):
        damaged += 0 if more else len(batch.damaged)
        for at, record in enumerate(batch.records):
            if len(items) == limit and not told:
                more += len(batch.records) - at  # how many is all that matters
                break
            item = _item(record, batch.next.generation)
            if item is None:
                damaged += 0 if more else 1
            elif item.key in told:
                met.add(item.key)
            elif len(items) < limit:
                items.append(item)
                end = item.end
            else:
                more += 1
        if not more:
            end = batch.next
    return Look(items, end, damaged, more, frozenset(met))


def unread(inbox: Inbox, told: frozenset[Key]) -> int:
    """How many messages lie unread, without those that were shown before."""
    if not told:
        return inbox.unread()
    return sum(isinstance(one, Item) and one.key not in told for one in _walk(inbox, None))


def find(inbox: Inbox, message_id: str) -> Item:
    """The last message of this id that the inbox holds.

    :raise IntercomError: ``UNKNOWN_MESSAGE``: there is none.
    """
    found = None
    for one in _walk(inbox, Position(0, 0)):
        if isinstance(one, Item) and one.message.get("id") == message_id:
            found = one
    if found is None:
        raise IntercomError(
            f"your inbox holds no message {message_id!r}",
            code="UNKNOWN_MESSAGE",
            remedy="it may be read and gone; ask its sender to send it again",
        )
    return found


def told_up_to(inbox: Inbox, told: frozenset[Key]) -> Position:
    """Behind the last of what was shown before, as far as nothing else lies between."""
    end = inbox.read(None, 0).start
    for one in _walk(inbox, None):
        if isinstance(one, Item):
            if one.key not in told:
                break
            end = one.end
    return end


def mark(inbox: Inbox) -> Position:
    """Behind the last complete line of an inbox: what comes from now on stands behind it."""
    batch = inbox.read()
    while not batch.at_end:
        batch = inbox.read(batch.next)
    return batch.next


def answer(inbox: Inbox, start: Position, message_id: str) -> tuple[Item | None, Position]:
    """Look for the answer to a message of ours; and where to look on if there is none.

    A notice of the hub's about it counts, too.

    :param start: where to begin; what was compacted since is looked through from its start.
    """
    here = start
    for one in _walk(inbox, start):
        if isinstance(one, Position):
            here = one
        elif isinstance(one, Item) and one.message.get("reply_to") == message_id:
            return one, here
    return None, here


def is_refusal(message: dict[str, Any]) -> bool:
    """Whether a message is the hub's word that another one was not brought."""
    payload = message.get("payload") or {}
    return message.get("from_session") == HUB and isinstance(payload.get("notice"), dict)


def _walk(inbox: Inbox, start: Position | None) -> Iterator[Item | Position]:
    """The messages from a position (None: the stored one), and behind each batch where it ends."""
    for batch in _batches(inbox, start):
        for record in batch.records:
            item = _item(record, batch.next.generation)
            if item is not None:
                yield item
        yield batch.next


def _batches(inbox: Inbox, start: Position | None) -> Iterator[Batch]:
    batch = inbox.read(start)
    yield batch
    while not batch.at_end:
        batch = inbox.read(batch.next)
        yield batch


def _item(record: Record, generation: int) -> Item | None:
    """A message as it stands in the inbox, None if it is none."""
    begin, end = Position(generation, record.start), Position(generation, record.end)
    try:
        return Item(record.line, envelope.parse(record.line), begin, end)
    except ProtocolError:
        return None
