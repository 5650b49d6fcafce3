"""``intercom poll``: what lies unread, shown first and only then counted as read."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from typing import Any

import click

from intercom.cli import options, output, rendering
from intercom.errors import IntercomError, ProtocolError
from intercom.records import Position
from intercom.spool.files import Inbox
from intercom.wire import envelope

#: Seconds between two looks at the file: from the first to the second, doubling.
LOOK_FIRST, LOOK_LAST = 0.005, 0.05


@dataclass(slots=True)
class _Haul:
    """What was found.

    :ivar position: behind the last line looked at: there the next poll begins.
    """

    position: Position
    lines: list[bytes] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    damaged: int = 0
    more: bool = False


@click.command
@options.session_option
@click.option("--wait", type=click.FloatRange(min=0), default=0.0, metavar="SECONDS",
              help="Wait so long for a message if there is none.")  # fmt: skip
@click.option("--peek", is_flag=True, help="Show without counting as read.")
@click.option("--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N",
              help="Show at most so many.")  # fmt: skip
@click.pass_context
def poll(ctx: click.Context, session: str | None, wait: float, peek: bool, limit: int) -> None:
    """Show messages that lie unread. Needs no hub and starts none.

    They count as read once they were written out completely. With --peek they do
    not; say so later: intercom ack POSITION.
    """
    scope = options.scope(ctx)
    own = scope.session(session)
    with Inbox(scope.paths, own) as inbox:
        if not peek:
            inbox.enrol()
        haul = _wait(inbox, limit, time.monotonic() + wait)
        left = _count_left(inbox, haul.position) if haul.more else 0
        position = f"{haul.position.generation}:{haul.position.offset}"
        if scope.as_json:
            fields: dict[str, Any] = {
                "count": len(haul.lines),
                "unread": left,
                "session": own,
                "channel": scope.paths.name,
                "position": position,
            }
            if haul.damaged:
                fields["damaged"] = haul.damaged
            shown = output.to_json(fields, messages=b"[" + b",".join(haul.lines) + b"]") + b"\n"
        else:
            shown = _text(haul, left, position if peek else "").encode("utf-8", "backslashreplace")
        output.write(shown)
        if not peek:
            try:
                inbox.commit(haul.position)
            except IntercomError as error:  # the result has been said; there is no second one
                output.note(f"these messages will be shown again: {error.text}")
                ctx.exit(error.exit_code)


def _wait(inbox: Inbox, limit: int, deadline: float) -> _Haul:
    """Read what is there; if that is nothing, look again when the file changes."""
    pause, seen = LOOK_FIRST, -1
    while True:
        size = inbox.size()
        if size != seen:
            haul = _read(inbox, limit)
            seen, pause = size, LOOK_FIRST
        left = deadline - time.monotonic()
        if haul.lines or left <= 0:
            return haul
        time.sleep(min(pause, left))
        pause = min(pause * 2, LOOK_LAST)


def _read(inbox: Inbox, limit: int) -> _Haul:
    """Read up to ``limit`` messages behind the stored position."""
    batch = inbox.read()
    if batch.warning:
        output.note(batch.warning)
    haul = _Haul(batch.start)
    while True:
        haul.damaged += len(batch.damaged)
        for record in batch.records:
            if len(haul.lines) == limit:
                haul.more = True
                return haul
            haul.position = Position(batch.next.generation, record.end)
            try:
                haul.messages.append(envelope.parse(record.line))
                haul.lines.append(record.line)
            except ProtocolError:
                haul.damaged += 1
        haul.position = batch.next
        if batch.at_end:
            return haul
        batch = inbox.read(batch.next)


def _count_left(inbox: Inbox, position: Position) -> int:
    """How many messages lie behind a position."""
    count = 0
    while True:
        batch = inbox.read(position)
        count += len(batch.records)
        if batch.at_end:
            return count
        position = batch.next


def _text(haul: _Haul, left: int, position: str) -> str:
    """The result for a person."""
    width = shutil.get_terminal_size().columns
    parts = [rendering.message(one, time.time(), width) for one in haul.messages]
    if not parts:
        parts.append("nothing unread\n")
    if haul.damaged:
        parts.append(f"({haul.damaged} damaged lines passed over)\n")
    if left:
        parts.append(f"({left} more)\n")
    if position:
        parts.append(f"(not counted as read; when done: intercom ack {position})\n")
    return "\n".join(parts)
