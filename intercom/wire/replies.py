"""What the hub says in the NDJSON dialect: replies to lines.

Every line is an envelope with all of its eight fields, so that the original
programs read it too. Lists that could make a line too long are cut, and then
``<list>_total`` says how long they were.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, takewhile
from typing import Any

import msgspec

from intercom.messages import (
    Beat,
    Cursor,
    Fault,
    PlacesTaken,
    Progress,
    Receipt,
    Reply,
    Sessions,
    Welcome,
)
from intercom.names import ANONYMOUS
from intercom.wire.envelope import MAX_LINE, PROTOCOL, format_timestamp

#: What the hub calls itself in the lines that it writes.
HUB = "hub"
#: A welcome with its line feed stays under 64 KiB, the most that the original client reads.
MAX_WELCOME = (1 << 16) - 2
#: An error's sentence is cut here, in characters, since it may quote what a peer sent.
MAX_TEXT = 1000

_encode = msgspec.json.Encoder().encode


class _Line(msgspec.Struct, gc=False):
    """One envelope, in the order in which it is written."""

    id: str
    type: str
    from_session: str
    to_session: str
    channel: str
    reply_to: str | None
    payload: Any
    timestamp: str


class _Stored(msgspec.Struct, gc=False, omit_defaults=True):
    """Payload of a receipt; what has nothing to say is left out."""

    state: str
    level: str
    recipients: int
    live: int
    duplicate: bool = False
    known: bool = True
    nearest: tuple[str, ...] = ()


class Encoder:
    """Replies of the hub of one channel, as lines.

    :param channel: the hub's channel, sanitised.
    :param new_id: draws the id of a line.
    :param timestamp: says the time, ISO 8601.
    :param hub: what a welcome tells about the hub, ``{"pid", "version"}``.
    """

    def __init__(
        self,
        channel: str,
        new_id: Callable[[], str],
        timestamp: Callable[[], str],
        hub: dict[str, Any],
    ) -> None:
        self._channel = channel
        self._new_id = new_id
        self._timestamp = timestamp
        self._hub = hub
        self._writers: dict[type, Callable[[Any], bytes]] = {
            Welcome: self._welcome,
            Fault: self._fault,
            Receipt: self._receipt,
            Progress: self._progress,
            Cursor: self._cursor,
            Sessions: self._sessions,
            PlacesTaken: self._places,
            Beat: self._beat,
        }

    def encode(self, reply: Reply) -> bytes:
        """Write one reply as a line, without line feed, UTF-8, at most ``MAX_LINE`` bytes."""
        return self._writers[type(reply)](reply)

    def _welcome(self, reply: Welcome) -> bytes:
        payload = {
            "peers": reply.peers,
            "status": "connected",
            "protocol": PROTOCOL,
            "features": reply.features,
            "hub": self._hub,
        }
        line = self._line("welcome", reply.session, reply.reply_to, payload)
        return _cut_to_fit(line, ("peers",), MAX_WELCOME)

    def _fault(self, reply: Fault) -> bytes:
        said = {"code": reply.code, "message": shortened(reply.text)}
        payload = {**said, **reply.details, **said}
        return _written(self._line("error", reply.session, reply.reply_to, payload))

    def _receipt(self, reply: Receipt) -> bytes:
        odd = reply.failed or reply.nearest or reply.duplicate or not reply.known
        if reply.state == "stored" and not odd:
            return self._plain_receipt(reply)
        if reply.state == "refused":
            return self._refusal(reply)
        if reply.state == "cancelled":
            state = {"state": reply.state}
            return _encode(self._line("receipt", reply.session, reply.message_id, state))
        payload = _Stored(
            reply.state,
            reply.level,
            reply.recipients,
            reply.live,
            reply.duplicate,
            reply.known,
            reply.nearest,
        )
        line = self._line("receipt", reply.session, reply.message_id, payload)
        if not reply.failed:
            return _encode(line)
        line.payload = {**msgspec.to_builtins(payload), "failed": reply.failed}
        return _cut_to_fit(line, ("failed",), MAX_LINE)

    def _plain_receipt(self, reply: Receipt) -> bytes:
        """The receipt of nearly every message, as any encoder would print it, at half the cost."""
        session, channel = _quoted_name(reply.session or ANONYMOUS), _quoted_name(self._channel)
        line = (
            f'{{"id":"{self._new_id()}","type":"receipt","from_session":"{HUB}",'
            f'"to_session":{session},"channel":{channel},'
            f'"reply_to":{_quoted(reply.message_id)},"payload":{{"state":"stored",'
            f'"level":"{reply.level}","recipients":{reply.recipients},"live":{reply.live}}},'
            f'"timestamp":"{self._timestamp()}"}}'
        )
        return line.encode()

    def _refusal(self, reply: Receipt) -> bytes:
        payload: dict[str, Any] = {
            "state": reply.state,
            "code": reply.code,
            "message": shortened(reply.text),
            "retryable": reply.retryable,
        }
        if reply.nearest:
            payload["nearest"] = reply.nearest
        return _written(self._line("receipt", reply.session, reply.message_id, payload))

    def _progress(self, reply: Progress) -> bytes:
        payload = {"state": reply.state, "session": reply.recipient}
        if reply.at is not None:
            with suppress(ValueError, OverflowError, OSError):  # a file may hold any number
                payload["at"] = format_timestamp(reply.at)
        return _encode(self._line("receipt", reply.session, reply.message_id, payload))

    def _cursor(self, reply: Cursor) -> bytes:
        generation, offset = reply.position
        payload = {"offset": offset, "generation": generation}
        return _encode(self._line("cursor", reply.session, None, payload))

    def _sessions(self, reply: Sessions) -> bytes:
        payload = {"sessions": reply.live, "absent": reply.absent, "hub": self._hub}
        line = self._line("sessions", reply.session, reply.reply_to, payload)
        return _cut_to_fit(line, ("absent", "sessions"), MAX_LINE)

    def _places(self, reply: PlacesTaken) -> bytes:
        return _encode(self._line("places", reply.session, reply.reply_to, {"pid": reply.pid}))

    def _beat(self, reply: Beat) -> bytes:
        return _encode(self._line("heartbeat", reply.session, reply.reply_to, {}))

    def _line(self, type_: str, session: str | None, reply_to: str | None, payload: Any) -> _Line:
        return _Line(
            self._new_id(),
            type_,
            HUB,
            session or ANONYMOUS,
            self._channel,
            reply_to,
            payload,
            self._timestamp(),
        )


def _quoted(text: str) -> str:
    """A text as JSON."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return _written(text).decode()


#: The same few names come with every line.
_quoted_name = lru_cache(maxsize=4096)(_quoted)


def _written(value: Any) -> bytes:
    """JSON of a line or a part of it, whatever its texts hold: a path need not be UTF-8."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return _encode(printable(msgspec.to_builtins(value)))


def printable(value: Any) -> Any:
    """The same, with a question mark for what is no character."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {printable(key): printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [printable(item) for item in value]
    return value


def shortened(text: str) -> str:
    """A sentence cut to :data:`MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def _cut_to_fit(line: _Line, lists: tuple[str, ...], limit: int) -> bytes:
    """Write a line, leaving out the ends of these lists, one list after the other, as needed."""
    written = _written(line)
    for name in lists:
        if len(written) <= limit:
            break
        items = line.payload[name]
        line.payload |= {name: (), f"{name}_total": len(items)}
        room = limit - len(_written(line))
        sizes = accumulate(len(_written(item)) + 1 for item in items)
        line.payload[name] = items[: sum(1 for _ in takewhile(room.__ge__, sizes))]
        written = _written(line)
    return written
