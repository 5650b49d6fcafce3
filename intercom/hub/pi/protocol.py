"""One pi connection of the hub: frames in, frames out, and nothing decided here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from twisted.internet.error import ConnectionDone
from twisted.internet.protocol import Protocol
from twisted.python.failure import Failure

from intercom.hub.connection import ANSWER_S, LINGER_S, Connection
from intercom.hub.pi.watching import is_taken
from intercom.hub.poller import Poller
from intercom.hub.turn import TurnEnd
from intercom.wire.pi.fields import Record
from intercom.wire.pi.frames import FrameCutter
from intercom.wire.pi.reading import FrameError

if TYPE_CHECKING:
    from intercom.hub.pi.bus import Bus

#: Unsent bytes over which a connection is given up. Mail stops long before (``PUSH_LIMIT`` of
#: :mod:`intercom.hub.outflow`); this is for the news of others, and answers to what it asks.
MOST_UNSENT = 8 << 20


class PiProtocol(Connection, Protocol):
    """Speaks length-prefixed JSON for one peer of a :class:`~intercom.hub.pi.bus.Bus`.

    :param local: it came by a Unix socket, so that the kernel says who it is.
    """

    def __init__(self, bus: Bus, turn: TurnEnd, local: bool, poller: Poller | None = None) -> None:
        super().__init__(bus.clock, turn, b"", poller)
        self._bus = bus
        self._local = local
        self._cutter = FrameCutter()
        self._frames: Iterator[Record] = iter(())
        self._number = -1
        self._mute = self._begun = False

    # -- Twisted calls

    def connectionMade(self) -> None:
        """Tell the bus that somebody is here, and who the kernel says it is."""
        self._open()
        self._number = self._bus.attach(self, self._local)

    def dataReceived(self, data: bytes) -> None:
        """Cut frames in linear time and hand them over, in order, as far as nothing holds them."""
        if not self._deaf:
            self._frames = self._cutter.feed(data)
            self._hand_over()
            if not self._begun:
                self._begun = True
                self._quicken()

    def readConnectionLost(self) -> None:
        """It says no more, and hears all that is still to be said to it."""
        self._mute = True
        self._hand_over(rest=True)
        self._bus.gone(self._number)
        if self._farewell is not None and not self._farewell.active():
            self._lose()  # we had said our last before

    def writeConnectionLost(self) -> None:
        """We have ended our half; it is read on."""

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """It is gone; what it had said before is handled."""
        self._shut()
        self._hand_over(rest=True)
        self._bus.detach(self._number)

    def forsake(self) -> None:
        """See :meth:`Connection.forsake`."""
        super().forsake()
        self._bus.detach(self._number)

    def _hand_over(self, rest: bool = False) -> None:
        """Hand over the frames that are here, one by one: each may hold back the next.

        :param rest: whatever holds them: no more will come.
        """
        while (rest or not self._holds) and not self._deaf:
            try:
                frame = next(self._frames, None)
            except FrameError:
                self._deaf = True
                self._bus.garbled(self._number)
                return
            if frame is None:
                return
            self._bus.receive(self._number, frame)

    # -- the bus calls

    def say(self, frame: bytes) -> None:
        """Write a whole frame, joined with what else this turn writes."""
        self._outflow.write(frame)
        if self._outflow.unsent > MOST_UNSENT:
            self._abort_now()

    def end(self, after_flush: bool) -> None:
        """End the connection: when what was said has left, or at once."""
        if self._lost:
            return
        self._deaf = True
        if not after_flush:
            self._abort_now()
        elif self._linger is None:
            if self._holds:  # what it said is read to its end, or the kernel calls it an accident
                self._holds = frozenset()
                self._inlet.resume()
            # Not at once: what the others are told of it leaves before; and what it says just
            # now, not knowing that another has its session, meets an open connection.
            pause = 0.0 if self._mute else ANSWER_S
            self._linger = self._clock.callLater(LINGER_S, self._time_is_over)
            self._farewell = self._clock.callLater(pause, self._outflow.finish, self._leave)

    def _leave(self) -> None:
        """All was said to it."""
        if self._mute:
            self._lose()
        else:
            self._stop_writing()

    def is_taken(self) -> bool | None:
        """Whether the peer has read all that was said to it; None: nobody can say."""
        return False if self._outflow.busy else is_taken(self._wire, self._bus.clock)

    # -- flow

    def _hold_answers(self) -> None:
        """It is read on, or nobody would notice that it asks too much: see ``MOST_UNSENT``."""

    def _pause(self) -> None:
        self._bus.pause(self._number)

    def _resume(self) -> None:
        self._bus.resume(self._number)

    def _read_on(self) -> None:
        self._hand_over()
        if not self._holds and not self._lost:
            self._inlet.resume()
