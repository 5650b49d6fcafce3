"""What clients of the pi dialect say, once it was checked, and what is refused.

Objects of the wire (sessions, messages, receipts) stay the dicts that they came as, checked
but not rebuilt: order of keys and unknown fields reach the other side.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from intercom.wire.pi.fields import Record, Variant


class Peer(msgspec.Struct, frozen=True):
    """What the reading of a frame must know of the connection that sent it.

    :ivar variant: which client it is; decided at the first ``register`` and kept after an
        ``unregister``; None before.
    :ivar registered: it has a session now.
    :ivar topic_frames: it asked for topic frames when it registered (subagents).
    :ivar namespaces: of the extensions that it has now (intercom).
    :ivar extensions: so many it may have. :ivar extension_bytes: of a message of one.
    """

    variant: Variant | None = None
    registered: bool = False
    topic_frames: bool = False
    namespaces: frozenset[str] = frozenset()
    extensions: int = 32
    extension_bytes: int = 16 * 1024


class Refusal(msgspec.Struct, frozen=True):
    """A frame that is not carried out.

    :ivar reason: why, for the log.
    :ivar answer: the frame to answer with, and the connection stays; None: the connection is
        closed without a word, and its session ends.
    """

    reason: str
    answer: Record | None = None

    @property
    def closes(self) -> bool:
        """Whether the connection ends."""
        return self.answer is None


class CommitRefusal(msgspec.Struct, frozen=True):
    """A state commit that is answered with ``extension_state_result``; the connection stays.

    :ivar tells_revision: the answer names the namespace's revision, which only the keeper of
        states knows; else it is 0.
    """

    namespace: str
    reason: str
    tells_revision: bool


class Capability(msgspec.Struct, frozen=True):
    """An extension that a session has: its namespace, and whether it may own it."""

    namespace: str
    owner_eligible: bool


class Register(msgspec.Struct, frozen=True):
    """Claim a session.

    :ivar session: the fields of the session that count, in their order, without an id.
    :ivar wished_id: the id asked for; None: the hub draws one. A subagents client gets another
        if it is taken, an intercom client takes it over.
    :ivar scope: name of the closed group; None is the unnamed one.
    :ivar state_id: what a TCP client shows to be let in; None: nothing.
    """

    variant: Variant
    session: Record
    wished_id: str | None = None
    scope: str | None = None
    extensions: tuple[Capability, ...] = ()
    topic_frames: bool = False
    state_id: str | None = None


class Health(msgspec.Struct, frozen=True):
    """Ask whether this is a broker; without registering."""

    request_id: str
    state_id: str | None = None


class Unregister(msgspec.Struct, frozen=True):
    """End the session; the connection may register again."""


class TopicChange(msgspec.Struct, frozen=True):
    """What a ``list`` of a subagents client does to its topics.

    :ivar topic: for ``publish`` and ``restore`` of a topic, a checked TopicUpdate.
    :ivar subscription: for ``subscribe`` and ``restore`` of one, a checked TopicSubscription.
    :ivar name: for ``unsubscribe``.
    """

    action: Literal["publish", "subscribe", "restore", "unsubscribe"]
    topic: Record | None = None
    subscription: Record | None = None
    name: str = ""


class Listing(msgspec.Struct, frozen=True):
    """Ask who is here. ``stream`` and ``change`` are of subagents clients only."""

    request_id: str
    stream: bool = False
    change: TopicChange | None = None


class Send(msgspec.Struct, frozen=True):
    """Send a message.

    :ivar to: an id, a name or the beginning of an id, as the variant's rules have it.
    :ivar message: checked by the sender's rules, compact topics restored.
    :ivar target: id and endpoint epoch of an exact target (intercom); then ``to`` is that id.
    """

    to: str
    message: Record
    target: tuple[str, str] | None = None


class MessageReceipt(msgspec.Struct, frozen=True):
    """What became of a message that was received: ``receipt`` goes to its sender as it is."""

    receipt: Record


class CancelMessage(msgspec.Struct, frozen=True):
    """Take a message back."""

    message_id: str


class CancelAsk(msgspec.Struct, frozen=True):
    """Wait no longer for an answer."""

    message_id: str


class Presence(msgspec.Struct, frozen=True):
    """Fields of the session that change; None clears one."""

    changes: Record


class CapabilitiesUpdate(msgspec.Struct, frozen=True):
    """The extensions that the session has from now on."""

    extensions: tuple[Capability, ...]


class ExtensionPublish(msgspec.Struct, frozen=True):
    """A message to the owner of a namespace, or to all that have it.

    :ivar owner_epoch: None where the frame held no string.
    """

    namespace: str
    audience: Literal["owner", "capable"]
    owner_only: bool
    owner_epoch: str | None
    payload: Any


class StateCommit(msgspec.Struct, frozen=True):
    """Replace the state of a namespace, if its revision is still the expected one."""

    namespace: str
    owner_epoch: str
    expected_revision: int
    payload: Any


Request = (
    Register
    | Health
    | Unregister
    | Listing
    | Send
    | MessageReceipt
    | CancelMessage
    | CancelAsk
    | Presence
    | CapabilitiesUpdate
    | ExtensionPublish
    | StateCommit
)
