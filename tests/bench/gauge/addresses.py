"""Where a server listens: the path of a Unix socket, or ``tcp:PORT`` on the loopback."""

from __future__ import annotations

import struct
from socket import (
    AF_INET,
    AF_UNIX,
    IPPROTO_TCP,
    SO_PEERCRED,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_NODELAY,
    socket,
)

_LOOPBACK = "127.0.0.1"
_TCP = "tcp:"


def connect(address: str) -> socket:
    """A connection.

    :raise OSError: there is none to be had.
    """
    place: str | tuple[str, int]
    if address.startswith(_TCP):
        place = (_LOOPBACK, int(address.removeprefix(_TCP)))
        sock = socket(AF_INET, SOCK_STREAM)
        sock.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
    else:
        place = address
        sock = socket(AF_UNIX, SOCK_STREAM)
    try:
        sock.connect(place)
    except BaseException:
        sock.close()
        raise
    return sock


def free_port() -> int:
    """A port of the loopback at which nobody listens now."""
    with socket(AF_INET, SOCK_STREAM) as sock:
        sock.bind((_LOOPBACK, 0))
        port: int = sock.getsockname()[1]
    return port


def tcp(port: int) -> str:
    """The address of a port."""
    return f"{_TCP}{port}"


def server_pid(address: str) -> int:
    """Who made a listening Unix socket, as the kernel knows it."""
    with connect(address) as sock:
        credentials = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
