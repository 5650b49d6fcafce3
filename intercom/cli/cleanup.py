"""``intercom cleanup``: remove what the dead left on a channel, or all that sessions have there."""

from __future__ import annotations

import click

from intercom.cli import options, output
from intercom.client import cleaning
from intercom.showing.text import escape
from intercom.showing.words import counted


@click.command
@click.option("--stale", is_flag=True, help="Remove only what dead hubs and commands left.")
@click.option("--force", is_flag=True, help="Although sessions are in use, or messages unread.")
@click.pass_context
def cleanup(ctx: click.Context, stale: bool, force: bool) -> None:
    """Remove the channel's sessions: messages, positions, secrets and names.

    Refuses while a session is in use or a message unread; ends an idle hub first.
    Lock files, settings and the log stay. With --stale only sockets, lists and
    temporary files of the dead go, and a hub that runs is not touched.
    """
    if stale and force:
        raise click.UsageError("--stale removes nothing that --force would be needed for")
    scope = options.scope(ctx)
    swept = cleaning.sweep(scope.paths) if stale else cleaning.clear(scope.paths, force=force)
    if scope.as_json:
        fields = {
            "status": "stale_cleaned" if stale else "cleaned",
            "channel": scope.paths.name,
            "removed": swept.removed,
            "unread": swept.unread,
            "stopped": swept.stopped,
        }
        output.write(output.to_json(fields) + b"\n")
        return
    lines = [f"removed {escape(name)}" for name in swept.removed] or ["nothing to remove"]
    if swept.stopped:
        lines.insert(0, f"ended the hub, pid {swept.stopped}")
    if swept.unread:
        lines.append(f"{counted(swept.unread, 'unread message')} removed with these")
    output.write_text("\n".join(lines) + "\n")
