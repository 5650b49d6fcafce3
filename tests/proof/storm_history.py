"""What the clients of a storm write down, each in a file of its own: one JSON object a line.

Every event is one ``write`` to a file opened for appending, so that it is there or not,
whenever its writer is killed. What the events mean is said in ``checker.py``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

from intercom.records import Batch, Position, Record
from intercom.wire.envelope import identify


def digest(line: bytes) -> str:
    """By which two lines are told apart."""
    return blake2b(line, digest_size=8).hexdigest()


def id_of(line: bytes) -> str:
    """The id of a message, or what there is instead in a line that is none."""
    found = identify(line)
    return found.message_id if found is not None else f"no message: {line[:60]!r}"


class History:
    """The history of one client process; ``who`` is never used by another."""

    def __init__(self, directory: str | Path, who: str) -> None:
        self.who = who
        path = os.path.join(directory, f"{who}.ndjson")
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def tell(self, kind: str, op: str, **fields: Any) -> None:
        """Write one event."""
        event = {"t": time.monotonic(), "who": self.who, "kind": kind, "op": op, **fields}
        os.write(self._fd, json.dumps(event).encode() + b"\n")

    def sending(self, message_id: str, to: Iterable[str], line: bytes) -> None:
        """A message is about to be sent for the first time."""
        self.tell("invoke", "send", id=message_id, to=list(to), digest=digest(line))

    def sent(self, message_id: str, kind: str) -> None:
        """What became of it: ``ok`` for stored, ``fail`` for refused, ``info`` for not known."""
        self.tell(kind, "send", id=message_id)

    def read(self, inbox: str, batch: Batch, since: float) -> None:
        """A reader was given what lay behind the stored position."""
        records = [_known(batch.next.generation, record) for record in batch.records]
        damaged = [[batch.next.generation, span.start, span.end] for span in batch.damaged]
        self._polled(inbox, "stored", records, damaged, since)

    def pushed(self, inbox: str, line: bytes) -> None:
        """A listener was given one message, which it will count as read."""
        record = [None, None, None, id_of(line), digest(line)]
        self._polled(inbox, "stored", [record], [], time.monotonic())

    def shown(self, inbox: str, line: bytes, since: float) -> None:
        """A command showed one message."""
        record = [None, None, None, id_of(line), digest(line)]
        self._polled(inbox, "stored", [record], [], since)

    def observed(self, inbox: str, generation: int, content: bytes) -> None:
        """Somebody looked at a whole inbox file, without being its reader.

        The lines are cut here and not by the product: a fault there must not hide itself.
        """
        records: list[list[Any]] = []
        damaged: list[list[int]] = []
        start = 0
        for piece in content.split(b"\n")[:-1]:
            end = start + len(piece) + 1
            if identify(piece) is not None:
                records.append(_known(generation, Record(start, end, piece)))
            elif piece:
                damaged.append([generation, start, end])
            start = end
        self._polled(inbox, "start", records, damaged, time.monotonic())

    def committed(self, inbox: str, position: Position | None, since: float) -> None:
        """A reader has acknowledged; ``position`` is what is stored, None for all it was shown."""
        place = None if position is None else list(position)
        self.tell("ok", "commit", inbox=inbox, position=place, since=since)

    def led(self, key: str, begin: float, end: float, leader: str = "") -> None:
        """Somebody, or we ourselves, led from ``begin`` until ``end``."""
        fields = {"key": key, "begin": begin, "end": end, "leader": leader or self.who}
        self.tell("ok", "lead", **fields)

    def killed(self, what: str) -> None:
        """The driver has killed a process."""
        self.tell("ok", "kill", what=what)

    def _polled(
        self,
        inbox: str,
        source: str,
        records: Sequence[list[Any]],
        damaged: Sequence[list[int]],
        since: float,
    ) -> None:
        fields = {"from": source, "since": since, "records": records, "damaged": damaged}
        self.tell("ok", "poll", inbox=inbox, **fields)


def _known(generation: int, record: Record) -> list[Any]:
    """A record as histories have it."""
    line = record.line
    return [generation, record.start, record.end, id_of(line), digest(line)]


def load(directory: str | Path) -> list[dict[str, Any]]:
    """All events of a storm; of a line that its writer did not finish nothing is made."""
    events: list[dict[str, Any]] = []
    for path in sorted(Path(directory).glob("*.ndjson")):
        lines = path.read_bytes().split(b"\n")[:-1]
        events += [json.loads(line) for line in lines]
    return events
