"""Reading from another place than the stored position: ``--from``. Standard library only.

What that passes over is skipped, as ever (:mod:`intercom.client.skipping`): listed, and its
senders told. What it goes back to is shown again, and the stored position stays where it
is until the reading has come past it, for positions only move forward.
"""

from __future__ import annotations

import time

from intercom.client import skipping
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Position, Record
from intercom.spool.files import Inbox
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire.envelope import identify

if TYPE_CHECKING:
    from collections.abc import Iterator

    from intercom.client.skipping import Clock

#: Words that are no message's id here.
NOW, START = "now", "start"


class Resumed(NamedTuple):
    """Where reading begins.

    :ivar start: a position before the stored one, None: at that.
    :ivar skipped: how many messages were passed over for it.
    :ivar problem: what could not be noted or told of these, or an empty string.
    """

    start: Position | None
    skipped: int = 0
    problem: str = ""


def resume(
    paths: ChannelPaths, session: str, place: str, clock: Clock = time.time, *, skip: bool = True
) -> Resumed:
    """Find the place from which to read on, and pass over what lies unread before it.

    :param place: ``now`` (the end), ``start`` (of what the inbox still holds), or the id of a
        message that stands there.
    :param clock: epoch seconds.
    :param skip: whether to pass over anything; a look without consequences does not, and
        begins at the place all the same.
    :raise IntercomError: ``UNKNOWN_MESSAGE``: none of this id stands there.
    """
    with Inbox(paths, session) as inbox:
        stored = inbox.read(None, 0).start
        if place == NOW:
            wanted = skipping.end_of(inbox)
        elif place == START:
            wanted = Position(stored.generation, 0)
        else:
            wanted = _find(inbox, session, place)
    if wanted.generation == stored.generation and wanted <= stored:
        return Resumed(wanted if wanted < stored else None)
    if not skip:
        return Resumed(wanted)
    # With the end goes what comes until it is done.
    passed = skipping.skip(paths, session, None if place == NOW else wanted, clock=clock)
    return Resumed(None, passed.number, passed.problem)


def between(inbox: Inbox, start: Position) -> Iterator[Record]:
    """The messages from a position up to the stored one: those that were read."""
    end = inbox.read(None, 0).start
    batch = inbox.read(start)
    while batch.next.generation == end.generation:
        for record in batch.records:
            if record.end > end.offset:
                return
            yield record
        if batch.at_end:
            return
        batch = inbox.read(batch.next)


def _find(inbox: Inbox, session: str, message_id: str) -> Position:
    """Where a message begins; of several with this id the first."""
    batch = inbox.read(Position(0, 0))
    while True:
        for record in batch.records:
            said = identify(record.line)
            if said is not None and said.message_id == message_id:
                return Position(batch.next.generation, record.start)
        if batch.at_end:
            raise IntercomError(
                f"no message {message_id!r} stands in the inbox of {session!r}",
                code="UNKNOWN_MESSAGE",
                remedy=f"it may be read and gone: intercom status {message_id}; "
                f"or read from the beginning of what is there: intercom poll --from start",
            )
        batch = inbox.read(batch.next)
