"""Pi messages as lines of an inbox: written so that they leave as they came, and read again.

Beside what ``wire.pi.crossing`` keeps, ``payload.pi`` holds when the hub took the message, where
its sender was, a hash of what it says (``digest``, by which the spool knows it again), and
whom it was for: a session under another id may come for it after a restart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from intercom.core.bus.directory import Identity, Session
from intercom.core.bus.keys import Key, inbox_of, scope_hash
from intercom.errors import ProtocolError
from intercom.names import ANONYMOUS
from intercom.wire.envelope import format_timestamp, make, parse
from intercom.wire.pi.crossing import Original, envelope_id, message_of, original_of, payload_of
from intercom.wire.pi.fields import Record, is_record, is_safe_integer, is_string
from intercom.wire.pi.forms import as_sender
from intercom.wire.pi.printing import js_text
from intercom.wire.pi.reading import FrameError, read_json

_LAST_MS = 253402300799999  # the end of the year 9999


class Content(NamedTuple):
    """What a letter says.

    :ivar info: SessionInfo of the sender when it sent. :ivar scope_name: of the sender.
    :ivar author: name and directory of the sender, be it an alias or not.
    :ivar received: when the hub took it, epoch ms.
    :ivar foreign: the line was not made of a pi message, or not by whom it names.
    """

    message: Record
    info: Record
    sender: Key
    scope_name: str | None
    author: Identity
    target: Key
    addressed: Identity
    received: int
    foreign: bool = False


def content_of(
    message: Record, sender: Session, target: Key, addressed: Identity, received: int
) -> Content:
    """What a connected session's message says."""
    return Content(
        message,
        as_sender(sender.info),
        sender.key,
        sender.scope_name,
        Identity(sender.name, sender.place),
        target,
        addressed,
        received,
    )


def write(content: Content, channel: str, digest: bytes, nonce: str = "") -> bytes:
    """The line of a letter.

    :param digest: hash of what the message says, whenever it is said.
    :param nonce: makes it another line than that of the same message before.
    :raise ProtocolError: ``LINE_TOO_LONG``.
    """
    message = content.message
    payload = payload_of(Original(message, content.info, content.scope_name))
    payload["pi"] = {
        **payload["pi"],
        "to": _written(content),
        "place": content.author.place,
        "receivedAt": content.received,
        "digest": digest.hex(),
    }
    if nonce:
        payload["pi"]["nonce"] = nonce
    reply_to = message.get("replyTo")
    return make(
        type="chat",
        message_id=envelope_id(message["id"], nonce),
        from_session=inbox_of(content.sender),
        to_session=inbox_of(content.target),
        channel=channel,
        reply_to=None if reply_to is None else envelope_id(reply_to),
        payload=payload,
        timestamp=format_timestamp(min(max(message["timestamp"], 0), _LAST_MS) / 1000),
    )


def _written(content: Content) -> str:
    """Whom it is for, as JSON in a string: ids and names may hold what a line cannot."""
    addressed = content.addressed
    said = {"id": content.target.id, "name": addressed.name, "place": addressed.place}
    return js_text({**said, "scope": content.target.scope})


def read(
    line: bytes, inbox: str, owner: Key | None, resolve: Callable[[str], str], now: int
) -> Content | None:
    """What a line says; None if it is no message.

    :param owner: whose inbox it is, where a line does not say so.
    :param resolve: finds out what directory a path leads to.
    :param now: stands for times that a line does not tell.
    """
    try:
        fields = parse(line)
    except ProtocolError:
        return None
    if fields["type"] != "chat" or not fields.get("id"):
        return None
    kept = (fields.get("payload") or {}).get("pi")
    kept = kept if is_record(kept) else {}
    target, addressed = _addressee(kept.get("to"), inbox, owner)
    if target is None:
        return None
    received = kept.get("receivedAt")
    received = int(received) if is_safe_integer(received) else now
    place = kept.get("place")
    return _signed(
        fields, target, addressed, (lambda _: place) if is_string(place) else resolve, received
    )


def _signed(
    fields: Record, target: Key, addressed: Identity, resolve: Callable[[str], str], received: int
) -> Content:
    """A line with its sender, who is believed as far as the envelope bears it out."""
    speaker = fields.get("from_session") or ANONYMOUS
    original = original_of(fields)
    if original is not None:
        info = original.sender
        sender = Key(scope_hash(original.scope), info["id"])
        if inbox_of(sender) == speaker:
            name = str(info.get("name") or "").lower()
            author = Identity(name, resolve(info["cwd"]))
            scope = original.scope
            message = original.message
            return Content(message, info, sender, scope, author, target, addressed, received)
        said = {name: value for name, value in fields["payload"].items() if name != "pi"}
        fields = {**fields, "payload": said}  # these are another's words
    message = message_of(fields, received)
    sender, info = Key(None, speaker), {"id": speaker}
    who = Identity()
    return Content(message, info, sender, None, who, target, addressed, received, foreign=True)


def _addressee(said: object, inbox: str, owner: Key | None) -> tuple[Key | None, Identity]:
    """Whom a line is for: whom it names if this is that session's inbox, else the owner."""
    known = _json(said) if isinstance(said, str) else {}
    session_id, scope = known.get("id"), known.get("scope")
    if is_string(session_id) and (scope is None or is_string(scope)):
        target = Key(scope, session_id)
        if inbox_of(target) == inbox:
            name, place = known.get("name"), known.get("place")
            if is_string(name) and is_string(place):
                return target, Identity(name, place)
            return target, Identity()
    if owner is None and inbox_of(Key(None, inbox)) == inbox:
        owner = Key(None, inbox)
    return owner, Identity()


def _json(text: str) -> Record:
    try:
        value = read_json(text.encode("utf-8", "replace"))
    except FrameError:
        return {}
    return value if is_record(value) else {}
