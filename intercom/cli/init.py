"""``intercom init``: take a place on the channel."""

from __future__ import annotations

import os
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.name import claimed, described, warn_of_former
from intercom.client import skipping
from intercom.client.control import look
from intercom.client.identity import Identity
from intercom.client.spawn import ensure_hub
from intercom.client.tokens import own_token
from intercom.election.locks import is_original
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths, file_level
from intercom.showing.text import label
from intercom.showing.words import counted
from intercom.spool.files import Inbox


@click.command
@click.option(
    "--fresh/--no-fresh", default=True, help="Skip what lies unread (nothing is deleted), or not."
)
@click.option("--name", metavar="ID", help="Be called so, in this project, from now on.")
@click.option("--force-new", is_flag=True, help="Have another name drawn for you.")
@click.pass_context
def init(ctx: click.Context, fresh: bool, name: str | None, force_new: bool) -> None:
    """Take a place on the channel: a name, an inbox, and a running hub.

    Prints who you are. Your name stays yours in this project (.intercom/session.json).
    """
    scope = options.scope(ctx)
    who = scope.use(_named(scope, name, force_new))
    own_token(scope.paths, who.session)
    skipped = 0
    with Inbox(scope.paths, who.session) as inbox:
        inbox.enrol()
    if fresh:
        passed = skipping.skip(scope.paths, who.session)
        skipped = passed.number
        if passed.problem:
            output.note(passed.problem)
    warn_of_former(scope, who)
    result: dict[str, Any] = {
        "status": "ready",
        "channel": scope.paths.name,
        "session_id": who.session,
        "name": who.persona.name,
        "title": who.persona.title,
        "ship": who.persona.ship,
        "is_sticky": who.sticky,
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
    left = f", {counted(skipped, 'older message')} skipped" if skipped else ""
    is_of = described(who.persona)
    said = f" ({is_of})" if is_of else ""
    output.write_text(f"{label(who.session)}{said} is ready on channel {scope.paths.name}{left}\n")


def _named(scope: options.Scope, name: str | None, force_new: bool) -> Identity:
    """Who this is to be."""
    if name is not None and force_new:
        raise click.UsageError("either --name says the name, or --force-new has one drawn")
    names = scope.names()
    if force_new and names.given(None):
        raise click.UsageError(
            f"INTERCOM_SESSION says that you are {os.environ['INTERCOM_SESSION']!r}; "
            f"unset it to have a name drawn"
        )
    if name is not None:
        return claimed(scope, names, name, ("init", "--name"))
    return names.draw_another() if force_new else names.speaker()


def _reach(paths: ChannelPaths) -> str:
    """Make sure that a hub answers: ``hub``, or ``spool`` where this process has to do without.

    :raise IntercomError: one was started and could not run.
    """
    try:
        reached = ensure_hub(paths)
        if is_original(paths):  # which would take the question for somebody's arrival
            reached.close()
        else:
            look(paths, reached=reached)
    except IntercomError as error:
        cause = error.details.get("cause")
        if cause == "failed" or not (isinstance(error, HubUnavailable) or error.retryable):
            raise
        helps = f"\n  {error.remedy}" if cause == "silent" and error.remedy else ""
        output.note(
            f"{error.text}\n  direct messages and poll work through the inbox files meanwhile"
            f"{helps}"
        )
        return "spool"
    return "hub"
