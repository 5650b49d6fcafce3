"""A Unix server that hears its clients out, and turns away in good order who is one too many.

The original client registers, sends its message and closes without reading. If
something is pushed to it meanwhile, that write fails, and Twisted's transport
answers a failed write by dropping the connection, with everything that the client
had sent and the hub had not read yet. Here a failed write only ends the writing:
reading goes on to the end of what arrived.

Over the number of connections that are served each further one is told so and closed at
once, one after the other, so that it takes one descriptor, and never leaves anybody waiting
at a door that is not opened.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any

from twisted.internet import unix
from twisted.internet.error import ConnectionLost
from twisted.internet.interfaces import IListeningPort, IProtocolFactory, IReactorUNIX
from twisted.internet.main import CONNECTION_LOST


class PatientServer(unix.Server):
    """The hub's side of one connection.

    :ivar nobody_reads: a write has failed: what was written since is discarded.
    """

    nobody_reads = False

    def writeSomeData(self, data: bytes) -> int | ConnectionLost:
        """Write, or, once the peer reads no more, discard; the end of its input ends all."""
        if self.nobody_reads:
            return len(data)
        written: int | ConnectionLost = super().writeSomeData(data)
        if written is CONNECTION_LOST:
            self.nobody_reads = True
            return len(data)
        return written


#: Connections accepted in one turn, so that those who are here already have theirs, too.
ACCEPTED_AT_ONCE = 64
#: What a peer may have said before it hears that there is no room: read, so that the kernel
#: does not take it for an accident, and forgotten.
_UNHEARD = 1 << 16


class PatientPort(unix.Port):
    """Accepts connections of that kind, as many as its factory (a ``HubFactory``) has room for.

    A factory that says nothing about room has room for all.
    """

    transport = PatientServer

    def doRead(self) -> None:
        """Accept, or turn away."""
        room = getattr(self.factory, "room", None)
        most = ACCEPTED_AT_ONCE if room is None else min(room(), ACCEPTED_AT_ONCE)
        if most > 0:
            self.numberAccepts = min(self.numberAccepts, most)
            super().doRead()
            return
        for _ in range(ACCEPTED_AT_ONCE):
            if not self._turn_away():
                return

    def _turn_away(self) -> bool:
        """Refuse one, with the reason; False if there is none, or not even a descriptor."""
        factory: Any = self.factory
        try:
            caller, _address = self.socket.accept()
        except BlockingIOError:
            return False
        except OSError:
            # Twisted keeps a descriptor for this: it closes one connection at a time.
            self.numberAccepts = 1
            super().doRead()
            return False
        with caller, contextlib.suppress(OSError):
            caller.setblocking(False)
            caller.send(factory.refusal())
            caller.recv(_UNHEARD)
        return True


def listen_unix(
    reactor: IReactorUNIX, path: str, factory: IProtocolFactory, backlog: int, mode: int
) -> IListeningPort:
    """Bind and listen, as ``reactor.listenUNIX`` does.

    :raise CannotListenError: the path cannot be bound.
    """
    port = PatientPort(os.fsencode(path), factory, backlog, mode, reactor=reactor)
    port.startListening()
    return port


def adopt_unix(
    reactor: IReactorUNIX, fd: int, factory: IProtocolFactory, backlog: int
) -> IListeningPort:
    """Accept from a socket that listens already, as ``adoptStreamPort`` does.

    That makes ports of its own kind only; its way to make one of a descriptor is the one thing
    here that Twisted does not call public.
    """
    port: PatientPort = PatientPort._fromListeningDescriptor(reactor, fd, factory)
    port.backlog = backlog
    port.startListening()
    return port
