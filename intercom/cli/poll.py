"""``intercom poll``: what lies unread, shown first and only then counted as read."""

from __future__ import annotations

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
    :ivar places: where each message begins and ends.
    :ivar cut: whether the last message is shown only in part, and so counts as unread.
    """

    position: Position
    lines: list[bytes] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    places: list[tuple[Position, Position]] = field(default_factory=list)
    damaged: int = 0
    more: bool = False
    cut: bool = False

    def end_with_cut(self, limit: int | None) -> None:
        """Leave out what comes behind the first message that is over the limit."""
        for at, message in enumerate(self.messages):
            if not rendering.fits(message, limit):
                del self.lines[at + 1 :], self.messages[at + 1 :], self.places[at + 1 :]
                self.position = self.places[at][0]
                self.cut = self.more = True
                return


@click.command
@options.session_option
@click.option("--wait", type=options.Seconds(), default=0.0, metavar="SECONDS",
              help="Wait so long for a message if there is none.")  # fmt: skip
@click.option("--peek", is_flag=True, help="Show without counting as read.")
@click.option("--limit", type=options.Whole(1), default=50, show_default=True, metavar="N",
              help="Show at most so many.")  # fmt: skip
@click.option("--full", is_flag=True, help="Show long messages whole where text is no terminal's.")
@click.pass_context
def poll(
    ctx: click.Context, session: str | None, wait: float, peek: bool, limit: int, full: bool
) -> None:
    """Show messages that lie unread. Needs no hub and starts none.

    They count as read once they were written out completely. With --peek they do
    not; say so later: intercom ack POSITION. Text that goes elsewhere than to a
    terminal is cut at 2 KiB a message; one that was cut does not count as read.
    """
    scope = options.scope(ctx)
    own, is_known = scope.reader(session)
    with Inbox(scope.paths, own) as inbox:
        if not peek and is_known:
            inbox.enrol()
        haul = _wait(inbox, limit, time.monotonic() + wait)
        page = output.page(None if full else rendering.MODEL_LIMIT)
        if not scope.as_json:
            haul.end_with_cut(page.limit)
        left = _count_left(inbox, haul.position) if haul.more else 0
        if scope.as_json:
            output.write(_json(haul, left, own, scope.paths.name))
        else:
            hints = _hints(ctx, haul, left, peek, session)
            shown = rendering.messages(haul.messages, time.time(), page)
            output.write_text(shown + "".join(f"{hint}\n" for hint in hints))
        if not peek and (is_known or inbox.size()):
            try:
                inbox.commit(haul.position)
            except IntercomError as error:  # the result has been said; there is no second one
                output.note(f"these messages will be shown again: {error.text}")
                ctx.exit(error.exit_code)


def _json(haul: _Haul, left: int, own: str, channel: str) -> bytes:
    """The result for programs."""
    fields: dict[str, Any] = {
        "count": len(haul.lines),
        "unread": left,
        "session": own,
        "channel": channel,
        "position": _written(haul.position),
    }
    if haul.damaged:
        fields["damaged"] = haul.damaged
    return output.to_json(fields, messages=b"[" + b",".join(haul.lines) + b"]") + b"\n"


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
                begin = Position(batch.next.generation, record.start)
                haul.places.append((begin, haul.position))
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


def _hints(
    ctx: click.Context, haul: _Haul, left: int, peek: bool, session: str | None
) -> list[str]:
    """What else there is to say, and what may be done next."""
    own = ["--session", session] if session else []
    said = [] if haul.messages else ["nothing unread"]
    if haul.damaged:
        said.append(f"{rendering.counted(haul.damaged, 'damaged line')} passed over")
    if haul.cut:
        past = _written(haul.places[-1][1])
        whole = options.again(ctx, "poll", "--full", "--limit", "1", *own)
        skip = options.again(ctx, "ack", past, *own)
        said.append(f"cut, and so not counted as read; see it whole: {whole}; or skip it: {skip}")
    more = left - 1 if haul.cut else left
    if more:
        said.append(f"{more} more")
    if peek and len(haul.messages) > haul.cut:
        done = options.again(ctx, "ack", _written(haul.position), *own)
        said.append(f"not counted as read; when done: {done}")
    return said


def _written(position: Position) -> str:
    """A position as ``intercom ack`` takes it."""
    return f"{position.generation}:{position.offset}"
