"""Which message went from whom to whom: for receipts, cancels and supersedes.

Kept for an hour, and no longer than both sessions keep their connections.
"""

from __future__ import annotations

from typing import NamedTuple

from intercom.core.bus.keys import Key

KEEP_MS = 60 * 60 * 1000
#: So many messages of one sender can be spoken of.
MAX_OF_A_SENDER = 4096


class Route(NamedTuple):
    """One message that was written to its receiver."""

    sender: Key
    receiver: Key
    message_id: str
    at: int


class Routes:
    """Routes by sender and id, and by receiver and id; nobody's can be taken by another."""

    def __init__(self) -> None:
        self._sent: dict[Key, dict[str, Route]] = {}
        self._got: dict[Key, dict[str, dict[Key, Route]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sent.values()))

    def add(self, route: Route) -> None:
        """A message was written to its receiver."""
        self.remove(route.sender, route.message_id)
        sent = self._sent.setdefault(route.sender, {})
        if len(sent) >= MAX_OF_A_SENDER:
            self.remove(route.sender, next(iter(sent)))
            sent = self._sent.setdefault(route.sender, {})
        sent[route.message_id] = route
        got = self._got.setdefault(route.receiver, {})
        got.setdefault(route.message_id, {})[route.sender] = route

    def sent(self, sender: Key, message_id: str, now: int) -> Route | None:
        """Where a message of this sender went."""
        route = self._sent.get(sender, {}).get(message_id)
        return route if route is not None and now - route.at <= KEEP_MS else None

    def got(self, receiver: Key, message_id: str, now: int) -> list[Route]:
        """Whose message of this id a receiver has."""
        routes = self._got.get(receiver, {}).get(message_id, {}).values()
        return [route for route in routes if now - route.at <= KEEP_MS]

    def remove(self, sender: Key, message_id: str) -> None:
        """Nothing can be said of a message any more. Idempotent."""
        sent = self._sent.get(sender)
        route = sent.pop(message_id, None) if sent is not None else None
        if route is None:
            return
        if not sent:
            del self._sent[sender]
        got = self._got[route.receiver]
        del got[message_id][sender]
        if not got[message_id]:
            del got[message_id]
        if not got:
            del self._got[route.receiver]

    def clear(self, session: Key) -> None:
        """A session left, or has another connection now."""
        for message_id in list(self._sent.get(session, ())):
            self.remove(session, message_id)
        got = self._got.get(session, {})
        for route in [route for routes in got.values() for route in routes.values()]:
            self.remove(route.sender, route.message_id)

    def prune(self, now: int) -> None:
        """Forget what is older than an hour."""
        for sender, routes in list(self._sent.items()):
            while routes:
                oldest = next(iter(routes.values()))
                if now - oldest.at <= KEEP_MS:
                    break
                self.remove(sender, oldest.message_id)
