"""Sessions of both clients: registering, and what presence changes.

A SessionInfo is the dict that goes over the wire. Its functions return new ones; the order of
keys is that of the client's own broker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from intercom.wire.pi.extensions import read_capabilities
from intercom.wire.pi.fields import (
    Check,
    Record,
    Variant,
    every,
    holds,
    is_boolean,
    is_count,
    is_label,
    is_list,
    is_number,
    is_string,
)
from intercom.wire.pi.javascript import trimmed
from intercom.wire.pi.requests import Presence, Refusal, Register
from intercom.wire.pi.topics import is_subscription, is_update

_WISHED_ID = re.compile("[a-zA-Z0-9_-]{8,80}")
_PROJECT_ID = re.compile("[a-f0-9]{64}")
_NUMBERS = ("pid", "startedAt", "lastActivity")


def _is_project(value: Any) -> bool:
    return isinstance(value, str) and _PROJECT_ID.fullmatch(value) is not None


#: What an intercom client checks in every session that it is shown, beside its id.
INTERCOM_REQUIRED: Mapping[str, Check] = {
    "cwd": is_string,
    "model": is_string,
    "pid": is_number,
    "startedAt": is_number,
    "lastActivity": is_number,
}
#: What it says of itself at ``register``, and everything else is dropped.
_INTERCOM_OPTIONAL: Mapping[str, Check] = {
    "name": is_string,
    "runtimeFallbackAlias": is_boolean,
    "tmuxPane": is_string,
    "status": is_string,
}
_CONTEXT: Mapping[str, Check] = dict.fromkeys(
    ("contextPct", "contextTokens", "contextWindow"), is_number
)
#: Context numbers come by presence only, the last two from the broker only.
INTERCOM_SHOWN: Mapping[str, Check] = {
    **_INTERCOM_OPTIONAL,
    **_CONTEXT,
    "endpointEpoch": is_string,
    "trustedLocal": is_boolean,
}
#: What no session says of itself.
_HUBS = ("endpointEpoch", "trustedLocal")
#: The order of an intercom session's own fields.
_INTERCOM_ORDER = (
    "name",
    "runtimeFallbackAlias",
    "cwd",
    "model",
    *_NUMBERS,
    "status",
    "tmuxPane",
)
SUBAGENTS_REQUIRED: Mapping[str, Check] = {"cwd": is_label, "model": is_label}
SUBAGENTS_OPTIONAL: Mapping[str, Check] = {
    "name": is_label,
    "projectId": _is_project,
    "status": is_label,
    "lastSeen": is_number,
    "lastIntercomActivity": is_number,
    "pendingAsks": is_count,
    "acceptsAsks": is_boolean,
    "subscriptions": every(is_subscription),
    "topics": every(is_update),
}


def is_null_or_number(value: Any) -> bool:
    """A context number, or null, which clears it."""
    return value is None or is_number(value)


#: What presence may change, in the order in which it is looked at.
_PRESENCE: Mapping[Variant, Mapping[str, Check]] = {
    "intercom": {
        "name": is_string,
        "runtimeFallbackAlias": is_boolean,
        "status": is_string,
        "model": is_string,
        "contextPct": is_null_or_number,
        "contextTokens": is_null_or_number,
        "contextWindow": is_null_or_number,
    },
    "subagents": {
        "name": is_label,
        "status": is_label,
        "model": is_label,
        "pendingAsks": is_count,
        "acceptsAsks": is_boolean,
        "lastIntercomActivity": is_number,
        "subscriptions": every(is_subscription),
        "topics": every(is_update),
    },
}


def is_intercom_session(value: Any) -> TypeGuard[Record]:
    """Whether a pi-intercom client may register as this."""
    return isinstance(value, dict) and holds(
        value, INTERCOM_REQUIRED, {**_INTERCOM_OPTIONAL, "extensions": is_list}
    )


def is_subagents_session(value: Any) -> TypeGuard[Record]:
    """Whether a pi-subagents client may register as this, and would take it as a row."""
    return isinstance(value, dict) and holds(value, SUBAGENTS_REQUIRED, SUBAGENTS_OPTIONAL)


# -- register ---------------------------------------------------------------------------------


def variant_of(session: Any) -> Variant | None:
    """Which client registers so, None for neither: all three numbers, or none of them."""
    if not isinstance(session, dict):
        return None
    if all(is_number(session.get(name)) for name in _NUMBERS):
        return "intercom"
    return None if any(name in session for name in _NUMBERS) else "subagents"


def parse_register(frame: Record, extensions: int = 32) -> Register | Refusal:
    """Read a ``register``; whatever is wrong with it closes the connection.

    :param extensions: so many a session may have.
    """
    session = frame.get("session")
    state_id = frame.get("stateId")
    shown = state_id if isinstance(state_id, str) else None
    match variant_of(session):
        case "intercom" if is_intercom_session(session):
            return _register_intercom(frame, session, shown, extensions)
        case "subagents" if is_subagents_session(session):
            wished = frame.get("requestedId")
            fits = isinstance(wished, str) and _WISHED_ID.fullmatch(wished)
            return Register(
                variant="subagents",
                session=session,
                wished_id=wished if fits else None,
                topic_frames=frame.get("topicFrames") is True,
                state_id=shown,
            )
    return Refusal("Invalid register message")


def _register_intercom(
    frame: Record, session: Record, state_id: str | None, most: int
) -> Register | Refusal:
    wished = frame.get("sessionId")
    if "sessionId" in frame and not (isinstance(wished, str) and trimmed(wished)):
        return Refusal("Invalid register sessionId")
    scope = frame.get("scopeId", "")
    if not isinstance(scope, str):
        return Refusal("Invalid register scopeId")
    extensions = read_capabilities(session.get("extensions", []), most)
    if isinstance(extensions, Refusal):
        return extensions
    return Register(
        variant="intercom",
        session={name: session[name] for name in _INTERCOM_ORDER if name in session},
        wished_id=wished,
        scope=trimmed(scope) or None,
        extensions=extensions,
        state_id=state_id,
    )


def intercom_info(register: Register, session_id: str, epoch: str, trusted: bool) -> Record:
    """The SessionInfo of a pi-intercom client that registered.

    :param epoch: a fresh uuid: the endpoint that exact sends are for.
    :param trusted: it came by the Unix socket.
    """
    return {
        "id": session_id,
        "endpointEpoch": epoch,
        **register.session,
        "trustedLocal": trusted,
    }


def subagents_info(register: Register, session_id: str, now: int) -> Record:
    """The SessionInfo of a pi-subagents client that registered at ``now``, epoch ms.

    The connection is closed if :func:`intercom.wire.pi.listing.check_fits` refuses it.
    """
    last_seen = register.session.get("lastSeen", now)
    said = {name: value for name, value in register.session.items() if name not in _HUBS}
    return {**said, "id": session_id, "lastSeen": last_seen}


def member_info(session_id: str, said: Record) -> Record:
    """The SessionInfo of a session that is no pi client, of what is known of it.

    What pi-intercom clients would not take is left out.
    """
    checks = {**INTERCOM_REQUIRED, **_INTERCOM_OPTIONAL, **_CONTEXT}
    known = {name: said[name] for name in said if name in checks and checks[name](said[name])}
    return {"id": session_id, **known}


# -- presence ---------------------------------------------------------------------------------


def parse_presence(frame: Record, variant: Variant) -> Presence | Refusal:
    """Read a ``presence``; one bad field closes the connection, and none of it is taken."""
    changes = {}
    for name, check in _PRESENCE[variant].items():
        if name in frame:
            if not check(frame[name]):
                return Refusal(f"Invalid presence {name}")
            changes[name] = frame[name]
    return Presence(changes)


def apply_presence(
    info: Record, presence: Presence, variant: Variant, now: int
) -> tuple[Record, bool]:
    """A session as a presence at ``now`` (epoch ms) makes it, and whether that shows.

    A subagents session that :func:`intercom.wire.pi.listing.check_fits` then refuses is closed.
    """
    changed = dict(info)
    for name, value in presence.changes.items():
        if value is None:
            changed.pop(name, None)
        else:
            changed[name] = value
    shows = changed != info
    changed["lastActivity" if variant == "intercom" else "lastSeen"] = now
    return changed, shows
