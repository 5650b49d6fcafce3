"""The real parts of a hub, put together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from twisted.internet.interfaces import IProtocolFactory

from intercom import __version__
from intercom.core.hub import HubCore
from intercom.hub.descriptors import budget, open_at_most
from intercom.hub.factory import HubFactory
from intercom.hub.hub import Hub
from intercom.hub.registry import FileRegistry
from intercom.interfaces import IWorker
from intercom.settings.hub import HubSettings
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.worker import ThreadWorker
from intercom.wire.envelope import digest, format_id, format_timestamp, identify
from intercom.wire.ndjson import Decoder, Encoder
from intercom.wire.notices import NoticeWriter


class HubParts(NamedTuple):
    """What a running hub is made of.

    :ivar hub: has ``start``, ``shut_down`` and ``idle_for`` of :class:`Hub`.
    :ivar factory: makes its protocols.
    :ivar worker: does the registry's file work; ended after the hub.
    """

    hub: Hub
    factory: IProtocolFactory
    worker: IWorker


def assemble(
    reactor: Any, settings: HubSettings, key: str | None, leave: Callable[[str], None]
) -> HubParts:
    """Put the real parts of a hub together; touches nothing but memory.

    :param key: what connections from elsewhere must show, None to let none in.
    :param leave: called with a reason when the hub can no longer keep its promises.
    """
    paths = settings.paths
    new_id = drawn_ids().__next__

    def timestamp() -> str:
        return format_timestamp(time.time())

    spare = budget(open_at_most(), settings.limits.connections)
    limits = settings.limits._replace(connections=spare.connections)
    worker = ThreadWorker(reactor, "intercom-registry")
    decoder = Decoder(paths.name, new_id, timestamp)
    notice = NoticeWriter(paths.name, new_id, timestamp)
    hub = Hub(
        HubCore(settings.durability, digest, identify, notice, key, limits),
        ThreadedSpool(reactor, paths, limits=limits, open_files=spare.inboxes),
        FileRegistry(worker, paths, os.getpid(), time.time),
        reactor,
        leave,
        lambda line: decoder.decode(line, None),
        limits,
        spare.guarded,
    )
    who = {
        "pid": os.getpid(),
        "version": __version__,
        "started": time.time(),
        "durability": settings.durability,
        "idle_exit": settings.idle_exit,
        "listen": settings.listen,
    }
    encoder = Encoder(paths.name, new_id, timestamp, who)
    factory = HubFactory(hub, decoder, encoder, limits=limits)
    return HubParts(hub, factory, worker)


def drawn_ids() -> Iterator[str]:
    """Ids without end. The kernel is asked for many at once: every receipt takes one."""
    while True:
        drawn = os.urandom(512 * 6)
        for at in range(0, len(drawn), 6):
            yield format_id(drawn[at : at + 6])
