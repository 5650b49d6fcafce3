"""Every error that intercom raises on purpose. Standard library only.

Each carries its stable wire ``code`` (``docs/protocol``, "Error codes"), a
sentence for people, and ``exit_code``: what a command that fails with it
returns (BSD ``sysexits``). ``remedy`` is the next thing to try, where there is
one; commands print it after the sentence. Any other exception is a bug.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

EX_USAGE = 2
EX_DATAERR = 65
EX_NOINPUT = 66
EX_NOUSER = 68
EX_UNAVAILABLE = 69
EX_CANTCREAT = 73
EX_TEMPFAIL = 75
EX_PROTOCOL = 76
EX_NOPERM = 77
EX_CONFIG = 78

#: Exit status of a command, by the wire code of what went wrong.
EXIT_CODES: dict[str, int] = {
    "BAD_JSON": EX_DATAERR,
    "BAD_ENVELOPE": EX_DATAERR,
    "BAD_SESSION_ID": EX_DATAERR,
    "LINE_TOO_LONG": EX_DATAERR,
    "MESSAGE_ID_REUSE": EX_DATAERR,
    "UNKNOWN_MESSAGE": EX_NOINPUT,
    "TARGET_NOT_FOUND": EX_NOUSER,
    "HUB_UNAVAILABLE": EX_UNAVAILABLE,
    "TARGET_DISCONNECTED": EX_UNAVAILABLE,
    "SHUTTING_DOWN": EX_UNAVAILABLE,
    "CANNOT_CREATE": EX_CANTCREAT,
    "DISK_FULL": EX_CANTCREAT,
    "SPOOL_FAILED": EX_CANTCREAT,
    "HUB_STUCK": EX_TEMPFAIL,
    "IN_USE": EX_TEMPFAIL,
    "INBOX_FULL": EX_TEMPFAIL,
    "INBOX_LOCKED": EX_TEMPFAIL,
    "MUTUAL_ASK": EX_TEMPFAIL,
    "RATE_LIMITED": EX_TEMPFAIL,
    "STALE_POSITION": EX_TEMPFAIL,
    "TIMEOUT": EX_TEMPFAIL,
    "TOO_MANY_SESSIONS": EX_TEMPFAIL,
    "SESSION_COLLISION": EX_NOPERM,
    "TAKEN_OVER": EX_NOPERM,
    "UNAUTHORIZED": EX_NOPERM,
    "UNSAFE_PLACE": EX_NOPERM,
    "BAD_CONFIG": EX_CONFIG,
}

#: Codes after which the hub closes the connection; after all others it stays usable.
CLOSING_CODES = frozenset(
    {"SESSION_COLLISION", "TAKEN_OVER", "UNAUTHORIZED", "TOO_MANY_SESSIONS", "SHUTTING_DOWN"}
)

#: Codes of refusals that the same message may outlive when it is sent again later.
RETRYABLE_CODES = frozenset(
    {
        "INBOX_FULL",
        "INBOX_LOCKED",
        "DISK_FULL",
        "SPOOL_FAILED",
        "RATE_LIMITED",
        "SHUTTING_DOWN",
        "TIMEOUT",
        "TOO_MANY_SESSIONS",
    }
)


class IntercomError(Exception):
    """The root: something was refused or could not be done, and ``code`` says what.

    :param text: one sentence for people.
    :param code: the stable code; subclasses give a default.
    :param remedy: what to try next, or an empty string.
    :param details: further fields of the error's payload (``nearest``, ``offset`` ...).
    """

    code = "INTERNAL"

    def __init__(
        self,
        text: str,
        *,
        code: str | None = None,
        remedy: str = "",
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(text)
        self.text = text
        if code is not None:
            self.code = code
        self.remedy = remedy
        self.details: dict[str, Any] = details or {}

    @property
    def exit_code(self) -> int:
        """What a command that fails with this error returns."""
        return EXIT_CODES.get(self.code, EX_PROTOCOL)

    @property
    def retryable(self) -> bool:
        """Whether the same request may succeed later, unchanged."""
        return self.code in RETRYABLE_CODES


class ProtocolError(IntercomError):
    """A line, frame or request breaks a rule of its dialect; the peer is told ``code``.

    :ivar message_id: id of the offending line where it could be read, else None.
    """

    code = "BAD_ENVELOPE"
    message_id: str | None = None


class SpoolError(IntercomError):
    """An inbox file could not be read or written; nothing half-written is left behind."""

    code = "SPOOL_FAILED"


class StalePosition(SpoolError):
    """A commit names another generation, no record boundary, or lies past the end."""

    code = "STALE_POSITION"


class InboxLocked(SpoolError):
    """Another process kept an inbox's lock for longer than a sender is made to wait."""

    code = "INBOX_LOCKED"


class UnsafePlace(IntercomError):
    """A directory or file is not ours alone, so nothing is read from it or written to it."""

    code = "UNSAFE_PLACE"


class CannotCreate(IntercomError):
    """A directory, file or socket could not be made (exit code 73)."""

    code = "CANNOT_CREATE"


class HubUnavailable(IntercomError):
    """No hub answers and none could be started, or what is asked needs one (exit code 69)."""

    code = "HUB_UNAVAILABLE"


class AlreadyLed(IntercomError):
    """Another hub leads this channel. Not a failure: whoever lost the election exits 0.

    :ivar details: ``pid``, ``version``, ``started`` of the leader, where its lock file says so.
    """

    code = "ALREADY_LED"


class BadConfig(IntercomError):
    """A setting, identity file or option holds something unusable (exit code 78)."""

    code = "BAD_CONFIG"


class BadUsage(BadConfig):
    """A value that was typed on the command line is unusable (exit code 2)."""

    code = "USAGE"

    @property
    def exit_code(self) -> int:
        """That of a command line that makes no sense; what stands in files is 78."""
        return EX_USAGE
