"""Who gets a message, and why nobody does.

Checks come in the order of pi-intercom's own broker, since the first that fails gives the
reason.
"""

from __future__ import annotations

from typing import NamedTuple

from intercom.core.bus.asks import Ask
from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import Absent, Identity, Session
from intercom.core.bus.handover import Handover
from intercom.core.bus.keys import Key
from intercom.core.bus.outcomes import Outcome, digest_of
from intercom.core.bus.world import World
from intercom.wire.pi.fields import Record
from intercom.wire.pi.messages import fingerprint
from intercom.wire.pi.requests import Send


class Undeliverable(Exception):
    """A message goes nowhere.

    :ivar digest: then the refusal is remembered for what the message said.
    """

    def __init__(
        self, reason: str, code: str, retryable: bool = False, digest: bytes | None = None
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.retryable = retryable
        self.digest = digest


class Known(Exception):
    """The same message came before; ``outcome`` is what became of it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.state)
        self.outcome = outcome


class Case(NamedTuple):
    """A message that is judged.

    :ivar answers: the pending ask that it answers. :ivar received: epoch ms.
    """

    sender: Session
    message: Record
    answers: Ask | None
    received: int


class Plan(NamedTuple):
    """A message that will be delivered to ``target``.

    :ivar addressed: by what a target that is not here will be known again.
    :ivar label: the target's name, for the file of an ask.
    :ivar receiver: the target as it is here; None if it is not.
    :ivar plain: by pi-subagents' rules: it is delivered even if the same was before, and
        nothing stays for a target that left meanwhile.
    :ivar elsewhere: others bring it from the inbox to the target.
    """

    target: Key
    addressed: Identity
    label: str | None
    digest: bytes
    receiver: Session | None
    plain: bool = False
    elsewhere: bool = False

    @property
    def live(self) -> bool:
        """The target is here."""
        return self.receiver is not None


def plan_for(target: Session, digest: bytes, plain: bool = False) -> Plan:
    """The plan for a target that is here: for it alone, and nobody of its name."""
    label = target.info.get("name")
    elsewhere = target.elsewhere
    return Plan(target.key, Identity(), label, digest, target, plain, elsewhere)


REUSED = ("Message id was reused with different authored content", "E_MESSAGE_ID_REUSE")
NO_ASK = ("Reply target does not match a pending ask", "E_REPLY_TARGET")
OTHER_ASK = ("Reply target does not match the pending ask", "E_REPLY_TARGET")
GONE = ("Recipient disconnected before delivery", "E_TARGET_DISCONNECTED")
NOT_FOUND = ("Session not found", "E_TARGET_NOT_FOUND")


def ambiguous(name: str) -> str:
    """Why nobody gets what is for one of several sessions of a name."""
    return f'Multiple sessions named "{name}" are connected. Use the session ID instead.'


class Judge:
    """Judges messages."""

    def __init__(self, world: World, carrier: Carrier, handover: Handover) -> None:
        self._world = world
        self._carrier = carrier
        self._handover = handover

    def judge(self, case: Case, request: Send) -> Plan:
        """Find out who gets it.

        :raise Undeliverable: nobody. :raise Known: whoever got it before.
        """
        directory, scope = self._world.directory, case.sender.key.scope
        if request.target is not None:
            self._check_exact(case, *request.target)
        found = directory.find(request.to, scope)
        if len(found) == 1:
            return self._judge_live(case, found[0])
        if found:
            raise Undeliverable(ambiguous(request.to), "E_AMBIGUOUS_TARGET")
        self._carrier.forget_absent()
        gone = directory.find_absent(request.to, scope)
        if len(gone) == 1:
            return self._judge_absent(case, gone[0])
        if gone:
            raise Undeliverable(
                f'Multiple disconnected sessions named "{request.to}" can receive queued mail. '
                "Use the session ID instead.",
                "E_AMBIGUOUS_TARGET",
            )
        raise Undeliverable(*NOT_FOUND)

    def _check_exact(self, case: Case, target_id: str, epoch: str) -> None:
        digest = self._replay(case, target_id)
        target = self._world.directory.get(Key(case.sender.key.scope, target_id))
        if target is None:
            raise Undeliverable(*NOT_FOUND, digest=digest)
        if target.endpoint != epoch:
            reason = "Target endpoint changed before delivery"
            raise Undeliverable(reason, "E_TARGET_REBOUND", retryable=True, digest=digest)

    def _replay(self, case: Case, target_id: str) -> bytes:
        """The hash of what is said, if it is new.

        :raise Known: it is not.
        """
        world = self._world
        digest = digest_of(fingerprint(case.message, target_id))
        outcome = world.outcomes.recall(case.sender.key, case.message["id"], world.now)
        if outcome is None:
            return digest
        if outcome.digest != digest:
            raise Undeliverable(*REUSED)
        if outcome.code == "E_TARGET_REBOUND" and outcome.retryable:
            return digest
        raise Known(outcome)

    def _judge_live(self, case: Case, target: Session) -> Plan:
        message, sender, world = case.message, case.sender.key, self._world
        if message.get("replyTo") and case.answers is None:
            raise Undeliverable(*NO_ASK)
        digest = self._replay(case, target.key.id)
        replaced = message.get("supersedes")
        if replaced and not self._handover.may_supersede(sender, replaced, target.key):
            raise Undeliverable(
                "Supersede target does not match a previous message from this sender to this "
                "receiver",
                "E_SUPERSEDE_TARGET",
            )
        self._check_answer(case, target.key)
        if message.get("expectsReply"):
            if world.asks.waits(target.key, sender, but=message.get("replyTo")):
                raise Undeliverable(
                    "Mutual ask refused: target session is already waiting for a reply from "
                    "this session.",
                    "E_MUTUAL_ASK",
                )
            other = world.asks.get(sender.scope, message["id"])
            if other is not None and other.asker != sender:
                raise Undeliverable(*REUSED)  # another's ask has the file of this name
        return plan_for(target, digest)

    def _judge_absent(self, case: Case, target: Absent) -> Plan:
        message = case.message
        if message.get("replyTo") and case.answers is None:
            raise Undeliverable(*NO_ASK)
        digest = self._replay(case, target.key.id)
        if message.get("supersedes"):
            raise Undeliverable("Supersede target is not connected", "E_SUPERSEDE_TARGET")
        self._check_answer(case, target.key)
        if message.get("expectsReply"):
            raise Undeliverable(
                "Target session is not currently connected; blocking asks are not queued",
                "E_TARGET_DISCONNECTED",
            )
        heir = self._world.directory.heir(target, case.sender.key)
        if heir is not None:
            return plan_for(heir, digest)
        elsewhere = target.elsewhere
        return Plan(target.key, target.identity, None, digest, None, elsewhere=elsewhere)

    def _check_answer(self, case: Case, target: Key) -> None:
        """An answer goes from whom was asked to who asked."""
        ask = case.answers
        if ask is not None and (ask.target != case.sender.key or ask.asker != target):
            raise Undeliverable(*OTHER_ASK)
