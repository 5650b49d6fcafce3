"""What a connection asks beside sending: it acknowledges pushes, it drains, it wants places.

How its inbox reaches it is told in :mod:`intercom.core.feeds`.
"""

from __future__ import annotations

from intercom.core.effects import Answer, CommitPosition, Effect, ServePlaces, TakeBack
from intercom.core.routing import feed_news
from intercom.core.session import Link
from intercom.errors import IntercomError
from intercom.messages import Ack, Cancel, Fault, TakePlaces


def acknowledge(link: Link, message: Ack) -> list[Effect]:
    """It has dealt with everything up to a position that it was told."""
    feed = link.feed
    if feed is None or not feed.cursor:
        text = "ack needs the feature cursor, on the connection that receives"
        return [Answer(link.number, Fault(link.session, "BAD_ENVELOPE", text, message.id))]
    position = feed.place(message.position)
    if feed.next is None or position > feed.next:
        text = f"nothing up to offset {message.position.offset} has been sent to you"
        return [Answer(link.number, Fault(link.session, "STALE_POSITION", text, message.id))]
    return [CommitPosition(link.number, feed.inbox, position, message.id, message.state)]


def refused(link: Link, error: IntercomError, message_id: str | None) -> list[Effect]:
    """The spool did not take its acknowledgement.

    Was the inbox compacted meanwhile, which raises the generation, what is unread is sent
    again, so that it comes to know a position that it can acknowledge.
    """
    fault = Fault(link.session, error.code, error.text, message_id)
    generation = error.details.get("generation")
    if link.feed is not None and isinstance(generation, int):
        link.feed.outdated(generation)
    return [Answer(link.number, fault), *feed_news(link)]


def take_back(link: Link, message: Cancel, now: float) -> list[Effect]:
    """It takes a message of its own back."""
    assert link.session is not None
    to, named = message.to_session, message.message_id
    return [TakeBack(link.number, link.session, named, to, message.id)]


def take_places(link: Link, message: TakePlaces, now: float) -> list[Effect]:
    """It asks for the pi places to be served; only who could take them itself may."""
    if link.credentials.uid is None:
        text = "only a process whose user the kernel tells may ask for the pi places"
        return [Answer(link.number, Fault(link.session, "UNAUTHORIZED", text, message.id))]
    return [ServePlaces(link.number, message.id, message.plan)]


def paused(link: Link) -> list[Effect]:
    """It does not take what is written to it: its inbox file is the buffer."""
    link.stuck = True
    if link.feed is not None:
        link.feed.pause()
    return []


def drained(link: Link) -> list[Effect]:
    """It has taken all that was written to it: its pushes go on from where they stopped."""
    link.stuck = False
    feed = link.feed
    if feed is None:
        return []
    feed.drained()
    lagged, feed.lagged = feed.lagged, None
    if lagged is None or not link.asks_for_more:
        return feed_news(link)
    text = "you did not keep up; what came since then is in your inbox file only"
    return [Answer(link.number, Fault(link.session, "LAGGED", text, None, {"offset": lagged}))]
