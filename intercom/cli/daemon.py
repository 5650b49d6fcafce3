"""``intercom daemon``: the hub of one channel in the foreground.

What a command starts when no hub answers, and what is typed to have one that stays.
Only this command loads Twisted.
"""

from __future__ import annotations

from typing import Any

import click

from intercom.cli import options, serving, table


@click.command
@options.takes(*table.DAEMON)
@click.pass_context
def daemon(ctx: click.Context, /, **given: Any) -> int:
    """Run the hub of a channel until SIGTERM, SIGINT or a hang-up; then exit 0.

    What the options say is kept for the channel's later hubs: see intercom config.
    Also 0 if another hub leads the channel already: it is named. 73 if an address,
    file or directory cannot be taken, with the reason.
    """
    return serving.work(options.given(ctx), **given)
