"""``send`` of pi-subagents clients: plain rules, plain answers, nothing remembered.

Their own broker knows no codes, no mailbox for who is not here, and no message twice: what
they send again is delivered again.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from intercom.core.bus.asks import Ask
from intercom.core.bus.delivering import Delivering
from intercom.core.bus.directory import Session
from intercom.core.bus.judging import NOT_FOUND, Case, Undeliverable, ambiguous, plan_for
from intercom.core.bus.keys import Key
from intercom.core.bus.letters import write
from intercom.core.bus.outcomes import digest_of
from intercom.core.bus.staging import Staged, Staging
from intercom.core.bus.turns import Step, Work
from intercom.core.bus.world import World
from intercom.wire.pi import replies
from intercom.wire.pi.fields import Record
from intercom.wire.pi.messages import fingerprint, is_staged
from intercom.wire.pi.requests import Send

_STAGED = "Queued for replace-mode delivery"


class Fate(NamedTuple):
    """What became of a message; ``reason`` says why it failed or waits."""

    state: Literal["delivered", "queued", "failed"]
    reason: str = ""


class Passing:
    """Sends messages of these clients.

    :ivar staging: what waits for a later one of its thread.
    """

    def __init__(self, world: World, delivering: Delivering) -> None:
        self._world = world
        self._delivering = delivering
        self.staging = Staging(world, self._bring)

    def send(self, number: int, sender: Session, request: Send) -> Work:
        """Send a message; the connection hears what became of it."""
        world, message = self._world, request.message
        found = world.directory.find(request.to, sender.key.scope, prefixes=False)
        if len(found) == 1:
            world.touch(sender, mail=True)
            fate = yield from self.pass_on(sender, found[0], message)
        else:
            reason = ambiguous(request.to) if found else NOT_FOUND[0]
            fate = Fate("failed", reason)
        self._tell(number, message["id"], fate)

    def pass_on(self, sender: Session, target: Session, message: Record) -> Step[Fate]:
        """Bring a message to a session that is here."""
        world = self._world
        world.prune_asks()
        case = Case(sender, message, self._answered(sender, target.key, message), world.now)
        digest = digest_of(fingerprint(message, target.key.id))
        plan = plan_for(target, digest, plain=True)
        try:
            content, line = self._delivering.written(case, plan)
            if is_staged(message, target.info):
                yield from self.staging.put(case, plan, content, line)
                return Fate("queued", _STAGED)
            yield from self._delivering.deliver(case, plan, content, line)
        except Undeliverable as no:
            return Fate("failed", no.reason)
        return Fate("delivered")

    def _bring(self, staged: Staged) -> Work:
        """Deliver what has waited.

        :raise Undeliverable: nobody got it.
        """
        case, plan, content = staged[:3]
        answers = self._answered(case.sender, plan.target, case.message)
        line = write(content, self._world.channel, plan.digest)
        case = case._replace(answers=answers)
        yield from self._delivering.deliver(case, plan, content, line)

    def _answered(self, sender: Session, target: Key, message: Record) -> Ask | None:
        """The pending ask that a message answers; if it answers none, it is sent all the same."""
        reply_to = message.get("replyTo")
        ask = self._world.asks.get(sender.key.scope, reply_to) if reply_to else None
        if ask is None or (ask.asker, ask.target) != (target, sender.key):
            return None
        return ask

    def _tell(self, number: int, message_id: str, fate: Fate) -> None:
        match fate.state:
            case "delivered":
                frame = replies.delivered(message_id)
            case "queued":
                frame = replies.delivery_queued(message_id, fate.reason)
            case "failed":
                frame = replies.delivery_failed(message_id, fate.reason)
        self._world.say(number, frame)
