"""``intercom ack``: how far messages were dealt with."""

from __future__ import annotations

import re
from typing import Any

import click

from intercom.cli import options, output
from intercom.client import skipping
from intercom.records import Position
from intercom.showing.words import counted
from intercom.spool.files import Inbox

_POSITION = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")


@click.command
@options.session_option
@click.argument("position", metavar="[POSITION]", required=False)
@click.option("--all", "everything", is_flag=True, help="Everything that is there.")
@click.option("--skip", is_flag=True, help="Pass over them unread; their senders are told.")
@click.pass_context
def ack(
    ctx: click.Context, session: str | None, position: str | None, everything: bool, skip: bool
) -> None:
    """Count messages as read up to POSITION, as poll --peek printed it; or --all.

    With --skip they are passed over instead: never called read, listed by
    intercom dead, and each sender is told.
    """
    if (position is None) != everything:
        raise click.UsageError("say how far: either POSITION, as poll --peek prints it, or --all")
    wanted = _parse(position) if position is not None else None
    scope = options.scope(ctx)
    own, is_known = scope.reader(session)
    fields: dict[str, Any] = {"status": "ok"}
    with Inbox(scope.paths, own) as inbox:
        begin = inbox.read(None, 0).start
        if not is_known and wanted in (None, begin):
            stands = begin  # nothing to count, and nobody to be made known
        elif skip:
            passed = skipping.skip(scope.paths, own, wanted)
            stands, fields["skipped"] = passed.position, passed.number
            if passed.problem:
                output.note(passed.problem)
        else:
            stands = inbox.commit(skipping.end_of(inbox) if wanted is None else wanted)
        fields |= {"position": f"{stands.generation}:{stands.offset}", "unread": inbox.unread()}
    if scope.as_json:
        fields |= {"session": own, "channel": scope.paths.name}
        output.write(output.to_json(fields) + b"\n")
        return
    said = f"read up to {fields['position']}"
    if "skipped" in fields:
        said = f"{counted(fields['skipped'], 'message')} skipped, up to {fields['position']}"
    output.write_text(f"{said}, {fields['unread']} unread\n")


def _parse(text: str) -> Position:
    """Read GENERATION:OFFSET."""
    match = _POSITION.fullmatch(text)
    if match is None:
        raise click.UsageError(f"{text!r} is no position; one looks like 1:2048")
    return Position(int(match[1]), int(match[2]))
