"""What the bus asks its shell to do, as data.

The shell performs the effects of one input in their order, and those on one file one after the
other. Those with a ticket are answered by an input that names it, once the effects of the input
at hand are done; see :class:`intercom.core.bus.broker.Broker`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from intercom.core.effects import Note, TakeBack
from intercom.records import Entry


class Say(msgspec.Struct, frozen=True, gc=False):
    """Write a whole frame, length included. Dropped if the connection is closed or gone."""

    number: int
    frame: bytes


class Close(msgspec.Struct, frozen=True, gc=False):
    """End a connection; nothing more is written to it.

    :ivar after_flush: what was said to it leaves first, if that takes no more than a second;
        what it says meanwhile is read and dropped.
    """

    number: int
    after_flush: bool


class Watch(msgspec.Struct, frozen=True, gc=False):
    """A letter was written to a connection whose client does not say that it has it.

    Call ``taken`` once the peer has read all that was written to this connection so far.
    """

    number: int


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """A line of an inbox was written to a connection: note it, and tell who asked to hear it."""

    inbox: str
    generation: int
    start: int
    end: int


class Notice(msgspec.Struct, frozen=True, gc=False):
    """Tell a session that speaks lines something by a line in its inbox, if it is known.

    :ivar about: the id of the message that it is about. :ivar details: for programs, as
        ``payload.notice`` has them.
    """

    session: str
    text: str
    about: str
    details: dict[str, Any]


class TookBack(msgspec.Struct, frozen=True, gc=False):
    """What became of ``cancelled_elsewhere``.

    :ivar back: what was asked; of a question that waited it names who was to answer.
    :ivar found: it was a message to a pi session.
    """

    back: TakeBack
    found: bool


class Hold(msgspec.Struct, frozen=True, gc=False):
    """Something that a connection said is still under way, and enough waits: read no more from it.

    What comes nevertheless waits in the broker; this only keeps that little.
    """

    number: int


class Release(msgspec.Struct, frozen=True, gc=False):
    """Read on from a connection that was held: nothing that it said waits."""

    number: int


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Append an entry to an inbox: answered by ``written`` and then ``stored``.

    Its digest is of what the message says, whatever else the line holds: times, and how its
    sender was at the time.
    """

    entry: Entry


class Read(msgspec.Struct, frozen=True, gc=False):
    """Read complete lines of an inbox; answered by ``found``, or ``unreadable``.

    :ivar start: generation and offset, None for the stored position.
    """

    inbox: str
    start: tuple[int, int] | None


class Commit(msgspec.Struct, frozen=True, gc=False):
    """Move an inbox's stored position: everything before it is settled.

    Answered by ``saved`` once no death of a process undoes it.
    """

    ticket: int
    inbox: str
    generation: int
    offset: int


class Hurry(msgspec.Struct, frozen=True, gc=False):
    """Somebody waits for the ``Commit`` of an inbox; else a few of them may be done as one."""

    inbox: str


class Skip(msgspec.Struct, frozen=True, gc=False):
    """One line of an inbox is to be shown to nobody, though the position is still before it.

    Remember it (as ``skipped``), so that a later hub does not give it to ``found``; answered by
    ``saved`` once no death of a process undoes it.

    :ivar code: why: ``E_DELIVERY_CANCELLED``, ``E_DELIVERY_EVICTED``, ``E_DELIVERY_EXPIRED``,
        ``E_DELIVERY_SUPERSEDED``, ``E_DELIVERY_FAILED`` (its receiver's client cannot be sent
        it), ``E_TARGET_DISCONNECTED`` (its sender was told that the receiver left before).
    """

    ticket: int
    inbox: str
    generation: int
    start: int
    end: int
    code: str


class Discard(msgspec.Struct, frozen=True, gc=False):
    """Remove an inbox: its session had a drawn id, and left a day ago."""

    inbox: str


class SaveAsk(msgspec.Struct, frozen=True, gc=False):
    """Write a pending-ask file; answered by ``saved``.

    :ivar scope: hash of the scope's name, the beginning of the file's name; None without.
    :ivar record: what is in the file.
    """

    ticket: int
    scope: str | None
    record: dict[str, Any]


class RemoveAsk(msgspec.Struct, frozen=True, gc=False):
    """Remove a pending-ask file, if it is there; answered by ``saved``."""

    ticket: int
    scope: str | None
    message_id: str


class LoadState(msgspec.Struct, frozen=True, gc=False):
    """Read an extension's state; answered by ``loaded``."""

    ticket: int
    namespace: str


class SaveState(msgspec.Struct, frozen=True, gc=False):
    """Replace an extension's state durably; answered by ``saved``."""

    ticket: int
    namespace: str
    revision: int
    payload: Any


class SaveStaged(msgspec.Struct, frozen=True, gc=False):
    """A message is accepted that is in no inbox yet: remember it; answered by ``saved``.

    A later hub gives what is still remembered to ``restored_staged``.

    :ivar mark: the ticket; it names the message to :class:`DropStaged`, too.
    :ivar entry: what is to be appended.
    """

    mark: int
    entry: Entry


class DropStaged(msgspec.Struct, frozen=True, gc=False):
    """What became of such a message is clear; it is to be remembered no longer."""

    mark: int | str


class SaveRoll(msgspec.Struct, frozen=True, gc=False):
    """Who is known has changed: write :attr:`Broker.roll` down, some time soon.

    It tells a later hub in which inboxes mail may lie, and who can be written to.

    :ivar elsewhere: only sessions that speak lines came or went.
    """

    elsewhere: bool = False


class Wake(msgspec.Struct, frozen=True, gc=False):
    """Call ``tick`` at this time, or soon after; earlier wishes stay."""

    at: int


class Leave(msgspec.Struct, frozen=True, gc=False):
    """Nobody has been here for a while: the hub may go."""


Effect = (
    Say
    | Close
    | Watch
    | Pushed
    | Notice
    | TookBack
    | Hold
    | Release
    | Keep
    | Read
    | Commit
    | Hurry
    | Skip
    | Discard
    | SaveAsk
    | RemoveAsk
    | LoadState
    | SaveState
    | SaveStaged
    | DropStaged
    | SaveRoll
    | Wake
    | Leave
    | Note
)
