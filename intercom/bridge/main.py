"""A whole bridge in a process of its own: standard input and output, threads, the end."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Any

from twisted.internet.error import ReactorNotRunning
from twisted.internet.stdio import StandardIO
from twisted.logger import (
    FilteringLogObserver,
    LogLevel,
    LogLevelFilterPredicate,
    globalLogBeginner,
    textFileLogObserver,
)

from intercom.bridge.bell import Threads
from intercom.bridge.bridge import Bridge
from intercom.bridge.pipes import Pipes, secure_streams
from intercom.bridge.place import Place
from intercom.bridge.server import Server

#: Seconds for what is under way when the host leaves: a message that is being sent.
FINISH_WITHIN = 2.0
_STEP = 0.02


class _Life:
    """One run, from the first line of the host to the last answer."""

    def __init__(self, reactor: Any, place: Place) -> None:
        self._reactor = reactor
        self._threads = Threads(reactor)
        self._bridge = Bridge(reactor, self._threads, place)
        self._server = Server(self._bridge, self._send)
        self._pipes = Pipes(self._server.received, self._host_left)
        self._deadline = 0.0

    def begin(self, streams: tuple[int, int]) -> None:
        """Listen to the host."""
        self._threads.start()
        taken, given = streams
        connect: Any = StandardIO  # its declared type knows no arguments
        connect(self._pipes, taken, given, self._reactor)

    def _send(self, line: bytes) -> Any:
        return self._pipes.send(line)

    def _host_left(self) -> None:
        """Nobody waits for mail any more; what is being sent is finished."""
        self._deadline = self._reactor.seconds() + FINISH_WITHIN
        self._server.leave()
        self._finish()

    def _finish(self) -> None:
        busy = self._server.busy or self._pipes.busy
        if busy and self._reactor.seconds() < self._deadline:
            self._reactor.callLater(_STEP, self._finish)
            return
        self.stop()

    def stop(self) -> None:
        """End the process in good order."""
        with contextlib.suppress(ReactorNotRunning):
            self._reactor.stop()

    def end(self) -> None:
        """The reactor stops: nothing more is written, the locks are given back."""
        self._server.leave()
        self._pipes.stop()
        self._bridge.close()


def run(place: Place, error: Any) -> int:
    """Serve the host at standard input and output until it leaves; return the exit status.

    :param error: a text file for what goes wrong.
    """
    from twisted.internet import reactor as _reactor

    reactor: Any = _reactor  # its declared type knows neither threads nor triggers
    reactor.seconds = time.monotonic  # the wall clock may jump
    observer = FilteringLogObserver(
        textFileLogObserver(error), [LogLevelFilterPredicate(LogLevel.error)]
    )
    globalLogBeginner.beginLoggingTo([observer], redirectStandardIO=False, discardBuffer=True)
    life = _Life(reactor, place)
    streams = secure_streams()
    reactor.callWhenRunning(life.begin, streams)
    reactor.addSystemEventTrigger("before", "shutdown", life.end)
    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(life.stop))
    reactor.run()
    return 0
