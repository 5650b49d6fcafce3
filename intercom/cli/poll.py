"""``intercom poll``: what lies unread, shown first and only then counted as read."""

from __future__ import annotations

from typing import Any

import click

from intercom.cli import options, polling, table


@click.command
@options.takes(*table.POLL)
@click.pass_context
def poll(ctx: click.Context, /, **given: Any) -> int | None:
    """Show messages that lie unread, the oldest first. Needs no hub and starts none.

    They count as read once they were written out completely. With --peek they do
    not; say so later: intercom ack POSITION. Text that goes elsewhere than to a
    terminal is cut at 2 KiB a message, and ends after 8 KiB; what was cut or left
    out does not count as read.
    Of several at once one reads; the others are told who that is.
    """
    return polling.work(options.given(ctx), **given)
