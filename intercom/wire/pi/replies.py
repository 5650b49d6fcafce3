"""What the hub says to clients of the pi dialect, key by key as their own brokers write it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from intercom.wire.pi.fields import Record, Variant

PROTOCOL = "pi-intercom"
VERSION = 1
#: What a broker of pi-intercom can do beyond the oldest one.
FEATURES = ("extension-bus-v1", "exact-send-v1")

#: The frames that a registered client knows. It drops the connection at any other.
KNOWN: Mapping[Variant, frozenset[str]] = {
    "intercom": frozenset(
        {
            "registered",
            "sessions",
            "session_joined",
            "session_left",
            "presence_update",
            "message",
            "delivered",
            "delivery_failed",
            "message_control",
            "message_receipt",
            "extension_owner",
            "extension_message",
            "extension_state",
            "extension_state_result",
            "error",
        }
    ),
    "subagents": frozenset(
        {
            "registered",
            "sessions",
            "message",
            "delivered",
            "delivery_queued",
            "delivery_failed",
            "session_left",
        }
    ),
}
#: What may be said to a connection that has not registered.
KNOWN_BEFORE = frozenset({"registered", "health_ok", "error"})


def may_be_sent(frame: Record, variant: Variant | None) -> bool:
    """Whether a client takes a frame; one that it does not take must not be written.

    :param variant: of the client, None until it has registered.
    """
    if variant is None:
        return frame["type"] in KNOWN_BEFORE
    known = frame["type"] in KNOWN[variant]
    return known and not (variant == "intercom" and "more" in frame)


# -- answers to register, health and list -----------------------------------------------------


def registered(session_id: str, variant: Variant, topic_frames: bool = False) -> Record:
    """The session is claimed; the first frame of every session.

    :param topic_frames: the client asked for them (subagents).
    """
    frame: Record = {"type": "registered", "sessionId": session_id}
    if variant == "intercom":
        return frame | {"features": list(FEATURES)}
    if topic_frames:
        frame |= {"topicsSupported": True, "topicFrames": True}
    return frame


def health_ok(request_id: str) -> Record:
    """Yes, this is a broker; never said to a registered client."""
    return {
        "type": "health_ok",
        "requestId": request_id,
        "protocol": PROTOCOL,
        "version": VERSION,
    }


def sessions(request_id: str, rows: Iterable[Record]) -> Record:
    """Who is here, all at once."""
    return {"type": "sessions", "requestId": request_id, "sessions": list(rows)}


def sessions_part(request_id: str, rows: Iterable[Record], more: bool) -> Record:
    """A part of a listing that is streamed (subagents)."""
    return {**sessions(request_id, rows), "more": more}


def sessions_receipt(request_id: str, receipt: Record) -> Record:
    """A part of a streamed listing that tells what became of a publication."""
    frame = sessions(request_id, ())
    return {**frame, "receipts": [receipt], "more": True}


def sessions_error(request_id: str, reason: str) -> Record:
    """A listing or topic change that failed (subagents)."""
    return {**sessions(request_id, ()), "error": reason}


def topic_receipt(
    to: str,
    message_id: str,
    outcome: Literal["delivered", "queued", "failed"],
    reason: str = "",
) -> Record:
    """What became of a publication with one subscriber."""
    receipt = {
        "to": to,
        "id": message_id,
        "accepted": outcome != "failed",
        "delivered": outcome == "delivered",
    }
    if outcome == "queued":
        receipt["queued"] = True
    if reason:
        receipt["reason"] = reason
    return receipt


# -- who comes, goes, changes -----------------------------------------------------------------


def session_joined(row: Record) -> Record:
    """Somebody registered (intercom)."""
    return {"type": "session_joined", "session": row}


def session_left(session_id: str) -> Record:
    """Somebody left."""
    return {"type": "session_left", "sessionId": session_id}


def presence_update(row: Record) -> Record:
    """Somebody changed (intercom)."""
    return {"type": "presence_update", "session": row}


# -- messages ---------------------------------------------------------------------------------


def message(sender: Record, body: Record) -> Record:
    """A message; sender and body in the form of the receiver (``intercom.wire.pi.forms``)."""
    return {"type": "message", "from": sender, "message": body}


def delivered(message_id: str) -> Record:
    """It was written to the receiver (subagents), or taken back (intercom)."""
    return {"type": "delivered", "messageId": message_id}


def delivery_queued(message_id: str, reason: str) -> Record:
    """It waits to be replaced or delivered (subagents)."""
    return {"type": "delivery_queued", "messageId": message_id, "reason": reason}


def delivery_failed(message_id: str, reason: str) -> Record:
    """It goes nowhere (subagents), or cannot be taken back (intercom)."""
    return {"type": "delivery_failed", "messageId": message_id, "reason": reason}


def delivery_accepted(message_id: str, delivery: Literal["socket_delivered", "queued"]) -> Record:
    """It was written to the receiver, or waits in a mailbox (intercom)."""
    return {
        **delivered(message_id),
        "delivery": delivery,
        "retryable": False,
        "outcomeKnown": True,
    }


def delivery_refused(message_id: str, reason: str, code: str, retryable: bool = False) -> Record:
    """It goes nowhere, with a code (intercom)."""
    return {
        **delivery_failed(message_id, reason),
        "delivery": "failed",
        "code": code,
        "retryable": retryable,
        "outcomeKnown": True,
    }


def superseded(sender: Record, message_id: str, by: str, now: int) -> Record:
    """An earlier message is replaced by the one that follows (intercom)."""
    control = {
        "action": "supersede",
        "messageId": message_id,
        "supersededBy": by,
        "timestamp": now,
    }
    return {"type": "message_control", "from": sender, "control": control}


def cancelled(sender: Record, message_id: str, now: int) -> Record:
    """An earlier message is taken back (intercom)."""
    control = {"action": "cancel", "messageId": message_id, "timestamp": now}
    return {"type": "message_control", "from": sender, "control": control}


def message_receipt(receiver: Record, receipt: Record) -> Record:
    """What the receiver says of a message (intercom)."""
    return {"type": "message_receipt", "from": receiver, "receipt": receipt}


# -- extensions -------------------------------------------------------------------------------


def extension_owner(namespace: str, owner: tuple[str, str] | None) -> Record:
    """Who owns a namespace: id and epoch, or nobody."""
    return {"type": "extension_owner", "namespace": namespace, **_owner(owner)}


def extension_message(
    namespace: str, from_id: str, owner: tuple[str, str] | None, payload: Any
) -> Record:
    """A message of one extension to others of its namespace."""
    return {
        "type": "extension_message",
        "namespace": namespace,
        "fromSessionId": from_id,
        **_owner(owner),
        "payload": payload,
    }


def extension_state(namespace: str, revision: int, payload: Any) -> Record:
    """The state of a namespace."""
    return {
        "type": "extension_state",
        "namespace": namespace,
        "revision": revision,
        "payload": payload,
    }


def extension_state_result(
    namespace: str, committed: bool, revision: int, reason: str | None = None
) -> Record:
    """What became of a state commit; ``revision`` is the one that counts now."""
    frame = {
        "type": "extension_state_result",
        "namespace": namespace,
        "committed": committed,
        "revision": revision,
    }
    return frame if reason is None else {**frame, "reason": reason}


def error(reason: str) -> Record:
    """Something was refused (intercom, or a client that has not registered)."""
    return {"type": "error", "error": reason}


def _owner(owner: tuple[str, str] | None) -> Record:
    """Id and epoch come together or not at all."""
    return {} if owner is None else {"ownerId": owner[0], "ownerEpoch": owner[1]}
