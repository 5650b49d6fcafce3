"""The hub's one model of what is said on a channel, whatever dialect said it.

A dialect (``intercom.wire``) turns bytes into these and these into bytes; the
core knows nothing else. All are immutable. ``id`` is the id of the line that
asked, so that an answer can name it (``reply_to``).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from intercom.records import Position

#: Features that this hub grants; a client that asks for none sees the seed's protocol only.
FEATURES = ("receipts", "cursor", "heartbeat", "progress", "turns")


class Credentials(msgspec.Struct, frozen=True):
    """Who the kernel says is at the other end (``SO_PEERCRED``); None where it cannot say."""

    uid: int | None = None
    pid: int | None = None


# -- what clients say -------------------------------------------------------------------------


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """A chat: the header the router needs, and the line as it is stored and forwarded.

    :ivar line: the sender's own bytes, white space around the object stripped, no line
        feed; re-serialised only where a field was missing or a byte was unfit.
    :ivar payload: the payload object's bytes, as the sender wrote them.
    :ivar speaker: ``from_session`` as written, or None where the line had none (then ``line``
        carries the connection's own id).
    :ivar strict: refuse it where nobody ever used the recipient's name.
    :ivar durability: the level asked for this message, one of
        :data:`intercom.records.LEVELS`; None leaves it to the channel.
    :ivar asks: it expects an answer (``payload.expects_reply``).
    """

    id: str
    speaker: str | None
    to_session: str
    reply_to: str | None
    payload: bytes
    line: bytes
    strict: bool = False
    durability: str | None = None
    asks: bool = False


class Register(msgspec.Struct, frozen=True, gc=False):
    """Claim a session id (``register``, ``announce``); ``speaker`` None means ``unknown``."""

    id: str | None = None
    speaker: str | None = None
    features: tuple[str, ...] = ()
    role: Literal["session", "sender"] = "session"
    token: str | None = None
    takeover: bool = False


class Heartbeat(msgspec.Struct, frozen=True, gc=False):
    """I am alive. From a client it is answered with one."""

    id: str | None = None
    speaker: str | None = None


class Ack(msgspec.Struct, frozen=True, gc=False):
    """Everything up to ``position`` was dealt with.

    :ivar state: ``read`` moves the stored position; ``shown`` is only remembered. A client
        passes over messages in the files, where it can list them and tell their senders.
    """

    position: Position
    state: Literal["shown", "read"] = "read"
    id: str | None = None
    speaker: str | None = None


class ListSessions(msgspec.Struct, frozen=True, gc=False):
    """Who is here? Answered by :class:`Sessions`."""

    id: str | None = None
    speaker: str | None = None


class Unregister(msgspec.Struct, frozen=True, gc=False):
    """Give the session id back; the connection stays and may register again."""

    id: str | None = None
    speaker: str | None = None


class Auth(msgspec.Struct, frozen=True, gc=False):
    """The channel's key, first line of every TCP connection."""

    key: str
    id: str | None = None
    speaker: str | None = None


class Cancel(msgspec.Struct, frozen=True, gc=False):
    """Take a message back that was sent before; an ask ends.

    :ivar to_session: whom it was for; None leaves that to the hub, which knows it of messages
        to sessions of other dialects.
    """

    message_id: str
    to_session: str | None = None
    id: str | None = None
    speaker: str | None = None


class TakePlaces(msgspec.Struct, frozen=True, gc=False):
    """Be found where the pi clients look for their broker (``pi-broker``); or no longer.

    :ivar plan: as ``intercom.pi.plan`` writes it; None gives the places back.
    """

    plan: dict[str, Any] | None
    id: str | None = None
    speaker: str | None = None


class Unknown(msgspec.Struct, frozen=True, gc=False):
    """A well-formed line of a type that this hub does not know: ``UNKNOWN_TYPE``."""

    type: str
    id: str | None = None
    speaker: str | None = None


Message = (
    Envelope
    | Register
    | Heartbeat
    | Ack
    | ListSessions
    | Unregister
    | Auth
    | Cancel
    | TakePlaces
    | Unknown
)


# -- what the hub says ------------------------------------------------------------------------


class Welcome(msgspec.Struct, frozen=True, gc=False):
    """First line of a session: who else is here and what was granted."""

    session: str
    peers: tuple[str, ...]
    features: tuple[str, ...]
    reply_to: str | None = None


class Fault(msgspec.Struct, frozen=True, gc=False):
    """An ``error`` line: a code, a sentence, and the id of the line that caused it."""

    session: str | None
    code: str
    text: str
    reply_to: str | None = None
    details: dict[str, Any] = {}


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """What became of a message; each state is said only when it is true.

    :ivar state: ``stored`` or ``refused``; ``cancelled``: it was taken back, as asked.
    :ivar level: durability really reached (``stored`` only).
    :ivar recipients: how many inboxes hold it; ``live`` how many of their sessions were
        connected and taking pushes when it was written.
    :ivar failed: inboxes that could not be written, each ``{session, code, message}``.
    :ivar known: False: no session of this channel ever used that name; then ``nearest``.
    """

    session: str
    message_id: str
    state: Literal["stored", "refused", "cancelled"]
    level: str = ""
    recipients: int = 0
    live: int = 0
    duplicate: bool = False
    known: bool = True
    nearest: tuple[str, ...] = ()
    failed: tuple[dict[str, str], ...] = ()
    code: str = ""
    text: str = ""
    retryable: bool = False


class Progress(msgspec.Struct, frozen=True, gc=False):
    """How far a stored message has come with one of its recipients (feature ``progress``).

    :ivar session: who sent it and is told; ``recipient``: whose inbox it is.
    :ivar state: one of :data:`intercom.records.STATES`.
    :ivar at: when, in epoch seconds; None where it is now, or nobody noted it.
    """

    session: str
    message_id: str
    state: str
    recipient: str
    at: float | None = None


class Cursor(msgspec.Struct, frozen=True, gc=False):
    """All of your inbox up to ``position`` has been sent to you."""

    session: str
    position: Position


class SessionRow(msgspec.Struct, frozen=True, gc=False):
    """One live session in a listing.

    :ivar since: seconds since it registered.
    :ivar uid: what the kernel says of its process (``pid`` too), None where it cannot say.
    """

    session: str
    since: float
    features: tuple[str, ...] = ()
    uid: int | None = None
    pid: int | None = None


class MemberRow(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One live session of another dialect in a listing; what it says of itself is unverified.

    :ivar since: seconds since it registered. :ivar dialect: which client it is.
    """

    session: str
    since: float
    dialect: str
    name: str | None = None
    cwd: str | None = None
    model: str | None = None
    status: str | None = None
    pid: int | None = None


class Sessions(msgspec.Struct, frozen=True, gc=False):
    """Answer to :class:`ListSessions`: live sessions, and names known but not connected."""

    session: str
    live: tuple[SessionRow | MemberRow, ...]
    absent: tuple[str, ...] = ()
    reply_to: str | None = None


class PlacesTaken(msgspec.Struct, frozen=True, gc=False):
    """Answer to :class:`TakePlaces`: it is done; ``pid`` is in the pid file."""

    session: str | None
    pid: int
    reply_to: str | None = None


class Beat(msgspec.Struct, frozen=True, gc=False):
    """The hub's heartbeat: a ping, or the answer to one."""

    session: str | None
    reply_to: str | None = None


Reply = Welcome | Fault | Receipt | Progress | Cursor | Sessions | PlacesTaken | Beat
