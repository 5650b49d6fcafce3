"""A Unix server that hears its clients out.

The original client registers, sends its message and closes without reading. If
something is pushed to it meanwhile, that write fails, and Twisted's transport
answers a failed write by dropping the connection, with everything that the client
had sent and the hub had not read yet. Here a failed write only ends the writing:
reading goes on to the end of what arrived.
"""

from __future__ import annotations

import os

from twisted.internet import unix
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorUNIX
from twisted.internet.main import CONNECTION_LOST


class PatientServer(unix.Server):
    """The hub's side of one connection."""

    _nobody_reads = False

    def writeSomeData(self, data: bytes) -> int | ConnectionLost:
        """Write, or, once the peer reads no more, discard; the end of its input ends all."""
        if self._nobody_reads:
            return len(data)
        written: int | ConnectionLost = super().writeSomeData(data)
        if written is CONNECTION_LOST:
            self._nobody_reads = True
            return len(data)
        return written


class PatientPort(unix.Port):
    """Accepts connections of that kind."""

    transport = PatientServer


def listen_unix(
    reactor: IReactorUNIX, path: str, factory: IProtocolFactory, backlog: int, mode: int
) -> IListeningPort:
    """Bind and listen, as ``reactor.listenUNIX`` does.

    :raise CannotListenError: the path cannot be bound.
    """
    port = PatientPort(os.fsencode(path), factory, backlog, mode, reactor=reactor)
    port.startListening()
    return port
