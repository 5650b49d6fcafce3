"""``intercom mcp``: the server of tools that an agent's host starts for its session."""

from __future__ import annotations

import os
import sys

import click

from intercom.cli import options, output


@click.command
@options.session_option
@click.pass_context
def mcp(ctx: click.Context, session: str | None) -> int:
    """Serve an agent's host over standard input and output, until it leaves.

    \b
    Speaks the Model Context Protocol; hosts start it themselves, once a session:
    claude mcp add --scope user intercom -- intercom mcp
    codex mcp add intercom -- intercom mcp

    Its tools are send, inbox, ask and peers. The session is the host's own
    (see intercom name), unless --session or INTERCOM_SESSION says another.
    """  # noqa: D301  the backspace tells click to keep the lines
    from intercom.bridge.main import run
    from intercom.bridge.place import Place

    found = options.look(ctx)
    place = Place(found.paths, found.project, session, dict(os.environ), output.note)
    return run(place, sys.stderr)
