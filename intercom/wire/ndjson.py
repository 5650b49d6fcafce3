"""The NDJSON dialect: lines to messages and back. Rules: ``docs/protocol``.

A hub forwards and stores the bytes that the sender wrote, so reading takes the
header apart and leaves the payload a span of the line. Most lines have the
eight fields and nothing odd, which is found by counting bytes. Any other line
gets the strict reading of ``intercom.wire.envelope``, which commands use too:
there is one set of rules, and this module only knows a short cut through it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Annotated, Any

import msgspec

from intercom.errors import ProtocolError
from intercom.messages import Envelope, Message
from intercom.names import ANONYMOUS, EVERYONE, channel_name, check_session
from intercom.records import LEVELS
from intercom.wire.controls import control
from intercom.wire.envelope import (
    MAX_ID,
    MAX_LINE,
    bad_field,
    check_fields,
    check_length,
    is_id,
    read_members,
)
from intercom.wire.jsontext import (
    MAX_DEPTH,
    MAX_DIGITS,
    Member,
    is_too_deep,
    may_hold_long_number,
)
from intercom.wire.replies import Encoder

__all__ = ["Decoder", "Encoder"]

#: The white space of JSON; ``bytes.strip`` alone would take form feeds too.
_SPACE = b" \t\r\n"
_CR, _LF, _OBJECT, _BACKSLASH = b"\r\n{\\"
#: Double quotes outside the payload, where a line has the eight fields and no other, each
#: once, and no quote within a string: those of eight keys and six strings. A ``reply_to``
#: that is a string adds two, and so does every further key, at least.
_QUOTES = 2 * (8 + 6)


class _Header(msgspec.Struct, gc=False):
    """The header of a line that lacks nothing."""

    type: str
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ID)]
    from_session: str
    to_session: str
    channel: str
    reply_to: str | None
    timestamp: str
    payload: msgspec.Raw


class _ChatPayload(msgspec.Struct, gc=False):
    strict: msgspec.Raw = msgspec.Raw(b"false")
    durability: msgspec.Raw = msgspec.Raw(b"")
    expects_reply: msgspec.Raw = msgspec.Raw(b"false")


_decode_header = msgspec.json.Decoder(_Header).decode
_decode_chat = msgspec.json.Decoder(_ChatPayload).decode
_decode_text = msgspec.json.Decoder(str).decode
_encode = msgspec.json.Encoder().encode
#: The same few names come with every line; a refusal is not remembered.
_check_name = lru_cache(maxsize=4096)(check_session)


class Decoder:
    """Lines that clients say to the hub of one channel, as messages.

    :param channel: the hub's channel, sanitised.
    :param new_id: draws the id of a chat that has none.
    :param timestamp: says the time of a chat that does not, ISO 8601.
    :param limit: longest line in bytes, as it comes and as it is forwarded.
    """

    def __init__(
        self,
        channel: str,
        new_id: Callable[[], str],
        timestamp: Callable[[], str],
        limit: int = MAX_LINE,
    ) -> None:
        self._channel = channel
        self._new_id = new_id
        self._timestamp = timestamp
        self._limit = limit

    def decode(self, line: bytes, session: str | None) -> Message:
        """Read one line, without its line feed.

        :param session: the id that the connection registered, None before; a chat that
            names no sender comes from it.
        :raise ProtocolError: the code and sentence to answer with; ``message_id`` is set
            where the line's id could be read. Any other exception is a bug.
        """
        line = line.strip(_SPACE)
        if not line.isascii():
            line = _repaired(line)
        check_length(line, self._limit)
        plain = _read_plain(line)
        if plain is None:
            return self._decode_closely(line, session)
        header, payload = plain
        try:
            # In the order of the close reading, so that a line with two faults gets one answer.
            _check_name(header.from_session)
            if header.type == "chat" and header.to_session not in EVERYONE:
                _check_name(header.to_session)
            if header.channel != self._channel:
                self._check_channel(header.channel)
            if header.type != "chat":
                return control(header.type, header.id, header.from_session, payload)
            options = _chat_options(payload)
        except ProtocolError as error:
            error.message_id = header.id
            raise
        return Envelope(
            header.id,
            header.from_session,
            header.to_session,
            header.reply_to,
            payload,
            line,
            *options,
        )

    def _decode_closely(self, line: bytes, session: str | None) -> Message:
        """Read a line that lacks a field, has more than the known ones, or is broken."""
        text, members = read_members(line, self._limit)
        fields = {key: member.value for key, member in members.items()}
        # Here line ends can only stand between tokens, where they are worth a space.
        text = text.replace("\r", " ").replace("\n", " ")
        payload = b""
        if fields.get("payload") is not None:
            payload = text[members["payload"].start : members["payload"].end].encode()
        try:
            speaker = fields.get("from_session")
            if speaker is not None:
                check_session(speaker)
            if fields.get("type") == "chat":
                _check_recipient(fields.setdefault("to_session", "*"))
            check_fields(fields)
            if fields.get("channel") is not None:
                self._check_channel(fields["channel"])
            if fields["type"] != "chat":
                return control(fields["type"], fields.get("id"), speaker, payload)
            options = _chat_options(payload or b"{}")
            added = self._missing(members, session)
            text = _completed(text, members, added)
            line = text.encode()
            check_length(line, self._limit)
        except ProtocolError as error:
            error.message_id = fields["id"] if is_id(fields.get("id")) else None
            raise
        return Envelope(
            added.get("id") or fields["id"],
            speaker,
            fields["to_session"],
            fields.get("reply_to"),
            payload or b"{}",
            line,
            *options,
        )

    def _missing(self, members: dict[str, Member], session: str | None) -> dict[str, Any]:
        """What a chat left out, in the order in which it is added."""
        fill: dict[str, Callable[[], Any]] = {
            "id": self._new_id,
            "from_session": lambda: session or ANONYMOUS,
            "to_session": lambda: "*",
            "channel": lambda: self._channel,
            "payload": dict,
            "timestamp": self._timestamp,
        }
        added = {
            name: value()
            for name, value in fill.items()
            if name not in members or members[name].value is None
        }
        if "reply_to" not in members:
            added["reply_to"] = None
        return added

    def _check_channel(self, channel: str) -> None:
        if channel != self._channel and channel_name(channel) != self._channel:
            raise ProtocolError(
                f"this is the hub of channel {self._channel!r}, not of {channel[:MAX_ID]!r}",
                code="CHANNEL_MISMATCH",
            )


def _read_plain(line: bytes) -> tuple[_Header, bytes] | None:
    """Header and payload of a line that needs no closer look, None for all others."""
    try:
        header = _decode_header(line)
    except (msgspec.DecodeError, RecursionError):
        return None
    payload = bytes(header.payload)
    if (
        line.count(b'"') - payload.count(b'"') != _QUOTES + 2 * (header.reply_to is not None)
        or payload[0] != _OBJECT
        or _CR in line
        or _LF in line
        # Only a payload can be deep here, and it takes a bracket to get in and one to get out.
        or (len(payload) >= 2 * MAX_DEPTH and is_too_deep(line))
        or (len(line) > MAX_DIGITS and may_hold_long_number(line))
    ):
        return None
    return header, payload


def _repaired(line: bytes) -> bytes:
    """The line with U+FFFD where it is not UTF-8: else no reader would get past it."""
    try:
        line.decode()
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace").encode()
    return line


def _completed(text: str, members: dict[str, Member], added: dict[str, Any]) -> str:
    """The object's text with fields added; members that have a value stay as written."""
    if not added:
        return text
    written = {key: text[member.at : member.end] for key, member in members.items()}
    for key, value in added.items():
        written[key] = f'"{key}":{_encode(value).decode()}'
    return "{" + ",".join(written.values()) + "}"


def _check_recipient(name: object) -> None:
    if not (isinstance(name, str) and name in EVERYONE):
        check_session(name)


def _chat_options(payload: bytes) -> tuple[bool, str | None, bool]:
    """What a chat's payload asks of the hub: ``strict``, ``durability``, ``expects_reply``.

    Keys may be written in escapes. Most payloads hold none, which a search tells.

    :raise ProtocolError: ``BAD_ENVELOPE``: a level that is none.
    """
    if (
        payload.find(b'"strict"') < 0
        and payload.find(b'"durability"') < 0
        and payload.find(b'"expects_reply"') < 0
        and (_BACKSLASH not in payload or payload.find(b"\\u00") < 0)
    ):
        return False, None, False
    asked = _decode_chat(payload)
    strict, asks = bytes(asked.strict) == b"true", bytes(asked.expects_reply) == b"true"
    return strict, _level(asked.durability) if bytes(asked.durability) else None, asks


def _level(written: msgspec.Raw) -> str:
    """The durability level that a chat names."""
    try:
        level = _decode_text(written)
    except msgspec.DecodeError:
        level = ""
    if level not in LEVELS:
        place = "payload.durability"
        text = f"{place} must be one of {', '.join(LEVELS)}; leave it out for the channel's level"
        raise bad_field(place, text)
    return level
