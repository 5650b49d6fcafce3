"""Where the bytes of a connection come from: the reactor, or a poller beside it."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from twisted.internet.error import ConnectionDone, ConnectionLost
from twisted.internet.interfaces import ISSLTransport
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.hub.poller import Poller

#: Most bytes of one read, as Twisted has it.
_CHUNK = 64 * 1024


def plain_socket(transport: Any) -> socket.socket | None:
    """The socket of a connection whose bytes are those that the socket carries, else None."""
    handle = getattr(transport, "getHandle", lambda: None)()
    tls = ISSLTransport.providedBy(transport) or getattr(transport, "TLS", False)
    return handle if isinstance(handle, socket.socket) and not tls else None


class Inlet:
    """The incoming half of one connection. It begins in the reactor's hands.

    What the reactor would do at the end of its input (``IHalfCloseableDescriptor``) or at an
    error (``IReadDescriptor``) is done here in its stead, within the same event: who connects
    next must find the place free.

    :param transport: a push producer; :param received: takes what is read.
    """

    _log = Logger()

    def __init__(self, transport: Any, received: Callable[[bytes], None]) -> None:
        self._transport = transport
        self._received = received
        self._poller: Poller | None = None
        self._fd = -1
        self._recv: Callable[[int], bytes]
        self._paused = False

    def quicken(self, poller: Poller, handle: socket.socket) -> None:
        """Let a poller listen from now on."""
        self._fd, self._recv = handle.fileno(), handle.recv
        self._transport.pauseProducing()
        self._poller = poller
        if not self._paused:
            poller.watch(self._fd, self._read)

    def pause(self) -> None:
        """Read nothing."""
        self._paused = True
        if self._poller is not None:
            self._poller.forget(self._fd)
        else:
            self._transport.pauseProducing()

    def resume(self) -> None:
        """Read on."""
        paused, self._paused = self._paused, False
        if self._poller is None:
            self._transport.resumeProducing()
        elif paused:
            self._poller.watch(self._fd, self._read)

    def close(self) -> None:
        """The poller is to have no more to do with it. Idempotent."""
        if self._poller is not None:
            self._poller.forget(self._fd)
            self._poller = None

    def _read(self) -> None:
        try:
            data = self._recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            # Said at once: asked once more, the kernel would not tell of it again.
            reason = Failure(ConnectionLost(error.errno, error.strerror))
            self._end(self._transport.connectionLost, reason)
            return
        if not data:
            self._end(self._transport.readConnectionLost, Failure(ConnectionDone()))
            return
        try:
            self._received(data)
        except Exception:  # as the reactor has it: the connection is at fault, nobody else
            self._log.failure("bug in the hub, while reading a connection")
            self.close()
            self._transport.abortConnection()

    def _end(self, end: Callable[[Failure], None], reason: Failure) -> None:
        """Tell the transport that its input is over."""
        poller = self._poller
        self.close()
        if poller is not None:
            poller.end(self._transport, end, reason)
