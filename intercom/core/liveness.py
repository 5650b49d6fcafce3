"""A connection is alive while it answers. No pid is ever asked."""

from __future__ import annotations

from collections.abc import Iterable

from intercom.core.effects import Answer, Drop, Effect, Note
from intercom.core.routing import feed_news
from intercom.core.session import Link
from intercom.messages import Beat
from intercom.names import HUB

#: A connection silent for this long is asked whether it is there ...
PING_AFTER_S = 30.0
#: ... and one that asked for heartbeats and stays silent for this long is gone.
SILENT_AFTER_S = 90.0


def keep_alive(link: Link, now: float) -> list[Effect]:
    """Ask a silent peer whether it is there; drop one that promised to answer.

    One that takes nothing is not asked, for the questions would heap up.
    """
    silent = now - link.heard
    if silent >= SILENT_AFTER_S and "heartbeat" in link.features:
        return [
            Drop(link.number, "silent"),
            Note("silent", {"session": link.session, "connection": link.number}),
        ]
    if link.stuck or silent < PING_AFTER_S or now - link.pinged < PING_AFTER_S:
        return []
    link.pinged = now
    link.asked = True
    return [Answer(link.number, Beat(link.session))]


def look_after(links: Iterable[Link], now: float) -> list[Effect]:
    """What time brings for those who speak for a session: pings, and reads tried again."""
    effects: list[Effect] = []
    for link in links:
        if link.session is None:
            continue
        if link.session != HUB:
            effects += keep_alive(link, now)
        if link.feed is not None:
            link.feed.retry()
            effects += feed_news(link)
    return effects
