"""One session that the bridge speaks for: its place, its connection, what it was shown."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import DeferredLock

from intercom.bridge import mail
from intercom.bridge.bell import Bell, Threads
from intercom.bridge.keeper import Keeper
from intercom.bridge.place import Taken
from intercom.client.protocol import HubClient
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.spool.files import Inbox

#: Seconds for which a call waits for the first connection.
CONNECT_WITHIN = 3.0
#: Seconds between two looks at the inbox file by one who waits: connected, and without a hub.
LOOK_CONNECTED, LOOK_ALONE = 2.0, 0.2


class Session:
    """A session of the host's.

    :param reactor: times, timers, sockets.
    :param note: told of what deserves attention.
    :ivar news: rung when something may have come.
    :ivar closed: whether it has left the channel, or is about to.
    :ivar looked_at: when it was last looked whether it is called so still (the reactor's time).
    :ivar reading: held by the one call that has the session's turn, from reading to committing.
    """

    def __init__(
        self, reactor: Any, threads: Threads, taken: Taken, note: Callable[[str], None]
    ) -> None:
        self.reactor = reactor
        self.threads = threads
        self.paths = taken.paths
        self.name = taken.name
        self.token = taken.token
        self.seat = taken.seat
        self.note = note
        self.news = Bell(reactor)
        self.reading = DeferredLock()
        self.inbox = Inbox(taken.paths, taken.name, fence=taken.seat.check)
        self.keeper = Keeper(reactor, threads, taken.paths, taken.name, taken.token, self.news)
        self._taken = taken
        self.closed = False
        self.looked_at = reactor.seconds()
        self._told: OrderedDict[mail.Key, None] = OrderedDict()

    def close(self) -> None:
        """Leave the channel. Idempotent."""
        self.closed = True
        self.keeper.close()
        self.news.ring()
        self._taken.close()

    async def retire(self) -> None:
        """Leave the channel once nothing is being shown any more."""
        self.closed = True
        self.keeper.close()
        self.news.ring()
        await self.reading.acquire()
        self._taken.close()
        self.reading.release()

    @property
    def told(self) -> frozenset[mail.Key]:
        """The answers that were shown before their turn, and are not to be shown again."""
        return frozenset(self._told)

    def tell(self, key: mail.Key) -> None:
        """An answer was shown before its turn."""
        self._told[key] = None
        if len(self._told) > mail.REMEMBERED:
            self._told.popitem(last=False)

    def untell(self, keys: Iterable[mail.Key]) -> None:
        """These lie unread no more, so nobody could show them again."""
        for key in keys:
            self._told.pop(key, None)

    async def hub(self) -> HubClient | None:
        """The connection, which is waited for a moment if it is being made for the first time."""
        until = self.reactor.seconds() + CONNECT_WITHIN
        while self.keeper.client is None and self.keeper.trouble is None:
            left = until - self.reactor.seconds()
            if left <= 0:
                break
            await self.news.wait(left)
        return self.keeper.client

    def look_again(self) -> float:
        """Seconds after which one who waits looks at the file without being called."""
        return LOOK_ALONE if self.keeper.client is None else LOOK_CONNECTED

    async def unread(self) -> int | None:
        """How many messages lie unread, None if that cannot be found out now."""
        try:
            return await self.threads.call(mail.unread, self.inbox, self.told)
        except (IntercomError, OSError):
            return None

    def secret(self) -> str:
        """The session's token, as its file has it now. Blocking."""
        return own_token(self.paths, self.name)
