"""Many connections, one reactor event: what Twisted costs for each event is paid once a turn.

The reactor looks up a log context, wraps the call and reads with ``recvmsg`` for every
connection that has something to say; that is as much work as a message is to the hub. So
the descriptors of busy connections stand in an ``epoll`` of our own, which is itself one
descriptor of the reactor, and what all of them have to say is handled within one event. What
threads have to say comes the same way, by an ``eventfd``. Only public interfaces are used:
``addReader`` and, on connections, ``pauseProducing``, ``resumeProducing`` and ``getHandle``.

What ends a connection, and what the kernel does not take at once, is told and given to
Twisted's transport: see :mod:`intercom.hub.inlet` and :mod:`intercom.hub.outflow`.
Without a poller everything goes Twisted's way. Figures: ``docs/performance.md``.
"""

from __future__ import annotations

import os
import select
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from threading import Lock
from typing import Any

from twisted.internet.interfaces import IReactorFDSet, IReactorFromThreads, IReadDescriptor
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.hub.turn import TurnEnd

#: Most connections that are heard before the reactor gets its turn again.
_AT_ONCE = 256
#: How long it is waited for more, once somebody has spoken: an answer of the spool's thread, and
#: what its receiver says to it, find us listening still. The reactor's other descriptors wait
#: so long, and for all of it together at most the other time. Seconds.
_LINGER_S, _LONGEST_S = 0.001, 0.005


def is_supported(reactor: Any) -> bool:
    """Whether the system has what a poller is made of, and the reactor takes descriptors."""
    return hasattr(select, "epoll") and hasattr(os, "eventfd") and IReactorFDSet.providedBy(reactor)


@implementer(IReadDescriptor, IReactorFromThreads)
class Poller:
    """Calls whoever waits for a descriptor to be readable, many in one reactor event.

    :param reactor: has :func:`is_supported` said yes to.
    :ivar turn: ends with each round of calls.
    """

    _log = Logger()

    def __init__(self, reactor: Any) -> None:
        self.turn = TurnEnd(reactor)
        self._reactor = reactor
        self._ready: dict[int, Callable[[], None]] = {}
        self._epoll: Any = select.epoll()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._calls: deque[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = deque()
        self._ringing = Lock()
        self._rung = False
        self.watch(self._bell, self._answer)
        reactor.addReader(self)

    def watch(self, fd: int, ready: Callable[[], None]) -> None:
        """Call ``ready`` whenever a descriptor can be read, until :meth:`forget`."""
        self._ready[fd] = ready
        self._epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        """Call nobody for it any more. Before its number may be another's."""
        if self._ready.pop(fd, None) is not None:
            with suppress(OSError):  # closed already: then the kernel has forgotten it
                self._epoll.unregister(fd)

    def end(self, transport: Any, end: Callable[[Failure], None], reason: Failure) -> None:
        """Have a connection end: in this event, unless the reactor waits to write to it.

        Then the reactor may hold an event of it already. If the descriptor was closed before,
        that would be taken for one of whoever is accepted next and gets the same number.
        """
        if transport in self._reactor.getWriters():
            self._reactor.callLater(0, end, reason)
        else:
            end(reason)

    # -- what threads have to say

    def callFromThread(self, callable: Callable[..., Any], *args: object, **kwargs: object) -> None:
        """See ``IReactorFromThreads``: in the reactor's thread, in the order of the calls."""
        self._calls.append((callable, args, kwargs))
        if self._rung:
            return  # the mark is taken away before the calls are
        with self._ringing:  # else the number might be another file's by now
            if self._bell >= 0:
                self._rung = True
                try:
                    os.eventfd_write(self._bell, 1)
                except OSError:  # it waits in its place, and whoever calls next rings again
                    self._rung = False

    def _answer(self) -> None:
        os.eventfd_read(self._bell)
        self._rung = False
        for _ in range(len(self._calls)):
            call, args, kwargs = self._calls.popleft()
            try:
                call(*args, **kwargs)
            except Exception:
                self._log.failure("a call from a thread failed")

    # -- IReadDescriptor

    def fileno(self) -> int:
        """The descriptor that the reactor watches; -1 when there is none any more."""
        return -1 if self._epoll.closed else self._epoll.fileno()

    def logPrefix(self) -> str:
        """How the log calls us."""
        return "Poller"

    def doRead(self) -> None:
        """Hear everybody who has something to say, and go on while there is more."""
        begun = self._reactor.seconds()
        events = self._epoll.poll(0, _AT_ONCE)
        while events:
            self._hear(events)
            left = min(_LINGER_S, begun + _LONGEST_S - self._reactor.seconds())
            if self._epoll.closed or left <= 0 or self._is_due(left):
                return
            events = self._epoll.poll(left, _AT_ONCE)

    def _hear(self, events: list[tuple[int, int]]) -> None:
        ready = self._ready.get
        self.turn.begin()
        try:
            for fd, _events in events:
                call = ready(fd)  # an earlier one of this round may have ended it
                if call is not None:
                    call()
        except Exception:  # the reactor would ask us no more, and nobody would be heard
            self._log.failure("bug in the hub, while hearing a descriptor")
        finally:
            self.turn.end()

    def _is_due(self, within: float) -> bool:
        """Whether the reactor has something to do by the clock so soon."""
        wait = self._reactor.timeout()
        return wait is not None and wait < within

    def connectionLost(self, reason: Failure) -> None:
        """The reactor stops: so does this."""
        self.close()

    def close(self) -> None:
        """Watch nothing any more, and let go of both descriptors. Idempotent."""
        if self._epoll.closed:
            return
        self._reactor.removeReader(self)
        self._epoll.close()
        self._ready.clear()
        with self._ringing:
            os.close(self._bell)
            self._bell = -1
