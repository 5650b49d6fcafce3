"""``intercom ack``: how far messages were dealt with."""

from __future__ import annotations

import re

import click

from intercom.cli import options, output
from intercom.records import Position
from intercom.spool.files import Inbox

_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


@click.command
@options.session_option
@click.argument("position", metavar="[POSITION]", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that is there.")
@click.pass_context
def ack(ctx: click.Context, session: str | None, position: str | None, everything: bool) -> None:
    """Count messages as read up to POSITION, as poll --peek printed it; or --all."""
    if (position is None) != everything:
        raise click.UsageError("say how far: either POSITION, as poll --peek prints it, or --all")
    wanted = _parse(position) if position is not None else None
    scope = options.scope(ctx)
    own, is_known = scope.reader(session)
    with Inbox(scope.paths, own) as inbox:
        begin = inbox.read().start
        if not is_known and wanted in (None, begin):
            stands = begin  # nothing to count, and nobody to be made known
        elif wanted is None:
            _skipped, stands = inbox.skip_to_end()
        else:
            stands = inbox.commit(wanted)
        unread = inbox.unread()
    where = f"{stands.generation}:{stands.offset}"
    if scope.as_json:
        fields = {
            "status": "ok",
            "position": where,
            "unread": unread,
            "session": own,
            "channel": scope.paths.name,
        }
        output.write(output.to_json(fields) + b"\n")
    else:
        output.write_text(f"read up to {where}, {unread} unread\n")


def _parse(text: str) -> Position:
    """Read GENERATION:OFFSET."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is no position; one looks like 1:2048")
    return Position(int(match[1]), int(match[2]))
