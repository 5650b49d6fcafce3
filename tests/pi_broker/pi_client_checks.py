"""What the public pi-intercom client accepts of its broker, from the protocol alone.

It drops its connection at a frame before ``registered``, an unknown type or a bad field. Here
that fails the test.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

Frame = dict[str, Any]
Check = Callable[[Any], bool]

FEATURES = ["extension-bus-v1", "exact-send-v1"]


class Rejected(AssertionError):
    """The hub said what makes the public client drop its connection."""


def _string(value: Any) -> bool:
    return isinstance(value, str)


def _boolean(value: Any) -> bool:
    return isinstance(value, bool)


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _anything(value: Any) -> bool:
    return True


def _one_of(*words: str) -> Check:
    return lambda value: value in words


def _record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields; others are not looked at."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(name in value and good(value[name]) for name, good in required.items())
            and all(good(value[name]) for name, good in (optional or {}).items() if name in value)
        )

    return check


def _each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


_session = _record(
    {"id": _string, "cwd": _string, "model": _string}
    | dict.fromkeys(("pid", "startedAt", "lastActivity"), _number),
    dict.fromkeys(("name", "status", "tmuxPane", "endpointEpoch"), _string)
    | dict.fromkeys(("contextPct", "contextTokens", "contextWindow"), _number)
    | dict.fromkeys(("runtimeFallbackAlias", "trustedLocal"), _boolean),
)
_attachment = _record(
    {"type": _one_of("file", "snippet", "context"), "name": _string, "content": _string},
    {"language": _string},
)
_times = ("senderSequence", "brokerReceivedAt", "brokerDeliveredAt", "receiverReceivedAt")
_message = _record(
    {
        "id": _string,
        "timestamp": _number,
        "content": _record({"text": _string}, {"attachments": _each(_attachment)}),
    },
    dict.fromkeys(("replyTo", "supersedes", "retryOf"), _string)
    | dict.fromkeys((*_times, "injectedAt"), _number)
    | {"expectsReply": _boolean},
)
_receipt = _record(
    {
        "messageId": _string,
        "timestamp": _number,
        "status": _one_of(
            "receiver_received",
            "queued",
            "injected",
            "acknowledged",
            "expired",
            "cancelled",
            "superseded",
            "cancellation_requested",
        ),
    },
    {"detail": _string},
)
_control = _record(
    {"action": _one_of("cancel", "supersede"), "messageId": _string, "timestamp": _number},
    {"supersededBy": _string},
)
_owner: dict[str, Check] = {"ownerId": _string, "ownerEpoch": _string}
_outcome: dict[str, Check] = {"code": _string, "retryable": _boolean, "outcomeKnown": _boolean}
#: Required and optional fields of each frame.
_FRAMES: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "registered": ({"sessionId": _string, "features": _each(_string)}, {}),
    "health_ok": ({"requestId": _string, "protocol": _string, "version": _number}, {}),
    "error": ({"error": _string}, {}),
    "sessions": ({"requestId": _string, "sessions": _each(_session)}, {}),
    "session_joined": ({"session": _session}, {}),
    "session_left": ({"sessionId": _string}, {}),
    "presence_update": ({"session": _session}, {}),
    "message": ({"from": _session, "message": _message}, {}),
    "delivered": (
        {"messageId": _string},
        {"delivery": _one_of("socket_delivered", "queued"), **_outcome},
    ),
    "delivery_failed": (
        {"messageId": _string, "reason": _string},
        {"delivery": _one_of("failed", "unknown"), **_outcome},
    ),
    "message_control": ({"from": _session, "control": _control}, {}),
    "message_receipt": ({"from": _session, "receipt": _receipt}, {}),
    "extension_owner": ({"namespace": _string}, _owner),
    "extension_message": (
        {"namespace": _string, "fromSessionId": _string, "payload": _anything},
        _owner,
    ),
    "extension_state": ({"namespace": _string, "revision": _number, "payload": _anything}, {}),
    "extension_state_result": (
        {"namespace": _string, "committed": _boolean, "revision": _number},
        {"reason": _string},
    ),
}
_NEVER_REGISTERED = frozenset({"registered", "health_ok"})
_ONLY_REGISTERED = frozenset(_FRAMES) - _NEVER_REGISTERED - {"error"}


def check_frame(frame: Any, registered: bool) -> None:
    """Fail where the public client would drop its connection.

    :param registered: the connection has a session.
    """
    kind = frame.get("type") if isinstance(frame, dict) else None
    if kind not in _FRAMES:
        raise Rejected(f"unknown frame: {frame}")
    if kind in (_NEVER_REGISTERED if registered else _ONLY_REGISTERED):
        raise Rejected(f"{'once' if registered else 'before'} registered: {frame}")
    required, optional = _FRAMES[kind]
    if not _record({"type": _string, **required}, optional)(frame):
        raise Rejected(f"bad field: {frame}")
    if kind == "registered" and (
        frame["features"] != FEATURES or set(frame) != {"type", "sessionId", "features"}
    ):
        raise Rejected(f"another welcome: {frame}")
    if kind == "sessions" and set(frame) != {"type", "requestId", "sessions"}:
        raise Rejected(f"a part of a listing: {frame}")
    if kind.startswith("extension") and ("ownerId" in frame) != ("ownerEpoch" in frame):
        raise Rejected(f"half an owner: {frame}")
    if '"peerUid"' in json.dumps(frame):
        raise Rejected(f"the peer's uid is told: {frame}")
