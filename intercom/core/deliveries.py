"""What becomes of each message: one receipt, said once it is true, and said again to a retry.

A delivery is open from the moment its entries go to the spool until each of
them is stored or refused. Its outcome is then remembered by sender and id, by
hash and not by text, so that a retry gets the first answer and is not stored
twice. Window: ten minutes, at most 100,000 messages (docs/protocol, "Delivery").
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from struct import Struct
from typing import Any

import msgspec

from intercom.errors import RETRYABLE_CODES
from intercom.messages import Receipt
from intercom.records import LEVELS, Refused, Remembered

REMEMBER_S = 600.0
REMEMBER_MAX = 100_000
#: Inboxes that a notice names one by one.
MAX_NAMED = 20

#: What is kept of a concluded message: when, the hash of its content, and its receipt; of one
#: that an earlier hub stored, who it went to instead: its inboxes will say the rest.
Past = tuple[float, bytes, Receipt | tuple[str, ...]]


class Delivery(msgspec.Struct, gc=False, eq=False):
    """One message under way.

    :ivar link: number of the connection to tell.
    :ivar key: sender and id; :ivar digest: hash of the content.
    :ivar asked: the durability level asked for; ``level``: the weakest reached so far.
    :ivar open: entries of which the last word has not been heard.
    :ivar early: already told at level ``memory``; nothing more to say.
    :ivar also: connections that sent the same message again meanwhile.
    :ivar watched: its sender wants to hear how far it comes (feature ``progress``).
    :ivar past: what was known of it before, where an earlier hub had stored it.
    """

    link: int
    session: str
    message_id: str
    key: str
    digest: bytes
    recipients: int
    asked: str = LEVELS[-1]
    open: int = 0
    stored: int = 0
    duplicates: int = 0
    live: int = 0
    level: str = LEVELS[-1]
    known: bool = True
    nearest: tuple[str, ...] = ()
    failed: tuple[Refused, ...] = ()
    early: bool = False
    also: tuple[int, ...] = ()
    watched: bool = False
    past: Past | None = None

    def store(self, level: str) -> bool:
        """One entry is safe to ``level``; True if that was the last."""
        self.stored += 1
        if level != self.level and _RANKS[level] < _RANKS[self.level]:
            self.level = level  # the receipt names the weakest of its inboxes
        self.open -= 1
        return self.open == 0

    def refuse(self, refused: Refused) -> bool:
        """One entry was refused; True if that was the last."""
        self.failed += (refused,)
        self.open -= 1
        return self.open == 0

    def conclude(self) -> Receipt:
        """All entries have spoken: make the receipt."""
        if self.failed and not self.stored:
            first = self.failed[0]
            return Receipt(
                session=self.session,
                message_id=self.message_id,
                state="refused",
                code=first.code,
                text=first.text,
                retryable=first.code in RETRYABLE_CODES,
                known=self.known,
                nearest=self.nearest,
            )
        return Receipt(
            session=self.session,
            message_id=self.message_id,
            state="stored",
            level=self.level if self.stored else self.asked,
            recipients=self.stored,
            live=self.live,
            duplicate=0 < self.duplicates == self.stored,
            known=self.known,
            nearest=self.nearest,
            failed=self.failures() if self.failed else (),
        )

    def failures(self) -> tuple[dict[str, str], ...]:
        """Inboxes that could not be written, as receipts name them."""
        return tuple({"session": r.inbox, "code": r.code, "message": r.text} for r in self.failed)

    def apology(self) -> tuple[str, dict[str, Any]]:
        """For a message that was called stored too early: a sentence, and details for programs."""
        failed = self.failures()
        first, more = self.failed[0], len(failed) - 1
        others = f" and {more} more" if more else ""
        # Where some inbox has it, its id is spent: a repetition would be a duplicate.
        advice = "send it to them as a new message" if self.stored else "send it again"
        text = (
            f"your message {self.message_id} was called stored at level memory, but could not be "
            f"kept for {first.inbox}{others}: {first.text} ({first.code}); {advice} if it still "
            f"matters"
        )
        return text, {"code": first.code, "failed": failed[:MAX_NAMED]}


#: When, how many inboxes, how many live ones, the level, and whether the recipient is known.
_PACKED = Struct("<dIIB?")
_RANKS = {level: rank for rank, level in enumerate(LEVELS)}


def _kept(receipt: Receipt, digest: bytes, now: float) -> Past | bytes:
    """What to remember of an outcome; one with more to say than numbers stays as it is."""
    if receipt.failed or receipt.nearest:
        return now, digest, msgspec.structs.replace(receipt, duplicate=True)
    level = _RANKS[receipt.level]
    return _PACKED.pack(now, receipt.recipients, receipt.live, level, receipt.known) + digest


def _unpack(key: str, packed: bytes) -> Past:
    """What was remembered of an outcome."""
    now, recipients, live, level, known = _PACKED.unpack_from(packed)
    sender, message_id = key.split("\0", 1)
    receipt = Receipt(
        session=sender,
        message_id=message_id,
        state="stored",
        level=LEVELS[level],
        recipients=recipients,
        live=live,
        duplicate=True,
        known=known,
    )
    return now, packed[_PACKED.size :], receipt


def message_key(sender: str, message_id: str) -> str:
    """What identifies a message on a channel; NUL is in no session id."""
    return f"{sender}\0{message_id}"


class Deliveries:
    """Messages under way, by ticket, and the outcomes of the last ten minutes, by key."""

    def __init__(self) -> None:
        self._last_ticket = 0
        self._tickets: dict[int, Delivery] = {}
        # Nearly all outcomes are alike, so they are packed: a hundred thousand are not small.
        self._remembered: OrderedDict[str, Delivery | Past | bytes] = OrderedDict()

    @property
    def pending(self) -> int:
        """Entries of which the last word has not been heard."""
        return len(self._tickets)

    def recall(self, key: str) -> Delivery | Past | None:
        """The delivery under way or concluded for this key, None if it is new."""
        known = self._remembered.get(key)
        return _unpack(key, known) if type(known) is bytes else known  # type: ignore[return-value]

    def begin(self, delivery: Delivery) -> range:
        """A message goes to the spool: draw a ticket for each of its entries."""
        if delivery.past is not None:
            del self._remembered[delivery.key]  # the oldest stand first
        self._remembered[delivery.key] = delivery
        delivery.open = delivery.recipients
        first = self._last_ticket + 1
        self._last_ticket += delivery.recipients
        tickets = range(first, self._last_ticket + 1)
        for ticket in tickets:
            self._tickets[ticket] = delivery
        return tickets

    def of(self, ticket: int) -> Delivery | None:
        """The delivery that this ticket belongs to."""
        return self._tickets.get(ticket)

    def spend(self, ticket: int) -> Delivery | None:
        """The last word about this ticket was heard."""
        return self._tickets.pop(ticket, None)

    def conclude(self, delivery: Delivery, now: float) -> Receipt:
        """The last word about a message: remember it, unless a retry may still succeed."""
        receipt = delivery.conclude()
        if receipt.state == "refused":
            if delivery.past is None:
                self._remembered.pop(delivery.key, None)
            else:
                self._remembered[delivery.key] = delivery.past  # stored is stored
        else:
            self._remembered[delivery.key] = _kept(receipt, delivery.digest, now)
        return receipt

    def note(self, keys: Iterable[tuple[str, bytes, str, str]], now: float) -> None:
        """Remember messages that others stored: each (key, digest, sender, id)."""
        for key, digest, sender, message_id in keys:
            receipt = Receipt(
                session=sender,
                message_id=message_id,
                state="stored",
                level="process",
                recipients=1,
                duplicate=True,
            )
            if key not in self._remembered:
                self._remembered[key] = _kept(receipt, digest, now)

    def remember(self, messages: Iterable[Remembered], now: float) -> None:
        """Take over what earlier hubs stored, oldest first."""
        memory = self._remembered
        shared: dict[tuple[str, ...], tuple[str, ...]] = {}  # broadcasts have few audiences
        for sender, message_id, digest, inboxes, age in messages:
            if age < REMEMBER_S:
                kept: Past = (now - age, digest, shared.setdefault(inboxes, inboxes))
                before = memory.setdefault(message_key(sender, message_id), kept)
                if before is not kept:
                    self._add_inboxes(message_key(sender, message_id), before, kept)
        while len(memory) > REMEMBER_MAX:
            memory.popitem(last=False)

    def _add_inboxes(self, key: str, before: Delivery | Past | bytes, more: Past) -> None:
        """Some inboxes got a message later than others did."""
        if isinstance(before, Delivery | bytes) or before[1] != more[1]:
            return  # our own knowledge counts, and the first content of an id
        if isinstance(before[2], tuple) and isinstance(more[2], tuple):
            inboxes = tuple(dict.fromkeys((*before[2], *more[2])))
            self._remembered[key] = (more[0], more[1], inboxes)

    def forget_old(self, now: float) -> None:
        """Drop outcomes out of the window, oldest first; one under way ends the search."""
        memory = self._remembered
        while memory:
            key, entry = next(iter(memory.items()))
            if isinstance(entry, Delivery):
                return
            at = _PACKED.unpack_from(entry)[0] if type(entry) is bytes else entry[0]
            if len(memory) <= REMEMBER_MAX and now - at < REMEMBER_S:
                return
            del memory[key]
