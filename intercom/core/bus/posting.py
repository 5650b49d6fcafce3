"""``send`` of pi-intercom clients: judged, remembered, and answered with codes."""

from __future__ import annotations

from intercom.core.bus.delivering import Delivering
from intercom.core.bus.directory import Session
from intercom.core.bus.judging import Case, Judge, Known, Plan, Undeliverable
from intercom.core.bus.letters import Content
from intercom.core.bus.outcomes import DELIVERED, FAILED, QUEUED, UNDER_WAY, Outcome
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.wire.pi.replies import delivery_accepted, delivery_refused
from intercom.wire.pi.requests import Send


class Posting:
    """Sends messages of these clients."""

    def __init__(self, world: World, judge: Judge, delivering: Delivering) -> None:
        self._world = world
        self._judge = judge
        self._delivering = delivering

    def send(self, number: int, sender: Session, request: Send) -> Work:
        """Send a message; the connection hears what became of it."""
        world, message = self._world, request.message
        key, message_id = sender.key, message["id"]
        world.prune_asks()
        reply_to = message.get("replyTo")
        answers = world.asks.get(key.scope, reply_to) if reply_to else None
        case = Case(sender, message, answers, world.now)
        try:
            plan = self._judge.judge(case, request)
            content, line = self._delivering.written(case, plan)
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

    def _deliver(self, number: int, case: Case, plan: Plan, content: Content, line: bytes) -> Work:
        """Carry it out; from here on the sender's connection does not matter."""
        world, key, message_id = self._world, case.sender.key, case.message["id"]
        outcome = Outcome(plan.digest, UNDER_WAY, world.now)
        world.outcomes.record(key, message_id, outcome)
        try:
            letter = yield from self._delivering.deliver(case, plan, content, line)
        except Undeliverable as no:
            outcome.state, outcome.reason, outcome.code = FAILED, no.reason, no.code
            outcome.retryable = no.retryable
            world.outcomes.forget(key, message_id)
            world.turns.answer(("outcome", key, message_id))
            raise
        if outcome.state == UNDER_WAY:
            arrived = plan.live if letter is None else letter.pushed
            outcome.state = DELIVERED if arrived else QUEUED
        world.turns.answer(("outcome", key, message_id))
        self._tell(number, message_id, outcome)
