"""What the hub tells senders by notices: what it refused, and what nobody read in time."""

from __future__ import annotations

from collections.abc import Sequence

from intercom.core.effects import Answer, Effect, Note, TakeBack
from intercom.core.notices import cancelled
from intercom.core.roster import Roster
from intercom.core.routing import Identify, Routing
from intercom.errors import IntercomError
from intercom.messages import Fault, Message, Receipt
from intercom.names import RESERVED
from intercom.records import Record

#: Messages that a notice names one by one.
MAX_NAMED = 20


def unfileable(routing: Routing, message: Message, now: float) -> list[Effect]:
    """A line was left in the hub's inbox that can only be said over a connection."""
    if message.speaker is None or message.id is None:
        return []
    text = f"a line of type {type(message).__name__} cannot be left in the hub's inbox"
    return routing.notify(message.speaker, text, message.id, {"code": "UNKNOWN_TYPE"}, now)


def misfiled(
    routing: Routing, sender: str, message_id: str, error: IntercomError, now: float
) -> list[Effect]:
    """A line was left in the hub's inbox that its dialect refuses."""
    text = f"your message {message_id} was refused: {error.text}"
    return routing.notify(sender, text, message_id, {"code": error.code}, now)


def taken_back(
    routing: Routing, back: TakeBack, found: bool, known: bool, now: float
) -> list[Effect]:
    """A session took a message back; a receiver that speaks lines is told by a notice.

    :param found: another core knew the message, and has told its receiver.
    :param known: this one knows the message, or at least its receiver.
    """
    to = back.to_session
    done = Answer(back.connection, Receipt(back.session, back.message_id, "cancelled"))
    if found:
        return [done]
    if to is None or not known:
        text = f"no message {back.message_id!r} of yours is known that could be taken back"
        return [
            Answer(back.connection, Fault(back.session, "TARGET_NOT_FOUND", text, back.reply_to))
        ]
    text, details = cancelled(back.session, back.message_id)
    return [*routing.notify(to, text, back.message_id, details, now), done]


def expired(
    routing: Routing,
    roster: Roster,
    identify: Identify,
    inbox: str,
    records: Sequence[Record],
    now: float,
) -> list[Effect]:
    """Unread messages of an inbox were dropped: one notice to each sender that is known.

    A name that nobody ever used gets none, for nobody would read it; nor do we ourselves, or a
    notice that expires would bring forth another.
    """
    ids: dict[str, list[str]] = {}
    for record in records:
        found = identify(record.line)
        if found is not None:
            ids.setdefault(found[0], []).append(found[1])
    effects: list[Effect] = []
    for sender, lost in ids.items():
        if sender in RESERVED or not roster.is_known(sender):
            continue
        named = lost[:MAX_NAMED]
        details = {"code": "EXPIRED", "session": inbox, "count": len(lost), "ids": named}
        effects += routing.notify(sender, _sentence(inbox, lost, named), lost[0], details, now)
    if records:
        effects.append(Note("expired", {"session": inbox, "messages": len(records)}))
    return effects


def _sentence(inbox: str, lost: list[str], named: list[str]) -> str:
    """What a person reads."""
    many = len(lost) > 1
    what = f"{len(lost)} of your messages" if many else "your message"
    more = f" and {len(lost) - len(named)} more" if len(lost) > len(named) else ""
    return (
        f"{what} to {inbox} {'were' if many else 'was'} not read in time and "
        f"{'are' if many else 'is'} kept no longer: {', '.join(named)}{more}; "
        f"see intercom dead"
    )
