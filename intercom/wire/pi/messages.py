"""Messages of both clients: which are good, and what makes two of them the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from intercom.wire.pi.fields import (
    Check,
    Record,
    Variant,
    every,
    holds,
    is_boolean,
    is_label,
    is_number,
    is_safe_integer,
    is_string,
    is_text,
    one_of,
)
from intercom.wire.pi.printing import js_text
from intercom.wire.pi.replies import delivery_failed, delivery_refused
from intercom.wire.pi.requests import MessageReceipt, Refusal, Send
from intercom.wire.pi.topics import is_name, is_update, restored

INVALID = "Invalid message format"
RECEIPT_STATES = (
    "receiver_received",
    "queued",
    "injected",
    "acknowledged",
    "expired",
    "cancelled",
    "superseded",
    "cancellation_requested",
)
_WORD = re.compile("[a-zA-Z0-9_-]+")
_KINDS = one_of("file", "snippet", "context")


def is_provenance(value: Any) -> bool:
    """Where a message of an extension comes from, as far as a pi-intercom client looks at it.

    No sender is refused for it, so it is left out for those who would leave over it.
    """
    fields = dict.fromkeys(("extensionId", "extensionName", "requestId"), is_string)
    return isinstance(value, dict) and holds(
        value, {"type": one_of("extension_outbox"), **fields}, {}
    )


def _is_human(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and all(_is_word(value.get(name)) for name in ("ownerSessionId", "runId"))
        and is_safe_integer(value.get("index"))
        and value["index"] >= 0
    )


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and _WORD.fullmatch(value) is not None


#: Optional fields by which a message of a pi-intercom client is judged, beside its content.
INTERCOM_OPTIONAL: Mapping[str, Check] = {
    "senderSequence": is_number,
    "brokerReceivedAt": is_number,
    "brokerDeliveredAt": is_number,
    "receiverReceivedAt": is_number,
    "injectedAt": is_number,
    "supersedes": is_string,
    "retryOf": is_string,
    "replyTo": is_string,
    "expectsReply": is_boolean,
}
#: Those by which one of a pi-subagents client is.
SUBAGENTS_OPTIONAL: Mapping[str, Check] = {
    "replyTo": is_label,
    "expectsReply": is_boolean,
    "human": _is_human,
    "topic": is_update,
    "passive": is_boolean,
    "delivery": one_of("queue", "steer", "passive"),
    "queueMode": one_of("stack", "replace"),
    "threadId": is_name,
}
_RECEIPT: Mapping[str, Check] = {
    "messageId": is_string,
    "status": one_of(*RECEIPT_STATES),
    "timestamp": is_number,
}


def is_attachment(value: Any, name: Check = is_string, text: Check = is_string) -> bool:
    """An attachment, by what its names and its text may hold."""
    required = {"type": _KINDS, "name": name, "content": text}
    return isinstance(value, dict) and holds(value, required, {"language": name})


def _is_safe_attachment(value: Any) -> bool:
    return is_attachment(value, is_label, is_text)


def _is_content(value: Any, text: Check, attachment: Check) -> bool:
    return isinstance(value, dict) and holds(
        value, {"text": text}, {"attachments": every(attachment)}
    )


def is_intercom_message(value: Any) -> TypeGuard[Record]:
    """Whether a pi-intercom client may send this as a message."""
    return (
        isinstance(value, dict)
        and holds(value, {"id": is_string, "timestamp": is_number}, INTERCOM_OPTIONAL)
        and _is_content(value.get("content"), is_string, is_attachment)
    )


def is_subagents_message(value: Any) -> TypeGuard[Record]:
    """Whether a pi-subagents client may send this as a message, and takes it.

    This is the long form of topics.
    """
    return (
        isinstance(value, dict)
        and holds(value, {"id": is_label, "timestamp": is_number}, SUBAGENTS_OPTIONAL)
        and delivery_agrees(value)
        and _is_content(value.get("content"), is_text, _is_safe_attachment)
    )


def delivery_agrees(message: Record) -> bool:
    """Whether those of a message's fields that are good one by one go together."""
    delivery, mode = message.get("delivery"), message.get("queueMode")
    passive, asks = message.get("passive") is True, message.get("expectsReply") is True
    if "topic" in message and (asks or "human" in message or "replyTo" in message):
        return False
    if passive and delivery not in (None, "passive"):
        return False
    if asks and (passive or delivery == "passive"):
        return False
    if mode is not None and delivery != "queue":
        return False
    return (mode == "replace") == ("threadId" in message)


def parse_send(frame: Record, variant: Variant) -> Send | Refusal:
    """Read a ``send``; whatever is wrong with it is answered, and the connection stays."""
    if variant == "intercom":
        return _send_of_intercom(frame)
    message, to = frame.get("message"), frame.get("to")
    if isinstance(message, dict) and not is_subagents_message(message):
        message = restored(message)
    if not is_subagents_message(message):
        return Refusal(INVALID, delivery_failed("unknown", INVALID))
    if not isinstance(to, str):
        return Refusal(INVALID, delivery_failed(message["id"], INVALID))
    return Send(to, message)


def _send_of_intercom(frame: Record) -> Send | Refusal:
    message, to = frame.get("message"), frame.get("to")
    if not is_intercom_message(message):
        return Refusal(INVALID, delivery_refused("unknown", INVALID, "E_INVALID_MESSAGE"))
    if not isinstance(to, str):
        return Refusal(INVALID, delivery_refused(message["id"], INVALID, "E_INVALID_MESSAGE"))
    exact = [frame[name] for name in ("targetId", "targetEpoch") if name in frame]
    if not exact:
        return Send(to, message)
    if len(exact) == 1 or not all(isinstance(part, str) and part for part in exact):
        reason = "Exact target requires an id and endpoint epoch"
        return Refusal(reason, delivery_refused(message["id"], reason, "E_INVALID_TARGET"))
    target_id, epoch = exact
    return Send(target_id, message, (target_id, epoch))


def parse_receipt(frame: Record) -> MessageReceipt | Refusal:
    """Read a ``message_receipt``; whatever is wrong with it closes the connection."""
    receipt = frame.get("receipt")
    if isinstance(receipt, dict) and holds(receipt, _RECEIPT, {"detail": is_string}):
        return MessageReceipt(receipt)
    return Refusal("Invalid message_receipt message")


def fingerprint(message: Record, target_id: str) -> str:
    """What a message says to whom: the same id with another fingerprint is another message."""
    content = message["content"]
    said = {"targetId": target_id, "text": content["text"]}
    if "attachments" in content:
        said["attachments"] = content["attachments"]
    names = ("replyTo", "expectsReply", "supersedes", "retryOf", "provenance")
    return js_text({**said, **{name: message[name] for name in names if name in message}})


def is_staged(message: Record, receiver: Record) -> bool:
    """Whether a message waits for a later one of its thread, rather than going out at once.

    :param receiver: the SessionInfo of its receiver.
    """
    if message.get("delivery") != "queue" or message.get("queueMode") != "replace":
        return False
    status = receiver.get("status", "")
    idle = status == "idle" or status.startswith("idle ")
    return message.get("expectsReply") is True or (
        idle and receiver.get("acceptsAsks") is not False
    )
