"""Envelopes with the standard library alone: making, reading strictly, recognising.

Commands that must start fast use this module instead of ``intercom.wire.ndjson``,
and the hub uses it for lines that deserve a closer look, so that both refuse the
same lines with the same words. Rules: ``docs/protocol``, "Lines".
"""

from __future__ import annotations

from intercom import moments
from intercom import plainjson as json
from intercom.errors import ProtocolError
from intercom.names import ANONYMOUS
from intercom.plain import cache
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire.plaintext import TOO_DEEP, is_plain, read_plain

if TYPE_CHECKING:
    import re
    from typing import Any

    from intercom.wire.jsontext import Member

#: The protocol that these lines belong to, as a welcome names it.
PROTOCOL = "intercom/1"
#: Longest line in bytes, without its line feed.
MAX_LINE = 1 << 20
#: Characters of a message id.
MAX_ID = 128

_ID_BYTES = 6
_DIGEST_BYTES = 16
_blake2b: Any = None


class Identity(NamedTuple):
    """By what a stored line is known: who sent it, its id, and a hash of its content."""

    sender: str
    message_id: str
    digest: bytes


# -- making -----------------------------------------------------------------------------------


def make(
    *,
    type: str,
    message_id: str,
    from_session: str,
    to_session: str,
    channel: str,
    payload: dict[str, Any],
    timestamp: str,
    reply_to: str | None = None,
) -> bytes:
    """Write one envelope as a compact line, without line feed, text as UTF-8.

    :raise ProtocolError: ``BAD_JSON`` if the payload holds what a hub would refuse (lone
        surrogates, NaN, too deep, ...), ``LINE_TOO_LONG`` with the limit named.
    """
    fields = {
        "id": message_id,
        "type": type,
        "from_session": from_session,
        "to_session": to_session,
        "channel": channel,
        "reply_to": reply_to,
        "payload": payload,
        "timestamp": timestamp,
    }
    try:
        text = json.dumps(fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        line = text.encode()
        if not is_plain(line, text):
            from intercom.wire.jsontext import check_text  # seldom needed, and not for nothing

            check_text(line, text)
    except UnicodeEncodeError:
        raise _bad_json("a string holds half of a surrogate pair", message_id) from None
    except RecursionError:
        raise _bad_json(TOO_DEEP, message_id) from None
    except ValueError as error:  # a JSONDecodeError has a place behind its message
        raise _bad_json(getattr(error, "msg", str(error)), message_id) from None
    check_length(line, MAX_LINE)
    return line


def in_ascii(line: bytes) -> bytes:
    r"""The same line with every character beyond ASCII written as ``\uXXXX``.

    So the original programs write lines, and so their listener needs them: it decodes what
    each read happens to bring, and would break a character that is cut in two. In JSON such
    characters stand in strings only, so nothing else changes. Bytes that are no UTF-8 are
    left for the reader to judge.
    """
    if line.isascii():
        return line
    try:
        return _beyond_ascii().sub(_escaped, line.decode()).encode()
    except UnicodeDecodeError:
        return line


@cache
def _beyond_ascii() -> re.Pattern[str]:
    import re  # seldom needed, and not for nothing

    return re.compile(r"[^\x00-\x7f]+")


def _escaped(found: re.Match[str]) -> str:
    """One or several characters as JSON escapes, the higher planes as surrogate pairs."""
    units = found[0].encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))


def format_id(random_bytes: bytes) -> str:
    """Make a message id, ``msg_`` and 12 hex digits, of 6 random bytes (more are ignored)."""
    if len(random_bytes) < _ID_BYTES:
        raise ValueError(f"a message id needs {_ID_BYTES} random bytes")
    return "msg_" + random_bytes[:_ID_BYTES].hex()


def format_timestamp(epoch_s: float) -> str:
    """Write seconds since 1970 as ISO 8601 in UTC with microseconds."""
    return moments.written(epoch_s)


def digest(type: str, to_session: str, reply_to: str | None, payload: bytes) -> bytes:
    """Hash what a message says, 16 bytes: the same id with another hash is another message.

    :param payload: the payload's bytes as written; the time of sending does not count.
    """
    lengths = f"{len(type)} {len(to_session)} {'-' if reply_to is None else len(reply_to)} "
    head = lengths + type + to_session + (reply_to or "")
    global _blake2b
    if _blake2b is None:
        from hashlib import blake2b  # commands that only send need none

        _blake2b = blake2b
    content = _blake2b(head.encode(), digest_size=_DIGEST_BYTES)
    content.update(payload)
    return bytes(content.digest())


# -- reading ----------------------------------------------------------------------------------


def parse(line: bytes, limit: int = MAX_LINE) -> dict[str, Any]:
    """Read one line strictly: a JSON object with a ``type``, its known fields well typed.

    Missing fields stay missing; unknown ones are kept. Invalid UTF-8 is read as U+FFFD.

    :raise ProtocolError: ``LINE_TOO_LONG``, ``BAD_JSON`` (``details["byte"]`` says where, if
        known), ``BAD_ENVELOPE`` (``details["field"]``); ``message_id`` set if readable.
    """
    check_length(line, limit)
    fields = read_plain(line, line.decode("utf-8", "replace"))
    if fields is None:
        _, found = read_members(line, limit)
        fields = {key: member.value for key, member in found.items()}
    check_fields(fields)
    return fields


def read_members(line: bytes, limit: int = MAX_LINE) -> tuple[str, dict[str, Member]]:
    """Read one line as the JSON object that it must be, not yet looking at its fields.

    :return: the line's text and the object's members by key, in their order.
    :raise ProtocolError: ``LINE_TOO_LONG``, ``BAD_JSON``.
    """
    from intercom.wire.jsontext import JSONDecodeError, read_object  # not for every line

    check_length(line, limit)
    text = line.decode("utf-8", "replace")
    try:
        return text, read_object(line, text)
    except JSONDecodeError as error:
        raise _bad_json(error.msg, _readable_id(text), text, error.pos) from None


def check_fields(fields: dict[str, Any]) -> None:
    """Check the types of the envelope's known fields; null stands for a missing one.

    :raise ProtocolError: ``BAD_ENVELOPE`` with ``details["field"]``.
    """
    message_id = fields.get("id")
    if not is_id(message_id):
        if message_id is not None:
            raise bad_field("id", f"id must be a string of 1 to {MAX_ID} characters")
        message_id = None
    if not isinstance(fields.get("type"), str):
        text = "type must be a string" if "type" in fields else "type is missing"
        raise bad_field("type", text, message_id)
    for name in ("from_session", "to_session", "channel", "reply_to", "timestamp"):
        if not (fields.get(name) is None or isinstance(fields[name], str)):
            raise bad_field(name, f"{name} must be a string", message_id)
    if not (fields.get("payload") is None or isinstance(fields["payload"], dict)):
        raise bad_field("payload", "payload must be an object", message_id)


def check_length(line: bytes, limit: int) -> None:
    """Refuse a line over the limit: ``LINE_TOO_LONG``, the limit and its size named."""
    if len(line) > limit:
        raise ProtocolError(
            f"a line has at most {limit} bytes, not {len(line)}",
            code="LINE_TOO_LONG",
            details={"limit": limit},
        )


def identify(line: bytes) -> Identity | None:
    """Recognise a stored line by sender, id and content, None if it is no envelope.

    A line that was made of another dialect's message names the hash of what that says
    (``payload.pi.digest``), since the line holds more: when it came, and how its sender was.

    Tolerant of what :func:`parse` refuses but the original programs write; never raises.
    """
    from intercom.wire.jsontext import members  # not for every line

    text = line.decode("utf-8", "replace")
    fields: dict[str, Any] = {}
    payload = b"{}"
    try:
        for member in members(text):
            if member.value is not None:
                fields[member.key] = member.value
                if member.key == "payload":
                    payload = text[member.start : member.end].encode()
        check_fields(fields)
        sender = fields.get("from_session", ANONYMOUS)
        to_session = fields.get("to_session", "*")
        content = _named_digest(fields.get("payload"))
        if content is None:
            content = digest(fields["type"], to_session, fields.get("reply_to"), payload)
        identity = Identity(sender, fields["id"], content)
        f"{identity.sender}{identity.message_id}".encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError, ProtocolError, KeyError):
        return None
    return identity


def _named_digest(payload: Any) -> bytes | None:
    """The hash that a payload names, None if it names none."""
    kept = payload.get("pi") if payload else None
    named = kept.get("digest") if isinstance(kept, dict) else None
    if not isinstance(named, str) or len(named) != 2 * _DIGEST_BYTES:
        return None
    try:
        return bytes.fromhex(named)
    except ValueError:
        return None


def _readable_id(text: str) -> str | None:
    """The id of a broken line, if it stands before the fault."""
    from intercom.wire.jsontext import members

    try:
        for member in members(text):
            if member.key == "id" and is_id(member.value):
                member.value.encode()  # half a surrogate pair could not be said back
                return str(member.value)
    except (ValueError, RecursionError):
        pass
    return None


def is_id(value: object) -> bool:
    """Whether a message may have this id: text of 1 to :data:`MAX_ID` characters."""
    return isinstance(value, str) and 1 <= len(value) <= MAX_ID


# -- refusals ---------------------------------------------------------------------------------


def bad_field(name: str, text: str, message_id: str | None = None) -> ProtocolError:
    """The refusal of one field: ``BAD_ENVELOPE`` with ``details["field"]``."""
    error = ProtocolError(text, code="BAD_ENVELOPE", details={"field": name})
    error.message_id = message_id
    return error


def _bad_json(
    said: str, message_id: str | None, text: str = "", at: int | None = None
) -> ProtocolError:
    """``BAD_JSON``, with the byte at which the text goes wrong, where known."""
    details: dict[str, Any] = {}
    place = ""
    if at is not None:
        details["byte"] = len(text[:at].encode("utf-8", "replace"))
        place = f" at byte {details['byte']}"
    error = ProtocolError(f"bad JSON{place}: {said}", code="BAD_JSON", details=details)
    error.message_id = message_id
    return error
