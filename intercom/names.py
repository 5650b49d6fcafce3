"""The grammar of names, and the one function that makes file names of them.

Standard library only. Rules: ``docs/protocol``, "Names".
"""

from __future__ import annotations

from intercom.errors import ProtocolError
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What the hub calls itself.
HUB = "hub"
#: Words that address the hub or everybody, so that no session may carry them.
RESERVED = frozenset({HUB, "*", "all"})
#: Addresses that mean every session of the channel.
EVERYONE = frozenset({"*", "all"})
#: What a client that names itself nowhere is called, as the original hub does.
ANONYMOUS = "unknown"

MAX_SESSION_LENGTH = 128
MAX_FILE_NAME = 100
_MOST_KEPT = 4096
_file_names: dict[str, str] = {}
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def channel_name(text: str) -> str:
    """Sanitise a channel name: letters and digits of any script, ``-``, ``_``; lower-cased.

    Other characters are dropped; an empty result is ``default``. A command that
    changed what its user typed says so, since two spellings could meet by surprise.
    """
    kept = "".join(c for c in text if c.isalnum() or c in "-_")
    return kept.lower() or "default"


def check_session(name: object) -> str:
    """Return a session id unchanged, or refuse it.

    Any text of 1 to 128 characters without control characters is an id, except
    the reserved words.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    if not isinstance(name, str):
        raise ProtocolError("a session id must be a string", code="BAD_SESSION_ID")
    if not 1 <= len(name) <= MAX_SESSION_LENGTH:
        raise ProtocolError(
            f"a session id has 1 to {MAX_SESSION_LENGTH} characters, not {len(name)}",
            code="BAD_SESSION_ID",
        )
    if not name.isprintable() and _holds(name, "Cc", "Cs"):
        raise ProtocolError("a session id must not hold control characters", code="BAD_SESSION_ID")
    if name in RESERVED:
        raise ProtocolError(f"{name!r} is reserved and names no session", code="BAD_SESSION_ID")
    return name


def check_chosen(name: str) -> str:
    """Return a session id that one of ours is to have from now on, or refuse it.

    Ids of other clients may be odder: see :func:`check_session`.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    check_session(name)
    if name.startswith("-"):
        raise ProtocolError(
            f"a name must not begin with '-', as an option does: {name!r}", code="BAD_SESSION_ID"
        )
    if not name.isprintable() and _holds(name, "Cf"):
        raise ProtocolError(
            f"a name must not hold characters that are not seen: {name!a}",
            code="BAD_SESSION_ID",
        )
    return name


def _holds(text: str, *categories: str) -> bool:
    """Whether a character of the text is of one of these categories of Unicode."""
    import unicodedata  # a table that few names need

    return any(unicodedata.category(character) in categories for character in text)


def slug(text: str) -> str:
    """Make a kebab-case session id of any text, ``session`` if nothing is left."""
    if not text.isascii():
        import unicodedata

        text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
    return "-".join(words)[:64].strip("-") or "session"


def file_name(name: str) -> str:
    """Return the one file-name form of a session id or channel.

    Everything outside ``[A-Za-z0-9._-]`` is percent-encoded, a leading dot too,
    so that no id leaves its directory or hides. A result over 100 bytes is cut
    and ended with ``~`` and a hash; since ``~`` itself is always encoded, no two
    ids share a file.
    """
    found = _file_names.get(name)  # asked for with every read and commit of an inbox
    if found is None:
        if len(_file_names) >= _MOST_KEPT:
            _file_names.clear()
        found = _file_names[name] = _encoded(name)
    return found


def _encoded(name: str) -> str:
    data = name.encode("utf-8")
    encoded = "".join(
        chr(byte) if byte in _SAFE and not (i == 0 and byte == 0x2E) else f"%{byte:02X}"
        for i, byte in enumerate(data)
    )
    if len(encoded) <= MAX_FILE_NAME:
        return encoded
    from intercom.hashes import sha256  # for long names only

    digest = sha256(data).hexdigest()[:32]
    return f"{encoded[: MAX_FILE_NAME - 33]}~{digest}"


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names most like a mistyped one, best first; for "did you mean".

    Capitals count as small letters: they are mistaken most easily.
    """
    import difflib  # seldom needed, and not for nothing

    alike: dict[str, list[str]] = {}
    for one in sorted(set(known) - {name}):
        alike.setdefault(one.casefold(), []).append(one)
    close = difflib.get_close_matches(name.casefold(), alike, n=limit, cutoff=0.6)
    return [one for folded in close for one in alike[folded]][:limit]
