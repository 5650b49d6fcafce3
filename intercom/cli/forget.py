"""``intercom forget``: remove a name and its files, and tell what was unread."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import click

from intercom.cli import options, output, rendering
from intercom.cli.answering import known
from intercom.client.erasing import Traces
from intercom.client.forgetting import forget as take_away
from intercom.errors import ProtocolError
from intercom.names import check_session
from intercom.paths import ChannelPaths
from intercom.showing.text import label
from intercom.showing.words import counted
from intercom.wire import envelope

#: So many of the unread messages are shown; the others are counted.
SHOWN = 50


@click.command
@click.argument("session", metavar="NAME", shell_complete=options.complete_session)
@click.pass_context
def forget(ctx: click.Context, session: str) -> None:
    """Remove NAME and its files from the channel and the project; show what was unread.

    A name that somebody uses at this moment is not forgotten. What was unread is shown
    before it is deleted, the first 50 messages whole; to read more of it, poll first.
    """
    check_session(session)
    scope = options.scope(ctx)
    traces = take_away(scope.paths, scope.names(), session)
    lines, senders = _unread(traces)
    total = senders.total()
    if scope.as_json:
        fields: dict[str, Any] = {
            "status": "forgotten",
            "session": session,
            "channel": scope.paths.name,
            "unread": total,
            "senders": dict(senders.most_common()),
        }
        shown = b"[" + b",".join(lines) + b"]"
        output.write(output.to_json(fields, messages=shown) + b"\n")
    else:
        output.write_text(_text(scope.paths, session, lines, total))
    traces.bury()


def _unread(traces: Traces) -> tuple[list[bytes], Counter[str]]:
    """What was unread: the first messages, and how many there are from whom."""
    lines: list[bytes] = []
    senders: Counter[str] = Counter()
    for line in traces.lines_aside():
        try:
            message = envelope.parse(line)
        except ProtocolError:
            continue  # no message; it would have been passed over when reading, too
        senders[str(message.get("from_session"))] += 1
        if len(lines) < SHOWN:
            lines.append(line)
    return lines, senders


def _text(paths: ChannelPaths, session: str, lines: list[bytes], total: int) -> str:
    """The result for people and models."""
    name = label(session)
    if not total:
        return f"{name} is forgotten; nothing was unread\n"
    found = [envelope.parse(line) for line in lines]
    facts = known(paths, session, lines, found)
    text = rendering.messages(found, time.time(), output.page(), facts).text
    were = f"{counted(total, 'message')} {'was' if total == 1 else 'were'}"
    more = f"({total - len(lines)} more)\n" if total > len(lines) else ""
    return f"{text.rstrip()}\n{more}{name} is forgotten; {were} unread\n"
