"""The one door to the file system for the small files of the pi dialect. Standard library only.

Tests put another object in its place to make any of these calls fail, or to stop there as a
crash would.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os

from intercom.errors import IntercomError, SpoolError
from intercom.private import open_private

#: No file of the dialect is longer: a question has at most one frame, a state 64 KiB.
MAX_FILE = 4 << 20
#: How files begin that are not finished; the clients' programs know no such names.
TEMPORARY = ".hub-tmp-"
_FILE_MODE = 0o600
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive
#: How a file system says that it has no sync of directories.
_UNSYNCED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class Calls:
    """System calls that may fail, under their own names."""

    def open(self, path: str, flags: int) -> int:
        """Open a file of ours, new ones with mode 0600; see ``private.open_private``."""
        return open_private(path, flags, _FILE_MODE)

    def chmod(self, fd: int) -> None:
        """Give an open file mode 0600, whatever the umask took."""
        os.fchmod(fd, _FILE_MODE)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; may be short."""
        return os.write(fd, data)

    def sync(self, fd: int) -> None:
        """Bring a file's content to stable storage."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fsync(fd)

    def close(self, fd: int) -> None:
        """Let go of a descriptor."""
        os.close(fd)

    def read(self, fd: int, length: int) -> bytes:
        """Read from where the last reading ended; may be short."""
        return os.read(fd, length)

    def rename(self, source: str, target: str) -> None:
        """Put a file in another's place."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Take a name away."""
        os.unlink(path)

    def names(self, directory: str) -> list[str]:
        """What lies in a directory, sorted."""
        return sorted(os.listdir(directory))

    def sync_directory(self, directory: str) -> None:
        """Make the names in a directory survive a power cut, where the file system can."""
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        except OSError as error:
            if error.errno not in _UNSYNCED:
                raise
        finally:
            os.close(fd)


def prepared(calls: Calls, directory: str, data: bytes, *, durable: bool) -> str:
    """Write a file under a temporary name, to be renamed into its place.

    :param durable: its content is on stable storage when this returns.
    :return: the temporary path. :raise OSError: nothing is left behind.
    """
    path = os.path.join(directory, f"{TEMPORARY}{os.urandom(6).hex()}")
    fd = calls.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        try:
            calls.chmod(fd)
            _write_all(calls, fd, data)
            if durable:
                calls.sync(fd)
        finally:
            calls.close(fd)
    except Exception:
        discard(calls, path)
        raise
    return path


def place(calls: Calls, temporary: str, path: str) -> None:
    """Put a prepared file in its place, in one step.

    :raise OSError: what was there still is; the temporary file is gone.
    """
    try:
        calls.rename(temporary, path)
    except Exception:
        discard(calls, temporary)
        raise


def replace(calls: Calls, path: str, data: bytes) -> None:
    """Replace a small file (mode 0600): readers see the old content or the new. Not synced.

    :raise OSError: the old content stands.
    """
    place(calls, prepared(calls, os.path.dirname(path), data, durable=False), path)


def discard(calls: Calls, path: str) -> None:
    """Remove what is of no use any more; what cannot be removed stays."""
    with contextlib.suppress(OSError):
        calls.unlink(path)


def content(calls: Calls, path: str) -> bytes | None:
    """The content of a small file, None if there is none; at most one byte over `MAX_FILE`.

    :raise UnsafePlace: it is not ours alone. :raise OSError: it cannot be read.
    """
    try:
        fd = calls.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = bytearray()
        while len(found) <= MAX_FILE:
            more = calls.read(fd, MAX_FILE + 1 - len(found))
            if not more:
                break
            found += more
        return bytes(found)
    finally:
        calls.close(fd)


def remove_leftovers(calls: Calls, directory: str) -> None:
    """Remove what writers left that died before they were finished. Only the hub calls this.

    Nobody misses what cannot be removed or listed.
    """
    with contextlib.suppress(OSError):
        for name in calls.names(directory):
            if name.startswith(TEMPORARY):
                discard(calls, os.path.join(directory, name))


def failed(doing: str, path: str, error: OSError) -> SpoolError:
    """An error of the system in the words of the house."""
    return SpoolError(
        f"cannot {doing} {path}: {error.strerror or error}",
        remedy=f"see what is there, and whether there is room: ls -la {os.path.dirname(path)}",
    )


def reason(error: OSError | IntercomError) -> str:
    """Why something could not be done, in one line for a log."""
    return error.text if isinstance(error, IntercomError) else str(error.strerror or error)


def _write_all(calls: Calls, fd: int, data: bytes) -> None:
    """Write until nothing is left. After a short write the next one tells the reason."""
    rest = memoryview(data)
    while rest:
        done = calls.write(fd, rest)
        if not done:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rest = rest[done:]
