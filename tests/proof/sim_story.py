"""What the agents of a simulation saw, as events for the checker that also judges storms."""

from __future__ import annotations

import json
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from intercom.records import Position

#: Generation, first and last byte; None where a hub pushed, which tells no places.
Place = tuple[int, int, int] | None


class Story:
    """Gathers events (``checker.py`` says what they mean).

    :ivar events: in no order.
    """

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self._sends = 0

    def poll(
        self,
        inbox: str,
        who: str,
        now: int,
        lines: Iterable[tuple[Place, bytes]],
        start: str = "stored",
    ) -> None:
        """Somebody was given lines of an inbox."""
        records = []
        for place, line in lines:
            message_id, digest = _known(line)
            records.append([*(place or (None, None, None)), message_id, digest])
        self._add(now, f"{inbox} by {who}", "poll", inbox=inbox, since=now, records=records)
        self.events[-1]["from"] = start

    def commit(self, inbox: str, now: int, position: Position) -> None:
        """A stored position has moved."""
        self._add(now, f"{inbox}'s hub", "commit", inbox=inbox, since=now, position=[*position])

    def send(self, who: str, message_id: str, line: bytes, to: list[str], end: str) -> None:
        """A message was sent, and this is the last that its sender heard. In order of sending."""
        self._sends += 1
        now = self._sends - 1_000_000_000
        digest = _known(line)[1]
        self._add(now, who, "send", kind="invoke", id=message_id, to=to, digest=digest)
        self._add(now, who, "send", kind=end, id=message_id)

    def _add(self, now: int, who: str, op: str, kind: str = "ok", **more: Any) -> None:
        self.events.append({"t": now, "who": who, "kind": kind, "op": op, **more})


def _known(line: bytes) -> tuple[str, str]:
    """A line's id, and what is the same for the same message, however it is written."""
    said = json.loads(line)
    content = json.dumps(said, sort_keys=True).encode()
    return said["id"], blake2b(content, digest_size=8).hexdigest()
