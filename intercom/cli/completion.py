"""What a shell is offered where a session's name is expected.

Names come from the channel's files: nothing is made, locked, connected to or started.
"""

from __future__ import annotations

import contextlib
import os
import time

import click
from click.shell_completion import CompletionItem

from intercom.cli import options
from intercom.errors import IntercomError
from intercom.spool.calls import FileCalls
from intercom.spool.format import split_name
from intercom.spool.known import sight

#: Beside letters and digits, what a shell takes for a part of a word.
_PLAIN = frozenset("._-+@")


def sessions(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The names that were used on the channel and begin so.

    One that a shell would not take for a plain word is left out, since completing a
    name must never put another command on the line.
    """
    with contextlib.suppress(IntercomError, OSError):
        paths = options.settings(ctx).paths()
        parts = [split_name(name) for name in os.listdir(paths.directory)]
        encoded = {part[1] for part in parts if part is not None and part[0] != "inbox"}
        names = sorted(sight(paths, FileCalls(), encoded, time.time()))
        return [CompletionItem(name) for name in names if _fits(name, incomplete)]
    return []


def _fits(name: str, incomplete: str) -> bool:
    plain = all(character.isalnum() or character in _PLAIN for character in name)
    return plain and name.startswith(incomplete) and name[0] != "-"
