"""What became of messages, by sender and id: a repetition gets the first answer.

Only a hash of what a message said is kept. Window: an hour, at most 4096 messages a sender.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from intercom.core.bus.keys import Key

KEEP_MS = 60 * 60 * 1000
MAX_OF_A_SENDER = 4096
#: All senders together, so that ids drawn anew do not add up.
MAX_OUTCOMES = 65536

DELIVERED, QUEUED, FAILED, UNDER_WAY = "socket_delivered", "queued", "failed", "under way"


class Outcome(msgspec.Struct):
    """What became of a message.

    :ivar digest: of what it said, and to whom.
    :ivar state: one of the four above; ``reason`` and ``code`` for ``failed``.
    :ivar retryable: the same message may be sent again and is judged anew.
    """

    digest: bytes
    state: str
    at: int
    reason: str = ""
    code: str = ""
    retryable: bool = False


def digest_of(said: str) -> bytes:
    """The hash that stands for what a message said."""
    return blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Outcomes:
    """Outcomes of the last hour, the oldest first."""

    def __init__(self) -> None:
        self._known: dict[tuple[Key, str], Outcome] = {}
        self._of: dict[Key, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def recall(self, sender: Key, message_id: str, now: int) -> Outcome | None:
        """What is known of a message."""
        self._prune(now)
        return self._known.get((sender, message_id))

    def record(self, sender: Key, message_id: str, outcome: Outcome) -> None:
        """It is decided, or under way; replaces what was known."""
        self._prune(outcome.at)
        self.forget(sender, message_id)
        own = self._of.setdefault(sender, {})
        if len(own) >= MAX_OF_A_SENDER:
            self.forget(sender, next(iter(own)))
        elif len(self._known) >= MAX_OUTCOMES:
            self.forget(*next(iter(self._known)))
        self._of.setdefault(sender, {})[message_id] = None
        self._known[sender, message_id] = outcome

    def amend(
        self, sender: Key, message_id: str, state: str, reason: str = "", code: str = ""
    ) -> None:
        """What is known turned out otherwise: cancelled, expired, or delivered at last."""
        outcome = self._known.get((sender, message_id))
        if outcome is not None and outcome.state != UNDER_WAY:
            outcome.state, outcome.reason, outcome.code = state, reason, code
            outcome.retryable = False

    def forget(self, sender: Key, message_id: str) -> None:
        """It may be sent as if for the first time. Idempotent."""
        if self._known.pop((sender, message_id), None) is not None:
            own = self._of[sender]
            del own[message_id]
            if not own:
                del self._of[sender]

    def _prune(self, now: int) -> None:
        while self._known:
            (sender, message_id), oldest = next(iter(self._known.items()))
            if now - oldest.at <= KEEP_MS:
                return
            self.forget(sender, message_id)
