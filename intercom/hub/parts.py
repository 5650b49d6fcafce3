"""The real parts of a hub, put together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from uuid import uuid4

from twisted.internet.interfaces import IProtocolFactory

from intercom import __version__
from intercom.core.bus.broker import Broker
from intercom.core.bus.limits import Limits as BusLimits
from intercom.core.hub import HubCore
from intercom.hub.attendance import Attendance
from intercom.hub.descriptors import budget, open_at_most
from intercom.hub.doorway import DoorFactory
from intercom.hub.factory import HubFactory
from intercom.hub.hub import Hub
from intercom.hub.pi.bus import Bus
from intercom.hub.pi.files import BusFiles
from intercom.hub.poller import Poller, is_supported
from intercom.hub.registry import FileRegistry
from intercom.interfaces import ISpool, IWorker
from intercom.settings.hub import HubSettings
from intercom.settings.limits import Limits
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.worker import ThreadWorker
from intercom.wire.envelope import digest, format_timestamp, identify
from intercom.wire.ndjson import Decoder, Encoder
from intercom.wire.notices import NoticeWriter

#: No time is longer, in milliseconds.
_NEVER_MS = 1 << 53


class HubParts(NamedTuple):
    """What a running hub is made of.

    :ivar hub: has ``start``, ``shut_down`` and ``idle_for`` of :class:`Hub`.
    :ivar factory: makes its protocols; ``pi_factory`` those of the places of pi clients.
    :ivar state_id: what pi clients must show over TCP; a new one for each hub.
    :ivar worker: does the registry's file work; ended after the hub.
    :ivar poller: reads connections; closed last.
    """

    hub: Hub
    factory: IProtocolFactory
    worker: IWorker
    pi_factory: DoorFactory | None = None
    state_id: str = ""
    poller: Poller | None = None


def assemble(
    reactor: Any,
    settings: HubSettings,
    key: str | None,
    leave: Callable[[str], None],
    unused: Callable[[], None] = lambda: None,
) -> HubParts:
    """Put the real parts of a hub together; touches no file.

    :param key: what connections from elsewhere must show, None to let none in.
    :param leave: called with a reason when the hub can no longer keep its promises.
    :param unused: called when no pi client has been here for a while.
    """
    paths = settings.paths
    new_id = drawn_ids().__next__
    timestamp = timestamps(time.time)
    spare = budget(open_at_most(), settings.limits.connections)
    limits = settings.limits._replace(connections=spare.connections)
    worker = ThreadWorker(reactor, "intercom-registry")
    decoder = Decoder(paths.name, new_id, timestamp)
    notice = NoticeWriter(paths.name, new_id, timestamp)
    poller = Poller(reactor) if settings.poller and is_supported(reactor) else None
    files = spare.inboxes
    spool = ThreadedSpool(reactor, paths, limits=limits, open_files=files, poller=poller)
    attendance = Attendance(limits.connections, reactor.seconds())
    state_id = str(uuid4())
    bus = assemble_bus(reactor, settings, spool, attendance, state_id, unused)
    hub = Hub(
        HubCore(settings.durability, digest, identify, notice, key, limits, bus.bridge.members),
        spool,
        FileRegistry(worker, paths, os.getpid(), time.time),
        reactor,
        leave,
        lambda line: decoder.decode(line, None),
        limits,
        spare.guarded,
        attendance,
        bus,
    )
    encoder = Encoder(paths.name, new_id, timestamp, _who(settings))
    ndjson = HubFactory(hub, decoder, encoder, limits=limits, poller=poller)
    doors = DoorFactory(ndjson, bus), DoorFactory(ndjson, bus, for_pi=True)
    return HubParts(hub, doors[0], worker, doors[1], state_id, poller)


def _who(settings: HubSettings) -> dict[str, Any]:
    """What a hub tells of itself."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "started": time.time(),
        "durability": settings.durability,
        "idle_exit": settings.idle_exit,
        "listen": settings.listen,
    }


def assemble_bus(
    reactor: Any,
    settings: HubSettings,
    spool: ISpool,
    attendance: Attendance,
    state_id: str,
    unused: Callable[[], None],
) -> Bus:
    """Put together what serves the pi clients of a hub."""
    paths, limits = settings.paths, settings.limits
    wall = time.time() * 1000 - reactor.seconds() * 1000
    directories: dict[str, str] = {}
    broker = Broker(
        draw=lambda: str(uuid4()),
        resolve=lambda path: directories.get(path) or os.path.normpath(path),
        channel=paths.name,
        level=settings.durability,
        state_id=state_id,
        limits=bus_limits(limits),
    )
    files = BusFiles(
        ThreadWorker(reactor, "intercom-pi-files"),
        ThreadWorker(reactor, "intercom-pi-directories"),
        paths,
        lambda: round(wall + reactor.seconds() * 1000),
    )
    return Bus(broker, spool, files, reactor, wall, attendance, directories, unused)


def bus_limits(limits: Limits) -> BusLimits:
    """The bounds of the bus, as the settings have them."""
    return BusLimits(
        sessions=limits.pi_sessions,
        unregistered=limits.pi_unregistered,
        register_ms=_milliseconds(limits.pi_within),
        burst=limits.pi_burst,
        rate=limits.pi_rate,
        mailbox=limits.pi_mailbox,
        keep_ms=_milliseconds(limits.pi_mailbox_age),
        extensions=limits.pi_extensions,
        extension_bytes=limits.pi_extension,
    )


def _milliseconds(seconds: float) -> int:
    return round(min(seconds * 1000, _NEVER_MS))


def timestamps(clock: Callable[[], float]) -> Callable[[], str]:
    """Says the time as the hub's own lines have it, to the millisecond.

    To write it anew for each of a thousand receipts of one moment would cost as much as the
    rest of the line.
    """
    said, since = "", 0.0

    def timestamp() -> str:
        nonlocal said, since
        now = clock()
        if not 0 <= now - since < 0.001:
            said, since = format_timestamp(now), now
        return said

    return timestamp


def drawn_ids() -> Iterator[str]:
    """Ids without end. The kernel is asked for many at once: every receipt takes one."""
    while True:
        drawn = os.urandom(512 * 6).hex()
        for at in range(0, len(drawn), 12):
            yield f"msg_{drawn[at : at + 12]}"
