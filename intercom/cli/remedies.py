"""The next command to try, for every error that does not bring its own.

Whoever raises an error knows best what helps, and says so in its ``remedy``. What the
hub refuses comes with a code only, and so does what is raised where no command is known.
"""

from __future__ import annotations

import errno
import shlex

from intercom.errors import IntercomError, UnsafePlace

_ADDRESS = "see the names in use: intercom peers; how to send: intercom send --help"
_AS_ANOTHER = "see who is connected: intercom peers; speak as another: --session NAME"
_REPORT = "see what the hub says of it: intercom hub logs -n 20"
_SPACE = "make room, then try again; see where: df -h"

#: By the code of the error.
REMEDIES = {
    "ALREADY_LED": "look at it: intercom hub status",
    "ALREADY_REGISTERED": "end the connection and open another; see: intercom peers",
    "BAD_CONFIG": "see what is set, and where: intercom config",
    "BAD_ENVELOPE": "let the command write the message: intercom send --help",
    "BAD_JSON": "let the command write the message: intercom send --help",
    "BAD_SESSION_ID": _ADDRESS,
    "CANNOT_CREATE": "choose another place: intercom --dir DIR init",
    "CHANNEL_MISMATCH": "say which channel is meant: intercom --channel NAME hub status",
    "DISK_FULL": _SPACE,
    "FROM_MISMATCH": _AS_ANOTHER,
    "HUB_STUCK": "see whether it answers: intercom hub status",
    "HUB_UNAVAILABLE": "see why: intercom hub status; start one: intercom hub start",
    "INBOX_FULL": "have its reader read it: intercom poll --session NAME; then send again",
    "INBOX_LOCKED": "see which program holds it: fuser -v INBOX; then try again",
    "INTERNAL": _REPORT,
    "IN_USE": "see who is here: intercom peers",
    "LAGGED": "read the rest from the file: intercom poll",
    "LINE_TOO_LONG": "put the text into a file that both can read, and send its path: "
    "intercom send --text PATH",
    "MESSAGE_ID_REUSE": "leave --id out, then a fresh one is drawn: intercom send --to NAME",
    "MUTUAL_ASK": "answer what you were asked, then ask: intercom poll",
    "NOT_REGISTERED": "let the command talk to the hub: intercom send --help",
    "RATE_LIMITED": "wait a little, then send again; see who is here: intercom peers",
    "SESSION_COLLISION": _AS_ANOTHER,
    "SHUTTING_DOWN": "try again, which starts another hub; or: intercom hub start",
    "SPOOL_FAILED": _REPORT,
    "STALE_POSITION": "read again from where reading stands: intercom poll",
    "TAKEN_OVER": _AS_ANOTHER,
    "TARGET_DISCONNECTED": "send it as a message that can wait: intercom send --to NAME",
    "TARGET_NOT_FOUND": "see who is here: intercom peers",
    "TIMEOUT": "see whether the hub answers: intercom hub status",
    "TOO_MANY_SESSIONS": "see who is connected, and end what is not needed: intercom peers",
    "UNAUTHORIZED": "see as whom the hub runs: intercom hub status; speak as another: "
    "--session NAME",
    "UNKNOWN_MESSAGE": "see what you sent lately: intercom status",
    "UNKNOWN_TYPE": "see the hub's version, and replace it: intercom hub restart",
    "UNSAFE_PLACE": "choose a place of your own: intercom --dir DIR init",
}
#: What systems say where a file cannot be locked.
NO_LOCKS = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOTSUP})
#: Of a code that only a newer hub knows.
UNKNOWN = "see the versions of both: intercom version"


def remedy_for(error: IntercomError) -> str:
    """What to try next: the error's own remedy, else that of its code."""
    return error.remedy or REMEDIES.get(error.code, UNKNOWN)


def without_locks(error: OSError) -> UnsafePlace:
    """The refusal of a place where files cannot be locked, as a command found out."""
    return UnsafePlace(
        f"the file system of the channel refuses locks ({error.strerror})",
        remedy="see what it is: intercom doctor; keep the channel on a disk of this machine, "
        "with --dir or INTERCOM_DIR",
    )


def remedy_of_system(error: OSError) -> str:
    """What to try after the system refused something."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _SPACE
    if isinstance(error.filename, str):
        return f"see what it is: ls -ld {shlex.quote(error.filename)}"
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return "end what has too many files open; see the limit: ulimit -n"
    return "give standard output a place that can be written: intercom poll > FILE"
