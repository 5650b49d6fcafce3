"""A connection is alive while it answers. No pid is ever asked."""

from __future__ import annotations

from intercom.core.effects import Answer, Drop, Effect, Note
from intercom.core.session import Link
from intercom.messages import Beat

#: A connection silent for this long is asked whether it is there ...
PING_AFTER_S = 30.0
#: ... and one that asked for heartbeats and stays silent for this long is gone.
SILENT_AFTER_S = 90.0


def keep_alive(link: Link, now: float) -> list[Effect]:
    """Ask a silent peer whether it is there; drop one that promised to answer."""
    silent = now - link.heard
    if silent >= SILENT_AFTER_S and "heartbeat" in link.features:
        return [
            Drop(link.number, "silent"),
            Note("silent", {"session": link.session, "connection": link.number}),
        ]
    if silent < PING_AFTER_S or now - link.pinged < PING_AFTER_S:
        return []
    link.pinged = now
    link.asked = True
    return [Answer(link.number, Beat(link.session))]
