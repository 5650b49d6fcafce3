"""Whether peers that say nothing about it have read what was written to them.

The kernel knows how many bytes of a socket its peer has not taken yet. It is asked soon after
something was written, and then less and less often.
"""

from __future__ import annotations

import fcntl
import socket
import struct
import termios
from collections.abc import Callable
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime

#: Seconds until the kernel is asked for the first time, and at most between two times.
FIRST_S, LONGEST_S = 0.002, 0.25


def is_taken(transport: Any, reactor: Any) -> bool | None:
    """Whether a peer has read all that was ever written to a transport; None: nobody can say.

    A peer that is gone has read it only if it left nothing behind, which the kernel calls an
    accident.
    """
    handle = getattr(transport, "getHandle", lambda: None)()
    if not isinstance(handle, socket.socket) or handle.fileno() < 0:
        return None
    if transport in reactor.getWriters() or getattr(transport, "nobody_reads", False):
        return False  # a part of it is still ours, or went nowhere
    try:
        unread = struct.unpack("i", fcntl.ioctl(handle, termios.TIOCOUTQ, bytes(4)))[0]
        return unread == 0 and not handle.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    except OSError:
        return None


class Watches:
    """The connections of which somebody waits for that.

    :param look: asks about one connection; see :func:`is_taken`.
    :param taken: told once a connection has taken all.
    """

    def __init__(
        self,
        clock: IReactorTime,
        look: Callable[[int], bool | None],
        taken: Callable[[int], None],
    ) -> None:
        self._clock = clock
        self._look = look
        self._taken = taken
        self._watched: set[int] = set()
        self._pause = FIRST_S
        self._call: IDelayedCall | None = None

    def watch(self, number: int) -> None:
        """Something was written to a connection just now."""
        self._watched.add(number)
        self._pause = FIRST_S
        self._again()

    def forget(self, number: int) -> None:
        """A connection is gone. Idempotent."""
        self._watched.discard(number)

    def stop(self) -> None:
        """Ask no more."""
        self._watched.clear()
        if self._call is not None and self._call.active():
            self._call.cancel()

    def look(self, number: int) -> None:
        """Ask about one now, if it is watched."""
        if number in self._watched:
            self._settle(number, self._look(number))

    def look_at_all(self) -> None:
        """Ask about all that are watched, now."""
        for number in sorted(self._watched):
            self.look(number)

    def _settle(self, number: int, found: bool | None) -> None:
        if found is not False:
            self._watched.discard(number)
        if found:
            self._taken(number)

    def _again(self) -> None:
        if self._watched and (self._call is None or not self._call.active()):
            self._call = self._clock.callLater(self._pause, self._look_at_all)

    def _look_at_all(self) -> None:
        self._call = None
        self._pause = min(self._pause * 2, LONGEST_S)
        self.look_at_all()
        self._again()
