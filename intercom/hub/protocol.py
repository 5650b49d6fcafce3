"""One NDJSON connection of the hub: lines in, lines out, and nothing decided here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IDelayedCall
from twisted.logger import Logger
from twisted.protocols.basic import LineReceiver
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.core.limits import Pace
from intercom.errors import ProtocolError
from intercom.hub.connection import Connection
from intercom.hub.poller import Poller
from intercom.hub.turn import TurnEnd
from intercom.interfaces import IHub, IPeer
from intercom.messages import Message, Reply, Welcome
from intercom.wire.envelope import MAX_LINE, in_ascii
from intercom.wire.framing import LineCutter
from intercom.wire.ndjson import Decoder, Encoder

#: Longest first line of a connection that must show the channel's key.
KEY_LINE_LIMIT = 4096


@implementer(IPeer)
class HubProtocol(Connection, LineReceiver):
    """Speaks NDJSON for one peer of :class:`~intercom.interfaces.IHub`.

    It is a ``LineReceiver`` for those who embed it or speak to it in tests, but cuts
    lines itself: the stock class copies the rest of its buffer once per line, which
    is quadratic in a long line's pieces.
    """

    _log = Logger()
    delimiter = b"\n"
    MAX_LENGTH = MAX_LINE

    def __init__(
        self,
        hub: IHub,
        decoder: Decoder,
        encoder: Encoder,
        turn: TurnEnd,
        needs_key: bool,
        pace: Pace | None = None,
        poller: Poller | None = None,
    ) -> None:
        super().__init__(hub.clock, turn, b"\n", poller)
        self._hub = hub
        self._decoder = decoder
        self._encoder = encoder
        self._needs_key = needs_key
        self._cutter = LineCutter(KEY_LINE_LIMIT if needs_key else MAX_LINE)
        self._pace = pace
        self._begun = False
        self._waiting: list[bytes | None] = []
        self._resting: IDelayedCall | None = None
        self._original = True
        self._number = -1

    # -- Twisted calls

    def connectionMade(self) -> None:
        """Tell the hub that somebody is here, and who the kernel says it is."""
        self._open()
        self._number = self._hub.attach(self, self._needs_key)

    def dataReceived(self, data: bytes) -> None:
        """Cut lines in linear time and hand them to the hub, in order."""
        if self._deaf:
            return
        if self._needs_key:
            head, feed, data = data.partition(b"\n")
            first = self._cutter.feed(head + feed)
            if not first:
                return
            self._needs_key = False
            self._cutter = LineCutter(MAX_LINE)
            self._hub.receive(self._number, self._messages(first))
            if self._deaf:
                return
        lines, pace = self._cutter.feed(data), self._pace
        if self._waiting or not (pace is None or pace.take(len(lines), len(data))):
            self._receive_paced(lines, len(data))
        elif lines:
            self._hub.receive(self._number, self._messages(lines))
        if not self._begun:
            self._begun = True
            self._quicken()
            if not lines:
                self._hub.begun(self._number)

    def lineReceived(self, line: bytes) -> None:
        """Hand one line to the hub, as ``dataReceived`` does with many."""
        self._hub.receive(self._number, self._messages([line]))

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """Everything it said was handled; tell the hub that it is gone."""
        self._shut()
        self._receive_rest()
        self._hub.detach(self._number)

    def _shut(self) -> None:
        super()._shut()
        if self._resting is not None and self._resting.active():
            self._resting.cancel()

    def forsake(self) -> None:
        """See :meth:`Connection.forsake`."""
        super().forsake()
        self._hub.detach(self._number)

    def _messages(self, lines: Sequence[bytes | None]) -> Iterator[Message | ProtocolError]:
        """Decode as the hub draws: a line's meaning may depend on the one before it."""
        for line in lines:
            if line is None:
                text = f"a line has at most {MAX_LINE} bytes; this one was skipped to its end"
                yield ProtocolError(text, code="LINE_TOO_LONG")
                continue
            try:
                message = self._decoder.decode(line, self._hub.session_of(self._number))
            except ProtocolError as error:
                yield error
            else:
                yield message

    # -- the hub calls

    def push(self, line: bytes) -> None:
        """See :meth:`IPeer.push`; in ASCII to one that may be an original client."""
        self._outflow.write(in_ascii(line) if self._original else line)

    def answer(self, reply: Reply) -> None:
        """See :meth:`IPeer.answer`."""
        if isinstance(reply, Welcome):
            self._original = not reply.features
        self._outflow.write(self._encoder.encode(reply))

    # -- no faster than its pace

    def _receive_paced(self, lines: Sequence[bytes | None], size: int) -> None:
        """Hand over as many lines as may be said now; while others wait, nothing is read."""
        pace, now = self._pace, self._hub.clock.seconds()
        if self._waiting or pace is None:
            self._waiting += lines
            if pace is not None:
                pace.admit(0, size, now)
            return
        admitted = pace.admit(len(lines), size, now)
        self._waiting.extend(lines[admitted:])
        if admitted:
            self._hub.receive(self._number, self._messages(lines[:admitted]))
        if self._waiting or pace.owes:
            self._rest_a_while()

    def _rest_a_while(self) -> None:
        """Read on when all that was said is handed over, and paid for."""
        if self._lost or self._pace is None or self._resting is not None:
            return
        self._set_hold("pace", True)
        pause = self._pace.pause(len(self._waiting))
        self._resting = self._hub.clock.callLater(pause, self._go_on)

    def _go_on(self) -> None:
        """A part of the time is over."""
        self._resting = None
        if self._pace is None:
            self._receive_rest()
        elif self._waiting:
            admitted = self._pace.admit(len(self._waiting), 0, self._hub.clock.seconds())
            lines, self._waiting = self._waiting[:admitted], self._waiting[admitted:]
            if lines and not self._deaf:
                self._hub.receive(self._number, self._messages(lines))
        else:
            self._pace.admit(0, 0, self._hub.clock.seconds())
        if self._waiting or (self._pace is not None and self._pace.owes):
            self._rest_a_while()
        else:
            self._set_hold("pace", False)

    def _hurry(self) -> None:
        """It is to go: what it has said already is handled soon, in order."""
        self._pace = None
        if self._resting is not None:
            self._resting.reset(0)
        elif self._waiting:
            self._resting = self._hub.clock.callLater(0, self._go_on)

    def _receive_rest(self) -> None:
        """Hand over all that waits."""
        lines, self._waiting = self._waiting, []
        if lines and not self._deaf:
            self._hub.receive(self._number, self._messages(lines))

    # -- flow

    def _pause(self) -> None:
        self._hub.pause(self._number)

    def _resume(self) -> None:
        self._hub.resume(self._number)
