"""Sessions and messages in the form in which a client takes them, whoever they come from.

A client drops its connection at one bad field, so what its own kind would not have said is
left out or mended here. What is stored is never changed.
"""

from __future__ import annotations

from typing import Any

from intercom.errors import ProtocolError
from intercom.wire.pi import replies
from intercom.wire.pi.fields import (
    Record,
    Variant,
    clean_label,
    clean_text,
    is_label,
)
from intercom.wire.pi.messages import (
    INTERCOM_OPTIONAL,
    SUBAGENTS_OPTIONAL,
    delivery_agrees,
    is_provenance,
    is_subagents_message,
)
from intercom.wire.pi.sessions import (
    INTERCOM_REQUIRED,
    INTERCOM_SHOWN,
    is_subagents_session,
)
from intercom.wire.pi.sessions import SUBAGENTS_OPTIONAL as SESSION_OPTIONAL
from intercom.wire.pi.topics import compacted

#: What stands for a directory, model or name that is not known.
UNKNOWN = "unknown"
#: Optional fields of a message that a pi-intercom client looks at.
_INTERCOM_TAKES = {**INTERCOM_OPTIONAL, "provenance": is_provenance}
#: Where a message of another kind says something of delivery that makes no sense here.
_DELIVERY = ("human", "topic", "passive", "delivery", "queueMode", "threadId")


class Unfit(ProtocolError):
    """A message that this client cannot be sent; ``text`` is the reason for the sender."""


# -- sessions ---------------------------------------------------------------------------------


def intercom_row(info: Record, registered_at: float) -> Record:
    """A session as a pi-intercom client takes it in listings, news and ``from``.

    :param registered_at: epoch ms; stands for the times that the session does not tell.
    """
    known = {"id": info["id"]}
    for name, value in info.items():
        check = INTERCOM_REQUIRED.get(name) or INTERCOM_SHOWN.get(name)
        if check is not None and check(value):
            known[name] = value
    seen = info.get("lastSeen")
    defaults: Record = {
        "cwd": UNKNOWN,
        "model": UNKNOWN,
        "pid": 0,
        "startedAt": registered_at,
        "lastActivity": seen if INTERCOM_REQUIRED["lastActivity"](seen) else registered_at,
    }
    return {**known, **{name: defaults[name] for name in defaults if name not in known}}


def subagents_row(info: Record) -> Record:
    """A session as a pi-subagents client takes it, its topics included."""
    if is_subagents_session(info):
        return info
    row: Record = {}
    for name, value in info.items():
        if name in ("cwd", "model"):
            row[name] = (clean_label(value) if isinstance(value, str) else "") or UNKNOWN
        elif name not in SESSION_OPTIONAL or SESSION_OPTIONAL[name](value):
            row[name] = value
    return {**row, **{name: UNKNOWN for name in ("cwd", "model") if name not in row}}


def as_sender(info: Record) -> Record:
    """A session without its topics and subscriptions: who it is."""
    return {name: info[name] for name in info if name not in ("topics", "subscriptions")}


# -- messages ---------------------------------------------------------------------------------


def stamped(message: Record, received: int, delivered: int) -> Record:
    """A message as it goes to a pi-intercom client, with the broker's two times in epoch ms."""
    return {**message, "brokerReceivedAt": received, "brokerDeliveredAt": delivered}


def intercom_message(message: Record) -> Record:
    """A message as a pi-intercom client takes it."""
    return {
        name: value
        for name, value in message.items()
        if name not in _INTERCOM_TAKES or _INTERCOM_TAKES[name](value)
    }


def subagents_message(message: Record) -> Record:
    """A message as a pi-subagents client takes it: U+FFFD for control characters.

    :raise Unfit: its id, or that of the message which it answers, cannot be mended.
    """
    if is_subagents_message(message):
        return message
    for name in ("id", "replyTo"):
        if name in message and not is_label(message[name]):
            raise Unfit(f"Message {name} is empty or has control characters")
    mended = {
        name: clean_label(value) if name == "threadId" and isinstance(value, str) else value
        for name, value in message.items()
    }
    mended = {
        name: value
        for name, value in mended.items()
        if name not in SUBAGENTS_OPTIONAL or SUBAGENTS_OPTIONAL[name](value)
    }
    if not delivery_agrees(mended):
        mended = {name: value for name, value in mended.items() if name not in _DELIVERY}
    return {**mended, "content": _clean_content(message["content"])}


def _clean_content(content: Record) -> Record:
    clean = {**content, "text": clean_text(content["text"])}
    if "attachments" in content:
        clean["attachments"] = [_clean_attachment(one) for one in content["attachments"]]
    return clean


def _clean_attachment(attachment: Record) -> Record:
    clean: dict[str, Any] = {
        **attachment,
        "name": clean_label(attachment["name"]) or UNKNOWN,
        "content": clean_text(attachment["content"]),
    }
    if "language" in attachment:
        clean["language"] = clean_label(attachment["language"])
        if not clean["language"]:
            del clean["language"]
    return clean


def message_frame(
    sender: Record,
    message: Record,
    variant: Variant,
    *,
    registered_at: float = 0,
    topic_frames: bool = False,
) -> Record:
    """The ``message`` frame for one receiver; written with ``frames.dump_frame``.

    Its size in this form is the one that counts, before anything is staged, too.

    :param registered_at: of the sender, epoch ms.
    :param topic_frames: the receiver asked for them and gets the compact form.
    :raise Unfit: the receiver cannot be sent this; ``text`` is the reason for the sender.
    """
    if variant == "intercom":
        return replies.message(intercom_row(sender, registered_at), intercom_message(message))
    if not is_label(sender["id"]):
        raise Unfit("Sender id is empty or has control characters")
    fit = subagents_message(message)
    row = as_sender(subagents_row(sender))
    return replies.message(row, compacted(fit) if topic_frames else fit)
