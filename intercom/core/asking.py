"""What sessions that speak lines cannot send: asks that may not be, and what nobody can take.

Pure. The asks themselves, of all dialects, are kept by the bus (:mod:`intercom.core.bus.asks`).
"""

from __future__ import annotations

from intercom.core.roster import Roster
from intercom.messages import Envelope, Receipt
from intercom.names import EVERYONE

_TEXTS = {
    "TARGET_NOT_FOUND": "an ask is for one session: name it",
    "TARGET_DISCONNECTED": "the session asked is not connected, and an ask is not kept for it",
    "MUTUAL_ASK": "the session asked is waiting for an answer of yours itself; answer that first",
    "MESSAGE_ID_REUSE": "another ask has this id and is pending; ask under a new id",
}


#: Bytes of a line that may be too long in another dialect, where it has up to about twice as
#: many; shorter ones are always taken.
LARGE = 1 << 18


def refused(roster: Roster, sender: str, message: Envelope) -> Receipt | None:
    """Why a message is not sent, None if it may be."""
    if not (message.asks or _is_odd(message)):
        return None  # nearly all
    code, text = _refusal(roster, sender, message)
    if not code:
        return None
    return Receipt(session=sender, message_id=message.id, state="refused", code=code, text=text)


def _refusal(roster: Roster, sender: str, message: Envelope) -> tuple[str, str]:
    """Code and text; both empty if nothing speaks against it."""
    direct = message.to_session not in EVERYONE
    if message.asks:
        code: str | None = "TARGET_NOT_FOUND"
        if direct:
            to = roster.address(message.to_session)
            code = roster.elsewhere.ask_refusal(sender, to, message.id)
        if code is not None:
            return code, _TEXTS[code]
    if direct and _is_odd(message):
        return roster.elsewhere.unfit(roster.address(message.to_session), message.line)
    return "", ""


def _is_odd(message: Envelope) -> bool:
    """Whether a session of another dialect may be unable to take it."""
    if len(message.line) > LARGE or not message.id.isprintable():
        return True
    return message.reply_to is not None and not message.reply_to.isprintable()
