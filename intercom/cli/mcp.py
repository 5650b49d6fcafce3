"""``intercom mcp``: the server of tools that an agent's host starts for its session."""

from __future__ import annotations

import os
import sys

import click

from intercom.cli import options, output
from intercom.paths import ChannelPaths


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

    def find() -> tuple[ChannelPaths, str]:
        found = options.look(ctx)
        return found.paths, found.project

    if os.isatty(output.STDIN):
        output.note("this waits for an agent's host to speak; see: intercom mcp --help")
    return run(Place(find, session, dict(os.environ), output.note), sys.stderr)
