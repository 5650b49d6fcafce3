"""Asks of sessions that speak lines: who may ask whom. Pure.

The asks themselves, of all dialects, are kept by the bus (:mod:`intercom.core.bus.asks`).
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


def ask_refused(roster: Roster, sender: str, message: Envelope) -> Receipt | None:
    """Why an ask is not sent, None if it may be."""
    to = message.to_session
    code: str | None = "TARGET_NOT_FOUND"
    if to not in EVERYONE:
        code = roster.elsewhere.ask_refusal(sender, roster.address(to), message.id)
    if code is None:
        return None
    return Receipt(
        session=sender, message_id=message.id, state="refused", code=code, text=_TEXTS[code]
    )
