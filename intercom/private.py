"""Directories and files that are ours alone, or are refused. Standard library only.

What another user could have put there is told by what the kernel says of it: a link,
another owner, a second name, bits that let others write. Nothing is read from such a
thing, nothing is written to it, and nothing is "mended" about it: the refusal names
the path, its owner and its mode, and what to do.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat

from intercom.errors import CannotCreate, UnsafePlace
from intercom.plain import suppress
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Warn = Callable[[str], None]

#: As many links on the way to a directory are followed as Linux does.
MAX_LINKS = 40


def silent(_text: str) -> None:
    """Take a warning that nobody wants."""


def private_directory(path: str, warn: Warn = silent) -> None:
    """Make ``path`` a real directory of ours with mode 0700, or say why it cannot be one.

    One of ours that others can read is tightened, with a word to ``warn``; one
    that others can write may hold planted files already, and is refused. So is one
    that another user could exchange, because he owns or can write a directory above it.

    :raise UnsafePlace: a link, not a directory, another owner, others can write there.
    :raise CannotCreate: it does not exist and cannot be made.
    """
    whole = os.path.abspath(path)
    _check_way(whole)
    try:
        if not os.path.lexists(whole):
            make_directories(whole)
        found = os.lstat(path)
    except OSError as error:
        raise _cannot_make(path, error.strerror) from error
    _check_directory(path, found)
    mode = stat.S_IMODE(found.st_mode)
    if mode & 0o077:
        os.chmod(path, 0o700)
        warn(f"{path} was open to others (mode {mode:04o}); it is 0700 now")


def check_directory(path: str) -> None:
    """See whether :func:`private_directory` would take ``path``. Makes and changes nothing.

    :raise UnsafePlace: what is there is not ours alone.
    :raise CannotCreate: it does not exist and could not be made.
    """
    whole = os.path.abspath(path)
    _check_way(whole)
    above, code = os.path.dirname(whole), 0
    try:
        _check_directory(path, os.lstat(path))
    except FileNotFoundError:
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        if not os.path.isdir(above):
            code = errno.ENOTDIR
        elif not os.access(above, os.W_OK | os.X_OK):
            code = errno.EACCES
    except OSError as error:
        code = error.errno or errno.EIO
    if code:
        raise _cannot_make(path, os.strerror(code))


def _cannot_make(path: str, reason: str | None) -> CannotCreate:
    return CannotCreate(
        f"cannot make the directory {path}: {reason}",
        remedy="choose another place with --dir or INTERCOM_DIR",
    )


def make_directories(path: str) -> None:
    """Make a directory, and those above it that are missing: all 0700, whatever the umask.

    What has one of their names already is left as it is.

    :param path: absolute.
    """
    above = os.path.dirname(path)
    if not os.path.lexists(above):
        make_directories(above)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
        os.chmod(path, 0o700)  # a umask may have taken bits that we need


def _check_directory(path: str, found: os.stat_result) -> None:
    """Refuse what cannot be a private directory of ours."""
    if stat.S_ISLNK(found.st_mode):
        ours = found.st_uid == os.geteuid()
        raise UnsafePlace(
            f"{path} is a symbolic link, not a directory ({described(found)})",
            remedy=f"name the real directory instead: --dir {os.path.realpath(path)}"
            if ours
            else "choose a place of your own with --dir or INTERCOM_DIR",
        )
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafePlace(
            f"{path} is not a directory ({described(found)})", remedy="choose another with --dir"
        )
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise UnsafePlace(
            f"{path} belongs to uid {found.st_uid} (mode {mode:04o}), and this process runs as "
            f"uid {os.geteuid()}",
            remedy="run as the owner, or choose a place of your own with --dir",
        )
    if mode & 0o022:
        raise UnsafePlace(
            f"others can write to {path} (uid {found.st_uid}, mode {mode:04o}), so its files "
            f"cannot be trusted",
            remedy=f"look at what is in it, then: chmod 700 {path}",
        )


def _check_way(path: str) -> None:
    """Refuse a path of which another user could exchange a part, now or while we use it.

    Whoever can rename within a directory above ours can put another in our place between
    two looks at it. So all of them, and the links among them, belong to root or to us, and
    nobody else can write there unless the sticky bit keeps him from renaming what is ours.
    """
    waiting = _steps(os.path.dirname(path))
    here, links = "/", 0
    while waiting:
        part = waiting.pop()
        step = os.path.dirname(here) if part == ".." else os.path.join(here, part)
        try:
            found = os.lstat(step)
        except OSError:
            return  # to be made, or impossible: whoever tries will say
        _check_step(path, step, found)
        if not stat.S_ISLNK(found.st_mode):
            here = step
            continue
        links += 1
        if links > MAX_LINKS:
            return
        waiting += _steps(os.readlink(step))


def _steps(path: str) -> list[str]:
    """The parts of a path, the last one first; the root is a part, too."""
    steps = [part for part in reversed(path.split("/")) if part not in ("", ".")]
    return [*steps, "/"] if path.startswith("/") else steps


def _check_step(path: str, step: str, found: os.stat_result) -> None:
    """Refuse one directory, or link, on the way to ``path``."""
    open_to = 0 if stat.S_ISLNK(found.st_mode) or found.st_mode & stat.S_ISVTX else 0o002
    if open_to and found.st_gid != os.getegid():  # many systems give each user a group
        open_to |= 0o020
    if found.st_uid not in (os.geteuid(), 0) and found.st_uid != _nobody_known():
        cause = f"{step} belongs to uid {found.st_uid} (mode {stat.S_IMODE(found.st_mode):04o})"
    elif found.st_mode & open_to:
        cause = f"others can write to {step} ({described(found)})"
    else:
        return
    raise UnsafePlace(
        f"{cause}, so another user could exchange {path} while uid {os.geteuid()} uses it",
        remedy="choose a place of your own with --dir or INTERCOM_DIR",
    )


def _nobody_known() -> int | None:
    """As whom files of users appear that our user namespace does not know, root among them.

    None outside of such a namespace, where that uid is a user like others.
    """
    try:
        with open("/proc/self/uid_map", "rb") as file:
            if file.read().split() == [b"0", b"0", b"4294967295"]:
                return None
        with open("/proc/sys/kernel/overflowuid", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def described(found: os.stat_result) -> str:
    """Owner and mode of a file, as refusals tell them."""
    return f"uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"


def open_private(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a file of a channel: no links followed, a regular file of ours with one name.

    Nothing is read, written or cut before that is certain; ``O_TRUNC`` may be asked for.

    :return: a descriptor that is closed on exec.
    :raise UnsafePlace: a link, another owner, a hard link, or no regular file.
    :raise OSError: as ``os.open`` does for everything else (FileNotFoundError ...).
    """
    how = flags & ~os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    try:
        fd = os.open(path, how, mode)
    except FileNotFoundError:
        raise
    except OSError as error:
        with suppress(OSError):
            _check_file(path, os.lstat(path))
        raise error
    try:
        _check_file(path, os.fstat(fd))
        if flags & os.O_TRUNC:
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _check_file(path: str, found: os.stat_result) -> None:
    """Refuse what is not a regular file of ours with one name."""
    if stat.S_ISLNK(found.st_mode):
        problem = "is a symbolic link"
    elif not stat.S_ISREG(found.st_mode):
        problem = "is not a regular file"
    elif found.st_uid != os.geteuid():
        problem = f"does not belong to uid {os.geteuid()}, as which this process runs"
    elif found.st_nlink > 1:
        problem = "has a second name (hard link)"
    else:
        return
    raise UnsafePlace(
        f"{path} {problem} ({described(found)})",
        remedy=f"nothing in it was touched; look at what it is: ls -l {path}; then remove it: "
        f"rm {path}",
    )


def read_private(path: str, limit: int = 1 << 20) -> bytes | None:
    """The content of a small file of a channel, None if it does not exist.

    :raise UnsafePlace: see :func:`open_private`.
    """
    try:
        fd = open_private(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return os.read(fd, limit)
    finally:
        os.close(fd)


def write_atomic(path: str, data: bytes) -> None:
    """Replace a small file (mode 0600) in one step: temporary file, then rename.

    Whoever reads sees the old content or the new, never a part. Not synced.
    """
    temporary = os.path.join(os.path.dirname(path), f".tmp-{os.urandom(8).hex()}")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
        os.rename(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def lock_named(path: str, flags: int, how: int) -> int | None:
    """Open and lock the file that ``path`` names, without waiting; None if another has the lock.

    Whoever removes or replaces such a file holds its lock, so a file that is locked and
    still has its name is the one that all others try to lock.

    :param flags: as for :func:`open_private`. :param how: ``LOCK_SH`` or ``LOCK_EX``.
    """
    while True:
        fd = open_private(path, flags)
        try:
            fcntl.flock(fd, how | fcntl.LOCK_NB)
            if is_at(fd, path):
                return fd
        except BlockingIOError:
            os.close(fd)
            return None
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)  # it was removed or replaced while we were on our way


def is_at(fd: int, path: str) -> bool:
    """Whether a path still names an open file."""
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except FileNotFoundError:
        return False
