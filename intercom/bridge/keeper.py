"""Keeping a session connected to its hub: present, asked, and told when something comes.

The connection is for news; what has come is read from the inbox file, with the session's
turn, like everybody does. So no loss of it loses a message.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from intercom.bridge.bell import Bell, Threads
from intercom.client import control
from intercom.client.dial import ConnectionLost
from intercom.client.protocol import HubClient, adopt
from intercom.client.spawn import ensure_hub
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths

#: That we take the session's locks ourselves: see docs/protocol, "Features".
LOCKS_ITSELF = "turns"
FEATURES = ("receipts", "heartbeat", LOCKS_ITSELF)
#: Seconds between two tries to reach the hub, doubling; where there is none to be had; and
#: where somebody else receives for the session.
RETRY_FIRST, RETRY_LAST, RETRY_DENIED, RETRY_ASIDE = 0.05, 5.0, 30.0, 5.0
_ASIDE = frozenset({"SESSION_COLLISION", "TAKEN_OVER"})
#: Seconds after which a connection counts as having worked.
STEADY = 5.0
#: Causes that do not go by themselves within moments.
_LASTING = frozenset({"denied", "failed"})


class Keeper:
    """Connects one session, again and again, until it is closed.

    :param reactor: times, timers, sockets.
    :param news: rung with every message that is pushed, and after every connection.
    :ivar client: the connection, None while there is none.
    :ivar trouble: why there is none, as far as that is known.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: Any,
        threads: Threads,
        paths: ChannelPaths,
        session: str,
        token: str,
        news: Bell,
    ) -> None:
        self.client: HubClient | None = None
        self.trouble: IntercomError | None = None
        self._reactor = reactor
        self._threads = threads
        self._paths = paths
        self._session = session
        self._token = token
        self._news = news
        self._alarm = Bell(reactor)
        self._closed = False
        self._displaced = False
        self._retry = RETRY_FIRST
        self._running: Deferred[None] | None = None

    def start(self) -> None:
        """Begin to connect."""
        self._running = Deferred.fromCoroutine(self._run())

    def close(self) -> None:
        """Hang up, and connect no more. Idempotent."""
        self._closed = True
        self._alarm.ring()
        if self.client is not None:
            self.client.hang_up()

    def hurry(self) -> None:
        """Try to connect now rather than later, if there is no connection."""
        self._alarm.ring()

    async def _run(self) -> None:
        while not self._closed:
            begun = self._reactor.seconds()
            try:
                ended = await self._connect_once()
            except IntercomError as error:
                ended = error
            except Exception as error:
                self._log.failure("the connection to the hub failed")
                ended = HubUnavailable(f"a fault of ours: {error!r}", details={"cause": "failed"})
            self.client, self.trouble = None, ended
            self._news.ring()
            if self._closed:
                return
            if ended.code == "TAKEN_OVER":
                self._displaced = True
            if self._reactor.seconds() - begun > STEADY:
                self._retry = RETRY_FIRST
            await self._alarm.wait(self._pause(ended))

    def _pause(self, ended: IntercomError) -> float:
        """How long to do without the hub."""
        if ended.code in _ASIDE:
            return RETRY_ASIDE
        if ended.details.get("cause") in _LASTING or not isinstance(ended, HubUnavailable):
            return RETRY_DENIED
        self._retry = min(self._retry * 2, RETRY_LAST)
        return self._retry * (0.5 + os.urandom(1)[0] / 255)

    async def _connect_once(self) -> IntercomError:
        """Be connected for as long as it lasts; why it is over.

        :raise IntercomError: it did not come about.
        """
        client = await self._reach(takeover=False)
        if client is None:
            if self._displaced or not await self._threads.call(self._is_held_by_a_bridge):
                return IntercomError(
                    f"somebody else receives for {self._session!r}", code="SESSION_COLLISION"
                )
            client = await self._reach(takeover=True)
        if client is None or self._closed:
            if client is not None:
                client.hang_up()
            return IntercomError("another was quicker", code="SESSION_COLLISION")
        if LOCKS_ITSELF not in client.features:
            client.hang_up()
            return IntercomError(
                "the hub is of a version that knows no bridges", code="UNKNOWN_TYPE"
            )
        self.client, self.trouble, self._displaced = client, None, False
        self._news.ring()
        return await client.lost

    async def _reach(self, *, takeover: bool) -> HubClient | None:
        """A registered connection; None if another holds the session.

        :raise IntercomError: no hub is to be had, or it refuses.
        """
        sock = await self._threads.call(ensure_hub, self._paths)
        news = self._news
        client = HubClient(self._paths, self._session, self._reactor, lambda _received: news.ring())
        adopt(self._reactor, sock, client)
        try:
            await client.register(FEATURES, self._token, takeover=takeover)
        except IntercomError as error:
            client.hang_up()
            if error.code == "SESSION_COLLISION":
                return None
            raise
        return client

    def _is_held_by_a_bridge(self) -> bool:
        """Whether the session's connection is one like ours, of an earlier start of the host.

        Anybody else shows what comes, and is not to be disturbed. Blocking.
        """
        try:
            rows = control.look(self._paths).sessions
        except (HubUnavailable, ConnectionLost):
            return False
        held = [row for row in rows if row.get("session") == self._session]
        return any(LOCKS_ITSELF in (row.get("features") or ()) for row in held)
