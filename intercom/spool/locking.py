"""Opening and locking a file that others may replace. Blocking, standard library only."""

from __future__ import annotations

import os

from intercom.spool.calls import FileCalls


class Busy(Exception):
    """Another holds the lock at this moment, or what it guards was just put in order.

    Come again, in a way that suits.
    """


def open_locked(calls: FileCalls, path: str, flags: int, exclusive: bool) -> int | None:
    """Open and lock the file that ``path`` names; None if there is none and none is to be made.

    After locking, descriptor and path are compared: whoever replaced the file while we
    were on our way wants us to use the new one.

    :raise Busy: the lock is held.
    """
    for _ in range(100):
        try:
            fd = calls.open(path, flags)
        except FileNotFoundError:
            if flags & os.O_CREAT:
                raise
            return None
        try:
            if not calls.lock(fd, exclusive):
                raise Busy
            named, held = calls.stat(path), calls.fstat(fd)
            if named is not None and (named.st_dev, named.st_ino) == (held.st_dev, held.st_ino):
                return fd
        except BaseException:
            calls.close(fd)
            raise
        calls.close(fd)
    raise Busy
