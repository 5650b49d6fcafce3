"""Where the pi clients look for their broker, taken by a hub: sockets, port and pid file.

All of it is there before the ready line, and goes when the hub does. Only the holder of the
channel's locks calls this.
"""

from __future__ import annotations

import os
from typing import Any

from twisted.internet.defer import Deferred, gatherResults, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IListeningPort
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.errors import CannotCreate, IntercomError
from intercom.hub.doorway import DoorFactory
from intercom.hub.patience import adopt_unix
from intercom.pi import runtime, sockets
from intercom.pi.calls import Calls
from intercom.pi.plan import Plan
from intercom.pi.sockets import Bound
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.private import Warn


class PiDoors:
    """The places of one agent directory, while they are ours.

    :param factory: serves who comes in. :param state_id: the secret of the TCP port.
    """

    _log = Logger()

    def __init__(self, reactor: Any, plan: Plan, factory: DoorFactory, state_id: str) -> None:
        self.plan = plan
        self._reactor = reactor
        self._factory = factory
        self._state_id = state_id
        self._calls = Calls()
        self._bound: list[Bound] = []
        self._open: list[tuple[Bound, IListeningPort]] = []
        self._tcp: IListeningPort | None = None
        self._files: list[runtime.Published] = []

    def bind(self, warn: Warn) -> None:
        """Take all sockets; who comes in waits.

        :raise CannotCreate: one cannot be had, or another broker has it. Then none is taken.
        :raise UnsafePlace: a directory is not ours alone.
        """
        places = self.plan.places
        places.prepare(warn)
        served = sockets.serve(
            (places.intercom_socket, places.subagents_socket), (places.probed_socket,)
        )
        for path, why in served.refused:
            self._log.warn("not served: {path}: {why}", path=path, why=why)
        self._bound = list(served.bound)

    def open(self, tcp: bool) -> None:
        """Let in who waits, and say who we are.

        :raise CannotCreate: a file cannot be written, or a port not be had; :meth:`close` then.
        """
        while self._bound:
            self._adopt(self._bound.pop())
        if tcp:
            self._open_tcp()
        path = self.plan.places.pid_file
        self._files.append(runtime.publish_pid(path, os.getpid(), self._calls))

    def _adopt(self, bound: Bound) -> None:
        port = sockets.hand_over(
            bound, lambda fd: adopt_unix(self._reactor, fd, self._factory, sockets.BACKLOG)
        )
        self._open.append((bound, port))

    def _open_tcp(self) -> None:
        try:
            self._tcp = self._reactor.listenTCP(
                0, self._factory.strict(), interface=runtime.TCP_HOST
            )
        except CannotListenError as error:
            raise CannotCreate(
                f"cannot listen at {runtime.TCP_HOST}: {error.socketError}"
            ) from error
        host: Any = self._tcp.getHost()
        path = self.plan.places.port_file
        self._files.append(runtime.publish_port(path, host.port, self._state_id, self._calls))

    def keep(self) -> None:
        """Put back a socket that a cleaner of temporary files took. About once a second."""
        for bound, port in list(self._open):
            try:
                fresh = sockets.renew(bound)
            except IntercomError as error:
                self._log.warn("no socket: {why}", why=error.text)
                continue
            if fresh is not None:
                self._log.warn("{path} was gone, and is back", path=bound.path)
                self._open.remove((bound, port))
                self._adopt(fresh)
                self._stop(bound, port)

    def close(self) -> Deferred[None]:
        """Give all places back, and listen no more; never what another has put there."""
        files, self._files = self._files, []
        for file in files:
            try:
                file.withdraw(self._calls)
            except IntercomError as error:
                self._log.error("left behind: {why}", why=error.text)
        for bound in self._bound:
            sockets.withdraw(bound)
            sockets.close(bound)
        self._bound = []
        opened, self._open = self._open, []
        for bound, _port in opened:
            sockets.withdraw(bound)
        stopping = [self._stop(*one) for one in opened]
        if self._tcp is not None:
            stopping.append(maybeDeferred(self._tcp.stopListening))
            self._tcp = None
        return gatherResults(stopping, consumeErrors=True).addCallback(lambda _: None)

    def _stop(self, bound: Bound, port: Any) -> Deferred[Any]:
        """Listen no more at a socket that nobody finds any more.

        Who has connected already is let in first: it is told goodbye like all others, where
        the kernel would say that its connection was reset.
        """
        port.doRead()
        sockets.stand_in(bound)
        stopped: Deferred[Any] = maybeDeferred(port.stopListening)
        return stopped.addErrback(_forgive_missing)


def _forgive_missing(failure: Failure) -> None:
    failure.trap(FileNotFoundError)
