"""What the core asks its shell to do, as data.

The shell performs the effects of one input in their order. Effects that start
something slow (:class:`Admit`, :class:`ReadInbox`, :class:`Commit`,
:class:`AppendEntry`) come back as an input of their own; the connection numbers
are the shell's.
"""

from __future__ import annotations

from typing import Any

import msgspec

from intercom.messages import Reply
from intercom.records import Entry, Position


class AppendEntry(msgspec.Struct, frozen=True, gc=False):
    """Store ``entry``; comes back as ``written`` or ``refused``, then ``stored``."""

    entry: Entry


class Push(msgspec.Struct, frozen=True, gc=False):
    """Write a stored message's bytes to a live connection."""

    connection: int
    line: bytes


class Answer(msgspec.Struct, frozen=True, gc=False):
    """Say something to a connection, in its own dialect."""

    connection: int
    reply: Reply


class Admit(msgspec.Struct, frozen=True, gc=False):
    """Before a welcome: read the session's token, and publish who is live.

    The connection's further input is held until ``admitted`` was called with the
    token found in the channel (None if there is none).

    :ivar token_of: session whose token is wanted, None if it does not matter.
    :ivar publish: ids to write to ``peers.json`` first, None to leave it as it is.
    """

    connection: int
    token_of: str | None
    publish: tuple[str, ...] | None


class PublishPeers(msgspec.Struct, frozen=True, gc=False):
    """Rewrite ``peers.json`` some time soon: somebody left. Coalesced by the shell."""

    sessions: tuple[str, ...]


class EnrolSession(msgspec.Struct, frozen=True, gc=False):
    """Remember on disk that this session id is in use, so that later senders find it known."""

    session: str


class ReadInbox(msgspec.Struct, frozen=True, gc=False):
    """Read on in an inbox for a connection, from ``start`` or (None) its stored position.

    Comes back as ``inbox_read``, or ``inbox_unreadable``.
    """

    connection: int
    inbox: str
    start: Position | None
    limit: int


class CommitPosition(msgspec.Struct, frozen=True, gc=False):
    """Move an inbox's stored position; a refusal comes back as ``commit_refused``.

    :ivar state: what became of the lines up to there: ``read``, ``skipped``, or ``shown``,
        which moves nothing and is only remembered.
    """

    connection: int
    inbox: str
    position: Position
    message_id: str | None
    state: str = "read"


class NotePushed(msgspec.Struct, frozen=True, gc=False):
    """Remember, some time, that these neighbouring lines went to a live connection.

    One for each stretch of an inbox that one input pushed, however many lines it has.
    """

    inbox: str
    generation: int
    start: int
    end: int


class MakeRoom(msgspec.Struct, frozen=True, gc=False):
    """An inbox is full: drop what is not to be kept of it, if anything is ever dropped."""

    inbox: str


class MemberJoined(msgspec.Struct, frozen=True, gc=False):
    """A session receives here now, for sessions of other dialects to see.

    :ivar pid: of its process, None where the kernel does not say.
    """

    session: str
    pid: int | None


class MemberLeft(msgspec.Struct, frozen=True, gc=False):
    """It does so no more."""

    session: str


class TakeBack(msgspec.Struct, frozen=True, gc=False):
    """A session takes a message back; comes back as ``taken_back``."""

    connection: int
    session: str
    message_id: str
    to_session: str | None
    reply_to: str | None


class ServePlaces(msgspec.Struct, frozen=True, gc=False):
    """Take the places of the pi clients, or give them back; the shell answers by itself."""

    connection: int
    message_id: str | None
    plan: dict[str, Any] | None


class Close(msgspec.Struct, frozen=True, gc=False):
    """End a connection once everything said to it is written.

    Its input is read on (and answered) until the peer closes or a second has
    passed, so that nothing that it sent is lost unread.
    """

    connection: int


class Drop(msgspec.Struct, frozen=True, gc=False):
    """End a connection at once: it is silent, or has no right to be here."""

    connection: int
    reason: str


class Note(msgspec.Struct, frozen=True, gc=False):
    """Something for the log: an event name and ids, never bodies."""

    event: str
    fields: dict[str, str | int | None]


Effect = (
    AppendEntry
    | Push
    | Answer
    | Admit
    | PublishPeers
    | EnrolSession
    | ReadInbox
    | CommitPosition
    | NotePushed
    | MakeRoom
    | ServePlaces
    | MemberJoined
    | MemberLeft
    | TakeBack
    | Close
    | Drop
    | Note
)
