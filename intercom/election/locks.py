"""The two kernel locks that make a hub, and who holds them. Standard library only.

First the channel directory's own ``flock``, then that of ``hub.lock``. The second
is the one that the original mesh programs take. They unlink it, too, and a lock on
an unlinked file elects two leaders; the directory's lock stands in their way, and
keeps cleaners of temporary directories off as well. ``flock`` belongs to the open
file, so two contenders of one process exclude each other like any others (``lockf``
would let both in, and lose the lock when any descriptor of the file is closed).

It belongs to a forked child's copy of the file as well, and the child would keep the
channel when the hub is gone: so a child's copies are closed as it begins to live.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from intercom import plainjson as json
from intercom.errors import AlreadyLed, CannotCreate, UnsafePlace
from intercom.mounts import file_system
from intercom.paths import ChannelPaths, open_private, read_private
from intercom.plain import suppress
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from typing import Any

#: What the holder writes into the lock file.
_SIGNATURE = ("pid", "version", "started")
#: What systems say of a file that cannot be locked, wherever it lies there.
_NO_LOCKS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
_ANOTHER_PLACE = "keep the channel on a disk of this machine, with --dir or INTERCOM_DIR"


class Locks(NamedTuple):
    """The two descriptors whose being open is leadership."""

    directory: int
    file: int

    @property
    def held(self) -> bool:
        """Whether this process took them and has not given them back; its children do not."""
        return self in _held

    def in_place(self, paths: ChannelPaths) -> bool:
        """Whether both names still lead to what is locked; if not, it guards nothing."""
        return _is_at(self.directory, paths.directory) and _is_at(self.file, paths.lock)

    def release(self) -> None:
        """Give both back, the inner one first. Idempotent."""
        if self in _held:
            _held.remove(self)
            os.close(self.file)
            os.close(self.directory)


#: What this process holds.
_held: set[Locks] = set()


def _let_go_in_child() -> None:
    """Close a forked child's copies; the locks stay with the process that took them."""
    while _held:
        for fd in _held.pop():
            with suppress(OSError):
                os.close(fd)


os.register_at_fork(after_in_child=_let_go_in_child)


def take_locks(paths: ChannelPaths) -> Locks | None:
    """Take both locks without waiting, or none of them and return None.

    What was locked may have been renamed or unlinked in between; then it guards
    nothing, and the try counts for nothing.

    :raise CannotCreate: the directory or the lock file cannot be opened or locked.
    :raise UnsafePlace: the lock file is not ours to open, or locks keep nobody out there.
    """
    try:
        directory = os.open(
            paths.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError as error:
        raise _cannot("open", paths.directory, error) from error
    opened = [directory]
    try:
        if not _lock(directory, paths.directory):
            return None
        file = open_lock_file(paths)
        opened.append(file)
        locks = Locks(directory, file)
        if _lock(file, paths.lock) and locks.in_place(paths):
            _check_exclusion(directory, paths.directory)
            opened = []
            _held.add(locks)
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
        raise _cannot("open", paths.lock, error) from error


def _cannot(what: str, path: str, error: OSError) -> CannotCreate:
    return CannotCreate(
        f"cannot {what} {path}: {error.strerror}", remedy=f"see what it is: ls -ld {path}"
    )


def _lock(fd: int, path: str, how: int = fcntl.LOCK_EX) -> bool:
    """Take the lock if it is free this very moment.

    :raise UnsafePlace: the file system knows no locks.
    :raise CannotCreate: the system has no lock to give.
    """
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno in _NO_LOCKS:
            raise _without_locks(path, f"has no locks ({error.strerror})") from error
        failed = _cannot("lock", path, error)
        if error.errno == errno.ENOLCK:  # as of a network file system without a lock server
            failed.remedy = _ANOTHER_PLACE
        raise failed from error
    return True


def _check_exclusion(directory: int, path: str) -> None:
    """See that the lock which we hold on a directory keeps others out.

    It is opened anew, by which we are another to ``flock``, and not by its name, which may
    lead elsewhere by now. Where locks are emulated for a whole process, or granted to
    everybody, this succeeds, and there would be two hubs.

    :raise UnsafePlace: it does not.
    :raise CannotCreate: it cannot be found out.
    """
    try:
        other = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return  # removed meanwhile, as the leader will notice
    except OSError as error:
        raise _cannot("open", path, error) from error
    try:
        if _lock(other, path):
            raise _without_locks(path, "grants one lock to two at a time")
    finally:
        os.close(other)


def _without_locks(path: str, what: str) -> UnsafePlace:
    mount = file_system(path)
    kind = f" ({mount.kind}, mounted on {mount.point})" if mount is not None else ""
    return UnsafePlace(
        f"the file system of {path}{kind} {what}, so two hubs could lead the channel",
        remedy=_ANOTHER_PLACE,
    )


def _is_at(fd: int, path: str) -> bool:
    """Whether ``path`` still names the open file ``fd``; a link to it does not count."""
    try:
        here, there = os.fstat(fd), os.lstat(path)
    except OSError:
        return False
    return not stat.S_ISLNK(there.st_mode) and os.path.samestat(here, there)


def is_led(paths: ChannelPaths) -> bool:
    """Whether somebody holds the channel's ``hub.lock`` right now.

    A look without consequences: the lock is taken shared for a moment, which a
    campaign outlasts.

    :raise UnsafePlace: the lock file is not ours to open, or cannot be locked at all.
    :raise CannotCreate: the system has no lock to give.
    """
    try:
        fd = open_private(paths.lock, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not _lock(fd, paths.lock, fcntl.LOCK_SH)
    finally:
        os.close(fd)


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
    """The error that says who leads a channel, as far as the files or the kernel tell."""
    details = leader(paths)
    text = f"channel {paths.name!r} is led by {described(details)}"
    pids = [] if details else holders(paths.lock)
    if pids:
        text += f"; {paths.lock} is kept open by pid {', '.join(map(str, pids))}"
    return AlreadyLed(text, details=details)


def holders(path: str) -> list[int]:
    """The processes that have a file open, as far as we may see; we ourselves are left out.

    One that was forked by a hub which is gone holds its lock, and says nowhere who it is.
    """
    wanted, us = os.path.realpath(path), str(os.getpid())
    try:
        pids = [name for name in os.listdir("/proc") if name.isdecimal() and name != us]
    except OSError:
        return []  # a system without it
    return sorted(int(pid) for pid in pids if wanted in _open_files(pid))


def _open_files(pid: str) -> set[str]:
    """The names of what a process has open; none, where we may not look."""
    found: set[str] = set()
    with suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # closed meanwhile
                found.add(os.readlink(f"/proc/{pid}/fd/{fd}"))
    return found


def _written(path: str) -> dict[str, Any]:
    """The JSON object in a small file, or a bare pid as one; empty where there is none."""
    try:
        found = json.loads(read_private(path) or b"{}")
    except (ValueError, RecursionError, OSError, UnsafePlace):
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
