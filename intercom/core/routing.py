"""A message's way: a line becomes entries, what the spool says becomes pushes and receipts.

Persist first, then speak: a push follows ``written``, a receipt follows
``stored``, and each word is said only when it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intercom.core.deliveries import Deliveries, Delivery, message_key
from intercom.core.desk import Desk
from intercom.core.effects import Answer, AppendEntry, Effect, Push, ReadInbox
from intercom.core.feeds import READ_LIMIT
from intercom.core.roster import Roster
from intercom.core.session import Link
from intercom.messages import Cursor, Envelope, Fault, Receipt
from intercom.names import ANONYMOUS, EVERYONE, HUB
from intercom.records import Appeared, Entry, Record, Refused, Written

#: Reads a stored line: sender, id and content hash, or None if it is no message.
Identify = Callable[[bytes], tuple[str, str, bytes] | None]
#: Hashes a message's content: type, recipient, reply_to, payload bytes.
Digest = Callable[[str, str, str | None, bytes], bytes]
#: Writes a chat from the hub: recipient, text, what it is about (its id), further payload.
Notice = Callable[[str, str, str, dict[str, Any]], Envelope]


class Routing:
    """Routes messages. The callables come from ``wire``; the hub shares its parts.

    :param links: connections by number.
    :param durability: the channel's level, one of :data:`intercom.records.LEVELS`.
    :ivar desk: the hub's own inbox, once it is open.
    """

    def __init__(
        self,
        links: dict[int, Link],
        roster: Roster,
        deliveries: Deliveries,
        durability: str,
        digest: Digest,
        identify: Identify,
        notice: Notice,
    ) -> None:
        self._links = links
        self._roster = roster
        self._deliveries = deliveries
        self._durability = durability
        self._digest = digest
        self._identify = identify
        self._notice = notice
        self.desk: Desk | None = None

    # -- a message comes in

    def submit(self, link: Link, message: Envelope, now: float) -> list[Effect]:
        """A registered connection sends a message."""
        assert link.session is not None
        return self.route(link.number, link.session, message, now)

    def route(self, link: int, sender: str, message: Envelope, now: float) -> list[Effect]:
        """Send ``sender``'s message; connection ``link`` is told what becomes of it."""
        digest = self._digest("chat", message.to_session, message.reply_to, message.payload)
        before = self._deliveries.recall(message_key(sender, message.id))
        if before is not None:
            return self._again(link, sender, message, digest, before, now)
        direct = message.to_session not in EVERYONE
        targets = [message.to_session] if direct else self._roster.audience(sender, now)
        delivery = Delivery(link, sender, message.id, digest, len(targets))
        tickets = self._deliveries.begin(delivery)
        if not targets:
            return self._conclude(delivery, now)
        # What the files say counts: a session that is not connected may have been forgotten.
        asks = direct and self._roster.holder(message.to_session) is None
        effects: list[Effect] = [
            AppendEntry(
                Entry(
                    ticket,
                    target,
                    message.line,
                    sender,
                    message.id,
                    digest,
                    self._durability,
                    asks,
                    asks and message.strict,
                )
            )
            for ticket, target in zip(tickets, targets, strict=True)
        ]
        if self._durability == "memory" and (not asks or self._roster.is_known(targets[0])):
            effects += self._tell_early(delivery, targets, now)
        return effects

    def _tell_early(self, delivery: Delivery, targets: Sequence[str], now: float) -> list[Effect]:
        """At level ``memory`` the sender is told as soon as its message is understood."""
        delivery.early = True
        holders = [self._roster.holder(name) for name in targets]
        live = sum(1 for h in holders if h is not None and h.feed is not None and h.feed.live)
        receipt = Receipt(
            session=delivery.session,
            message_id=delivery.message_id,
            state="stored",
            level="memory",
            recipients=len(targets),
            live=live,
        )
        return self._tell(delivery.link, receipt, now)

    def _again(
        self,
        link: int,
        sender: str,
        message: Envelope,
        digest: bytes,
        before: Delivery | tuple[float, bytes, Receipt],
        now: float,
    ) -> list[Effect]:
        """The id was used before: the same content gets the same answer, other content none."""
        known = before.digest if isinstance(before, Delivery) else before[1]
        if known != digest:
            text = (
                f"message id {message.id!r} was used for other content within the last ten "
                f"minutes; send this one under a new id"
            )
            refusal = Receipt(
                session=sender,
                message_id=message.id,
                state="refused",
                code="MESSAGE_ID_REUSE",
                text=text,
            )
            return self._tell(link, refusal, now)
        if isinstance(before, Delivery):
            before.also.append(link)
            return []
        return self._tell(link, before[2], now)

    # -- the spool reports

    def written(self, outcomes: Sequence[Written | Refused | Appeared], now: float) -> list[Effect]:
        """Push what reached its file; each connection then hears how far it has come."""
        effects: list[Effect] = []
        touched: dict[int, Link] = {}
        for outcome in outcomes:
            if isinstance(outcome, Written):
                holder = self._receiver(outcome.inbox)
                delivery = self._deliveries.of(outcome.ticket)
                if not outcome.known:
                    self._roster.forget(outcome.inbox)
                if delivery is not None:
                    self._note_written(delivery, outcome, holder)
                if holder is not None and holder.feed is not None and not outcome.duplicate:
                    self._push(holder, outcome.generation, outcome.record, effects)
                    touched[holder.number] = holder
            elif isinstance(outcome, Refused):
                effects += self._entry_refused(outcome, now)
            else:
                self._appeared(outcome, effects, touched, now)
        for link in touched.values():
            effects += feed_news(link)
        return effects

    def _receiver(self, inbox: str) -> Link | None:
        """The connection that an inbox is pushed to."""
        if inbox == HUB:
            return None if self.desk is None else self.desk.link
        return self._roster.holder(inbox)

    def _note_written(self, delivery: Delivery, outcome: Written, holder: Link | None) -> None:
        """Gather what the receipt will say."""
        if outcome.duplicate:
            delivery.duplicates += 1
        if holder is not None and holder.feed is not None and holder.feed.live:
            delivery.live += 1
        if not outcome.known:
            delivery.known = False
            delivery.nearest = self._roster.nearest(outcome.inbox)

    def _push(self, link: Link, generation: int, record: Record, effects: list[Effect]) -> None:
        """Push one line if its receiver can take it now."""
        assert link.feed is not None
        if link.feed.wrote(generation, record):
            effects.append(Push(link.number, record.line))

    def _appeared(
        self, appeared: Appeared, effects: list[Effect], touched: dict[int, Link], now: float
    ) -> None:
        """Others appended to an inbox: push their lines too, each message once."""
        holder = self._receiver(appeared.inbox)
        news = []
        for record in appeared.records:
            # What lies in our own inbox was sent to nobody yet: its id is not spent.
            identity = None if appeared.inbox == HUB else self._identify(record.line)
            fresh = identity is not None or appeared.inbox == HUB
            if identity is not None:
                key = message_key(identity[0], identity[1])
                fresh = self._deliveries.recall(key) is None
                news.append((key, identity[2], identity[0], identity[1]))
            if holder is None or holder.feed is None:
                continue
            touched[holder.number] = holder
            push = holder.feed.wrote(appeared.generation, record)
            if push and fresh:
                effects.append(Push(holder.number, record.line))
        self._deliveries.note(news, now)

    def stored(self, tickets: Sequence[int], level: str, now: float) -> list[Effect]:
        """Entries are safe: tell each sender whose last entry this was."""
        effects: list[Effect] = []
        for ticket in tickets:
            delivery = self._deliveries.spend(ticket)
            if delivery is not None and delivery.store(level):
                effects += self._conclude(delivery, now)
        return effects

    def _entry_refused(self, refused: Refused, now: float) -> list[Effect]:
        """One inbox could not be written."""
        delivery = self._deliveries.spend(refused.ticket)
        if delivery is None:
            return []
        if refused.code == "TARGET_NOT_FOUND":
            delivery.known = False
            delivery.nearest = self._roster.nearest(refused.inbox, refused.known)
        return self._conclude(delivery, now) if delivery.refuse(refused) else []

    def _conclude(self, delivery: Delivery, now: float) -> list[Effect]:
        """The last word about a message, to its sender and to whoever sent it again meanwhile."""
        receipt = self._deliveries.conclude(delivery, self._durability, now)
        effects = [] if delivery.early else self._tell(delivery.link, receipt, now)
        again = self._deliveries.recall(delivery.key)
        for number in delivery.also:
            repeated = receipt if again is None or isinstance(again, Delivery) else again[2]
            effects += self._tell(number, repeated, now)
        return effects

    # -- the hub's own inbox

    def file(self, message: Envelope, now: float) -> list[Effect]:
        """Send a message on that was left in the hub's inbox."""
        assert self.desk is not None
        self.desk.open += 1
        sender = message.speaker or ANONYMOUS
        return self.route(self.desk.link.number, sender, message, now)

    def notify(self, to: str, text: str, about: str, code: str, now: float) -> list[Effect]:
        """Put a notice into somebody's inbox; nobody is told what becomes of it."""
        return self.route(0, HUB, self._notice(to, text, about, {"code": code}), now)

    def _filed(self, desk: Desk, receipt: Receipt, now: float) -> list[Effect]:
        """The last word about a message of the hub's inbox was heard."""
        desk.open -= 1
        effects: list[Effect] = []
        if receipt.state == "refused":
            text = f"your message {receipt.message_id} was refused: {receipt.text}"
            effects = self.notify(receipt.session, text, receipt.message_id, receipt.code, now)
        return effects + desk.news()

    # -- who is told

    def _tell(self, number: int, receipt: Receipt, now: float) -> list[Effect]:
        """Say a receipt to who asked for receipts; a refusal to everybody, as an error."""
        if self.desk is not None and number == self.desk.link.number:
            return self._filed(self.desk, receipt, now)
        link = self._links.get(number)
        if link is None:
            return []
        if "receipts" in link.features:
            return [Answer(number, receipt)]
        if receipt.state == "refused":
            details = {"nearest": list(receipt.nearest)} if receipt.nearest else {}
            fault = Fault(receipt.session, receipt.code, receipt.text, receipt.message_id, details)
            return [Answer(number, fault)]
        return []


def feed_news(link: Link) -> list[Effect]:
    """Tell a receiver how far its inbox was sent to it, if that changed, and read on if need be."""
    feed = link.feed
    if feed is None or link.session is None:
        return []
    effects: list[Effect] = []
    position = feed.news()
    if position is not None:
        effects.append(Answer(link.number, Cursor(link.session, position)))
    if feed.wants_read():
        effects.append(ReadInbox(link.number, feed.inbox, feed.next, READ_LIMIT))
    return effects
