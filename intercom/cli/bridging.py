"""What ``intercom mcp`` does, however its command line was read."""

from __future__ import annotations

import os
import sys

from intercom.cli import output
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.cli.scope import Given
    from intercom.paths import ChannelPaths


def work(given: Given, *, session: str | None) -> int:
    """Serve the host at standard input and output until it leaves; see the command's help."""
    from intercom.bridge.main import run
    from intercom.bridge.place import Place

    def find() -> tuple[ChannelPaths, str]:
        found = given.look()
        return found.paths, found.project

    if os.isatty(output.STDIN):
        output.note("this waits for an agent's host to speak; see: intercom mcp --help")
    return run(Place(find, session, dict(os.environ), output.note), sys.stderr)
