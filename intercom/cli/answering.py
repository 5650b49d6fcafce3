"""How whoever reads a message in a shell answers it, and what is known of the message."""

from __future__ import annotations

from intercom.client.attesting import Shown, known_of
from intercom.paths import ChannelPaths
from intercom.showing.blocks import Known, Ways
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from intercom.cli.scope import Given


def ways(given: Given, session: str | None) -> Ways:
    """Commands for the same channel, project and session; how to see all of one says the verb.

    :param session: what ``--session`` said.
    """
    own = ["--session", session] if session else []

    def reply(sender: str, message_id: str | None) -> str:
        answering = ["--reply-to", message_id] if message_id else []
        return given.again("send", *own, "--to", sender, *answering)

    return Ways(reply)


def known(
    paths: ChannelPaths,
    session: str,
    lines: Sequence[bytes],
    messages: Sequence[dict[str, Any]],
) -> list[Known]:
    """What is known of messages of a session's inbox, in their order."""
    shown = [Shown(*one) for one in zip(lines, messages, strict=True)]
    return known_of(paths, session, shown)
