"""One hub, found in several places: a Unix socket at each path where a client looks.

The clients want a real socket of their own user at each path, so each has one of its own; hard
links would need one file system for all. As with a channel's socket, whoever finds one finds
somebody listening: it is bound and listens under a temporary name, and is then renamed.
Temporary names lie in private directories only, *workshops*, since others could exchange them
elsewhere. Only the holder of the locks calls this.

A socket is a descriptor, to be adopted by an event loop or accepted from directly. While any
copy of the descriptor is open the kernel gives its inode to no other file, so a socket is known
by that: remove it first (:func:`withdraw`), and close it then.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import stat
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from intercom.errors import CannotCreate, IntercomError
from intercom.pi.places import check_length, prepare_directory

#: Connections that the kernel keeps until they are accepted, as far as it lets us.
BACKLOG = 4096
SOCKET_MODE = 0o600
#: How temporary names begin; with the digits that follow they are shorter than the names that
#: clients know, since a path has a limit.
_TEMPORARY = ".hub-"
_DIGITS = 4

T = TypeVar("T")


class Bound(NamedTuple):
    """A listening socket.

    :ivar fd: non-blocking, closed on exec.
    :ivar path: where clients look for it.
    :ivar name: the temporary path under which it was bound, in its workshop; nothing is there
        later on.
    :ivar device: and ``inode``: of its file.
    """

    fd: int
    path: str
    name: str
    device: int
    inode: int


class Served(NamedTuple):
    """What came of taking several places.

    :ivar bound: all that we listen at.
    :ivar refused: optional paths that could not be had, each with the cause.
    """

    bound: tuple[Bound, ...]
    refused: tuple[tuple[str, str], ...]


def serve(required: Iterable[str], optional: Iterable[str] = ()) -> Served:
    """Listen at all of these paths, and remove what dead hubs left in the workshops.

    No required one is found by clients before all of them are bound.

    :param required: each in a private directory, which is its workshop.
    :param optional: anywhere; the first workshop on the same file system serves.
    :raise CannotCreate: a required path cannot be had. Then nothing of ours is left.
    """
    bound: list[Bound] = []
    required = tuple(required)
    workshops = [os.path.dirname(path) for path in required]
    try:
        for path in required:
            refuse_occupant(path)  # before anything of a hub that lives is touched
        for workshop in workshops:
            _remove_leftovers(workshop)
        for path in required:
            bound.append(bind(path))
        for one in bound:
            publish(one)
    except BaseException:
        for one in bound:
            withdraw(one)
            close(one)
        raise
    refused = []
    for path in optional:
        try:
            bound.append(taken(path, _workshop(path, workshops)))
        except IntercomError as error:
            refused.append((path, error.text))
    return Served(tuple(bound), tuple(refused))


def taken(path: str, workshop: str | None = None) -> Bound:
    """Bind and publish in one; see :func:`bind`.

    :raise CannotCreate: it cannot be done, and nothing of ours is left.
    """
    bound = bind(path, workshop)
    try:
        publish(bound)
    except BaseException:
        close(bound)
        raise
    return bound


def bind(path: str, workshop: str | None = None) -> Bound:
    """Listen under a temporary name, where nobody finds us yet.

    :param path: absolute; its directory exists.
    :param workshop: a private directory on the same file system; that of the path, if not given.
    :raise CannotCreate: it cannot be done, or what stands at ``path`` is not ours to replace.
    """
    check_length(path)
    refuse_occupant(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        os.fchmod(made.fileno(), SOCKET_MODE)  # Linux makes the file with this mode
        name = _bind_in(made, workshop or os.path.dirname(path))
        try:
            os.chmod(name, SOCKET_MODE)  # for other systems, and whatever the umask took
            made.listen(BACKLOG)
            found = os.lstat(name)
        except BaseException:
            _remove(name)
            raise
    except OSError as error:
        made.close()
        raise _cannot_listen(path, error.strerror or str(error)) from error
    except BaseException:
        made.close()
        raise
    made.setblocking(False)
    return Bound(made.detach(), path, name, found.st_dev, found.st_ino)


def publish(bound: Bound) -> None:
    """Give a bound socket its own name: from now on clients find it. Atomic.

    :raise CannotCreate: as :func:`bind`; the socket still has its temporary name.
    """
    refuse_occupant(bound.path)
    try:
        os.rename(bound.name, bound.path)
    except OSError as error:
        raise _cannot_listen(bound.path, error.strerror) from error


def stands(bound: Bound) -> bool:
    """Whether the socket that clients find is this one."""
    try:
        found = os.lstat(bound.path)
    except OSError:
        return False
    return (found.st_dev, found.st_ino) == (bound.device, bound.inode)


def renew(bound: Bound) -> Bound | None:
    """Listen at the path anew if our socket there is gone, and so is its directory perhaps.

    None: it stands, or another who listens has taken its place, and is left in peace. The old
    one is not closed; connections that it has are not touched.

    :raise CannotCreate: it cannot be done. :raise UnsafePlace: the directory is not ours alone.
    """
    if stands(bound) or answers(bound.path):
        return None
    workshop = os.path.dirname(bound.name)
    for directory in (workshop, os.path.dirname(bound.path)):
        if not os.path.lexists(directory):
            prepare_directory(directory)
    return taken(bound.path, workshop)


def withdraw(bound: Bound) -> None:
    """Take the socket's name away, if it is still its own: nobody finds us any more.

    It goes on listening until it is closed. Never raises; what cannot be removed stays.
    """
    if stands(bound):
        _remove(bound.path)


def close(bound: Bound) -> None:
    """Listen no more, and leave no temporary name. For who accepted from the descriptor himself."""
    _remove(bound.name)
    os.close(bound.fd)


def hand_over(bound: Bound, adopt: Callable[[int], T]) -> T:
    """Have an event loop copy the descriptor, and close ours; also if it fails.

    Twisted opens the name under which a socket was bound to everybody, where by now nothing is,
    and shortens the backlog. So it gets an empty file at that name, and the backlog is set again.

    :param bound: published. :param adopt: such as ``IReactorSocket.adoptStreamPort``.
    :return: what ``adopt`` returned.
    """
    try:
        stand_in(bound)
        try:
            return adopt(bound.fd)
        finally:
            _remove(bound.name)
            with socket.socket(fileno=os.dup(bound.fd)) as copy:
                copy.listen(BACKLOG)
    finally:
        os.close(bound.fd)


def stand_in(bound: Bound) -> None:
    """Put an empty file at the temporary name.

    Twisted unlinks that name when it stops listening, and does not come to its end where there
    is nothing. So this comes after :func:`withdraw` and before ``stopListening``. If even the
    directory is gone nothing is made, and the port fails with FileNotFoundError.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(bound.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))


def answers(path: str) -> bool:
    """Whether somebody listens at a path, as far as a connection tells; it is closed at once.

    Nothing waits: who listens and accepts nothing, being stopped, answers, too.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except BlockingIOError:
            return True  # its backlog is full
        except OSError:
            return False
    return True


def refuse_occupant(path: str) -> None:
    """Make sure that a socket may be put at ``path``: only a dead one of our own is replaced.

    :raise CannotCreate: something else stands there, or somebody answers.
    """
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot_listen(path, error.strerror) from error
    if not stat.S_ISSOCK(found.st_mode):
        kind = "directory" if stat.S_ISDIR(found.st_mode) else "file"
        kind = "link" if stat.S_ISLNK(found.st_mode) else kind
        raise CannotCreate(
            f"cannot listen at {path}: a {kind} stands there, which is not ours to replace",
            remedy=f"look at what it is: ls -ld {path}; then move it away: mv {path} {path}.old",
        )
    if found.st_uid != os.geteuid():
        raise _cannot_listen(path, f"the socket there belongs to uid {found.st_uid}")
    if answers(path):
        raise CannotCreate(
            f"cannot listen at {path}: another broker answers there",
            remedy=f"end it first; see which it is: fuser -v {path}",
        )


def _cannot_listen(path: str, reason: str | None) -> CannotCreate:
    return CannotCreate(
        f"cannot listen at {path}: {reason}",
        remedy=f"see what is there: ls -la {os.path.dirname(path)}",
    )


def _workshop(path: str, workshops: Iterable[str]) -> str:
    """The first workshop from which a socket can be renamed to ``path``.

    :raise CannotCreate: there is none.
    """
    with contextlib.suppress(OSError):
        device = os.stat(os.path.dirname(path)).st_dev
        for workshop in workshops:
            if os.stat(workshop).st_dev == device:
                return workshop
    raise _cannot_listen(path, "no directory of ours is on its file system")


def _bind_in(made: socket.socket, workshop: str) -> str:
    """Bind a socket under a free temporary name."""
    while True:
        name = os.path.join(workshop, _TEMPORARY + secrets.token_hex(_DIGITS // 2))
        try:
            made.bind(name)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return name


def _remove_leftovers(workshop: str) -> None:
    """Unlink what hubs left that were killed between binding and publishing, or stopping."""
    with contextlib.suppress(OSError), os.scandir(workshop) as entries:
        for entry in entries:
            if entry.name.startswith(_TEMPORARY) and len(entry.name) == len(_TEMPORARY) + _DIGITS:
                _remove(entry.path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)
