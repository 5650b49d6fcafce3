"""Small files that the first of many processes fills and all read. Standard library only."""

from __future__ import annotations

import fcntl
import os
import time

from intercom.errors import CannotCreate
from intercom.paths import open_private, read_private

MAX_SIZE = 1 << 16


def settle(path: str, content: bytes, timeout: float = 2.0) -> bytes:
    """Return what the file holds; where it is absent or empty, ``content`` becomes that.

    Any number of processes may ask at once: all get the same answer. The file is
    never replaced, so a lock on it is enough, and one that a killed process left
    empty is filled by the next.

    :raise UnsafePlace: see :func:`intercom.paths.open_private`.
    :raise CannotCreate: another process keeps its lock for ``timeout`` seconds.
    :raise OSError: it cannot be made or written.
    """
    found = read_private(path, MAX_SIZE)
    if found:
        return found
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        _lock(fd, path, timeout)
        found = os.read(fd, MAX_SIZE)
        if not found:
            if os.write(fd, content) != len(content):
                os.ftruncate(fd, 0)
                raise CannotCreate(f"cannot write {path}: no space", code="DISK_FULL")
            found = content
        return found
    finally:
        os.close(fd)


def _lock(fd: int, path: str, timeout: float) -> None:
    """Wait for the file's lock, which is held for microseconds at a time."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise CannotCreate(
                    f"another process keeps {path} locked",
                    remedy="find it and resume or end it: fuser " + path,
                ) from None
            time.sleep(0.005)
        else:
            return
