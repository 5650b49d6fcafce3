"""Opening and locking a file that others may replace. Blocking, standard library only."""

from __future__ import annotations

import os
import time

from intercom.errors import InboxLocked
from intercom.plain import contextmanager
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Seconds for which others may keep a lock before it is given up, and between two tries.
PATIENCE, _PAUSE = 2.0, 0.01


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


@contextmanager
def locked(
    calls: FileCalls,
    path: str,
    flags: int,
    *,
    exclusive: bool = True,
    patience: float = PATIENCE,
    before: Callable[[], object] = lambda: None,
    text: str = "",
    sleep: Callable[[float], object] = time.sleep,
) -> Iterator[int | None]:
    """A file, open and locked as :func:`open_locked` does it, tried for some time.

    :param patience: for how many seconds.
    :param before: done ahead of each try; it may raise :class:`Busy` itself.
    :param text: what is said of a lock that others keep, where it is more than that.
    :raise InboxLocked: others kept the lock.
    """
    waited = 0.0
    while True:
        try:
            before()
            fd = open_locked(calls, path, flags, exclusive)
            break
        except Busy:
            if waited >= patience:
                kept = f"another program has kept {path} locked for {patience:g} seconds"
                raise InboxLocked(
                    text or kept, remedy=f"see which, a stopped one perhaps: fuser -v {path}"
                ) from None
        sleep(_PAUSE)
        waited += _PAUSE
    try:
        yield fd
    finally:
        if fd is not None:
            calls.close(fd)
