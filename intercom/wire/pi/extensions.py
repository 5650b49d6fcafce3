"""The extension bus of the pi-intercom client: capabilities, messages, shared state.

Checks come in the order of the client's own broker, since the first that fails gives the
reason. Those that need to know who owns a namespace come last, and stand apart.
"""

from __future__ import annotations

import re
from typing import Any, TypeGuard

from intercom.wire.pi.fields import Record, is_safe_integer
from intercom.wire.pi.javascript import js_string
from intercom.wire.pi.printing import js_size
from intercom.wire.pi.replies import error
from intercom.wire.pi.requests import (
    CapabilitiesUpdate,
    Capability,
    CommitRefusal,
    ExtensionPublish,
    Peer,
    Refusal,
    StateCommit,
)

#: Bytes of a state as ``JSON.stringify`` prints it.
MAX_STATE = 64 * 1024

_NAMESPACE = re.compile("[a-z0-9][a-z0-9._/-]{0,63}")
#: A namespace that is none is quoted in the answer, which must not grow too large by it.
_MAX_QUOTE = 1000

NOT_ADVERTISED = "Session has not advertised extension capability"
NOT_CAPABLE = "Sender does not have capability for this namespace"
NO_OWNER = "No owner for this namespace"
NOT_THE_OWNER = "Owner validation failed"


def is_namespace(value: Any) -> TypeGuard[str]:
    """A namespace: 1 to 64 lower-case letters, digits, ``._/-``, the first no punctuation."""
    return isinstance(value, str) and _NAMESPACE.fullmatch(value) is not None


def read_capabilities(extensions: Any, most: int) -> tuple[Capability, ...] | Refusal:
    """Read the extensions of a session, at most so many; a fault closes the connection."""
    if not isinstance(extensions, list) or len(extensions) > most:
        return Refusal(f"Invalid extensions field (maximum {most})")
    if not all(map(_is_capability, extensions)):
        return Refusal("Invalid extension capability")
    return tuple(Capability(one["namespace"], one["ownerEligible"]) for one in extensions)


def _is_capability(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and is_namespace(value.get("namespace"))
        and isinstance(value.get("ownerEligible"), bool)
    )


def parse_capabilities(frame: Record, peer: Peer) -> CapabilitiesUpdate | Refusal:
    """Read an ``extension_capabilities_update``; whatever is wrong closes the connection."""
    extensions = read_capabilities(frame.get("extensions"), peer.extensions)
    return extensions if isinstance(extensions, Refusal) else CapabilitiesUpdate(extensions)


# -- messages ---------------------------------------------------------------------------------


def parse_publish(frame: Record, peer: Peer) -> ExtensionPublish | Refusal:
    """Read an ``extension_publish``; whatever is wrong is answered with ``error``."""
    namespace, audience = frame.get("namespace"), frame.get("audience")
    if not peer.namespaces:
        reason = NOT_ADVERTISED
    elif not is_namespace(namespace):
        reason = "Invalid namespace"
    elif audience not in ("owner", "capable"):
        reason = "Invalid audience"
    elif not _fits(frame, peer.extension_bytes):
        limit = f"{peer.extension_bytes / 1024:g} KiB"
        reason = f"Invalid extension payload or payload exceeds {limit} limit"
    elif namespace not in peer.namespaces:
        reason = NOT_CAPABLE
    else:
        epoch = frame.get("ownerEpoch")
        return ExtensionPublish(
            namespace=namespace,
            audience=audience,
            owner_only=frame.get("ownerOnly") is True,
            owner_epoch=epoch if isinstance(epoch, str) else None,
            payload=frame["payload"],
        )
    return Refusal(reason, error(reason))


def publish_fault(publish: ExtensionPublish, epoch: str | None, owns: bool) -> str | None:
    """Why a message is not passed on, to be said in ``error``; None: it is.

    :param epoch: of the namespace's owner now; None: it has none.
    :param owns: the message came by the owner's own connection.
    """
    if epoch is None:
        return NO_OWNER if publish.audience == "owner" or publish.owner_only else None
    if not publish.owner_only:
        return None
    if publish.owner_epoch is None:
        return "ownerEpoch required for owner-only messages"
    return None if owns and publish.owner_epoch == epoch else NOT_THE_OWNER


# -- state ------------------------------------------------------------------------------------


def parse_commit(frame: Record, peer: Peer) -> StateCommit | CommitRefusal:
    """Read an ``extension_state_commit``; a fault is answered with the result."""
    namespace = frame.get("namespace")
    if not peer.namespaces:
        said = "" if namespace in (None, 0, "") else js_string(namespace)  # 0 is False, too
        return CommitRefusal(said[:_MAX_QUOTE], NOT_ADVERTISED, tells_revision=False)
    if not is_namespace(namespace):
        said = js_string(namespace) if "namespace" in frame else "undefined"
        return CommitRefusal(said[:_MAX_QUOTE], "Invalid namespace", tells_revision=False)
    epoch, expected = frame.get("ownerEpoch"), frame.get("expectedRevision")
    if not isinstance(epoch, str):
        reason = "Invalid ownerEpoch"
    elif not (is_safe_integer(expected) and expected >= 0):
        reason = "Invalid expectedRevision"
    elif not _fits(frame, MAX_STATE):
        reason = "Invalid extension state or payload exceeds 64 KiB limit"
    elif namespace not in peer.namespaces:
        reason = NOT_CAPABLE
    else:
        return StateCommit(namespace, epoch, int(expected), frame["payload"])
    return CommitRefusal(namespace, reason, tells_revision=True)


def commit_fault(commit: StateCommit, epoch: str | None, owns: bool) -> str | None:
    """Why a state is not taken, to be said in the result; None: it is, if the revision fits.

    :param epoch: of the namespace's owner now; None: it has none.
    :param owns: the commit came by the owner's own connection.
    """
    if epoch is None:
        return NO_OWNER
    return None if owns and commit.owner_epoch == epoch else NOT_THE_OWNER


def _fits(frame: Record, limit: int) -> bool:
    return "payload" in frame and js_size(frame["payload"]) <= limit
