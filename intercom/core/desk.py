"""The hub's own inbox: what clients that are denied sockets leave for it.

A message that needs the hub (a broadcast) can be appended to the inbox of ``hub``
like any other line. The hub reads it as a receiver with a cursor reads its own, sends
each message on as if it had come by socket, and moves its stored position only when
the last word about everything read was heard: a hub that dies between is followed by
one that reads it again, and messages are known by their ids. What must be refused
comes back to the sender's inbox as a notice.
"""

from __future__ import annotations

from intercom.core.effects import CommitPosition, Effect
from intercom.core.feeds import Feed
from intercom.core.session import Link
from intercom.messages import Credentials
from intercom.names import HUB
from intercom.records import Position


class Desk:
    """Bookkeeping of the hub's inbox.

    :ivar link: a connection that only the shell answers to; it is nobody's peer.
    :ivar open: messages read of which the last word has not been heard.
    """

    def __init__(self, number: int, now: float) -> None:
        self.link = Link(number, Credentials(), now)
        self.link.session = HUB
        self.link.feed = Feed(HUB, cursor=True)
        self.open = 0
        self._goal: Position | None = None

    def handled(self, position: Position) -> list[Effect]:
        """Everything up to ``position`` was sent on its way."""
        self._goal = position
        return self.news()

    def news(self) -> list[Effect]:
        """Move the stored position if nothing before it is open."""
        if self.open or self._goal is None:
            return []
        goal, self._goal = self._goal, None
        return [CommitPosition(self.link.number, HUB, goal, None)]
