"""A message's way: a line becomes entries, what the spool says becomes pushes and receipts.

Persist first, then speak: a push follows ``written``, a receipt follows
``stored``, and each word is said only when it is true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from intercom.core.asking import refused
from intercom.core.deliveries import Deliveries, Delivery, Past, message_key
from intercom.core.desk import Desk
from intercom.core.effects import (
    Answer,
    AppendEntry,
    Effect,
    MakeRoom,
    Note,
    NotePushed,
    Push,
    ReadInbox,
)
from intercom.core.feeds import READ_LIMIT
from intercom.core.progress import Watch, Watchers
from intercom.core.roster import Roster
from intercom.core.session import Link
from intercom.messages import Cursor, Envelope, Fault, Receipt
from intercom.names import ANONYMOUS, EVERYONE, HUB
from intercom.records import (
    Appeared,
    Batch,
    Entry,
    Moved,
    Outcome,
    Refused,
    Remembered,
    Shifted,
    Written,
)

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
    :ivar watchers: who wants to hear how far its messages come.
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
        self.watchers = Watchers()

    # -- a message comes in

    def submit(self, link: Link, message: Envelope, now: float) -> list[Effect]:
        """A registered connection sends a message."""
        assert link.session is not None
        watched = "progress" in link.features
        if watched:
            self.watchers.expect(link.number)
        return self.route(link.number, link.session, message, now, watched)

    def route(
        self, link: int, sender: str, message: Envelope, now: float, watched: bool = False
    ) -> list[Effect]:
        """Send ``sender``'s message; connection ``link`` is told what becomes of it.

        :param watched: it is also told how far the message comes (feature ``progress``).
        """
        digest = self._digest("chat", message.to_session, message.reply_to, message.payload)
        direct = message.to_session not in EVERYONE
        past = self._deliveries.recall(key := message_key(sender, message.id))
        targets: Sequence[str]
        if past is None:
            refusal = refused(self._roster, sender, message)
            if refusal is not None:
                return self._tell(link, refusal, now)
            to = self._roster.address(message.to_session)
            targets = (to,) if direct else self._roster.audience(sender, now)
        elif isinstance(past, Delivery) or past[1] != digest or isinstance(past[2], Receipt):
            return self._again(link, sender, message, digest, past, now)
        else:
            targets = past[2]  # an earlier hub stored it: these are asked, and no others
        level = message.durability or self._durability
        delivery = Delivery(link, sender, message.id, key, digest, len(targets), level)
        delivery.watched, delivery.past = watched, past
        tickets = self._deliveries.begin(delivery)
        if not targets:
            return self._conclude(delivery, now)
        # What the files say counts: a session that is not connected may have been forgotten.
        asks = direct and not self._roster.is_here(targets[0])
        strict = asks and message.strict and past is None
        line, name = message.line, message.id
        left = self.desk is not None and link == self.desk.link.number
        effects: list[Effect] = [
            AppendEntry(Entry(ticket, to, line, sender, name, digest, level, asks, strict, left))
            for ticket, to in zip(tickets, targets, strict=True)
        ]
        if level == "memory" and past is None and (not asks or self._roster.is_known(targets[0])):
            effects += self._tell_early(delivery, targets, now)
        return effects

    def _tell_early(self, delivery: Delivery, targets: Sequence[str], now: float) -> list[Effect]:
        """At level ``memory`` the sender is told as soon as its message is understood."""
        delivery.early = True
        live = sum(map(self._roster.takes_pushes, targets))
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
        before: Delivery | Past,
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
            before.also += (link,)
            return []
        assert isinstance(before[2], Receipt)
        return self._tell(link, before[2], now)

    # -- the spool reports

    def written(self, outcomes: Sequence[Outcome], now: float) -> list[Effect]:
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
                    self._note_written(delivery, outcome)
                if outcome.duplicate:
                    continue
                pushed = False
                if holder is not None and holder.feed is not None:
                    touched[holder.number] = holder
                    pushed = holder.feed.wrote(outcome.generation, outcome.record)
                    if pushed:
                        effects.append(Push(holder.number, outcome.record.line))
                if delivery is not None and delivery.watched:
                    effects += self._watch(delivery, outcome, pushed)
            elif isinstance(outcome, Refused):
                effects += self._entry_refused(outcome, now)
            elif isinstance(outcome, Appeared):
                self._appeared(outcome, effects, touched, now)
            else:
                self._shifted(outcome, touched)
        for link in touched.values():
            effects += feed_news(link)
        return effects

    def _receiver(self, inbox: str) -> Link | None:
        """The connection that an inbox is pushed to."""
        if inbox == HUB:
            return None if self.desk is None else self.desk.link
        return self._roster.holder(inbox)

    def _note_written(self, delivery: Delivery, outcome: Written) -> None:
        """Gather what the receipt will say."""
        if outcome.duplicate:
            delivery.duplicates += 1
        if self._roster.takes_pushes(outcome.inbox):
            delivery.live += 1
        if not outcome.known:
            delivery.known = False
            delivery.nearest = self._roster.nearest(outcome.inbox)

    def _watch(self, delivery: Delivery, written: Written, pushed: bool) -> Sequence[Effect]:
        """Begin to tell the sender how far its message comes with one recipient."""
        link = self._links.get(delivery.link)
        if link is None or link.session != delivery.session or "progress" not in link.features:
            return ()  # it has left, or wants to hear no more
        place = (written.generation, written.record.start)
        watch = Watch(
            link.number,
            delivery.session,
            delivery.message_id,
            written.inbox,
            place,
            written.record.end,
        )
        return self.watchers.watch(watch, pushed)

    def backlog(self, link: Link, batch: Batch) -> list[Effect]:
        """Push what was read from a receiver's inbox."""
        feed = link.feed
        assert feed is not None
        effects: list[Effect] = [Push(link.number, record.line) for record in feed.read(batch)]
        for stretch in feed.take_pushed():
            effects += _note_pushed(feed.inbox, stretch)
            effects += self.watchers.pushed(feed.inbox, *stretch)
        return effects + feed_news(link)

    def remembered(self, messages: Iterable[Remembered], now: float) -> list[Effect]:
        """What earlier hubs stored: a retry of it finds the inboxes of the first time."""
        self._deliveries.remember(messages, now)
        return []

    def moved(self, moves: Sequence[Moved], now: float) -> list[Effect]:
        """Readers have shown, read or skipped something: who watches is told."""
        effects: list[Effect] = []
        for move in moves:
            effects += self.watchers.moved(move)
        return effects

    def _shifted(self, shift: Shifted, touched: dict[int, Link]) -> None:
        """An inbox was compacted: its receiver and its senders follow."""
        self.watchers.shifted(shift)
        holder = self._receiver(shift.inbox)
        if holder is not None and holder.feed is not None:
            holder.feed.shifted(shift)
            touched[holder.number] = holder

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
                known = record.start in appeared.repeated
                fresh = not known and self._deliveries.recall(key) is None
                news.append((key, identity[2], identity[0], identity[1]))
            if holder is None or holder.feed is None:
                continue
            touched[holder.number] = holder
            if holder.feed.wrote(appeared.generation, record, fresh):
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
        room: list[Effect] = [MakeRoom(refused.inbox)] if refused.code == "INBOX_FULL" else []
        return room + (self._conclude(delivery, now) if delivery.refuse(refused) else [])

    def _conclude(self, delivery: Delivery, now: float) -> list[Effect]:
        """The last word about a message, to its sender and to whoever sent it again meanwhile."""
        receipt = self._deliveries.conclude(delivery, now)
        if delivery.early:
            effects = self._take_back(delivery, now) if delivery.failed else []
        else:
            effects = self._tell(delivery.link, receipt, now)
        if not delivery.also:
            return effects
        again = self._deliveries.recall(delivery.key)
        kept = again[2] if isinstance(again, tuple) else None
        repeated = kept if isinstance(kept, Receipt) else receipt
        for number in delivery.also:
            effects += self._tell(number, repeated, now)
        return effects

    def _take_back(self, delivery: Delivery, now: float) -> list[Effect]:
        """What was called stored at level ``memory`` was not kept everywhere: say so."""
        text, details = delivery.apology()
        fields = {"session": delivery.session, "id": delivery.message_id, "code": details["code"]}
        note = Note("not_kept", fields)
        if delivery.session == HUB:
            return [note]  # a notice of ours; one about it would not fare better
        return [note, *self.notify(delivery.session, text, delivery.message_id, details, now)]

    # -- the hub's own inbox

    def file(self, message: Envelope, now: float) -> list[Effect]:
        """Send a message on that was left in the hub's inbox."""
        assert self.desk is not None
        self.desk.open += 1
        return self.route(self.desk.link.number, message.speaker or ANONYMOUS, message, now)

    def notify(
        self, to: str, text: str, about: str, details: dict[str, Any], now: float
    ) -> list[Effect]:
        """Put a notice into somebody's inbox; nobody is told what becomes of it.

        :param details: for programs: ``code``, and what else there is to say.
        """
        return self.route(0, HUB, self._notice(to, text, about, details), now)

    def _filed(self, desk: Desk, receipt: Receipt, now: float) -> list[Effect]:
        """The last word about a message of the hub's inbox was heard."""
        desk.open -= 1
        effects: list[Effect] = []
        if receipt.state == "refused":
            text = f"your message {receipt.message_id} was refused: {receipt.text}"
            details = {"code": receipt.code}
            effects = self.notify(receipt.session, text, receipt.message_id, details, now)
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


def _note_pushed(inbox: str, stretch: tuple[int, int, int]) -> list[Effect]:
    """Remember what went to a live connection; nobody asks that of the hub's own inbox."""
    return [] if inbox == HUB else [NotePushed(inbox, *stretch)]


def feed_news(link: Link) -> list[Effect]:
    """Tell a receiver how far its inbox was sent to it, if that changed, and read on if need be."""
    feed = link.feed
    if feed is None or link.session is None:
        return []
    effects: list[Effect] = []
    for stretch in feed.take_pushed():
        effects += _note_pushed(feed.inbox, stretch)
    position = feed.news()
    if position is not None:
        effects.append(Answer(link.number, Cursor(link.session, position)))
    if feed.wants_read():
        effects.append(ReadInbox(link.number, feed.inbox, feed.next, READ_LIMIT))
    return effects
