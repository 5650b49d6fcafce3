"""Writing a message that can be sent any number of times. Standard library only."""

from __future__ import annotations

import time

from intercom.client.blocking import new_id
from intercom.errors import ProtocolError
from intercom.levels import LEVELS
from intercom.names import EVERYONE, check_session
from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope

if TYPE_CHECKING:
    from typing import Any


class Letter(NamedTuple):
    """A message ready to be sent, any number of times.

    :ivar line: its bytes, the same in every try.
    :ivar after: size of the recipient's inbox before the first try; what stands there
        cannot be this message. 0 for a broadcast, and for a message that was given its
        id, since an earlier command may have sent it.
    :ivar durability: the level that it asks for, None for the channel's.
    """

    line: bytes
    message_id: str
    sender: str
    to: str
    after: int
    strict: bool = False
    durability: str | None = None

    @property
    def broadcast(self) -> bool:
        """Whether it goes to everybody, and so needs a hub."""
        return self.to in EVERYONE


def compose(
    paths: ChannelPaths,
    sender: str,
    to: str,
    payload: dict[str, Any],
    *,
    reply_to: str | None = None,
    message_id: str | None = None,
    strict: bool = False,
) -> Letter:
    """Write a message, and note how large its recipient's inbox is now.

    :param payload: its member ``durability`` asks for a level, one of ``records.LEVELS``.
    :raise ProtocolError: ``BAD_SESSION_ID``, ``BAD_JSON``, ``LINE_TOO_LONG``, ``BAD_ENVELOPE``.
    """
    after = 0
    durability = _asked_level(payload)
    if to not in EVERYONE:
        check_session(to)
        if message_id is None:
            found = FileCalls().stat(paths.inbox(to))
            after = 0 if found is None else found.st_size
    message_id = new_id() if message_id is None else message_id
    try:
        line = envelope.make(
            type="chat",
            message_id=message_id,
            from_session=sender,
            to_session=to,
            channel=paths.name,
            payload=payload | {"strict": True} if strict else payload,
            timestamp=envelope.format_timestamp(time.time()),
            reply_to=reply_to,
        )
        envelope.parse(line)
    except ProtocolError as error:
        if error.code == "LINE_TOO_LONG":
            error.remedy = (
                "put the text into a file that both can read, and send its path: "
                "intercom send --text PATH"
            )
        raise
    return Letter(line, message_id, sender, to, after, strict, durability)


def _asked_level(payload: dict[str, Any]) -> str | None:
    """The level that a message asks for; refused here as by a hub, for there may be none."""
    level = payload.get("durability")
    if level is None or level in LEVELS:
        return level
    raise envelope.bad_field("payload.durability", f"durability must be one of {', '.join(LEVELS)}")
