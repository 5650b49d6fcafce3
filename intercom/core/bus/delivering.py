"""How a message is delivered, once it is clear to whom: for senders of every dialect.

What was found deliverable is carried out whatever happens to either connection meanwhile:
an ask's file is written, the message goes into its inbox and from there to its receiver,
the file of an answered ask goes, and only then the sender hears of it.
"""

from __future__ import annotations

from collections.abc import Hashable

from intercom.core.asking import LARGE
from intercom.core.bus.asks import Ask, record_of
from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import SUBAGENTS
from intercom.core.bus.effects import Keep, SaveAsk
from intercom.core.bus.handover import Handover, letter_of
from intercom.core.bus.judging import GONE, REUSED, Case, Plan, Undeliverable
from intercom.core.bus.keys import inbox_of
from intercom.core.bus.letters import Content, content_of, write
from intercom.core.bus.mailbox import Letter, Place
from intercom.core.bus.routes import Route
from intercom.core.bus.turns import Step, Work
from intercom.core.bus.world import World
from intercom.errors import ProtocolError
from intercom.records import Entry, Position, Refused, Written
from intercom.wire.pi.crossing import envelope_id

_TOO_LARGE = "Intercom message too large"
_REUSED = REUSED[1].removeprefix("E_")


class Delivering:
    """Delivers messages."""

    def __init__(self, world: World, carrier: Carrier, handover: Handover) -> None:
        self._world = world
        self._carrier = carrier
        self._handover = handover

    def written(self, case: Case, plan: Plan) -> tuple[Content, bytes]:
        """The message as it is stored, once it is clear that it can be written out again.

        :raise Undeliverable: it is too large in the form of its receiver, or does not suit it.
        """
        content = content_of(case.message, case.sender, plan.target, plan.addressed, case.received)
        try:
            return content, self._line(content, plan)
        except ProtocolError as error:
            reason = error.text
            if error.code == "LINE_TOO_LONG" and not reason.startswith(_TOO_LARGE):
                reason = f"{_TOO_LARGE}: {reason}"
            raise Undeliverable(reason, "E_INVALID_MESSAGE") from None

    def _line(self, content: Content, plan: Plan) -> bytes:
        """The message as a line, which its receiver can take.

        Its form for the receiver is printed when it is handed over; before, only if that is
        needed to know.

        :raise ProtocolError: what is wrong with its form for the receiver first.
        """
        subagents = plan.receiver is not None and plan.receiver.dialect == SUBAGENTS
        try:
            line = write(content, self._world.channel, plan.digest)
        except ProtocolError:
            self._fit(content, plan)
            raise
        if subagents or len(line) > LARGE:
            self._fit(content, plan)
        return line

    def _fit(self, content: Content, plan: Plan) -> None:
        if not plan.elsewhere:
            self._handover.frame(content, plan.receiver)

    def deliver(self, case: Case, plan: Plan, content: Content, line: bytes) -> Step[Letter | None]:
        """Carry it out, step by step; the letter, None if it was there before.

        :raise Undeliverable: it is in no inbox, and an ask that it answers still waits.
        """
        world = self._world
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
        except Undeliverable:
            if case.answers is not None:
                world.asks.add(case.answers)  # the answer may come again
            raise
        if case.answers is not None:
            yield world.remove_ask_file(case.answers)
        return letter

    def _ask(self, case: Case, plan: Plan) -> Step[Ask | None]:
        """A question is pending before it is sent, on disk, too."""
        world, message = self._world, case.message
        if not message.get("expectsReply"):
            return None
        other = world.asks.get(case.sender.key.scope, message["id"])
        if other is not None and other.asker != case.sender.key:
            return None  # another's ask has the file of this name
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
        if not (plan.live or plan.elsewhere):
            for old in world.mailbox.surplus(case.sender.key):
                reason = "Mailbox capacity evicted the delivery"
                self._handover.give_up(old, reason, "E_DELIVERY_EVICTED")
        entry = entry_of(case, plan, line, world.level)
        written, stored = yield from self._append(entry)
        if plan.plain and _was_there(written):
            yield stored
            nonce = world.draw()
            line = write(content, world.channel, plan.digest, nonce)
            message_id = envelope_id(case.message["id"], nonce)
            entry = entry._replace(line=line, message_id=message_id)
            written, stored = yield from self._append(entry)
        if isinstance(written, Refused):
            yield stored
            if written.code == _REUSED:
                raise Undeliverable(*REUSED)
            raise Undeliverable(written.text, "E_DELIVERY_FAILED", retryable=True)
        letter = self._place(written, plan, content)
        yield stored
        if letter is not None:
            yield from self._brought(letter)
            if plan.plain:
                yield from self._check_arrived(letter)
        return letter

    def _brought(self, letter: Letter) -> Work:
        """Wait for a letter that is on its way to its receiver, behind others of the inbox."""
        while self._carrier.is_coming(letter):
            yield ("mail", letter.inbox)

    def _check_arrived(self, letter: Letter) -> Work:
        """Who left meanwhile gets nothing later: the sender is told, and may try another.

        :raise Undeliverable: it did.
        """
        here = self._handover.receiver(letter) is not None
        if not letter.pushed and (letter.settled or not here):
            yield self._handover.give_up(letter, *GONE)
            raise Undeliverable(*GONE)

    def _append(self, entry: Entry) -> Step[tuple[Written | Refused, Hashable]]:
        """What became of an entry, and the name of the answer that it is safe."""
        world = self._world
        ticket = world.ticket()
        stored = ("stored", ticket)
        world.do(Keep(entry._replace(ticket=ticket)))
        world.turns.expect(stored)
        written = yield ("written", ticket)
        return written, stored

    def _place(self, written: Written, plan: Plan, content: Content) -> Letter | None:
        """The message is in the inbox file: bring it, unless it was read from there already."""
        if plan.elsewhere:
            route = Route(content.sender, plan.target, content.message["id"], self._world.now)
            self._world.routes.add(route)
            if not written.duplicate:
                record = written.record
                place = (written.generation, record.start, record.end)
                self._world.afar.follow(written.inbox, *place, route)
            return None
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


def entry_of(case: Case, plan: Plan, line: bytes, level: str) -> Entry:
    """What is appended to the inbox of a target; the ticket is to be filled in."""
    sender, inbox = inbox_of(case.sender.key), inbox_of(plan.target)
    message_id = envelope_id(case.message["id"])
    return Entry(0, inbox, line, sender, message_id, plan.digest, level)


def _was_there(written: Written | Refused) -> bool:
    """Whether an inbox holds a message of this sender and id already."""
    if isinstance(written, Refused):
        return written.code == _REUSED
    return written.duplicate
