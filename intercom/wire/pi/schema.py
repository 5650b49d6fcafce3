"""One frame of a client to a request, or to the refusal of it.

Both clients say things of the same name by different rules, and which client a connection is
was decided when it registered. Whatever cannot be answered in the words of that client closes
its connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from intercom.wire.pi.extensions import parse_capabilities, parse_commit, parse_publish
from intercom.wire.pi.fields import Record, Variant
from intercom.wire.pi.messages import parse_receipt, parse_send
from intercom.wire.pi.replies import sessions_error
from intercom.wire.pi.requests import (
    CancelAsk,
    CancelMessage,
    CommitRefusal,
    Health,
    Listing,
    Peer,
    Refusal,
    Register,
    Request,
    Unregister,
)
from intercom.wire.pi.sessions import parse_presence, parse_register
from intercom.wire.pi.topics import BadTopicChange, read_change

Outcome = Request | Refusal | CommitRefusal


def parse(frame: Record, peer: Peer) -> Outcome:
    """Read one frame of a connection.

    :param frame: as :class:`intercom.wire.pi.frames.FrameCutter` gives it.
    :param peer: what is known of the connection.
    """
    kind = frame["type"]
    if not peer.registered or peer.variant is None:
        return _parse_first(frame, peer)
    if kind == "register":
        return Refusal("Received duplicate register message")
    parser = _PARSERS[peer.variant].get(kind)
    if parser is None:
        return Refusal(f"Unknown client message type: {kind}")
    return parser(frame, peer)


def _parse_first(frame: Record, peer: Peer) -> Outcome:
    """A frame of a connection that has no session, or no longer one."""
    if frame["type"] == "health":
        return _health(frame)
    if frame["type"] != "register":
        return Refusal(f"Received {frame['type']} before register")
    request = parse_register(frame, peer.extensions)
    if isinstance(request, Register) and peer.variant not in (None, request.variant):
        return Refusal("Invalid register message")  # which client it is was decided before
    return request


def _health(frame: Record) -> Health | Refusal:
    request_id, state_id = frame.get("requestId"), frame.get("stateId")
    if not isinstance(request_id, str):
        return Refusal("Invalid health message")
    return Health(request_id, state_id if isinstance(state_id, str) else None)


def _unregister(frame: Record, peer: Peer) -> Unregister:
    return Unregister()


def _listing(frame: Record, peer: Peer) -> Listing | Refusal:
    request_id = frame.get("requestId")
    if not isinstance(request_id, str):
        return Refusal("Invalid list message")
    if peer.variant == "intercom":
        return Listing(request_id)
    change = None
    if "change" in frame:
        try:
            change = read_change(frame["change"], peer.topic_frames)
        except BadTopicChange as error:
            return Refusal(error.text, sessions_error(request_id, error.text))
    return Listing(request_id, frame.get("stream") is True, change)


def _cancel_message(frame: Record, peer: Peer) -> CancelMessage | Refusal:
    message_id = frame.get("messageId")
    if not isinstance(message_id, str):
        return Refusal("Invalid cancel_message message")
    return CancelMessage(message_id)


def _cancel_ask(frame: Record, peer: Peer) -> CancelAsk | Refusal:
    message_id = frame.get("messageId")
    if not isinstance(message_id, str):
        return Refusal("Invalid cancel_ask message")
    return CancelAsk(message_id)


_PARSERS: Mapping[Variant, Mapping[str, Callable[[Record, Peer], Outcome]]] = {
    "intercom": {
        "unregister": _unregister,
        "list": _listing,
        "send": lambda frame, peer: parse_send(frame, "intercom"),
        "message_receipt": lambda frame, peer: parse_receipt(frame),
        "cancel_message": _cancel_message,
        "cancel_ask": _cancel_ask,
        "presence": lambda frame, peer: parse_presence(frame, "intercom"),
        "extension_capabilities_update": parse_capabilities,
        "extension_publish": parse_publish,
        "extension_state_commit": parse_commit,
    },
    "subagents": {
        "unregister": _unregister,
        "list": _listing,
        "send": lambda frame, peer: parse_send(frame, "subagents"),
        "presence": lambda frame, peer: parse_presence(frame, "subagents"),
    },
}
