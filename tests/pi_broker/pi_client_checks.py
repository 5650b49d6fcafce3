"""What the public pi-intercom client accepts of its broker, from the protocol alone.

It drops its connection at a frame before ``registered``, an unknown type or a bad field. Here
that fails the test.
"""

from __future__ import annotations

import json
from typing import Any

from pi_fields import Check, Rejected, boolean, each, number, one_of, record, string

FEATURES = ["extension-bus-v1", "exact-send-v1"]


def _anything(value: Any) -> bool:
    return True


_session = record(
    {"id": string, "cwd": string, "model": string}
    | dict.fromkeys(("pid", "startedAt", "lastActivity"), number),
    dict.fromkeys(("name", "status", "tmuxPane", "endpointEpoch"), string)
    | dict.fromkeys(("contextPct", "contextTokens", "contextWindow"), number)
    | dict.fromkeys(("runtimeFallbackAlias", "trustedLocal"), boolean),
)
_attachment = record(
    {"type": one_of("file", "snippet", "context"), "name": string, "content": string},
    {"language": string},
)
_times = ("senderSequence", "brokerReceivedAt", "brokerDeliveredAt", "receiverReceivedAt")
_message = record(
    {
        "id": string,
        "timestamp": number,
        "content": record({"text": string}, {"attachments": each(_attachment)}),
    },
    dict.fromkeys(("replyTo", "supersedes", "retryOf"), string)
    | dict.fromkeys((*_times, "injectedAt"), number)
    | {"expectsReply": boolean},
)
_receipt = record(
    {
        "messageId": string,
        "timestamp": number,
        "status": one_of(
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
    {"detail": string},
)
_control = record(
    {"action": one_of("cancel", "supersede"), "messageId": string, "timestamp": number},
    {"supersededBy": string},
)
_owner: dict[str, Check] = {"ownerId": string, "ownerEpoch": string}
_outcome: dict[str, Check] = {"code": string, "retryable": boolean, "outcomeKnown": boolean}
#: Required and optional fields of each frame.
_FRAMES: dict[str, tuple[dict[str, Check], dict[str, Check]]] = {
    "registered": ({"sessionId": string, "features": each(string)}, {}),
    "health_ok": ({"requestId": string, "protocol": string, "version": number}, {}),
    "error": ({"error": string}, {}),
    "sessions": ({"requestId": string, "sessions": each(_session)}, {}),
    "session_joined": ({"session": _session}, {}),
    "session_left": ({"sessionId": string}, {}),
    "presence_update": ({"session": _session}, {}),
    "message": ({"from": _session, "message": _message}, {}),
    "delivered": (
        {"messageId": string},
        {"delivery": one_of("socket_delivered", "queued"), **_outcome},
    ),
    "delivery_failed": (
        {"messageId": string, "reason": string},
        {"delivery": one_of("failed", "unknown"), **_outcome},
    ),
    "message_control": ({"from": _session, "control": _control}, {}),
    "message_receipt": ({"from": _session, "receipt": _receipt}, {}),
    "extension_owner": ({"namespace": string}, _owner),
    "extension_message": (
        {"namespace": string, "fromSessionId": string, "payload": _anything},
        _owner,
    ),
    "extension_state": ({"namespace": string, "revision": number, "payload": _anything}, {}),
    "extension_state_result": (
        {"namespace": string, "committed": boolean, "revision": number},
        {"reason": string},
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
    if not record({"type": string, **required}, optional)(frame):
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
