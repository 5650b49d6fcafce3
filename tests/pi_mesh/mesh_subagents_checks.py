"""What the public pi-subagents client accepts of its broker, from the protocol alone.

It drops its connection at a frame before ``registered``, an unknown type or a bad field. Here
that fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pi_fields import Check, Frame, Rejected, boolean, each, number, one_of, record, string

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
_NOT_IN_TEXTS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_PROJECT = re.compile("[0-9a-f]{64}")
_WORD = re.compile("[A-Za-z0-9_-]+")
_BLANK = " \t\n\v\f\r\u00a0\ufeff"


def _count(value: Any) -> bool:
    return number(value) and value == int(value) and value >= 0


def _label(value: Any) -> bool:
    return string(value) and value != "" and not _CONTROLS.search(value)


def _text(value: Any) -> bool:
    return string(value) and not _NOT_IN_TEXTS.search(value)


def _trimmed_label(value: Any) -> bool:
    return string(value) and _label(value.strip(_BLANK))


def _matching(pattern: re.Pattern[str]) -> Check:
    return lambda value: string(value) and pattern.fullmatch(value) is not None


_update_fields = record(
    {
        "topic": _trimmed_label,
        "text": _text,
        "event": one_of("update", "blocker", "decision", "release"),
        "revision": lambda value: _count(value) and value > 0,
        "updatedAt": number,
    },
    {"resource": _label, "ownership": one_of("held", "released")},
)


def is_update(value: Any) -> bool:
    """A TopicUpdate."""
    if not _update_fields(value) or ("ownership" in value and "resource" not in value):
        return False
    return bool(value.get("ownership") != "released" or value["event"] == "release")


is_subscription = record({"topic": _trimmed_label}, {"awaitRelease": boolean})
_identity = {"cwd": _label, "model": _label}
_of_a_session: Mapping[str, Check] = {
    "name": _label,
    "projectId": _matching(_PROJECT),
    "status": _label,
    "lastSeen": number,
    "lastIntercomActivity": number,
    "pendingAsks": _count,
    "acceptsAsks": boolean,
    "subscriptions": each(is_subscription),
    "topics": each(is_update),
}
is_session = record({"id": _label, **_identity}, _of_a_session)
_is_addition = record({"id": _label}, _of_a_session)
_attachment = record(
    {"type": one_of("file", "snippet", "context"), "name": _label, "content": _text},
    {"language": _label},
)
_human = record({"ownerSessionId": _matching(_WORD), "runId": _matching(_WORD), "index": _count})
_message_fields = record(
    {
        "id": _label,
        "timestamp": number,
        "content": record({"text": _text}, {"attachments": each(_attachment)}),
    },
    {
        "replyTo": _label,
        "expectsReply": boolean,
        "delivery": one_of("queue", "steer", "passive"),
        "queueMode": one_of("stack", "replace"),
        "threadId": _trimmed_label,
        "passive": boolean,
        "topic": is_update,
        "human": _human,
    },
)


def is_message(value: Any) -> bool:
    """A Message in its long form."""
    if not _message_fields(value):
        return False
    asks, passive = value.get("expectsReply") is True, value.get("passive") is True
    delivery, mode = value.get("delivery"), value.get("queueMode")
    return not (
        ("topic" in value and (asks or "replyTo" in value or "human" in value))
        or (passive and delivery not in (None, "passive"))
        or (asks and (passive or delivery == "passive"))
        or (mode is not None and delivery != "queue")
        or (mode == "replace") != ("threadId" in value)
    )


def restored(message: Any) -> Any:
    """A message with what its short form leaves out."""
    topic = message.get("topic") if isinstance(message, dict) else None
    if not isinstance(topic, dict):
        return message
    whole = {**message, "topic": {"text": message["content"]["text"], **topic}}
    if message.get("queueMode") == "replace" and "threadId" not in message:
        whole["threadId"] = f"topic:{topic['topic']}"
    return whole


_receipt = record(
    {"to": _label, "id": _label, "accepted": boolean, "delivered": boolean},
    {"queued": boolean, "reason": string},
)
#: What there is to know; other fields these frames do not have.
_ANSWERS: Mapping[str, tuple[str, ...]] = {
    "delivered": ("messageId",),
    "delivery_queued": ("messageId", "reason"),
    "delivery_failed": ("messageId", "reason"),
    "session_left": ("sessionId",),
}


class Expected:
    """What one connection may be told now.

    :ivar topics: it asked for topic frames, which older clients do not know.
    :ivar asked: ids of its listings that are not answered yet: whether in parts, with a change.
    :ivar farewells: how often it said ``unregister``; a welcome may follow each.
    """

    def __init__(self, topics: bool) -> None:
        self.topics = topics
        self.registered = False
        self.farewells = 0
        self.asked: dict[str, tuple[bool, bool]] = {}
        self._parts: dict[str, set[str]] = {}

    def check(self, frame: Any) -> None:
        """Fail where the public client would drop its connection."""
        kind = frame.get("type") if isinstance(frame, dict) else None
        if kind == "registered" and self.farewells:
            self.registered = False
            self.farewells -= 1
        if (kind == "registered") == self.registered:
            when = "once" if self.registered else "before"
            raise Rejected(f"{when} registered: {frame}")
        if kind == "registered":
            good = self._is_welcome(frame)
            self.registered = True
        elif kind == "sessions":
            good = self._is_listing(frame)
        elif kind == "message":
            whole = restored(frame.get("message")) if self.topics else frame.get("message")
            good = self._is_sender(frame.get("from")) and is_message(whole)
        else:
            fields = _ANSWERS.get(str(kind))
            good = fields is not None and set(frame) == {"type", *fields}
            good = good and all(_label(frame[name]) for name in fields or ())
        if not good:
            raise Rejected(f"not known, or a bad field: {frame}")

    def _is_welcome(self, frame: Frame) -> bool:
        flags = ("topicsSupported", "topicFrames")
        expected = {"type", "sessionId", *(flags if self.topics else ())}
        good = set(frame) == expected and all(frame[one] is True for one in flags if self.topics)
        return good and _label(frame["sessionId"])

    @staticmethod
    def _is_sender(value: Any) -> bool:
        return is_session(value) and not {"topics", "subscriptions"} & value.keys()

    def _is_listing(self, frame: Frame) -> bool:
        request = frame.get("requestId")
        if request not in self.asked or not isinstance(frame.get("sessions"), list):
            return False
        streams, changes = self.asked[request]
        more = frame.get("more")
        if more not in (None, True, False) or ("more" in frame and not (streams or changes)):
            return False
        if more is not True:
            del self.asked[request]
        if "error" in frame:
            self._parts.pop(request, None)
            return set(frame) == {"type", "requestId", "sessions", "error"} and (
                frame["sessions"] == [] and string(frame["error"])
            )
        known = self._parts.setdefault(request, set())
        if more is not True:
            del self._parts[request]
        if "receipts" in frame and not (changes and each(_receipt)(frame["receipts"])):
            return False
        return all(self._is_row(row, known, streams) for row in frame["sessions"])

    @staticmethod
    def _is_row(row: Any, known: set[str], streams: bool) -> bool:
        if not _is_addition(row) or (not streams and {"topics", "subscriptions"} & row.keys()):
            return False
        if row["id"] in known:
            return streams and not set(row) - {"id", "topics", "subscriptions"}
        known.add(row["id"])
        return is_session(row)
