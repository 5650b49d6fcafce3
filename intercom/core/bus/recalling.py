"""What is said of messages later: receipts, cancels, asks that are given up."""

from __future__ import annotations

import msgspec

from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import INTERCOM, Session
from intercom.core.bus.effects import Notice, TookBack
from intercom.core.bus.handover import Handover
from intercom.core.bus.keys import Key, inbox_of
from intercom.core.bus.outcomes import FAILED
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.core.effects import TakeBack
from intercom.core.notices import cancelled
from intercom.records import Moved
from intercom.wire.pi import replies
from intercom.wire.pi.crossing import envelope_id
from intercom.wire.pi.forms import intercom_row
from intercom.wire.pi.requests import CancelAsk, CancelMessage, MessageReceipt

_CANCELLED = "E_DELIVERY_CANCELLED"
#: What a pi-intercom sender is told when a line has come so far.
_STATUS = {"shown": "injected", "read": "acknowledged"}


class Recalling:
    """Receipts and cancels of this dialect's clients."""

    def __init__(self, world: World, handover: Handover, carrier: Carrier) -> None:
        self._world = world
        self._carrier = carrier
        self._handover = handover

    def receipt(self, number: int, receiver: Session, said: MessageReceipt) -> None:
        """A receiver says what became of a message: its sender hears it, if it is here."""
        world, message_id = self._world, said.receipt["messageId"]
        self._handover.received(number, message_id)
        for route in world.routes.got(receiver.key, message_id, world.now):
            sender = world.directory.get(route.sender)
            if sender is not None and sender.dialect == INTERCOM:
                frame = replies.message_receipt(world.row(receiver), said.receipt)
                world.say(sender.number, frame)

    def cancel_message(self, number: int, sender: Session | None, said: CancelMessage) -> Work:
        """A sender takes a message back."""
        world, message_id = self._world, said.message_id
        self._handover.expire()
        letter = None if sender is None else world.mailbox.waits(sender.key, message_id)
        if sender is not None and letter is not None:
            reason = "Sender cancelled the queued delivery"
            yield self._handover.give_up(letter, reason, _CANCELLED)
            yield from self._end_ask(sender, message_id)
            world.say(number, replies.delivered(message_id))
            return
        route = None
        if sender is not None:
            route = world.routes.sent(sender.key, message_id, world.now)
        receiver = None if route is None else world.directory.get(route.receiver)
        afar = route is not None and world.directory.is_elsewhere(route.receiver)
        if sender is None or route is None or (receiver is None and not afar):
            reason = "Message cannot be cancelled by this session"
            world.say(number, replies.delivery_failed(message_id, reason))
            return
        if afar:
            self._notify(sender.key, route.receiver, message_id)
        elif receiver is not None and receiver.dialect == INTERCOM:
            row = world.row(sender)
            world.say(receiver.number, replies.cancelled(row, message_id, world.now))
        reason = "Sender cancelled the delivery"
        world.outcomes.amend(sender.key, message_id, FAILED, reason, _CANCELLED)
        letter = world.mailbox.sent(sender.key, message_id)
        if letter is not None:
            yield self._handover.withdraw(letter, _CANCELLED)
        yield from self._end_ask(sender, message_id)
        world.say(number, replies.delivered(message_id))

    def _notify(self, sender: Key, receiver: Key, message_id: str) -> None:
        """A session that speaks lines has the message in its inbox: it hears that it is void."""
        about = envelope_id(message_id)
        text, details = cancelled(inbox_of(sender), message_id)
        self._world.do(Notice(inbox_of(receiver), text, about, details))

    def cancel_line(self, back: TakeBack) -> Work:
        """A session that speaks lines takes a message back.

        What it wrote to a pi session that is not here was not read yet: that is done now.
        """
        world, sender, message_id = self._world, Key(None, back.session), back.message_id
        ask = world.asks.get(sender.scope, message_id)
        if ask is not None and ask.asker == sender:
            world.remove_ask(ask)
            to = back.to_session or inbox_of(ask.target)
            back = msgspec.structs.replace(back, to_session=to)
        route = world.routes.sent(sender, message_id, world.now)
        receiver = None if route is None else world.directory.get(route.receiver)
        if receiver is None and world.mailbox.sent(sender, message_id) is None:
            yield from self._carrier.look(back.to_session)
        letter = world.mailbox.sent(sender, message_id)
        if letter is not None:
            yield self._handover.withdraw(letter, _CANCELLED)
        if receiver is not None and receiver.dialect == INTERCOM:
            session = world.directory.get(sender)
            row = {"id": sender.id} if session is None else session.info
            frame = replies.cancelled(intercom_row(row, world.now), message_id, world.now)
            world.say(receiver.number, frame)
        found = letter is not None or (receiver is not None and not receiver.elsewhere)
        world.do(TookBack(back, found))

    def moved(self, move: Moved) -> None:
        """A session that speaks lines has got what pi sessions wrote to it: they hear it."""
        world = self._world
        status = _STATUS.get(move.state)
        receiver = world.directory.get(Key(None, move.inbox))
        if status is None or receiver is None or not receiver.elsewhere:
            return
        for route in world.afar.reached(move):
            sender = world.directory.get(route.sender)
            if sender is not None and sender.dialect == INTERCOM:
                receipt = {"messageId": route.message_id, "status": status, "timestamp": world.now}
                world.say(sender.number, replies.message_receipt(world.row(receiver), receipt))

    def cancel_ask(self, sender: Session | None, said: CancelAsk) -> Work:
        """An asker waits no longer; nobody is told."""
        if sender is not None:
            yield from self._end_ask(sender, said.message_id)

    def _end_ask(self, sender: Session, message_id: str) -> Work:
        ask = self._world.own_ask(sender, message_id)
        if ask is not None:
            yield self._world.remove_ask(ask)
