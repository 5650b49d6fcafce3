"""``intercom init``: take a place on the channel."""

from __future__ import annotations

import os
from typing import Any

import click

from intercom.cli import options, output
from intercom.client import identity
from intercom.client.spawn import ensure_hub
from intercom.client.tokens import own_token
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths, file_level
from intercom.spool.files import Inbox


@click.command
@click.option(
    "--fresh/--no-fresh", default=True, help="Skip what lies unread (nothing is deleted), or not."
)
@click.option("--name", metavar="ID", help="Be called so, in this project, from now on.")
@click.pass_context
def init(ctx: click.Context, fresh: bool, name: str | None) -> None:
    """Take a place on the channel: an identity, an inbox, and a running hub.

    Prints who you are. The identity stays with the project (.intercom/session.json).
    """
    scope = options.scope(ctx)
    session = identity.rename(scope.project, name, os.environ) if name else scope.session(None)
    own_token(scope.paths, session)
    skipped = 0
    with Inbox(scope.paths, session) as inbox:
        inbox.enrol()
        if fresh:
            skipped, _end = inbox.skip_to_end()
    result: dict[str, Any] = {
        "status": "ready",
        "channel": scope.paths.name,
        "session_id": session,
        "project_dir": scope.project,
        "inbox_reset": fresh,
        "skipped": skipped,
        "dir": scope.paths.base,
        "transport": _reach(scope.paths),
    }
    if file_level(scope.paths.directory) == "process":
        output.note(
            f"messages in {scope.paths.base} survive any process, but not a restart of the "
            f"machine\n  for that, choose a place on disk with --dir or INTERCOM_DIR"
        )
    if scope.as_json:
        output.write(output.to_json(result) + b"\n")
        return
    left = f", {skipped} older messages skipped" if skipped else ""
    said = f"{session} is ready on channel {scope.paths.name}{left}\n"
    output.write(said.encode())


def _reach(paths: ChannelPaths) -> str:
    """Make sure that a hub runs: ``hub``, or ``spool`` where this process has to do without.

    :raise IntercomError: one was started and could not run.
    """
    try:
        ensure_hub(paths).close()
    except HubUnavailable as error:
        if error.details.get("cause") == "failed":
            raise
        output.note(
            f"{error.text}\n  direct messages and poll work through the inbox files meanwhile"
        )
        return "spool"
    return "hub"
