"""Which lines of others' inboxes are messages of pi sessions, until their readers are past them."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from intercom.core.bus.routes import Route
from intercom.records import Moved

#: So many messages in one inbox are followed.
MOST = 1000


class Line(NamedTuple):
    """One message at its place; ``told``: its sender knows that it was shown."""

    generation: int
    start: int
    end: int
    route: Route
    told: bool = False


class Afar:
    """Messages by inbox, in file order."""

    def __init__(self) -> None:
        self._lines: dict[str, deque[Line]] = {}

    def follow(self, inbox: str, generation: int, start: int, end: int, route: Route) -> None:
        """A message stands in an inbox that others look after."""
        lines = self._lines.setdefault(inbox, deque(maxlen=MOST))
        lines.append(Line(generation, start, end, route))

    def reached(self, move: Moved) -> list[Route]:
        """Whose messages have come that far now; of what is read nothing more is heard."""
        lines = self._lines.get(move.inbox)
        if not lines:
            return []
        found, left = [], []
        for line in lines:
            if line.generation < move.generation:
                continue
            if (line.generation, line.end) > (move.generation, move.end):
                left.append(line)
                continue
            if move.state != "shown" or not line.told:
                found.append(line.route)
            if move.state == "shown":
                left.append(line._replace(told=True))
        if left:
            self._lines[move.inbox] = deque(left, maxlen=MOST)
        else:
            del self._lines[move.inbox]
        return found
