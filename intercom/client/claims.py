"""Who has which name on a channel, and who uses it now: ``name_<session>.json``.

The file says which project a name is claimed for. Every command of ours that speaks as
the session holds the file's lock, shared, as long as it lives: whoever can take that
lock for himself alone knows that none does, through process namespaces, without
sockets, and at once after a ``kill -9``. Only under the exclusive lock is a claim
written or removed, and never replaced by another file. Standard library only.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from intercom import plainjson as json
from intercom.errors import CannotCreate, IntercomError, UnsafePlace
from intercom.paths import ChannelPaths, open_private
from intercom.plain import contextmanager, suppress
from intercom.private import is_at, lock_named
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

FORMAT = 1
#: Seconds for which others may keep a lock that is held for moments.
PATIENCE = 2.0
#: Seconds for which a lock may be held only to see whether somebody has it.
PROBES = 0.05
_PAUSE = 0.005
_LARGEST = 1 << 16
#: Where the channel cannot be written there is nothing to hold, and little to protect.
_UNWRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT})


class Claim(NamedTuple):
    """For whom a name is claimed.

    :ivar tree: id of the working tree, None where nobody has claimed the name.
    :ivar project: the tree's path, for people, and with ``inode`` (device and number of its
        root) to know a tree again that has lost its map.
    """

    session: str
    tree: str | None = None
    project: str = ""
    inode: tuple[int, int] | None = None
    claimed_at: float = 0.0


class Hold:
    """A name in use; lasts until it is closed, or the process ends.

    :ivar claim: for whom the name was claimed when it was taken into use.
    """

    def __init__(self, fd: int | None, claim: Claim) -> None:
        self._fd = fd
        self.claim = claim

    def close(self) -> None:
        """Use the name no longer. Idempotent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def hold(paths: ChannelPaths, session: str) -> Hold:
    """Take a name into use, whoever has claimed it: its file is made, and locked shared.

    :raise CannotCreate: another program keeps the exclusive lock.
    :raise UnsafePlace: the file is not ours.
    """
    path = paths.claim(session)
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            fd = lock_named(path, os.O_RDONLY | os.O_CREAT, fcntl.LOCK_SH)
        except OSError as error:
            if error.errno in _UNWRITABLE:
                return Hold(None, look(paths, session))
            raise
        if fd is not None:
            return Hold(fd, _read(fd, session))
        if time.monotonic() > deadline:
            raise CannotCreate(
                f"another program has kept {path} locked for {PATIENCE:g} seconds",
                remedy=f"see which: fuser -v {path}",
            )
        time.sleep(_PAUSE)


def take(paths: ChannelPaths, wanted: Claim) -> Hold | None:
    """Claim a name that nobody uses, and take it into use.

    :return: None if somebody uses it, or another tree has claimed it.
    :raise CannotCreate: it cannot be written.
    """
    path = paths.claim(wanted.session)
    deadline = time.monotonic() + PROBES
    while True:
        try:
            fd = lock_named(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)
        except OSError as error:
            raise _unwritable(path, error) from error
        if fd is None and time.monotonic() > deadline:
            return None
        if fd is None:
            time.sleep(_PAUSE)
            continue
        try:
            found = _read(fd, wanted.session)
            if found.tree not in (None, wanted.tree):
                os.close(fd)
                return None
            if found.tree is None:
                _write(fd, path, wanted)
            # Not in one step: for a moment the lock is nobody's.
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        else:
            if is_at(fd, path):
                return Hold(fd, wanted)
        os.close(fd)


@contextmanager
def alone(paths: ChannelPaths, session: str, patience: float = PATIENCE) -> Iterator[bool]:
    """Keep everybody from using a name, or not: whether this is so is what ``with`` gives.

    Commands that use it for a moment are waited for.
    """
    path = paths.claim(session)
    deadline = time.monotonic() + patience
    while (fd := lock_named(path, os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX)) is None:
        if time.monotonic() > deadline:
            yield False
            return
        time.sleep(_PAUSE)
    try:
        yield True
    finally:
        os.close(fd)


def is_used(paths: ChannelPaths, session: str) -> bool:
    """Whether a command of ours speaks as this session now."""
    try:
        fd = open_private(paths.claim(session), os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def look(paths: ChannelPaths, session: str) -> Claim:
    """For whom a name is claimed."""
    try:
        fd = open_private(paths.claim(session), os.O_RDONLY)
    except OSError:
        return Claim(session)
    try:
        return _read(fd, session)
    finally:
        os.close(fd)


def of_tree(paths: ChannelPaths, project: str, inode: tuple[int, int]) -> list[Claim]:
    """What was claimed for a tree that stands where it stood, the oldest first."""
    found = []
    for entry in os.listdir(paths.directory):
        if entry.startswith("name_") and entry.endswith(".json"):
            with suppress(OSError, UnsafePlace):
                fd = open_private(paths.file(entry), os.O_RDONLY)
                try:
                    claim = _read(fd, "")
                finally:
                    os.close(fd)
                at_its_place = (claim.project, claim.inode) == (project, inode)
                if claim.tree is not None and at_its_place and claim.session:
                    found.append(claim)
    return sorted(found, key=lambda claim: (claim.claimed_at, claim.session))


def _read(fd: int, session: str) -> Claim:
    """What a claim file says; one that says nothing usable claims nothing."""
    content = os.pread(fd, _LARGEST, 0)
    if not content:
        return Claim(session)
    try:
        written: Any = json.loads(content)
        device, number = written["inode"]
        return Claim(
            session or str(written["session"]),
            str(written["tree"]),
            str(written["project"]),
            (int(device), int(number)),
            float(written["claimed_at"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return Claim(session)


def _write(fd: int, path: str, claim: Claim) -> None:
    """Write a claim into its locked file: whole, or not at all."""
    from intercom.client.roster import persona  # when a name is taken only

    who = persona(claim.session)
    fields = {"format": FORMAT, **claim._asdict()}
    fields |= {"name": who.name, "title": who.title, "ship": who.ship}
    content = json.dumps(fields).encode() + b"\n"
    try:
        os.ftruncate(fd, 0)
        if os.pwrite(fd, content, 0) != len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError as error:
        with suppress(OSError):
            os.ftruncate(fd, 0)
        raise _unwritable(path, error) from error


def _unwritable(path: str, error: OSError) -> CannotCreate:
    return CannotCreate(
        f"cannot write {path}: {error.strerror}",
        code="DISK_FULL" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None,
        remedy="name the session yourself: --session ID, or INTERCOM_SESSION=ID",
    )


def refusal(paths: ChannelPaths, session: str, tree: str) -> IntercomError:
    """Why a project cannot have a name: another has it, or somebody uses it just now."""
    claim = look(paths, session)
    if claim.tree not in (None, tree):
        text = f"{session!r} belongs to another project on channel {paths.name!r}: {claim.project}"
    else:
        text = f"somebody speaks as {session!r} on channel {paths.name!r} at this moment"
    return collision(session, text)


def collision(session: str, text: str) -> IntercomError:
    """The refusal of a name that somebody else has."""
    return IntercomError(
        text,
        code="SESSION_COLLISION",
        remedy="see whose names there are: intercom name --all; or have one drawn: "
        "intercom init --force-new",
        details={"session": session},
    )
