"""``intercom send``: one message, and what became of it."""

from __future__ import annotations

from typing import Any

import click

from intercom.cli import options, sending, table


@click.command
@options.takes(*table.SEND, argument=table.QUICK["send"].argument)
@click.pass_context
def send(ctx: click.Context, /, **given: Any) -> None:
    """Send a message; its text comes from standard input, byte for byte.

    \b
    intercom send --to api <<'EOF'
    Any text, `with` $(whatever) "in" it.
    EOF
    """  # noqa: D301  the backspace tells click to keep the lines
    dash = given["dash"]
    if dash not in (None, "-"):
        raise click.UsageError(f"what is {dash!r}? give the text on standard input, or with --text")
    sending.work(options.given(ctx), **given)
