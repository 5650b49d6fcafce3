"""``intercom mcp``: the server of tools that an agent's host starts for its session."""

from __future__ import annotations

from typing import Any

import click

from intercom.cli import bridging, options, table


@click.command
@options.takes(*table.MCP)
@click.pass_context
def mcp(ctx: click.Context, /, **given: Any) -> int:
    """Serve an agent's host over standard input and output, until it leaves.

    \b
    Speaks the Model Context Protocol; hosts start it themselves, once a session:
    claude mcp add --scope user intercom -- intercom mcp
    codex mcp add intercom -- intercom mcp

    Its tools are send, inbox, ask and peers. The session is the host's own
    (see intercom name), unless --session or INTERCOM_SESSION says another.
    """  # noqa: D301  the backspace tells click to keep the lines
    return bridging.work(options.given(ctx), **given)
