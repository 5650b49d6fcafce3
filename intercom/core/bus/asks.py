"""Asks: who waits for whose answer. Only an answer, a cancel or time ends one."""

from __future__ import annotations

from typing import Any

import msgspec

from intercom.core.bus.keys import Key
from intercom.wire.pi.crossing import envelope_id


class Ask(msgspec.Struct):
    """A message that waits for its answer; both sessions are of one scope.

    :ivar expires: it is given up after this time.
    """

    message_id: str
    asker: Key
    target: Key
    created: int
    expires: int


class Asks:
    """Pending asks by scope and message id. They outlive connections, and the hub itself."""

    def __init__(self) -> None:
        self._asks: dict[tuple[str | None, str], Ask] = {}
        self._between: dict[tuple[Key, Key], set[str]] = {}

    def __len__(self) -> int:
        return len(self._asks)

    def get(self, scope: str | None, message_id: str) -> Ask | None:
        """The pending ask of this id."""
        return self._asks.get((scope, message_id))

    def add(self, ask: Ask) -> None:
        """An ask is pending; one of the same id is replaced."""
        self.remove(ask)
        self._asks[ask.asker.scope, ask.message_id] = ask
        self._between.setdefault((ask.asker, ask.target), set()).add(ask.message_id)

    def remove(self, ask: Ask) -> None:
        """It waits no longer. Idempotent."""
        known = self._asks.pop((ask.asker.scope, ask.message_id), None)
        if known is None:
            return
        pair = (known.asker, known.target)
        self._between[pair].discard(known.message_id)
        if not self._between[pair]:
            del self._between[pair]

    def waits(self, asker: Key, target: Key, but: str | None) -> bool:
        """Whether ``asker`` waits for an answer of ``target``, one ask left out of it."""
        return bool(self._between.get((asker, target), set()) - {but})

    def answered(self, asker: Key, target: Key, reply_to: str) -> Ask | None:
        """The ask of this pair that an envelope's ``reply_to`` means."""
        ids = self._between.get((asker, target), ())
        found = next((one for one in ids if envelope_id(one) == reply_to), None)
        return None if found is None else self._asks[asker.scope, found]

    def prune(self, now: int) -> list[Ask]:
        """Give up the asks whose time is over; those."""
        over = [ask for ask in self._asks.values() if now > ask.expires]
        for ask in over:
            self.remove(ask)
        return over


def record_of(ask: Ask, asker: str | None, target: str | None, question: str) -> dict[str, Any]:
    """What the file of a pending ask holds, in this order.

    :param asker: its name, if it has one; ``target``: the same.
    """
    return {
        "askId": ask.message_id,
        "messageId": ask.message_id,
        "asker": {"sessionId": ask.asker.id, "name": asker},
        "target": {"sessionId": ask.target.id, "name": target},
        "question": question,
        "createdAt": ask.created,
        "expiresAt": ask.expires,
    }


def ask_of(scope: str | None, record: dict[str, Any]) -> Ask:
    """The ask that a good file tells of.

    :param scope: the hash at the beginning of the file's name.
    """
    return Ask(
        record["messageId"],
        Key(scope, record["asker"]["sessionId"]),
        Key(scope, record["target"]["sessionId"]),
        int(record["createdAt"]),
        int(record["expiresAt"]),
    )
