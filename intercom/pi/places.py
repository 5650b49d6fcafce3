"""Where the pi clients look: directories, socket paths, and what the environment says.

The two clients find the same directory by slightly different rules, and one of them hashes it,
so each path here is what that client's own program computes, byte for byte. What the
environment holds is passed in; only the directory functions touch the file system.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import stat
import sys
from collections.abc import Mapping
from typing import NamedTuple

from intercom.errors import BadConfig, CannotCreate, UnsafePlace
from intercom.paths import MAX_SOCKET_PATH
from intercom.private import private_directory, silent
from intercom.tuples import TYPE_CHECKING
from intercom.wire.pi.javascript import MAX_SAFE_INTEGER, trimmed

if TYPE_CHECKING:
    from intercom.private import Warn

#: Names the agent directory to both clients.
AGENT_DIR = "PI_CODING_AGENT_DIR"
ASK_TIMEOUT = "PI_INTERCOM_ASK_TIMEOUT_MS"
TRANSPORT = "PI_INTERCOM_TRANSPORT"
TCP = "PI_INTERCOM_TCP"
#: How long an ask waits for its reply, unless the environment says otherwise; milliseconds.
DEFAULT_ASK_TIMEOUT_MS = 600_000
#: Longest path that pi-subagents puts below the directory for temporary files, in bytes.
SUBAGENTS_PATH = 100
#: Longest path that this system takes for a socket, in bytes.
LONGEST_PATH = 107 if sys.platform == "linux" else MAX_SOCKET_PATH

_SHARED = "/tmp"  # noqa: S108  where the client itself looks; what is ours there is private
_DIGITS = 16
_DIRECTORY_MODE = 0o700
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_BASED = re.compile(r"0([xX][0-9a-fA-F]+|[oO][0-7]+|[bB][01]+)")
_REMEDY = (
    f"look at what it is, then move it away, or choose other places with {AGENT_DIR} and TMPDIR"
)


class Places(NamedTuple):
    """Every path of one agent directory; all of them absolute. Making one touches nothing.

    :ivar directory: pi-intercom's, with everything that outlives the hub.
    :ivar intercom_socket: where pi-intercom connects.
    :ivar subagents_socket: where pi-subagents connects.
    :ivar probed_socket: where older releases of pi-subagents look first. It lies among the
        files of other users, so who serves it goes on without it.
    """

    directory: str
    intercom_socket: str
    subagents_socket: str
    probed_socket: str

    @property
    def pid_file(self) -> str:
        """Says who the broker is."""
        return os.path.join(self.directory, "broker.pid")

    @property
    def port_file(self) -> str:
        """Says where the broker listens for TCP, if it does."""
        return os.path.join(self.directory, "broker.port.json")

    @property
    def asks(self) -> str:
        """The directory of pending asks."""
        return os.path.join(self.directory, "pending-asks")

    @property
    def states(self) -> str:
        """The directory of extension state."""
        return os.path.join(self.directory, "extension-state")

    def prepare(self, warn: Warn = silent) -> None:
        """Make the directories of the two main sockets, private to us.

        :raise CannotCreate: also where the path of a socket is too long to be bound.
        :raise UnsafePlace: see :func:`prepare_directory`.
        """
        for path in (self.intercom_socket, self.subagents_socket):
            check_length(path)
            prepare_directory(os.path.dirname(path), warn)


def find_places(environ: Mapping[str, str], *, home: str, cwd: str, uid: int) -> Places:
    """Find all places as the two clients do that were started with this environment.

    :param home: the user's, see :func:`home_directory`. :param cwd: absolute.
    :param uid: the real one, as the clients ask for it.
    """
    agent_dir = intercom_agent_dir(environ, home=home, cwd=cwd)
    directory = _absolute(cwd, _join(agent_dir, "intercom"))
    hashed, temporary = subagents_agent_dir(environ, home=home), temporary_directory(environ)
    return Places(
        directory=directory,
        intercom_socket=os.path.join(directory, "broker.sock"),
        subagents_socket=_absolute(cwd, subagents_socket(hashed, temporary, uid)),
        probed_socket=_absolute(cwd, probed_socket(hashed, temporary)),
    )


def home_directory(environ: Mapping[str, str]) -> str:
    """The user's home directory, as Node.js finds it.

    :raise BadConfig: neither the environment nor the system's list of users has one.
    """
    home = environ.get("HOME")
    if home is not None:
        return home
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise BadConfig(
            f"uid {os.getuid()} has no home directory",
            remedy="set HOME, or name the agent directory with PI_CODING_AGENT_DIR",
        ) from None


def intercom_agent_dir(environ: Mapping[str, str], *, home: str, cwd: str) -> str:
    """The agent directory by pi-intercom's rules: relative to where it was started, no ``~``."""
    chosen = trimmed(environ.get(AGENT_DIR, ""))
    if not chosen:
        return _join(home, ".pi/agent")
    return chosen if os.path.isabs(chosen) else _join(cwd, chosen).rstrip("/") or "/"


def subagents_agent_dir(environ: Mapping[str, str], *, home: str) -> str:
    """The agent directory by pi-subagents' rules: ``~`` is expanded, and nothing else changed."""
    chosen = trimmed(environ.get(AGENT_DIR, ""))
    if not chosen:
        return _join(home, ".pi/agent")
    if chosen == "~":
        return home
    return _join(home, chosen[2:]) if chosen.startswith("~/") else chosen


def temporary_directory(environ: Mapping[str, str]) -> str:
    """The directory for temporary files, as Node.js finds it."""
    names = ("TMPDIR", "TMP", "TEMP")
    found = next((environ[name] for name in names if environ.get(name)), _SHARED)
    return found[:-1] if len(found) > 1 and found.endswith("/") else found


def subagents_socket(agent_dir: str, temporary: str, uid: int) -> str:
    """Where pi-subagents connects.

    :param agent_dir: by :func:`subagents_agent_dir`, hashed as it is written.
    """
    below = f"pi-intercom-{_digest(f'{uid}:{agent_dir}')}"
    preferred = _join(temporary, below, "broker.sock")
    if len(os.fsencode(preferred)) <= SUBAGENTS_PATH:
        return preferred
    return _join(_SHARED, below, "broker.sock")


def probed_socket(agent_dir: str, temporary: str) -> str:
    """Where pi-subagents looked before it had a directory, and still does."""
    return _join(temporary, f"pi-intercom-{_digest(agent_dir)}.sock")


# -- the environment --------------------------------------------------------------------------


def ask_timeout_ms(environ: Mapping[str, str]) -> int:
    """How long an ask may stay pending, in milliseconds. Blank is as good as absent.

    Numbers are read as the client reads them: ``6e5`` and ``0x10`` are some.

    :raise BadConfig: it is no positive integer.
    """
    text = trimmed(environ.get(ASK_TIMEOUT, ""))
    if not text:
        return DEFAULT_ASK_TIMEOUT_MS
    number: float = 0
    if _DECIMAL.fullmatch(text):
        number = float(text)
    elif _BASED.fullmatch(text):
        number = int(text, 0)
    if not 0 < number <= MAX_SAFE_INTEGER or number != int(number):
        raise BadConfig(
            f"{ASK_TIMEOUT} must be a positive integer number of milliseconds",
            remedy=f"it is {environ[ASK_TIMEOUT]!a} now: unset PI_INTERCOM_ASK_TIMEOUT_MS",
        )
    return int(number)


def wants_tcp(environ: Mapping[str, str]) -> bool:
    """Whether TCP is asked for, beside the Unix sockets. No value is an error to the client."""
    if trimmed(environ.get(TRANSPORT, "")).lower() == "tcp":
        return True
    return trimmed(environ.get(TCP, "")).lower() in ("1", "true")


# -- directories ------------------------------------------------------------------------------


def check_length(path: str) -> None:
    """Refuse a path that is too long for a socket.

    :raise CannotCreate: naming the limit.
    """
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise CannotCreate(
            f"cannot listen at {path}: a socket's path has at most {LONGEST_PATH} bytes here, "
            f"not {length}",
            remedy="choose a shorter directory with PI_CODING_AGENT_DIR",
        )


def prepare_directory(path: str, warn: Warn = silent) -> None:
    """Make ``path`` a real directory of ours with mode 0700; one that has another mode gets it.

    :param path: absolute.
    :raise UnsafePlace: a link, not a directory, another owner; or another user could exchange
        it, because he can write to a directory above.
    :raise CannotCreate: it does not exist and cannot be made, or the mode cannot be set.
    """
    try:
        _restrict(path, warn)
        private_directory(path, warn)
    except UnsafePlace as error:
        raise UnsafePlace(error.text, remedy=_REMEDY) from error
    except CannotCreate as error:
        raise CannotCreate(error.text, remedy=_REMEDY) from error


def _restrict(path: str, warn: Warn) -> None:
    """Set the mode of a directory that exists, on a descriptor: a name could be exchanged."""
    try:
        found = os.lstat(path)
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
            raise _unsafe(path)
        if stat.S_IMODE(found.st_mode) == _DIRECTORY_MODE:
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if found.st_uid != os.geteuid():
                raise _unsafe(path)
            os.fchmod(fd, _DIRECTORY_MODE)
        finally:
            os.close(fd)
    except FileNotFoundError:
        return  # to be made
    except OSError as error:
        raise CannotCreate(f"cannot make {path} private: {error.strerror}") from error
    warn(f"{path} had mode {stat.S_IMODE(found.st_mode):04o}; it is 0700 now")


def _unsafe(path: str) -> UnsafePlace:
    return UnsafePlace(f"Unsafe intercom socket directory: {path}")


# -- paths as Node.js makes them --------------------------------------------------------------


def _join(*parts: str) -> str:
    """Join and normalise; a slash at the end stays."""
    joined = "/".join(part for part in parts if part)
    if not joined:
        return "."
    path = os.path.normpath(joined)
    if path.startswith("//"):  # which Python keeps
        path = path[1:]
    return path + "/" if joined.endswith("/") and path != "/" else path


def _absolute(cwd: str, path: str) -> str:
    return path if os.path.isabs(path) else _join(cwd, path)


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:_DIGITS]
