"""The one door to the file system for the small files of the pi dialect. Standard library only.

Tests put another object in its place to make any of these calls fail, or to stop there as a
crash would.
"""

from __future__ import annotations

import contextlib
import errno
import os

from intercom.errors import IntercomError, SpoolError
from intercom.spool.calls import FileCalls, write_all

#: No file of the dialect is longer: a question has at most one frame, a state 64 KiB.
MAX_FILE = 4 << 20
#: How files begin that are not finished; the clients' programs know no such names.
TEMPORARY = ".hub-tmp-"
#: How a file system says that it has no sync of directories.
_UNSYNCED = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS})


class Calls(FileCalls):
    """The spool's calls, and those that only the small files of the dialect need."""

    def chmod(self, fd: int) -> None:
        """Give an open file mode 0600, whatever the umask took."""
        os.fchmod(fd, 0o600)

    def read(self, fd: int, length: int) -> bytes:
        """Read from where the last reading ended; may be short."""
        return os.read(fd, length)

    def names(self, directory: str) -> list[str]:
        """What lies in a directory, sorted."""
        return sorted(os.listdir(directory))

    def sync_names(self, path: str) -> None:
        """As the spool does it, but a file system that cannot sync directories will do."""
        try:
            super().sync_names(path)
        except OSError as error:
            if error.errno not in _UNSYNCED:
                raise


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
            write_all(calls, fd, data)
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


def content(calls: Calls, path: str, most: int = MAX_FILE) -> bytes | None:
    """The content of a file, None if there is none; at most one byte over so many.

    :raise UnsafePlace: it is not ours alone. :raise OSError: it cannot be read.
    """
    try:
        fd = calls.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        found = bytearray()
        while len(found) <= most:
            more = calls.read(fd, min(MAX_FILE, most - len(found)) + 1)
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
