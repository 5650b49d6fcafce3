"""What sessions, inboxes and states are called. Scopes go by the hash of their name."""

from __future__ import annotations

from hashlib import sha256
from typing import NamedTuple

from intercom.errors import ProtocolError
from intercom.names import check_session
from intercom.wire.pi.printing import js_text

_INBOX_PREFIX = "pi."
_INBOX_DIGITS = 40


class Key(NamedTuple):
    """A session: an id within a scope.

    :ivar scope: hash of the scope's name (:func:`scope_hash`), None for the unnamed scope.
    """

    scope: str | None
    id: str


def scope_hash(name: str | None) -> str | None:
    """What stands for a scope in keys and file names, so that a restart need not know names."""
    return None if not name else _hash(name)


def inbox_of(key: Key) -> str:
    """The name of a session's inbox: its id, or a hash where that is no NDJSON session's id.

    Scoped sessions, reserved words and ids that are too long or unclean get a hash, and so
    do ids that look like one.
    """
    if key.scope is None and not key.id.startswith(_INBOX_PREFIX):
        try:
            return check_session(key.id)
        except ProtocolError:
            pass
    return _INBOX_PREFIX + _hash(js_text(list(key)))[:_INBOX_DIGITS]


def state_namespace(scope: str | None, namespace: str) -> str:
    """What an extension's state is filed under."""
    return namespace if scope is None else js_text(["scope", scope, namespace])


def _hash(text: str) -> str:
    # Half of a surrogate pair is U+FFFD in JavaScript's UTF-8.
    clean = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return sha256(clean.encode()).hexdigest()
