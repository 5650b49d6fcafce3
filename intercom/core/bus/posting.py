"""``send``: what becomes of a message, and when its sender is told.

What was found deliverable is carried out whatever happens to either connection meanwhile:
an ask's file is written, the message goes into its inbox and from there to its receiver,
the file of an answered ask goes, and only then the sender hears of it.
"""

from __future__ import annotations

from intercom.core.bus.asks import Ask, record_of
from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import Session
from intercom.core.bus.effects import Keep, SaveAsk
from intercom.core.bus.handover import Handover, letter_of
from intercom.core.bus.judging import REUSED, Case, Judge, Known, Plan, Undeliverable
from intercom.core.bus.keys import inbox_of
from intercom.core.bus.letters import Content, content_of, write
from intercom.core.bus.mailbox import Letter, Place
from intercom.core.bus.outcomes import DELIVERED, FAILED, QUEUED, UNDER_WAY, Outcome
from intercom.core.bus.turns import Step, Work
from intercom.core.bus.world import INTERCOM, World
from intercom.errors import ProtocolError
from intercom.records import Entry, Position, Refused, Written
from intercom.wire.pi.crossing import envelope_id
from intercom.wire.pi.forms import message_frame, stamped
from intercom.wire.pi.frames import dump_frame
from intercom.wire.pi.replies import delivery_accepted, delivery_refused
from intercom.wire.pi.requests import Send


class Posting:
    """Sends messages of this dialect's clients."""

    def __init__(self, world: World, carrier: Carrier, handover: Handover) -> None:
        self._world = world
        self._carrier = carrier
        self._handover = handover
        self._judge = Judge(world, carrier, handover)

    def send(self, number: int, sender: Session, request: Send) -> Work:
        """Send a message; the connection hears what became of it."""
        world, message = self._world, request.message
        key, message_id = sender.key, message["id"]
        world.prune_asks()
        world.routes.prune(world.now)
        reply_to = message.get("replyTo")
        answers = world.asks.get(key.scope, reply_to) if reply_to else None
        case = Case(sender, message, answers, world.now)
        try:
            plan = self._judge.judge(case, request)
            content, line = self._written(case, plan)
            yield from self._deliver(number, case, plan, content, line)
        except Known as known:
            while known.outcome.state == UNDER_WAY:  # it came by a connection that was replaced
                yield ("outcome", key, message_id)
            self._tell(number, message_id, known.outcome)
        except Undeliverable as no:
            outcome = Outcome(b"", FAILED, world.now, no.reason, no.code, no.retryable)
            if no.digest is not None:
                outcome.digest = no.digest
                world.outcomes.record(key, message_id, outcome)
            self._tell(number, message_id, outcome)

    def _tell(self, number: int, message_id: str, outcome: Outcome) -> None:
        if outcome.state == DELIVERED or outcome.state == QUEUED:
            frame = delivery_accepted(message_id, outcome.state)  # type: ignore[arg-type]
        else:
            frame = delivery_refused(message_id, outcome.reason, outcome.code, outcome.retryable)
        self._world.say(number, frame)

    def _written(self, case: Case, plan: Plan) -> tuple[Content, bytes]:
        """The message as it is stored, once it is clear that it can be written out again."""
        content = content_of(case.message, case.sender, plan.target, plan.addressed, case.received)
        try:
            message = stamped(case.message, case.received, case.received)
            since = case.sender.since
            dump_frame(message_frame(content.info, message, INTERCOM, registered_at=since))
            return content, write(content, self._world.channel, plan.digest)
        except ProtocolError as error:
            reason = error.text
            if not reason.startswith("Intercom message too large"):
                reason = f"Intercom message too large: {reason}"
            raise Undeliverable(reason, "E_INVALID_MESSAGE") from None

    # -- delivering

    def _deliver(self, number: int, case: Case, plan: Plan, content: Content, line: bytes) -> Work:
        """Carry it out, step by step; from here on the sender's connection does not matter."""
        world, key, message_id = self._world, case.sender.key, case.message["id"]
        outcome = Outcome(plan.digest, UNDER_WAY, world.now)
        world.outcomes.record(key, message_id, outcome)
        if case.answers is not None:
            world.asks.remove(case.answers)
        try:
            ask = yield from self._ask(case, plan)
            try:
                letter = yield from self._keep(case, plan, content, line)
            except Undeliverable:
                if ask is not None:
                    yield world.remove_ask(ask)
                raise
        except Undeliverable as no:
            if case.answers is not None:
                world.asks.add(case.answers)  # the answer may come again
            outcome.state, outcome.reason, outcome.code = FAILED, no.reason, no.code
            outcome.retryable = no.retryable
            world.outcomes.forget(key, message_id)
            world.turns.answer(("outcome", key, message_id))
            raise
        if case.answers is not None:
            yield world.remove_ask_file(case.answers)
        arrived = plan.live if letter is None else letter.pushed
        outcome.state = DELIVERED if arrived else QUEUED
        world.turns.answer(("outcome", key, message_id))
        self._tell(number, message_id, outcome)

    def _ask(self, case: Case, plan: Plan) -> Step[Ask | None]:
        """A question is pending before it is sent, on disk, too."""
        world, message = self._world, case.message
        if not message.get("expectsReply"):
            return None
        expires = case.received + world.ask_ms
        ask = Ask(message["id"], case.sender.key, plan.target, case.received, expires)
        world.asks.add(ask)
        asker = case.sender.info.get("name")
        record = record_of(ask, asker, plan.label, message["content"]["text"])
        ticket = world.ticket()
        world.do(SaveAsk(ticket, ask.asker.scope, record))
        if not (yield ("saved", ticket)):
            world.asks.remove(ask)
            raise Undeliverable("Failed to persist pending ask", "E_DELIVERY_FAILED", True)
        return ask

    def _keep(self, case: Case, plan: Plan, content: Content, line: bytes) -> Step[Letter | None]:
        """Into the inbox, on to the receiver, and safe; the letter, None if it was there before.

        :raise Undeliverable: it is in no inbox.
        """
        world = self._world
        sender, inbox = inbox_of(case.sender.key), inbox_of(plan.target)
        if not plan.live:
            for old in world.mailbox.surplus(case.sender.key):
                reason = "Mailbox capacity evicted the delivery"
                self._handover.give_up(old, reason, "E_DELIVERY_EVICTED")
        ticket = world.ticket()
        message_id = envelope_id(case.message["id"])
        entry = Entry(ticket, inbox, line, sender, message_id, plan.digest, world.level)
        world.do(Keep(entry))
        world.turns.expect(("stored", ticket))
        written: Written | Refused = yield ("written", ticket)
        if isinstance(written, Refused):
            yield ("stored", ticket)
            if written.code == REUSED[1].removeprefix("E_"):
                raise Undeliverable(*REUSED)
            raise Undeliverable(written.text, "E_DELIVERY_FAILED", retryable=True)
        letter = self._place(written, plan, content)
        yield ("stored", ticket)
        return letter

    def _place(self, written: Written, plan: Plan, content: Content) -> Letter | None:
        """The message is in the inbox file: bring it, unless it was read from there already."""
        place = Place(written.generation, written.record.start, written.record.end)
        box = self._world.mailbox.box(written.inbox)
        letter = box.at(place.generation, place.start)
        if letter is not None:
            self._carrier.fetch(box)
            return letter
        end = Position(place.generation, place.end)
        if written.duplicate or (box.known is not None and end <= box.known):
            return None
        letter = letter_of(content, place)
        self._carrier.arrived(letter, content)
        if not plan.live and not letter.pushed:
            self._world.mailbox.queue(letter)
        return letter
