"""Whether mail waits for a session, and whether its agent has been told of it.

From the channel's files alone, without waiting for a lock. What was told is kept in
``bell_<session>.json``, which is worth nothing to anybody else.
"""

from __future__ import annotations

from intercom import plainjson as json
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths, read_private, write_atomic
from intercom.plain import suppress
from intercom.records import Position
from intercom.showing.text import label
from intercom.showing.words import ago, counted, moment
from intercom.spool import turns
from intercom.spool.calls import FileCalls
from intercom.spool.inboxfile import Busy, InboxFile, Unsettled
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope

if TYPE_CHECKING:
    from typing import Any

    from intercom.records import Batch

#: Bytes of unread messages that are looked at; of more it is said that there are more.
LOOKED_AT = 256 << 10
#: An agent goes on by itself so many times in a row; then its user is told instead.
MOST_IN_A_ROW = 3
#: So many senders are named.
_NAMED = 4
#: Position before everything.
_NEVER = Position(0, 0)


class Mail(NamedTuple):
    """What lies unread.

    :ivar more: there is more than was looked at.
    :ivar senders: each once, in the order of their first message.
    :ivar asks: how many of the messages want an answer.
    :ivar oldest: when the first was sent, by its sender's clock (epoch seconds), if it says so.
    :ivar end: behind the last that lies there.
    """

    number: int
    more: bool
    senders: tuple[str, ...]
    asks: int
    oldest: float | None
    end: Position

    def words(self, session: str, now: float) -> str:
        """What to say of it: names and numbers, nothing that a message says."""
        named = [label(name) for name in self.senders[:_NAMED]]
        if len(self.senders) > _NAMED:
            named.append(counted(len(self.senders) - _NAMED, "other"))
        said = f"{'over ' if self.more else ''}{counted(self.number, 'unread message')}"
        parts = [f"intercom: {said} for {label(session)} from {', '.join(named)}"]
        if self.asks:
            parts.append(f"{self.asks} of them waiting for an answer")
        if self.oldest is not None and self.oldest <= now:
            parts.append(f"the oldest {ago(now - self.oldest)}")
        return "; ".join(parts)


class Bell(NamedTuple):
    """What was told.

    :ivar told: up to here messages were told of.
    :ivar in_a_row: how many times in a row the agent went on because of it.
    """

    told: Position = _NEVER
    in_a_row: int = 0


def mail_of(paths: ChannelPaths, session: str) -> Mail | None:
    """What lies unread for a session; None if that is nothing.

    None, too, where it cannot be told at this moment, since others have the inbox's lock, and
    where somebody is reading it anyway.

    :raise IntercomError: the channel's place or its files are not ours, or cannot be read.
    :raise OSError: they cannot be read.
    """
    found = FileCalls().stat(paths.inbox(session))
    if found is None or not found.st_size:
        return None
    paths.check()
    if turns.turn_of(paths, session) is not None:
        return None
    try:
        batch = InboxFile(paths, session).read(None, LOOKED_AT)
    except (Busy, Unsettled):
        return None
    if not batch.records:
        return None
    said = [fields for one in batch.records if (fields := _fields(one.line))]
    senders = dict.fromkeys(str(fields.get("from_session", "unknown")) for fields in said)
    asks = sum((fields.get("payload") or {}).get("expects_reply") is True for fields in said)
    oldest = moment(said[0].get("timestamp")) if said else None
    more, end = not batch.at_end, _end(paths, session, batch)
    return Mail(len(batch.records), more, tuple(senders), asks, oldest, end)


def _end(paths: ChannelPaths, session: str, batch: Batch) -> Position:
    """Behind all that lies there, of which the beginning was looked at.

    An inbox that was shortened since is smaller: then what comes is told of once more.
    """
    found = None if batch.at_end else FileCalls().stat(paths.inbox(session))
    if found is None:
        return batch.next
    return max(batch.next, Position(batch.next.generation, found.st_size))


def _fields(line: bytes) -> dict[str, Any]:
    """What a line says, nothing where it cannot be read."""
    try:
        return envelope.parse(line)
    except IntercomError:
        return {}


def bell_of(paths: ChannelPaths, session: str) -> Bell:
    """What a session's agent was told; nothing where that cannot be read."""
    damage = (ValueError, TypeError, KeyError, RecursionError)
    with suppress(IntercomError, OSError, *damage):
        told = json.loads(read_private(paths.bell(session)) or b"{}")
        return Bell(Position(int(told["generation"]), int(told["offset"])), int(told["in_a_row"]))
    return Bell()


def keep(paths: ChannelPaths, session: str, bell: Bell, now: float) -> bool:
    """Keep what was told; False if that cannot be written."""
    fields = {**bell.told._asdict(), "in_a_row": bell.in_a_row, "at": now}
    try:
        write_atomic(paths.bell(session), json.dumps(fields).encode() + b"\n")
    except (IntercomError, OSError):
        return False
    return True
