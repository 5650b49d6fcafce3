"""The one door to the file system: every call on an inbox's files that may fail or tear.

Tests put another object in its place to make a write short, a disk full, or to stop at
every step as a crash would. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os

from intercom.paths import open_private, read_private
from intercom.plain import suppress

_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS: fsync stops at the drive


class FileCalls:
    """System calls under their own names, and two small compositions of them."""

    def open(self, path: str, flags: int) -> int:
        """Open a file of ours, new ones with mode 0600; see ``paths.open_private``."""
        return open_private(path, flags, 0o600)

    def close(self, fd: int) -> None:
        """Let go of a descriptor."""
        os.close(fd)

    def lock(self, fd: int, exclusive: bool) -> bool:
        """Take ``flock`` without waiting; False if another holds it."""
        try:
            fcntl.flock(fd, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self, fd: int) -> None:
        """Give the lock back."""
        fcntl.flock(fd, fcntl.LOCK_UN)

    def fstat(self, fd: int) -> os.stat_result:
        """What the kernel says of an open file."""
        return os.fstat(fd)

    def stat(self, path: str) -> os.stat_result | None:
        """What a path names now, links not followed; None if nothing."""
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return None

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Read at a place; fewer bytes only at the end."""
        return os.pread(fd, length, offset)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        """Append; may be short."""
        return os.write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write at a place of a file that was not opened for appending; may be short."""
        return os.pwrite(fd, data, offset)

    def allocate(self, fd: int, length: int) -> None:
        """Have room for so many bytes, so that writing there changes no metadata."""
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, length)

    def ftruncate(self, fd: int, length: int) -> None:
        """Cut a file."""
        os.ftruncate(fd, length)

    def sync(self, fd: int) -> None:
        """Bring a file's content to stable storage."""
        if _FULL_SYNC is not None:
            fcntl.fcntl(fd, _FULL_SYNC)
        else:
            os.fdatasync(fd)

    def rename(self, source: str, target: str) -> None:
        """Put a file in another's place."""
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        """Take a name away."""
        os.unlink(path)

    def small(self, path: str) -> bytes | None:
        """A small file's content, None if there is none; see ``paths.read_private``."""
        return read_private(path)

    def space(self, path: str) -> os.statvfs_result:
        """What the file system of a path has left."""
        return os.statvfs(path)

    def open_directory(self, path: str) -> int:
        """Open a directory, to be synced."""
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def sync_directory(self, fd: int) -> None:
        """Make the names in an open directory survive a power cut."""
        os.fsync(fd)

    def sync_names(self, path: str) -> None:
        """Open a directory just to sync it."""
        fd = self.open_directory(path)
        try:
            self.sync_directory(fd)
        finally:
            self.close(fd)

    def replace(self, path: str, data: bytes, durable: bool) -> None:
        """Put ``data`` in the place of a small file; readers see the old content or the new.

        :param durable: in this order also after a power cut; costs two syncs.
        """
        directory = os.path.dirname(path)
        temporary = os.path.join(directory, f".tmp-{os.urandom(6).hex()}")
        fd = self.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            try:
                write_all(self, fd, data)
                if durable:
                    self.sync(fd)
            finally:
                self.close(fd)
            self.rename(temporary, path)
        except Exception:
            with suppress(OSError):
                self.unlink(temporary)
            raise
        if durable:
            self.sync_names(directory)


def write_all(calls: FileCalls, fd: int, data: bytes) -> None:
    """Write until nothing is left. After a short write the next one tells the reason.

    :raise OSError: some of it may have been written.
    """
    done = calls.write(fd, data)
    while done < len(data):
        more = calls.write(fd, memoryview(data)[done:])
        if not more:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        done += more
