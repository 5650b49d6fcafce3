"""What every connection of the hub has, whatever is spoken on it: an outgoing half, and an end."""

from __future__ import annotations

from typing import Any

from twisted.internet.interfaces import IDelayedCall, IHalfCloseableDescriptor

from intercom.hub.inlet import Inlet, plain_socket
from intercom.hub.outflow import Outflow
from intercom.hub.poller import Poller
from intercom.hub.transports import notice_absence, peer_credentials
from intercom.hub.turn import TurnEnd
from intercom.messages import Credentials

#: How long a connection that was told to go is still answered, and how long listened to.
#: What it had sent before it could know is read and answered first.
ANSWER_S = 0.1
LINGER_S = 1.0


class Connection:
    """Part of a Twisted protocol: flow in both directions, and leaving in good order.

    Subclasses say who is told that it does not drain (:meth:`_pause`, :meth:`_resume`).

    :param clock: times and timers. :param turn: joins what one reactor turn writes.
    :param ending: what follows each piece that is written.
    :param poller: reads it once it has begun to speak; None leaves that to the reactor.
    """

    transport: Any

    def __init__(
        self, clock: Any, turn: TurnEnd, ending: bytes, poller: Poller | None = None
    ) -> None:
        self.credentials = Credentials()
        self._poller = poller
        self._clock = clock
        self._turn = turn
        self._ending = ending
        self._holds: frozenset[str] = frozenset()
        self._linger: IDelayedCall | None = None
        self._farewell: IDelayedCall | None = None
        self._lost = False
        self._deaf = False
        self._wire: Any = None
        self._outflow: Outflow
        self._inlet: Inlet

    def _open(self) -> None:
        """The connection is made."""
        self._wire = self.transport
        self.credentials = peer_credentials(self._wire)
        notice_absence(self._wire)
        self._inlet = Inlet(self._wire, self.dataReceived)
        self._outflow = Outflow(
            self._wire,
            self._turn,
            self._pause,
            self._hold_answers,
            self._drained,
            self._ending,
        )

    def _quicken(self) -> None:
        """It has begun to speak, and will go on: let it cost as little as it can."""
        handle = None if self._poller is None or self._lost else plain_socket(self._wire)
        if handle is not None and self._poller is not None:
            self._inlet.quicken(self._poller, handle)
            self._outflow.quicken(handle.send)

    def dataReceived(self, data: bytes) -> None:
        """Take what was read."""
        raise NotImplementedError

    def _shut(self) -> None:
        """The connection is lost."""
        self._lost = True
        self._inlet.close()
        self._outflow.stopProducing()
        for call in (self._linger, self._farewell):
            if call is not None and call.active():
                call.cancel()

    def forsake(self) -> None:
        """Speak no more on this connection: another dialect is spoken on it. Nothing was said."""
        self._shut()
        self._wire.unregisterProducer()

    # -- what the hub asks

    def hold(self) -> None:
        """See :meth:`IPeer.hold`."""
        self._set_hold("hub", True)

    def release(self) -> None:
        """See :meth:`IPeer.release`."""
        self._set_hold("hub", False)

    def close(self) -> None:
        """See :meth:`IPeer.close`."""
        if self._lost or self._linger is not None:
            return
        self._linger = self._clock.callLater(LINGER_S, self._time_is_over)
        self._hurry()
        self._farewell = self._clock.callLater(ANSWER_S, self._outflow.finish, self._stop_writing)

    def abort(self) -> None:
        """See :meth:`IPeer.abort`."""
        if self._lost or self._deaf:
            return
        self._deaf = True
        if self._linger is None:
            self._linger = self._clock.callLater(LINGER_S, self._time_is_over)
        self._outflow.finish(self._lose)

    def _stop_writing(self) -> None:
        """Say that nothing more will come, and go on listening."""
        half = IHalfCloseableDescriptor.providedBy(self._wire)
        (self._wire.loseWriteConnection if half else self._lose)()

    def _lose(self) -> None:
        """End it when the transport has written what it has; nothing more is read."""
        self._inlet.close()
        self._wire.loseConnection()

    def _time_is_over(self) -> None:
        """The time to leave in good order is over; what was written in this turn still goes.

        A hub that was held up finds its timers due all at once: also those by which it speaks.
        """
        self._linger = self._clock.callLater(0, self._abort_now)

    def _abort_now(self) -> None:
        """Hang up, whatever is unsent."""
        if not self._lost:
            self._inlet.close()
            self._wire.abortConnection()

    def _hurry(self) -> None:
        """It is to go: what it has said already is handled soon."""

    # -- flow

    def _hold_answers(self) -> None:
        self._set_hold("answers", True)

    def _drained(self) -> None:
        self._set_hold("answers", False)
        self._resume()

    def _set_hold(self, reason: str, on: bool) -> None:
        """Read from the peer only while nothing holds it."""
        before = bool(self._holds)
        self._holds = self._holds | {reason} if on else self._holds - {reason}
        if self._lost or before == bool(self._holds):
            return
        (self._stop_reading if on else self._read_on)()

    def _pause(self) -> None:
        raise NotImplementedError

    def _resume(self) -> None:
        raise NotImplementedError

    def _stop_reading(self) -> None:
        self._inlet.pause()

    def _read_on(self) -> None:
        self._inlet.resume()
