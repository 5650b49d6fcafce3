"""A TCP peer that is gone without a word is noticed by the kernel, which then tells us."""

from __future__ import annotations

import socket
from types import SimpleNamespace
from typing import Any

import pytest
from twisted.internet.testing import StringTransport

from intercom.hub.transports import notice_absence


def of(handle: Any) -> Any:
    """A transport with this socket."""
    return SimpleNamespace(getHandle=lambda: handle)


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_the_kernel_is_to_ask_a_silent_tcp_peer_whether_it_is_there(family: int) -> None:
    try:
        handle = socket.socket(family)
    except OSError:
        pytest.skip("this machine has no such sockets")
    with handle:
        notice_absence(of(handle))
        assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        tcp = socket.IPPROTO_TCP
        idle = handle.getsockopt(tcp, socket.TCP_KEEPIDLE)
        tries = handle.getsockopt(tcp, socket.TCP_KEEPINTVL) * handle.getsockopt(
            tcp, socket.TCP_KEEPCNT
        )
        assert (idle, idle + tries) == (30, 90)
        assert handle.getsockopt(tcp, socket.TCP_USER_TIMEOUT) == 90_000


def test_other_kinds_of_connections_are_left_alone() -> None:
    """The end of a process ends them; and one in a test has no socket at all."""
    with socket.socket(socket.AF_UNIX) as handle:
        notice_absence(of(handle))
        assert handle.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 0
    notice_absence(StringTransport())
    with socket.socket(socket.AF_INET) as closed:
        pass
    notice_absence(of(closed))
