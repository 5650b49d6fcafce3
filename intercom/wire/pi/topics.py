"""Topics of the pi-subagents client: what a session publishes, and to what it subscribes.

Names are checked after trimming but kept, and compared, as they were written.
"""

from __future__ import annotations

from typing import Any, TypeGuard

from intercom.errors import ProtocolError
from intercom.wire.pi.fields import (
    Check,
    Record,
    holds,
    is_boolean,
    is_label,
    is_number,
    is_safe_integer,
    is_string,
    is_text,
    one_of,
)
from intercom.wire.pi.javascript import trimmed
from intercom.wire.pi.requests import TopicChange

EVENTS = ("update", "blocker", "decision", "release")
_URGENT = ("blocker", "decision")


class BadTopicChange(ProtocolError):
    """A topic change that changes nothing; ``text`` is said in ``sessions.error``."""


def is_name(value: Any) -> TypeGuard[str]:
    """A topic's or thread's name: a label once it is trimmed."""
    return isinstance(value, str) and is_label(trimmed(value))


def _is_revision(value: Any) -> bool:
    return is_safe_integer(value) and value > 0


_UPDATE: dict[str, Check] = {
    "topic": is_name,
    "text": is_text,
    "event": one_of(*EVENTS),
    "revision": _is_revision,
    "updatedAt": is_number,
}
_UPDATE_OPTIONAL: dict[str, Check] = {
    "resource": is_label,
    "ownership": one_of("held", "released"),
}


def is_update(value: Any) -> TypeGuard[Record]:
    """A TopicUpdate: ownership is of a resource, and given up only by a release."""
    return (
        isinstance(value, dict)
        and holds(value, _UPDATE, _UPDATE_OPTIONAL)
        and ("ownership" not in value or "resource" in value)
        and (value.get("ownership") != "released" or value["event"] == "release")
    )


def is_subscription(value: Any) -> TypeGuard[Record]:
    """A TopicSubscription."""
    return isinstance(value, dict) and holds(
        value, {"topic": is_name}, {"awaitRelease": is_boolean}
    )


# -- the short form of topic messages ---------------------------------------------------------


def compacted(message: Record) -> Record:
    """A message as clients get it that asked for topic frames: nothing said twice."""
    topic = message.get("topic")
    if not topic:
        return message
    short = dict(message)
    if topic["text"] == message["content"]["text"]:
        short["topic"] = {key: value for key, value in topic.items() if key != "text"}
    if message.get("queueMode") == "replace" and message.get("threadId") == thread_of(topic):
        del short["threadId"]
    return short


def restored(message: Record) -> Record | None:
    """A message with what :func:`compacted` left out; None where it is no topic message."""
    topic = message.get("topic")
    content = message.get("content")
    if not (isinstance(topic, dict) and isinstance(content, dict)):
        return None
    whole = dict(message)
    whole["topic"] = {**topic, "text": topic.get("text", content.get("text"))}
    if message.get("queueMode") == "replace" and "threadId" not in message:
        whole["threadId"] = thread_of(topic)
    return whole


def thread_of(topic: Record) -> str:
    """The thread in which updates of a topic replace one another."""
    return f"topic:{topic.get('topic')}"


# -- changes ----------------------------------------------------------------------------------


def read_change(change: Any, topic_frames: bool) -> TopicChange:
    """Read ``list.change``.

    :raise BadTopicChange: it changes nothing.
    """
    if not topic_frames or not isinstance(change, dict | list):
        raise BadTopicChange("Topic snapshots unavailable for this client")
    if isinstance(change, list):
        raise BadTopicChange("Invalid topic change")
    action, topic, subscription = map(change.get, ("action", "topic", "subscription"))
    if action in ("publish", "restore") and is_update(topic):
        unheld = not topic.get("resource") or topic.get("ownership") != "released"
        if not trimmed(topic["text"]) or (topic["event"] == "release" and unheld):
            raise BadTopicChange("Invalid topic publication")
        return TopicChange(action, topic=topic)
    if action in ("subscribe", "restore") and is_subscription(subscription):
        return TopicChange(action, subscription=subscription)
    if action == "unsubscribe" and is_string(topic):
        return TopicChange(action, name=topic)
    raise BadTopicChange("Invalid topic change")


def apply_change(info: Record, change: TopicChange, now: int) -> tuple[Record, Record | None]:
    """A session as a change makes it, and the update to send to subscribers, if any.

    :param now: epoch ms; a publication counts as activity.
    :raise BadTopicChange: revisions have come to their end.
    """
    topics = {topic["topic"]: topic for topic in info.get("topics", ())}
    subscriptions = {entry["topic"]: entry for entry in info.get("subscriptions", ())}
    publication = None
    if change.topic is not None:
        update = change.topic
        known = topics[update["topic"]]["revision"] if update["topic"] in topics else 0
        if change.action == "publish":
            update = {**update, "revision": int(max(known, update["revision"] - 1) + 1)}
            if not is_update(update):
                raise BadTopicChange("Invalid topic revision")
            publication = update
        if known < update["revision"]:
            topics[update["topic"]] = update
    elif change.subscription is not None:
        subscriptions[change.subscription["topic"]] = change.subscription
    else:
        subscriptions.pop(change.name, None)
    changed = {
        **info,
        "topics": list(topics.values()),
        "subscriptions": list(subscriptions.values()),
    }
    if publication is not None:
        changed["lastIntercomActivity"] = now
    return changed, publication


def subscription_to(info: Record, topic: str) -> Record | None:
    """The session's subscription to a topic, None if it has none."""
    return next((entry for entry in info.get("subscriptions", ()) if entry["topic"] == topic), None)


def topic_message(publication: Record, subscription: Record, message_id: str, now: int) -> Record:
    """The message that tells a subscriber of a publication.

    Blockers, decisions and awaited releases come at once; others may replace one another.
    """
    awaited = publication["event"] == "release" and subscription.get("awaitRelease", False)
    urgent = publication["event"] in _URGENT or awaited
    message = {
        "id": message_id,
        "timestamp": now,
        "topic": publication,
        "content": {"text": publication["text"]},
        "delivery": "steer" if urgent else "queue",
    }
    if not urgent:
        message |= {"queueMode": "replace", "threadId": thread_of(publication)}
    return message
