"""The table of what an envelope's payload and a pi message call the same thing.

Whatever has no counterpart in a pi message is put into one attachment, ``payload.json``, and
taken out of it again.
"""

from __future__ import annotations

import json
import re
from math import isfinite

from intercom.wire.pi.fields import Record, every, is_record
from intercom.wire.pi.messages import (
    INTERCOM_OPTIONAL,
    SUBAGENTS_OPTIONAL,
    delivery_agrees,
    is_attachment,
)

#: Payload keys and the message's fields of the same meaning, beside text and attachments.
FIELDS = {
    "expects_reply": "expectsReply",
    "supersedes": "supersedes",
    "retry_of": "retryOf",
    "delivery": "delivery",
    "queue_mode": "queueMode",
    "thread_id": "threadId",
    "topic": "topic",
}
_CHECKS = {**INTERCOM_OPTIONAL, **SUBAGENTS_OPTIONAL}
#: Those of them that only make sense together.
_DELIVERY = ("delivery", "queue_mode", "thread_id", "topic")
#: The attachment that holds all other keys of a payload, beside its content.
_FOLD = {"type": "context", "name": "payload.json", "language": "json"}
_QUOTED = 40
#: What JSON may hold as it is, and a subagents client would get replaced.
_CONTROLS = re.compile("[\x7f-\x9f]")


# -- pi to payload ----------------------------------------------------------------------------


def shown(message: Record) -> Record:
    """What an NDJSON client reads of a pi message."""
    content = message["content"]
    payload = {"text": content["text"]}
    payload |= {key: message[name] for key, name in FIELDS.items() if name in message}
    if is_record(payload.get("topic")) and payload["topic"].get("text") == content["text"]:
        topic = payload["topic"]
        payload["topic"] = {name: topic[name] for name in topic if name != "text"}
    attachments = content.get("attachments")
    if attachments is None:
        return payload
    others = _unfolded(attachments, payload)
    if others is None:
        return {**payload, "attachments": attachments}
    if not payload["text"]:
        del payload["text"]  # an empty one is in the attachment, if it was said
    if attachments[:-1]:
        payload["attachments"] = attachments[:-1]
    return {**payload, **others}


def _unfolded(attachments: list[Record], payload: Record) -> Record | None:
    """The other keys of a payload that the last attachment holds; None if it holds none."""
    if not attachments or not _is_fold(attachments[-1]):
        return None
    others = _read_object(attachments[-1]["content"])
    taken = {key for key in payload if key != "text" or payload["text"]} | {"pi"}
    if len(attachments) > 1:
        taken.add("attachments")
    return None if others is None or taken & others.keys() else others


def _is_fold(attachment: Record) -> bool:
    return {**attachment, "content": ""} == {**_FOLD, "content": ""}


def _read_object(text: str) -> Record | None:
    """A JSON object, its integers as they are, however long; None for anything else."""
    try:
        value = json.loads(text, parse_constant=_refused, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _refused(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:_QUOTED]} is beyond any double")
    return value


# -- payload to pi ----------------------------------------------------------------------------


def composed(head: Record, payload: Record) -> Record:
    """The pi message that says what a payload says.

    :param head: id, timestamp and, for an answer, ``replyTo``.
    """
    text = payload.get("text")
    mapped = _mapped(head, payload)
    rest = {key: payload[key] for key in payload if key not in mapped}
    content: Record = {"text": rest.pop("text") if isinstance(text, str) else ""}
    attachments = None
    if every(is_attachment)(rest.get("attachments")):
        attachments = rest.pop("attachments")
    # A payload that ends with such an attachment itself gets another, or it would be taken apart.
    if rest or (attachments and _is_fold(attachments[-1])):
        if text == "":
            rest["text"] = ""
        if attachments == []:
            rest["attachments"] = []
        attachments = [*(attachments or ()), {**_FOLD, "content": _written(rest)}]
    if attachments is not None:
        content["attachments"] = attachments
    return {**head, **{FIELDS[key]: mapped[key] for key in mapped}, "content": content}


def _mapped(head: Record, payload: Record) -> Record:
    """Of a payload the keys that a pi message has, too, as far as they are good there."""
    said = {key: payload[key] for key in FIELDS if key in payload}
    if is_record(said.get("topic")):
        said["topic"] = {"text": payload.get("text"), **said["topic"]}
    good = {key: value for key, value in said.items() if _CHECKS[FIELDS[key]](value)}
    message = {**head, **{FIELDS[key]: good[key] for key in good}}
    if delivery_agrees(message):
        return good
    return {key: good[key] for key in good if key not in _DELIVERY}


def _written(payload: Record) -> str:
    text = json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
