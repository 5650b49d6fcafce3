"""Where a hub listens: its socket file, and whatever endpoints it is told of.

The socket file is the channel's front door. Whoever finds it must be answered,
since the original client deletes a ``hub.sock`` that refuses it; so a socket is
bound and listening under a temporary name before it is renamed to its own. All
this is done by the holder of the channel's locks only, so whatever else stands
there was left by the dead.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import stat
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import (
    IListeningPort,
    IProtocolFactory,
    IReactorUNIX,
    IStreamServerEndpoint,
)
from twisted.python.failure import Failure

from intercom.errors import BadConfig, CannotCreate
from intercom.hub.patience import listen_unix
from intercom.messages import Credentials
from intercom.paths import ChannelPaths, read_private, write_atomic

#: The uid of root.
_ROOT = 0
#: Connections that the kernel keeps for us during one turn of the reactor, as far as it lets
#: us: a storm of two thousand clients is welcome, and Twisted's default of 50 would turn most
#: of it away.
BACKLOG = 4096
SOCKET_MODE = 0o700

#: Longest key; a first line that holds it has to stay under 4 KiB.
_MAX_KEY = 2048

#: struct ucred of Linux: pid, uid, gid.
_CREDENTIALS = struct.Struct("iII")


class ChannelPort:
    """The socket file of a channel, from binding to removal.

    :param reactor: listens.
    :param paths: the channel; the caller holds its locks from ``bind`` until ``stop`` fired.
    :param factory: makes a protocol for each connection.
    """

    def __init__(
        self, reactor: IReactorUNIX, paths: ChannelPaths, factory: IProtocolFactory
    ) -> None:
        self._reactor = reactor
        self._factory = factory
        self._path = paths.socket
        self._pointer = paths.socket_pointer
        self._moved = self._path != paths.file("hub.sock")
        self._bound: _BoundSocket | None = None

    def bind(self) -> None:
        """Listen under a temporary name, where nobody finds us yet.

        What dead hubs left under such names is removed first.

        :raise CannotCreate: it cannot be done, or what stands at the socket's place is
            no socket, and so not ours to replace.
        """
        self._bound = self._bind()

    def publish(self) -> None:
        """Give the bound socket its own name: from now on we are found. Atomic.

        :raise CannotCreate: as :meth:`bind`.
        """
        assert self._bound is not None, "publish comes after bind"
        self._rename(self._bound)

    def is_ours(self) -> bool:
        """Whether the socket that clients find is the one where we answer."""
        return self._bound is not None and self._bound.stands_at(self._path)

    def rebind(self) -> Deferred[None]:
        """Bind and publish anew, since our socket file is gone or foreign.

        Connections that exist are not touched. Fires when the old socket is closed.

        :raise CannotCreate: as :meth:`bind`, at once; then all is as before.
        """
        fresh = self._bind()
        try:
            self._rename(fresh)
        except CannotCreate:
            fresh.close()
            raise
        old, self._bound = self._bound, fresh
        return old.close() if old is not None else succeed(None)

    def stop(self) -> Deferred[None]:
        """Listen no more; remove our socket file, and never another's. Idempotent."""
        bound, self._bound = self._bound, None
        if bound is None:
            return succeed(None)
        if bound.stands_at(self._path):
            if self._moved:
                _remove(self._pointer)
            _rename_if_there(self._path, bound.name)
        return bound.close()

    def _bind(self) -> _BoundSocket:
        refuse_occupant(self._path)
        try:
            _remove_leftovers(self._path)
            name = _temporary_name(self._path)
            port = listen_unix(self._reactor, name, self._factory, BACKLOG, SOCKET_MODE)
            found = os.lstat(name)
        except (OSError, CannotListenError) as error:
            raise _cannot_listen(self._path, _reason(error)) from error
        return _BoundSocket(port, name, found.st_dev, found.st_ino)

    def _rename(self, bound: _BoundSocket) -> None:
        refuse_occupant(self._path)
        try:
            os.rename(bound.name, self._path)
            if self._moved:
                write_atomic(self._pointer, os.fsencode(self._path) + b"\n")
            else:
                _remove(self._pointer)
        except OSError as error:
            raise _cannot_listen(self._path, _reason(error)) from error


class _BoundSocket(NamedTuple):
    """A listening socket: the name that it was bound under, and its file's identity."""

    port: IListeningPort
    name: str
    device: int
    inode: int

    def stands_at(self, path: str) -> bool:
        """Whether ``path`` names this socket's file."""
        try:
            found = os.lstat(path)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == (self.device, self.inode)

    def close(self) -> Deferred[None]:
        """Stop listening.

        Twisted then unlinks the name that the socket was bound under, whatever has that
        name by now, and fails if nothing has: so something must be there. If even the
        directory is gone the socket lives on until the process ends, which is near.
        """
        if not os.path.lexists(self.name) and os.path.isdir(os.path.dirname(self.name)):
            os.close(os.open(self.name, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        stopped: Deferred[Any] = maybeDeferred(self.port.stopListening)
        return stopped.addCallbacks(lambda _result: None, _forgive_missing)


def _forgive_missing(failure: Failure) -> None:
    failure.trap(FileNotFoundError)


def refuse_occupant(path: str) -> None:
    """Make sure that a socket may be put at ``path``: only another socket is ever replaced.

    :raise CannotCreate: something else stands there.
    """
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise _cannot_listen(path, error.strerror) from error
    if not stat.S_ISSOCK(mode):
        kind = "directory" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file"
        raise CannotCreate(
            f"cannot listen at {path}: a {kind} stands there, which is not ours to replace",
            remedy=f"look at what it is: ls -ld {path}; then move it away: mv {path} {path}.old",
        )


def _cannot_listen(path: str, reason: str | None) -> CannotCreate:
    return CannotCreate(
        f"cannot listen at {path}: {reason}",
        remedy=f"see what is there: ls -la {os.path.dirname(path)}",
    )


def _temporary_prefix(path: str) -> str:
    """How temporary names for a socket begin; no two sockets of a directory share it."""
    return "." + os.path.basename(path).removesuffix(".sock")


def _temporary_name(path: str) -> str:
    """A name beside ``path`` that is not longer, since a socket's path has a limit.

    Four hexadecimal digits suffice: only the holder of the channel's locks makes such
    names, and it has removed all older ones.
    """
    name = _temporary_prefix(path) + secrets.token_hex(2)
    return os.path.join(os.path.dirname(path), name)


def _remove_leftovers(path: str) -> None:
    """Unlink what hubs that were killed while they bound ``path`` left beside it."""
    prefix = _temporary_prefix(path)
    with os.scandir(os.path.dirname(path)) as entries:
        for entry in entries:
            if (
                entry.name.startswith(prefix)
                and len(entry.name) == len(prefix) + 4
                and stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
            ):
                _remove(entry.path)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def _rename_if_there(old: str, new: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.rename(old, new)


def _reason(error: Exception) -> str:
    """Why the system refused, without the numbers and names that wrap it."""
    cause = error.socketError if isinstance(error, CannotListenError) else error
    return getattr(cause, "strerror", None) or str(cause)


def peer_credentials(transport: Any) -> Credentials:
    """Who the kernel says is at the other end of a connection.

    :return: uid and pid for a Unix socket on Linux; fields are None where the platform or
        the kind of transport has no answer, and the pid where it lives in a process
        namespace that we cannot see.
    """
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return Credentials()
    try:
        raw = handle.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, uid, _gid = _CREDENTIALS.unpack(raw)
    except (OSError, struct.error):
        return Credentials()
    return Credentials(uid=uid, pid=pid or None)


def is_strange(credentials: Credentials) -> bool:
    """Whether a process is another user's: not ours, nor root's, who could read our files anyway.

    One of which the kernel does not say whose it is has to show a key instead.
    """
    return credentials.uid is not None and credentials.uid not in (os.geteuid(), _ROOT)


def notice_absence(transport: Any) -> None:
    """Have the kernel find out that a TCP peer is gone without a word; others tell themselves.

    It asks after half a minute of silence, and gives up after a minute and a half, as the
    hub does with those who promised to answer.
    """
    handle: Any = getattr(transport, "getHandle", lambda: None)()
    if getattr(handle, "family", None) not in (socket.AF_INET, socket.AF_INET6):
        return
    wanted = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 15, "TCP_KEEPCNT": 4, "TCP_USER_TIMEOUT": 90_000}
    with contextlib.suppress(OSError):
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in wanted.items():
            option = getattr(socket, name, None)  # not every system has all of them
            if option is not None:
                handle.setsockopt(socket.IPPROTO_TCP, option, value)


def extra_endpoints(reactor: Any, strings: Iterable[str]) -> list[IStreamServerEndpoint]:
    """The server endpoints that Twisted endpoint strings describe. Nothing is bound yet.

    :raise BadConfig: naming the string and what is wrong with it.
    """
    strings = tuple(strings)
    if not strings:
        return []
    # Their parser looks for plugins all over sys.path, so only who listens elsewhere pays.
    from twisted.internet.endpoints import serverFromString

    endpoints = []
    for string in strings:
        try:
            endpoint = serverFromString(reactor, string)
        except Exception as error:  # each endpoint's own parser raises what it likes
            raise BadConfig(
                f"cannot listen at {string!r}: {type(error).__name__}: {error}",
                remedy="give a Twisted endpoint, such as tcp:7654:interface=127.0.0.1; see where "
                "this one was set: intercom config listen",
            ) from error
        endpoints.append(endpoint)
    return endpoints


def channel_key(paths: ChannelPaths) -> str:
    """The secret that connections from outside the file system must show, made if missing.

    It lies in ``channel.key`` (0600). A key that exists is never replaced, so that
    clients which know it keep their access; who calls holds the channel's locks.

    :raise BadConfig: the file is empty, too long, or no line of printable ASCII.
    :raise UnsafePlace: it is not ours.
    :raise OSError: it cannot be read or written.
    """
    found = read_private(paths.key, _MAX_KEY + 2)
    if found is None:
        found = secrets.token_urlsafe(32).encode()
        write_atomic(paths.key, found + b"\n")
    key = found.decode("ascii", "replace").strip()
    if not (key and key.isascii() and key.isprintable() and len(key) <= _MAX_KEY):
        raise BadConfig(
            f"{paths.key} does not hold a key",
            remedy=f"remove it, and a new one is made: rm {paths.key}; intercom hub restart",
        )
    return key
