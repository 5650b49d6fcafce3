"""The two kernel locks that make a hub, and who holds them. Standard library only.

First the channel directory's own ``flock``, then that of ``hub.lock``. The second
is the one that the original mesh programs take. They unlink it, too, and a lock on
an unlinked file elects two leaders; the directory's lock stands in their way, and
keeps cleaners of temporary directories off as well. ``flock`` belongs to the open
file, so two contenders of one process exclude each other like any others (``lockf``
would let both in, and lose the lock when any descriptor of the file is closed).
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from typing import Any, NamedTuple

from intercom.errors import AlreadyLed, CannotCreate, UnsafePlace
from intercom.paths import ChannelPaths, open_private, read_private

#: What the holder writes into the lock file.
_SIGNATURE = ("pid", "version", "started")


class Locks(NamedTuple):
    """The two descriptors whose being open is leadership."""

    directory: int
    file: int

    def in_place(self, paths: ChannelPaths) -> bool:
        """Whether both names still lead to what is locked; if not, it guards nothing."""
        return _is_at(self.directory, paths.directory) and _is_at(self.file, paths.lock)

    def release(self) -> None:
        """Give both back, the inner one first."""
        os.close(self.file)
        os.close(self.directory)


def take_locks(paths: ChannelPaths) -> Locks | None:
    """Take both locks without waiting, or none of them and return None.

    What was locked may have been renamed or unlinked in between; then it guards
    nothing, and the try counts for nothing.

    :raise CannotCreate: the directory or the lock file cannot be opened.
    :raise UnsafePlace: the lock file is not ours to open.
    """
    try:
        directory = os.open(
            paths.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError as error:
        raise _cannot_open(paths.directory, error) from error
    opened = [directory]
    try:
        if not _lock(directory):
            return None
        file = open_lock_file(paths)
        opened.append(file)
        locks = Locks(directory, file)
        if _lock(file) and locks.in_place(paths):
            opened = []
            return locks
        return None
    finally:
        for fd in opened:
            os.close(fd)


def open_lock_file(paths: ChannelPaths) -> int:
    """Open ``hub.lock``, making it if need be.

    :raise CannotCreate: it cannot be done.
    """
    try:
        return open_private(paths.lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise _cannot_open(paths.lock, error) from error


def _cannot_open(path: str, error: OSError) -> CannotCreate:
    return CannotCreate(
        f"cannot open {path}: {error.strerror}", remedy=f"see what it is: ls -ld {path}"
    )


def _lock(fd: int) -> bool:
    """Take the lock if it is free this very moment."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(fd: int, path: str) -> bool:
    """Whether ``path`` still names the open file ``fd``; a link to it does not count."""
    try:
        there = os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISLNK(there.st_mode) and os.path.samestat(os.fstat(fd), there)


def is_led(paths: ChannelPaths) -> bool:
    """Whether somebody holds the channel's ``hub.lock`` right now.

    A look without consequences: the lock is taken shared for a moment, which a
    campaign outlasts.

    :raise UnsafePlace: the lock file is not ours to open.
    """
    try:
        fd = open_private(paths.lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def leader(paths: ChannelPaths) -> dict[str, Any]:
    """What the files tell about who leads: ``pid``, ``version``, ``started``, as far as known.

    The original hub writes nothing into the lock file, so what stands there may be of a
    hub that died before; it does publish its pid with its list of peers.
    """
    details = {key: value for key, value in _written(paths.lock).items() if key in _SIGNATURE}
    if _lives(details.get("pid")):
        return details
    pid = _written(paths.peers).get("hub_pid")
    return {"pid": pid} if _lives(pid) else {}


def is_original(paths: ChannelPaths) -> bool:
    """Whether what is published of the hub is an original one's, which names no version."""
    published = _written(paths.peers)
    return "hub_pid" in published and "version" not in published


def already_led(paths: ChannelPaths) -> AlreadyLed:
    """The error that says who leads a channel, as far as the files tell."""
    details = leader(paths)
    return AlreadyLed(f"channel {paths.name!r} is led by {described(details)}", details=details)


def _written(path: str) -> dict[str, Any]:
    """The JSON object in a small file, or a bare pid as one; empty where there is none."""
    try:
        found = json.loads(read_private(path) or b"{}")
    except (ValueError, OSError, UnsafePlace):
        return {}
    if isinstance(found, int):
        return {"pid": found}
    return found if isinstance(found, dict) else {}


def _lives(pid: object) -> bool:
    """Whether a process has this id."""
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def described(details: dict[str, Any]) -> str:
    """Pid, version and local time of a leader's start, in words."""
    if not details:
        return "another hub, which does not say who it is"
    words = f"the hub with pid {details.get('pid', 'unknown')}"
    if "version" in details:
        words += f", intercom {details['version']}"
    started = details.get("started")
    if isinstance(started, int | float):
        words += time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(started))
    return words
