"""Connecting to a channel's hub, and saying why it could not be done. Standard library only.

Four ways of not reaching a hub are told apart by ``details["cause"]`` of
:class:`~intercom.errors.HubUnavailable`, for each has its own remedy: ``denied``
(this process may not use sockets), ``absent`` (no socket file), ``refused`` (a
socket file, but nobody behind it) and ``silent`` (accepted, but never answered).
Nothing here ever removes a file: only the holder of ``hub.lock`` does.
"""

from __future__ import annotations

import _socket  # the compiled part: the other takes longer to load than the talk lasts
import errno
import os
import stat
import sys
import time
from _socket import socket

from intercom.errors import HubUnavailable, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.private import described
from intercom.settings.lookup import Settings

#: Seconds to wait for the connection.
CONNECT_TIMEOUT = 2.0
_DENIED = {errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT}
_ABSENT = {errno.ENOENT, errno.ENOTDIR}


class ConnectionLost(HubUnavailable):
    """The hub was reached, and then the connection broke or went silent; try again."""


def connect(paths: ChannelPaths, timeout: float = CONNECT_TIMEOUT) -> socket:
    """Connect to the channel's hub, and check that it is ours before a byte is sent.

    :return: a connected socket in non-blocking mode.
    :raise HubUnavailable: with its ``cause``.
    :raise UnsafePlace: a process of another user (but root) holds the socket, or its
        file is a link or another user's.
    """
    sock = None
    try:
        sock = socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        sock.setblocking(False)
        _check_file(paths.socket)
        _connect(sock, paths.socket, time.monotonic() + timeout)
        _check_owner(sock, paths)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise _unreachable(paths, error) from error
    except BaseException:
        if sock is not None:
            sock.close()
        raise
    return sock


def reach(paths: ChannelPaths) -> socket:
    """Connect to the channel's hub, after starting one if need be; see ``spawn.ensure_hub``.

    Where one runs already, this is quicker.
    """
    if Settings(os.environ).value("transport") != "spool":
        try:
            return connect(paths)
        except HubUnavailable as error:
            if error.details["cause"] not in ("absent", "refused"):
                raise
    from intercom.client.spawn import ensure_hub

    return ensure_hub(paths)


def _connect(sock: socket, path: str, deadline: float) -> None:
    """Connect; a hub whose queue of connections is full (EAGAIN) is asked again for a while."""
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "its queue of connections is full") from None
            time.sleep(0.01)
        else:
            return


def _check_file(path: str) -> None:
    """Refuse a socket file that no hub of ours has put there: a link, or another user's.

    A link may lead to a program of ours that is no hub, whose kernel credentials are right.
    """
    try:
        found = os.lstat(path)
    except OSError:
        return  # connecting will say why
    if stat.S_ISLNK(found.st_mode) or found.st_uid not in (os.geteuid(), 0):
        what = "is a symbolic link" if stat.S_ISLNK(found.st_mode) else "is another user's"
        raise UnsafePlace(
            f"{path} {what} ({described(found)}); nothing was sent to it",
            remedy=f"look at who put it there: ls -l {path}; then remove it: rm {path}",
        )


def _check_owner(sock: socket, paths: ChannelPaths) -> None:
    """Refuse a hub that the kernel says is another user's."""
    credentials = peer_credentials(sock)
    if credentials is not None and credentials[1] not in (os.geteuid(), 0):
        raise UnsafePlace(
            f"the hub at {paths.socket} runs as uid {credentials[1]}, this process as uid "
            f"{os.geteuid()}; nothing was sent to it",
            remedy="run as the same user, or choose a place of your own with --dir",
        )


def peer_credentials(sock: socket) -> tuple[int, int] | None:
    """Pid and uid of who listens behind a Unix socket, None where the system cannot tell."""
    option = getattr(_socket, "SO_PEERCRED", None)
    if option is None:
        return None
    found = sock.getsockopt(_socket.SOL_SOCKET, option, 12)  # struct ucred: three integers
    return int.from_bytes(found[:4], sys.byteorder), int.from_bytes(found[4:8], sys.byteorder)


def _unreachable(paths: ChannelPaths, error: OSError) -> HubUnavailable:
    """Say why no connection came about, and what to do about it."""
    name = paths.name
    if error.errno in _DENIED:
        return HubUnavailable(
            f"this process may not use the hub's socket {paths.socket} ({error.strerror}); "
            f"it probably runs in a sandbox",
            remedy="allow Unix sockets for it; without them work: intercom send --to NAME, and "
            "intercom poll",
            details={"cause": "denied"},
        )
    if error.errno in _ABSENT:
        return HubUnavailable(
            f"no hub runs for channel {name!r}: there is no socket {paths.socket}",
            remedy=f"start one: intercom --dir {paths.base} --channel {name} hub start",
            details={"cause": "absent"},
        )
    if error.errno == errno.ECONNREFUSED:
        return HubUnavailable(
            f"the hub of channel {name!r} is gone: nobody listens at {paths.socket}",
            remedy=f"start another: intercom --dir {paths.base} --channel {name} hub start",
            details={"cause": "refused"},
        )
    if isinstance(error, TimeoutError):
        return silent(paths, None)
    return HubUnavailable(
        f"cannot connect to {paths.socket}: {error.strerror}", details={"cause": "failed"}
    )


def silent(paths: ChannelPaths, pid: int | None) -> HubUnavailable:
    """What to say of a hub that takes connections and does not answer.

    :param pid: who listens, as far as the kernel told: the lock file may name a dead one.
    """
    if not pid:
        from intercom.election.locks import leader  # where the kernel has not told

        pid = leader(paths).get("pid")
    who = f" (pid {pid})" if pid else ""
    return HubUnavailable(
        f"the hub of channel {paths.name!r}{who} accepts connections but does not answer; "
        f"it may be stopped",
        remedy=f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}" if pid else "",
        details={"cause": "silent", "pid": pid},
    )
