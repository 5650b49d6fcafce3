"""``intercom hook``: what a host of agents runs at certain moments."""

from __future__ import annotations

import click

from intercom.cli import hooking, options


@click.command
@click.argument("host")
@click.argument("event")
@click.pass_context
def hook(ctx: click.Context, host: str, event: str) -> None:
    """Tell an agent that mail waits, at an EVENT of its HOST. For the host's configuration.

    Takes the host's JSON on standard input, and prints the host's JSON, or nothing.
    Names and numbers only, never what a message says. Reads files only: needs no hub
    and waits for none. Its status is 0 whatever happens.

    \b
    claude user-prompt-submit    before each prompt
    claude stop                  as the agent ends its turn, which then goes on
    """  # noqa: D301  the backspace tells click to keep the lines
    command = options.again(ctx, "poll", "--format", "text")
    hooking.work(host, event, options.settings(ctx), command)
