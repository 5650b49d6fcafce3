"""Leadership of a channel by two kernel locks that vanish with their holder.

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

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import deferLater
from zope.interface import implementer

from intercom.errors import AlreadyLed, CannotCreate, UnsafePlace
from intercom.interfaces import IElection
from intercom.paths import ChannelPaths, open_private, read_private

#: How long a busy lock is tried again, since probes hold it for a moment.
PATIENCE_S = 0.3
RETRY_S = 0.03
#: What the holder writes into the lock file.
_SIGNATURE = ("pid", "version", "started")


class _Locks(NamedTuple):
    """The two descriptors whose being open is our leadership."""

    directory: int
    file: int


@implementer(IElection)
class FlockElection:
    """Lead a channel by holding ``flock`` on its directory and on its ``hub.lock``.

    The locks are tried without waiting, in the reactor's thread: two system calls,
    and the only file access that happens there.

    :param reactor: for the pauses between tries.
    :param paths: the channel; its directory must exist.
    :param version: version of this program, written into the lock file for people.
    :param started: epoch seconds at which this hub began, written there too.
    """

    def __init__(
        self, reactor: IReactorTime, paths: ChannelPaths, version: str, started: float
    ) -> None:
        self._reactor = reactor
        self._paths = paths
        self._version = version
        self._started = started
        self._locks: _Locks | None = None

    def campaign(self) -> Deferred[None]:
        """See :meth:`IElection.campaign`; fires at once where both locks are free.

        Cancelling it ends the campaign.

        :raise CannotCreate: the directory or the lock file cannot be opened.
        """
        return Deferred.fromCoroutine(self._campaign())

    async def _campaign(self) -> None:
        deadline = self._reactor.seconds() + PATIENCE_S
        while self._locks is None:
            self._locks = self._try_locks()
            if self._locks is not None:
                break
            if self._reactor.seconds() >= deadline:
                raise already_led(self._paths)
            await deferLater(self._reactor, RETRY_S)
        self._sign(self._locks)

    def resign(self) -> None:
        """See :meth:`IElection.resign`; the lock file is emptied before it is let go."""
        if self._locks is None:
            return
        locks, self._locks = self._locks, None
        try:
            os.ftruncate(locks.file, 0)
        finally:
            os.close(locks.file)
            os.close(locks.directory)

    def holds(self) -> bool:
        """See :meth:`IElection.holds`: both names still lead to what we have locked."""
        return self._locks is not None and self._in_place(self._locks)

    def _in_place(self, locks: _Locks) -> bool:
        return _is_at(locks.directory, self._paths.directory) and _is_at(
            locks.file, self._paths.lock
        )

    def _try_locks(self) -> _Locks | None:
        """Take both locks, or none of them and return None.

        What was locked may have been renamed or unlinked in between; then it guards
        nothing, and the try counts for nothing.
        """
        try:
            directory = os.open(
                self._paths.directory,
                os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
            )
        except OSError as error:
            raise CannotCreate(f"cannot open {self._paths.directory}: {error.strerror}") from error
        opened = [directory]
        try:
            if not _lock(directory):
                return None
            file = self._open_lock()
            opened.append(file)
            locks = _Locks(directory, file)
            if _lock(file) and self._in_place(locks):
                opened = []
                return locks
            return None
        finally:
            for fd in opened:
                os.close(fd)

    def _open_lock(self) -> int:
        try:
            return open_private(self._paths.lock, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise CannotCreate(f"cannot open {self._paths.lock}: {error.strerror}") from error

    def _sign(self, locks: _Locks) -> None:
        """Write who leads into the lock file, in place: its inode is what is locked."""
        text = {"pid": os.getpid(), "version": self._version, "started": self._started}
        os.ftruncate(locks.file, 0)
        os.pwrite(locks.file, json.dumps(text).encode(), 0)


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


def already_led(paths: ChannelPaths) -> AlreadyLed:
    """The error that says who leads a channel, as far as the files tell.

    The original hub writes nothing into the lock file, so what stands there may be of a
    hub that died before; it does publish its pid with its list of peers.
    """
    details = {key: value for key, value in _written(paths.lock).items() if key in _SIGNATURE}
    if not _lives(details.get("pid")):
        pid = _written(paths.peers).get("hub_pid")
        details = {"pid": pid} if _lives(pid) else {}
    return AlreadyLed(f"channel {paths.name!r} is led by {_described(details)}", details=details)


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


def _described(details: dict[str, Any]) -> str:
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
