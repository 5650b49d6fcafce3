"""Where a channel lives, and the names of its files. Standard library only.

A channel is a directory of mode 0700 owned by us. Everything in it is opened
without following links and checked on the descriptor (:mod:`intercom.private`), so
that a name planted by another user is refused instead of followed.
"""

from __future__ import annotations

import os
import stat

from intercom.mounts import MOUNTS, check_file_system, file_system
from intercom.names import channel_name, file_name

# Whoever asks where a file of a channel lies also wants to open it, in the safe way.
from intercom.private import check_directory, private_directory, silent
from intercom.private import open_private as open_private
from intercom.private import read_private as read_private
from intercom.private import write_atomic as write_atomic
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.private import Warn

#: Longest socket path that every supported system takes (macOS: 104 with its NUL).
MAX_SOCKET_PATH = 103
#: Where the seed's own programs meet, so that they and we meet there too.
SHARED_DEFAULT = "/tmp/agy-ipc"  # noqa: S108  checked for owner, mode and links before use


def base_directory(chosen: str | None) -> str:
    """The directory that holds channels: the one that was chosen, or the default.

    The default is ``/tmp/agy-ipc`` where that is absent or a real directory of
    ours, else ``/tmp/agy-ipc-<uid>``. Nothing is made or checked further here.
    """
    if chosen:
        return os.path.abspath(os.path.expanduser(chosen))
    try:
        found = os.lstat(SHARED_DEFAULT)
    except FileNotFoundError:
        return SHARED_DEFAULT
    except OSError:
        return f"{SHARED_DEFAULT}-{os.geteuid()}"
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
        return SHARED_DEFAULT
    return f"{SHARED_DEFAULT}-{os.geteuid()}"


def file_level(path: str, mounts: str = MOUNTS) -> str:
    """The safest durability level that files at ``path`` can reach: ``disk`` or ``process``.

    A memory file system forgets everything with the power, and so does a ``/tmp`` that
    the system empties at boot; a sync there promises nothing.
    """
    return "process" if forgetful(path, mounts) else "disk"


def forgetful(path: str, mounts: str = MOUNTS) -> str:
    """Why files at ``path`` do not survive a restart of the machine; empty where they do."""
    found = file_system(path, mounts)
    if found is None:
        return ""  # nothing better is known
    if found.kind in ("tmpfs", "ramfs"):
        return f"{found.point} is a file system in memory ({found.kind})"
    rule = _emptied_at_boot(os.path.realpath(path))
    return f"the system empties /tmp when it starts ({rule})" if rule else ""


def _emptied_at_boot(real: str) -> str:
    """By which file systemd-tmpfiles removes at boot (type ``D``) what is under ``/tmp``."""
    if not real.startswith("/tmp/") or not os.path.isdir("/run/systemd/system"):  # noqa: S108
        return ""
    from pathlib import Path  # seldom needed, and not for nothing

    files: dict[str, Path] = {}
    for directory in ("/usr/lib/tmpfiles.d", "/run/tmpfiles.d", "/etc/tmpfiles.d"):
        for found in sorted(Path(directory).glob("*.conf")):
            files[found.name] = found  # a file of a later directory masks its namesake
    for found in files.values():
        try:
            text = found.read_text(errors="replace")
        except OSError:
            continue
        for line in text.splitlines():
            words = line.split()
            if len(words) >= 2 and words[0][:1] == "D" and words[1].rstrip("/") == "/tmp":  # noqa: S108
                return str(found)
    return ""


class ChannelPaths:
    """Every file of one channel, by name. Making one touches nothing.

    :ivar name: the channel's sanitised name.
    :ivar directory: the channel's own directory.
    """

    def __init__(self, base: str, channel: str) -> None:
        self.base = base
        self.name = channel_name(channel)
        self.directory = os.path.join(base, file_name(self.name))

    def prepare(self, warn: Warn = silent) -> None:
        """Make base and channel directory, private to us; see :func:`private_directory`.

        :raise UnsafePlace: also where the file system keeps no locks; see ``intercom.mounts``.
        """
        check_file_system(self.directory)
        private_directory(self.base, warn)
        private_directory(self.directory, warn)
        if self.socket != self.file("hub.sock"):
            private_directory(os.path.dirname(self.socket), warn)

    def check(self) -> None:
        """See whether :meth:`prepare` would succeed; raises as that does, and makes nothing."""
        check_file_system(self.directory)
        check_directory(self.base)
        check_directory(self.directory)
        if self.socket != self.file("hub.sock"):
            check_directory(os.path.dirname(self.socket))

    def file(self, name: str) -> str:
        """The path of one file in the channel's directory."""
        return os.path.join(self.directory, name)

    @property
    def command(self) -> str:
        """How a command for this channel begins, as a shell takes it."""
        import shlex  # seldom needed, and not for nothing

        return shlex.join(["intercom", "--dir", self.base, "--channel", self.name])

    @property
    def socket(self) -> str:
        """The hub's socket; elsewhere (see ``hub.sock.at``) where this path is too long to bind."""
        path = self.file("hub.sock")
        if len(os.fsencode(path)) <= MAX_SOCKET_PATH:
            return path
        from intercom.hashes import sha256  # for long paths only

        digest = sha256(os.fsencode(self.directory)).hexdigest()[:24]
        return f"/tmp/intercom-{os.geteuid()}/{digest}.sock"  # noqa: S108  made private by prepare()

    @property
    def socket_pointer(self) -> str:
        """A file that says where the socket is, written only where it had to move."""
        return self.file("hub.sock.at")

    @property
    def lock(self) -> str:
        """The election's lock; never unlinked."""
        return self.file("hub.lock")

    @property
    def spawn_lock(self) -> str:
        """Held by the one client that is starting a hub; never unlinked."""
        return self.file("spawn.lock")

    @property
    def spawn_output(self) -> str:
        """What the hub started last wrote to its standard output and error."""
        return self.file("hub.out")

    @property
    def log(self) -> str:
        """The hub's JSON log."""
        return self.file("hub.log")

    @property
    def settings(self) -> str:
        """The channel's settings, and the format of its files."""
        return self.file("channel.json")

    @property
    def key(self) -> str:
        """The channel's key, which TCP clients must show."""
        return self.file("channel.key")

    @property
    def peers(self) -> str:
        """Who is live, for people and the seed's programs."""
        return self.file("peers.json")

    def inbox(self, session: str) -> str:
        """A session's messages."""
        return self.file(f"inbox_{file_name(session)}.ndjson")

    def offset(self, session: str) -> str:
        """How far a session has read."""
        return self.file(f"offset_{file_name(session)}.json")

    def meta(self, session: str) -> str:
        """An inbox's generation; also the sign that its session is known."""
        return self.file(f"meta_{file_name(session)}.json")

    def trail(self, session: str) -> str:
        """When a session's messages were shown, read or skipped."""
        return self.file(f"trail_{file_name(session)}.ndjson")

    def bell(self, session: str) -> str:
        """What a session's agent was told of its mail; see :mod:`intercom.hooks`."""
        return self.file(f"bell_{file_name(session)}.json")

    def reader(self, session: str) -> str:
        """Locked, shared, by whoever could show a session's messages now."""
        return self.file(f"reader_{file_name(session)}.lock")

    def turn(self, session: str) -> str:
        """Locked by the one who reads a session's messages, from reading to committing."""
        return self.file(f"turn_{file_name(session)}.lock")

    def token(self, session: str) -> str:
        """A session's secret."""
        return self.file(f"token_{file_name(session)}")

    def claim(self, session: str) -> str:
        """Which project has a session's name; locked by whoever uses it."""
        return self.file(f"name_{file_name(session)}.json")
