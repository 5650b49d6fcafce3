"""What is looked into before a session is welcome: its token, and that others can see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from twisted.internet.defer import Deferred
from twisted.logger import Logger

from intercom.core import effects as fx
from intercom.errors import IntercomError
from intercom.hub.publishing import Publisher
from intercom.interfaces import IPeer, IRegistry, IRouter


class Admissions:
    """Performs :class:`fx.Admit`.

    :param feed: gives the core one input, with the time, and performs what it answers.
    """

    _log = Logger()

    def __init__(
        self,
        peers: Mapping[int, IPeer],
        registry: IRegistry,
        publisher: Publisher,
        core: IRouter,
        feed: Callable[..., None],
    ) -> None:
        self._peers = peers
        self._registry = registry
        self._publisher = publisher
        self._core = core
        self._feed = feed

    def admit(self, effect: fx.Admit) -> None:
        """See :class:`fx.Admit`."""
        peer = self._peers.get(effect.connection)
        if peer is not None:
            peer.hold()
        Deferred.fromCoroutine(self._look_into(effect)).addErrback(
            lambda failure: self._log.failure("admission failed", failure)
        )

    async def _look_into(self, effect: fx.Admit) -> None:
        """Publish, read the token, decide. A list that cannot be published stops nobody."""
        token = None
        try:
            if effect.publish is not None:
                await self._publisher.now(effect.publish)
            if effect.token_of is not None:
                token = await self._registry.token(effect.token_of)
        except (IntercomError, OSError) as error:
            self._log.error("cannot look into a claim: {error}", error=str(error))
        self._feed(self._core.admitted, effect.connection, token)
        peer = self._peers.get(effect.connection)
        if peer is not None:
            peer.release()
