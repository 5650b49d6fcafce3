"""Who reads a session now: two kernel locks beside its inbox. Blocking, standard library only.

``reader_<session>.lock`` is held shared by whoever could show the session's messages now, a
waiting ``poll`` for example. ``turn_<session>.lock`` is held exclusively from reading to
committing, so that no two ever show the same message. Both vanish with their holder however
it dies, in any process namespace or sandbox. What stands in the files is for people.

A turn can be taken over from a holder that is stopped and gives nothing back: another
file, locked already, is put in the place of the one that it holds. Which file has the name
is therefore the *epoch* of the turn. :meth:`Turn.check` tells whether one's own is over; a
commit asks it under the inbox's exclusive lock, and the successor reads under the same lock,
so either the commit came before that reading, or it is refused.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from intercom import plainjson as json
from intercom.errors import IntercomError, UnsafePlace
from intercom.paths import ChannelPaths, open_private
from intercom.plain import suppress
from intercom.private import is_at, lock_named
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import TypeVar

    _T = TypeVar("_T")

#: What the hub calls itself where it holds locks for one who is connected and holds none.
STEWARD = "connected to the hub"
#: Seconds for which a lock may be held only to see whether somebody has it.
PROBES = 0.05
_PAUSE = 0.003
#: Longer than a look at a lock takes.
_MOMENT = 0.001
_LARGEST = 1 << 12
#: A lock file that cannot be made guards nothing; what it would guard cannot be written, either.
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


class Holder(NamedTuple):
    """Who holds a lock, as it says itself.

    :ivar pid: in its own process namespace; None if it does not say.
    :ivar program: what it is, for people.
    :ivar since: epoch seconds.
    """

    pid: int | None = None
    program: str = "another program"
    since: float | None = None


class Reader:
    """The shared lock of somebody who could show messages now; lasts until it is closed."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def close(self) -> None:
        """Give it back. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class Turn:
    """The right to read and commit; lasts until it is closed, taken over, or its process ends.

    :param fd: the locked file, None where none can be made: then nobody is kept out.
    """

    def __init__(self, paths: ChannelPaths, session: str, holder: Holder, fd: int | None) -> None:
        self._paths = paths
        self._session = session
        self._holder = holder
        self._fd = fd

    def check(self) -> None:
        """Make sure that the turn is still ours: before a message is shown, and to commit.

        A lock file that somebody has removed is made again, or got back from the hub, which may
        have found it missing and made it for us: we are connected, too.

        :raise IntercomError: ``TAKEN_OVER``, saying by whom as far as is known.
        """
        if self._fd is None:
            return
        path = self._paths.turn(self._session)
        if is_at(self._fd, path):
            return
        if not os.path.lexists(path):
            try:
                fd = _lock(path, exclusive=True)
            except OSError:
                return  # with it went the channel, and there is nothing to read
            if fd is not None:
                _sign(fd, self._holder)
                os.close(self._fd)
                self._fd = fd
                return
        if not self._is_kept_for_us():
            raise taken_over(self._paths, self._session)
        with suppress(OSError):
            again = seize(self._paths, self._session, self._holder)
            os.close(self._fd)
            self._fd = again._fd

    def _is_kept_for_us(self) -> bool:
        """Whether the hub has the turn for this very process."""
        pid, program, _since = self._holder
        now = turn_of(self._paths, self._session)
        return now is not None and now[:2] == (pid, STEWARD) and program != STEWARD

    def close(self) -> None:
        """Give it back. Idempotent."""
        if self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            os.close(self._fd)
            self._fd = None


def attend(paths: ChannelPaths, session: str, holder: Holder, patience: float = PROBES) -> Reader:
    """Be known as one who could show the session's messages now.

    Others may be so at the same time. Where the file cannot be made, or is kept locked by a
    program that is none of ours, nothing is held: nothing but what is said of us depends on it.

    :raise UnsafePlace: the file is not ours.
    """
    try:
        fd = _persist(lambda: _lock(paths.reader(session), exclusive=False), patience)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        return Reader(None)
    if fd is not None:
        _sign(fd, holder)
    return Reader(fd)


def take(
    paths: ChannelPaths, session: str, holder: Holder, patience: float = PROBES
) -> Turn | None:
    """Take the turn if it is free, or becomes so within so many seconds; else None.

    :raise UnsafePlace: the file is not ours.
    """
    try:
        fd = _persist(lambda: _lock(paths.turn(session), exclusive=True), patience)
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        return Turn(paths, session, holder, None)
    if fd is None:
        return None
    _sign(fd, holder)
    return Turn(paths, session, holder, fd)


def seize(paths: ChannelPaths, session: str, holder: Holder) -> Turn:
    """Take the turn from whoever has it, alive or stopped: its epoch is over at once.

    Of several who do so at the same moment the last one has it.

    :raise UnsafePlace: the file is not ours.
    :raise OSError: the directory cannot be written.
    """
    free = take(paths, session, holder)
    if free is not None:
        return free
    import tempfile  # seldom needed, and not for nothing

    fd, temporary = tempfile.mkstemp(prefix=".tmp-", dir=paths.directory)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody knows the file yet
        _sign(fd, holder)
        os.rename(temporary, paths.turn(session))
    except BaseException:
        os.close(fd)
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return Turn(paths, session, holder, fd)


def turn_of(paths: ChannelPaths, session: str) -> Holder | None:
    """Who has the session's turn now, None if nobody. A look without consequences."""
    try:
        fd = open_private(paths.turn(session), os.O_RDONLY)
    except (OSError, UnsafePlace):
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _signed(fd)
    except OSError:
        return None
    finally:
        os.close(fd)
    return None


def reader_of(paths: ChannelPaths, session: str) -> Holder | None:
    """One of those who could show the session's messages now, None if nobody could."""
    found = turn_of(paths, session)
    if found is not None:
        return found
    try:
        fd = open_private(paths.reader(session), os.O_RDONLY)
    except (OSError, UnsafePlace):
        return None

    try:
        # What looks like a reader may be somebody else's look, but hardly twice.
        for pause in (_MOMENT, 0.0):
            if _persist(lambda: _is_shared(fd), PROBES) is False:
                return None
            fcntl.flock(fd, fcntl.LOCK_UN)
            time.sleep(pause)
        return _signed(fd)
    finally:
        os.close(fd)


def _is_shared(fd: int) -> bool | None:
    """Whether somebody holds a lock shared; None if it is held by one who only looks.

    Those who look hold it exclusively for a moment, or shared for one as short.
    """
    if _try(fd, fcntl.LOCK_EX):
        return False
    if not _try(fd, fcntl.LOCK_SH):
        return None
    return not _try(fd, fcntl.LOCK_EX)


def _try(fd: int, how: int) -> bool:
    """Take a lock if it is free."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def remove(paths: ChannelPaths, encoded: str) -> list[str]:
    """Remove the lock files of a session's encoded id, each under its lock.

    One that somebody holds stays. Whoever has opened one and waits for its lock finds that
    the name leads elsewhere, and makes another.

    :return: the paths of what was removed.
    """
    removed = []
    for name in (f"reader_{encoded}.lock", f"turn_{encoded}.lock"):
        path = paths.file(name)
        if not os.path.lexists(path):
            continue
        with suppress(OSError, UnsafePlace):
            fd = _lock(path, exclusive=True)
            if fd is not None:
                try:
                    os.unlink(path)
                    removed.append(path)
                finally:
                    os.close(fd)
    return removed


def encoded_of(names: Iterable[str]) -> set[str]:
    """The encoded ids of which there are lock files among some names of files."""
    found = set()
    for name in names:
        for kind in ("reader_", "turn_"):
            if name.startswith(kind) and name.endswith(".lock"):
                found.add(name[len(kind) : -len(".lock")])
    return found


def taken_over(paths: ChannelPaths, session: str) -> IntercomError:
    """The end of whoever had the turn before: somebody else has taken it."""
    now = turn_of(paths, session)
    by = f"process {now.pid} ({now.program})" if now is not None and now.pid else "another process"
    return IntercomError(
        f"{by} has taken over the reading of {session!r}",
        code="TAKEN_OVER",
        remedy="nothing was lost; two must not fight over one inbox: read as another "
        "--session NAME, or end the other one first",
        details={"session": session},
    )


# ---------------------------------------------------------------------------------------------


def _persist(attempt: Callable[[], _T | None], patience: float) -> _T | None:
    """Try until it succeeds or the time is over."""
    deadline = time.monotonic() + patience
    while (result := attempt()) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return result


def _lock(path: str, exclusive: bool) -> int | None:
    """The locked file that ``path`` names, made if need be; None if another has its lock."""
    how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    return lock_named(path, os.O_RDWR | os.O_CREAT, how)


def _sign(fd: int, holder: Holder) -> None:
    """Write down who holds a lock; that it cannot be written changes nothing."""
    data = json.dumps(holder._asdict()).encode() + b"\n"
    with suppress(OSError):
        os.pwrite(fd, data, 0)
        os.ftruncate(fd, len(data))


def _signed(fd: int) -> Holder:
    """Who holds a lock; whoever has just taken it may not have said so yet."""
    return _persist(lambda: _parse(os.pread(fd, _LARGEST, 0)), PROBES) or Holder()


def _parse(data: bytes) -> Holder | None:
    try:
        found = json.loads(data.split(b"\n", 1)[0])
        since = found["since"]
        return Holder(int(found["pid"]), str(found["program"]), float(since))
    except (ValueError, TypeError, KeyError, RecursionError, OverflowError):
        return None
