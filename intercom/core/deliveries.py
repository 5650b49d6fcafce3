"""What becomes of each message: one receipt, said once it is true, and said again to a retry.

A delivery is open from the moment its entries go to the spool until each of
them is stored or refused. Its outcome is then remembered by sender and id, by
hash and not by text, so that a retry gets the first answer and is not stored
twice. Window: ten minutes, at most 100,000 messages (docs/protocol, "Delivery").
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import msgspec

from intercom.errors import RETRYABLE_CODES
from intercom.messages import Receipt
from intercom.records import LEVELS, Refused

REMEMBER_S = 600.0
REMEMBER_MAX = 100_000


class Delivery:
    """One message under way.

    :ivar link: number of the connection to tell.
    :ivar key: sender and id; :ivar digest: hash of the content.
    :ivar open: entries of which the last word has not been heard.
    :ivar early: already told at level ``memory``; nothing more to say.
    :ivar also: connections that sent the same message again meanwhile.
    """

    __slots__ = (
        "also",
        "broadcast",
        "digest",
        "duplicates",
        "early",
        "failed",
        "key",
        "known",
        "level",
        "link",
        "live",
        "message_id",
        "nearest",
        "open",
        "recipients",
        "session",
        "stored",
    )

    def __init__(
        self,
        link: int,
        session: str,
        message_id: str,
        digest: bytes,
        recipients: int,
    ) -> None:
        self.link = link
        self.session = session
        self.message_id = message_id
        self.key = message_key(session, message_id)
        self.digest = digest
        self.recipients = recipients
        self.open = recipients
        self.stored = 0
        self.duplicates = 0
        self.live = 0
        self.level = LEVELS[-1]
        self.known = True
        self.nearest: tuple[str, ...] = ()
        self.failed: list[Refused] = []
        self.early = False
        self.also: list[int] = []

    def store(self, level: str) -> bool:
        """One entry is safe to ``level``; True if that was the last."""
        self.stored += 1
        if LEVELS.index(level) < LEVELS.index(self.level):
            self.level = level  # the receipt names the weakest of its inboxes
        self.open -= 1
        return self.open == 0

    def refuse(self, refused: Refused) -> bool:
        """One entry was refused; True if that was the last."""
        self.failed.append(refused)
        self.open -= 1
        return self.open == 0

    def conclude(self, level: str) -> Receipt:
        """All entries have spoken: make the receipt (``level`` where there were none)."""
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
            level=self.level if self.stored else level,
            recipients=self.stored,
            live=self.live,
            duplicate=0 < self.duplicates == self.stored,
            known=self.known,
            nearest=self.nearest,
            failed=tuple(
                {"session": r.inbox, "code": r.code, "message": r.text} for r in self.failed
            ),
        )


def message_key(sender: str, message_id: str) -> str:
    """What identifies a message on a channel; NUL is in no session id."""
    return f"{sender}\0{message_id}"


class Deliveries:
    """Messages under way, by ticket, and the outcomes of the last ten minutes, by key."""

    def __init__(self) -> None:
        self._last_ticket = 0
        self._tickets: dict[int, Delivery] = {}
        self._remembered: OrderedDict[str, Delivery | tuple[float, bytes, Receipt]] = OrderedDict()

    @property
    def pending(self) -> int:
        """Entries of which the last word has not been heard."""
        return len(self._tickets)

    def recall(self, key: str) -> Delivery | tuple[float, bytes, Receipt] | None:
        """The delivery under way or concluded for this key, None if it is new."""
        return self._remembered.get(key)

    def begin(self, delivery: Delivery) -> list[int]:
        """A new message: draw a ticket for each of its entries."""
        self._remembered[delivery.key] = delivery
        first = self._last_ticket + 1
        self._last_ticket += delivery.recipients
        tickets = list(range(first, self._last_ticket + 1))
        for ticket in tickets:
            self._tickets[ticket] = delivery
        return tickets

    def of(self, ticket: int) -> Delivery | None:
        """The delivery that this ticket belongs to."""
        return self._tickets.get(ticket)

    def spend(self, ticket: int) -> Delivery | None:
        """The last word about this ticket was heard."""
        return self._tickets.pop(ticket, None)

    def conclude(self, delivery: Delivery, level: str, now: float) -> Receipt:
        """The last word about a message: remember it, unless a retry may still succeed."""
        receipt = delivery.conclude(level)
        if receipt.state == "refused":
            self._remembered.pop(delivery.key, None)
        else:
            kept = msgspec.structs.replace(receipt, duplicate=True)
            self._remembered[delivery.key] = (now, delivery.digest, kept)
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
            self._remembered.setdefault(key, (now, digest, receipt))

    def forget_old(self, now: float) -> None:
        """Drop outcomes out of the window, oldest first; one under way ends the search."""
        memory = self._remembered
        while memory:
            key, entry = next(iter(memory.items()))
            if isinstance(entry, Delivery):
                return
            if len(memory) <= REMEMBER_MAX and now - entry[0] < REMEMBER_S:
                return
            del memory[key]
