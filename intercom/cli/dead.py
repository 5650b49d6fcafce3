"""``intercom dead``: messages that were given up without having been read."""

from __future__ import annotations

import time
from typing import Any

import click

from intercom.cli import options, output
from intercom.showing.text import label
from intercom.showing.words import ago
from intercom.spool.deadletters import DeadLetters


@click.command
@click.option("--limit", type=options.Whole(1), default=50, show_default=True, metavar="N",
              help="Show at most so many, the newest.")  # fmt: skip
@click.pass_context
def dead(ctx: click.Context, limit: int) -> None:
    """Show what expired, was skipped, or could not be kept; the newest last.

    As JSON with the messages themselves, unless they were too large to be kept.
    """
    scope = options.scope(ctx)
    letters = DeadLetters(scope.paths).read(limit)
    if scope.as_json:
        fields = {"channel": scope.paths.name, "count": len(letters), "letters": letters}
        output.write(output.to_json(fields) + b"\n")
        return
    now = time.time()
    rows = [_row(letter, now) for letter in letters]
    widths = [max((len(row[column]) for row in rows), default=0) for column in (0, 1)]
    lines = [f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]}\n" for row in rows]
    output.write_text("".join(lines) or "nothing was given up unread\n")


def _row(letter: dict[str, Any], now: float) -> tuple[str, str, str]:
    """When, why, and which message."""
    at = letter.get("at")
    when = ago(max(0.0, now - at)) if isinstance(at, int | float) else "-"
    why = " ".join(str(letter[name]) for name in ("why", "code") if letter.get(name))
    message_id = letter.get("id")
    which = "a message without an id" if message_id is None else label(message_id)
    sender = label("unknown" if letter.get("from") is None else letter["from"])
    return when, why, f"{which} from {sender} to {label(letter.get('inbox'))}"
