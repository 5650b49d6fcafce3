"""Messages across dialects: envelopes to pi messages and back, and neither loses anything.

A pi message is spooled as an envelope that any NDJSON client can read. Its ``payload.pi``
keeps the original, so that it leaves as it came: ``{"message", "from", "scope"}``, and a
``nonce`` where a message of the same id went before. A text that
the payload says already is ``null`` there, which no good message has: a line has no room for
a large one twice. An original that a line cannot hold (too deep, half a surrogate pair) is
kept as its JSON text, ``{"json"}``.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from intercom.wire.envelope import format_timestamp, is_id, make
from intercom.wire.jsontext import MAX_DEPTH
from intercom.wire.pi.fields import Record, is_record, is_string
from intercom.wire.pi.mapping import composed, shown
from intercom.wire.pi.messages import is_intercom_message, is_subagents_message
from intercom.wire.pi.printing import js_text
from intercom.wire.pi.reading import FrameError, is_nested_over, read_json

#: What of a message's content is left to the payload.
_THIN = ("text", "attachments")
#: Levels of an envelope above its ``payload.pi``.
_OUTER_LEVELS = 2
_LAST_MS = 253402300799999  # the end of the year 9999
_ID_BYTES = 16


class Original(NamedTuple):
    """A pi message as it came.

    :ivar sender: SessionInfo of its sender at the time.
    :ivar scope: of the sender, None for the unnamed one.
    """

    message: Record
    sender: Record
    scope: str | None


def envelope_id(message_id: str, nonce: str = "") -> str:
    """The id of a pi message as an envelope may have it: itself, or a hash where it is unfit.

    :param nonce: of an envelope whose message is to be another than an earlier one of this id.
    """
    if not nonce and is_id(message_id) and _printable(message_id) == message_id:
        return message_id
    said = f"{message_id}\n{nonce}" if nonce else message_id
    hashed = blake2b(said.encode("utf-8", "surrogatepass"), digest_size=_ID_BYTES)
    return f"pi_{hashed.hexdigest()}"


# -- pi to envelope ---------------------------------------------------------------------------


def line_of(original: Original, *, from_session: str, to_session: str, channel: str) -> bytes:
    """A pi message as the line that is spooled, without line feed.

    :raise ProtocolError: ``LINE_TOO_LONG``.
    """
    message = original.message
    reply_to = message.get("replyTo")
    milliseconds = min(max(message["timestamp"], 0), _LAST_MS)
    return make(
        type="chat",
        message_id=envelope_id(message["id"]),
        from_session=from_session,
        to_session=to_session,
        channel=channel,
        reply_to=None if reply_to is None else envelope_id(reply_to),
        payload=payload_of(original),
        timestamp=format_timestamp(milliseconds / 1000),
    )


def payload_of(original: Original) -> Record:
    """The payload of a pi message's envelope, the original in its ``pi``."""
    message = original.message
    payload = shown(message)
    if not _fits_line(payload, MAX_DEPTH - 1):
        payload = {"text": _printable(message["content"]["text"])}
    kept = {"message": _thinned(message, payload), **_circumstances(original)}
    if _has_null_text(message.get("topic")) or not _fits_line(kept, MAX_DEPTH - _OUTER_LEVELS):
        kept = {"json": js_text({"message": message, **_circumstances(original)})}
    return {**payload, "pi": kept}


def _circumstances(original: Original) -> Record:
    scope = {} if original.scope is None else {"scope": original.scope}
    return {"from": original.sender, **scope}


def _thinned(message: Record, payload: Record) -> Record:
    """A message with null where the payload says the same."""
    content = dict(message["content"])
    for name in _THIN:
        if name in content and payload.get(name) == content[name]:
            content[name] = None
    thin = {**message, "content": content}
    topic = message.get("topic")
    if is_record(topic) and topic.get("text") == payload.get("text"):
        thin["topic"] = {**topic, "text": None}
    return thin


def _has_null_text(topic: Any) -> bool:
    """Whether this could be taken for a topic whose text is left to the payload."""
    return is_record(topic) and topic.get("text", "") is None


def _fits_line(value: Record, depth: int) -> bool:
    """Whether a value may stand in a line: no half surrogate pairs, not too deep."""
    if is_nested_over(value, depth):
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _printable(text: str) -> str:
    """A text with a U+FFFD for half of a surrogate pair."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


# -- envelope to pi ---------------------------------------------------------------------------


def original_of(fields: Record) -> Original | None:
    """The pi message that an envelope was made of; None if it was made of none.

    Anybody can write a ``payload.pi``. It counts only if it is whole, and has the id, the text
    and the ``reply_to`` of the envelope, which all others read; whether ``sender`` is the one
    who sent the envelope is for the caller to compare.

    :param fields: of a checked envelope.
    """
    payload = fields.get("payload") or {}
    kept = payload.get("pi")
    nonce = kept.get("nonce") if is_record(kept) else None
    whole = kept.get("json") if is_record(kept) else None
    if is_string(whole):
        kept = _json(whole)
    if not is_record(kept):
        return None
    message, sender, scope = kept.get("message"), kept.get("from"), kept.get("scope")
    if not (is_record(message) and is_record(sender)):
        return None
    message = message if is_string(whole) else _thickened(message, payload)
    if not (is_intercom_message(message) or is_subagents_message(message)):
        return None
    if envelope_id(message["id"], nonce if is_string(nonce) else "") != fields.get("id"):
        return None
    reply_to = message.get("replyTo")
    if (None if reply_to is None else envelope_id(reply_to)) != fields.get("reply_to"):
        return None
    text = payload.get("text")
    if _printable(message["content"]["text"]) != (text if is_string(text) else ""):
        return None
    if not all(is_string(sender.get(name)) for name in ("id", "cwd", "model")):
        return None
    return Original(message, sender, scope) if scope is None or is_string(scope) else None


def _thickened(message: Record, payload: Record) -> Record:
    """A message with what :func:`_thinned` took from it."""
    whole = dict(message)
    content, topic = message.get("content"), message.get("topic")
    if is_record(content):
        said = {name: payload.get(name) for name in _THIN if content.get(name, "") is None}
        whole["content"] = {**content, **said}
    if is_record(topic) and _has_null_text(topic):
        whole["topic"] = {**topic, "text": payload.get("text")}
    return whole


def message_of(fields: Record, now: int) -> Record:
    """An envelope as a pi message: its original if it was one, else one that says the same.

    :param fields: of a checked envelope with an id.
    :param now: epoch ms, where the envelope's timestamp is none.
    """
    original = original_of(fields)
    if original is not None:
        return original.message
    head: Record = {"id": fields["id"], "timestamp": _milliseconds(fields, now)}
    if fields.get("reply_to"):
        head["replyTo"] = fields["reply_to"]
    return composed(head, fields.get("payload") or {})


def _milliseconds(fields: Record, now: int) -> int:
    try:
        said = datetime.fromisoformat(fields.get("timestamp") or "")
        if said.tzinfo is None:
            said = said.replace(tzinfo=UTC)
        return round(said.timestamp() * 1000)
    except (ValueError, OverflowError):
        return now


def _json(text: str) -> Any:
    try:
        return read_json(text.encode())
    except (FrameError, UnicodeEncodeError):
        return None
