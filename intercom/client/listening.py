"""A session that listens: each message shown once, then acknowledged. Standard library only.

Through a hub that grants ``cursor`` the hub pushes what lies unread and then what
comes; a ``cursor`` line, once all before it was shown, is answered with ``ack``.
Everywhere else the inbox file itself is followed: sockets are denied, no hub
answers at the moment, or an original hub pushes without positions (its pushes
then only say that it is time to look). The file is the truth in all of these, so
no change from one way to the other loses a message.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

from intercom.client.blocking import HubConnection, Received, refusal
from intercom.client.dial import ConnectionLost
from intercom.client.errands import Errands, Reports
from intercom.client.parent import Orphaned
from intercom.client.readers import Seat
from intercom.client.spawn import ensure_hub
from intercom.election.locks import is_original
from intercom.errors import (
    CLOSING_CODES,
    CannotCreate,
    HubUnavailable,
    InboxLocked,
    IntercomError,
    ProtocolError,
    StalePosition,
)
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.files import Inbox
from intercom.tuples import TYPE_CHECKING
from intercom.wire import envelope

if TYPE_CHECKING:
    from intercom.client.outbox import Connect

FEATURES = ("receipts", "cursor", "heartbeat")
#: Seconds of silence after which we ping the hub, and then to wait for its answer.
PING_AFTER = 25.0
PONG_WITHIN = 10.0
#: Between two looks at the inbox file: from the first to the second, doubling.
LOOK_FIRST, LOOK_LAST = 0.005, 0.1
#: Seconds between two tries to reach the hub, doubling; where sockets are denied.
RETRY_FIRST, RETRY_LAST, RETRY_DENIED = 0.05, 5.0, 30.0
#: Seconds after which a connection counts as having worked.
STEADY = 5.0
#: Lines from the hub between two looks at standard input.
AT_ONCE = 64
#: Messages that are remembered to have been shown: a line may stand twice in an inbox,
#: where an original client wrote again what its hub had stored.
REMEMBERED = 4096
#: A hub may not yet have seen that our old connection is gone.
COLLISION_GRACE = 5.0
_CONTROL = frozenset({"welcome", "error", "receipt", "cursor", "heartbeat", "sessions"})


class Audience(Reports, Protocol):
    """Who is shown what a :class:`Listener` hears."""

    def show(self, line: bytes, message: dict[str, Any]) -> None:
        """Show one message, flushed; an exception means that it was not shown."""

    def note(self, text: str) -> None:
        """A sentence about the listening itself."""


@dataclass(slots=True)
class _Pulse:
    """When a connection last gave a sign of life (monotonic seconds).

    :ivar pinged: when we asked for one, None if no answer is due.
    """

    heard: float
    said: float
    pinged: float | None = None


class Listener:
    """Listens for one session until it is told to stop.

    :param token: the session's secret; shown to the hub, so that the session's own
        ``send`` may speak beside this connection.
    :param once: stop after the first messages (all that came before one cursor).
    :param deadline: when to stop (monotonic), or None.
    :param orders: descriptor of standard input, or None.
    :param output: descriptor of standard output: when its reader goes, so do we.
    :param seat: has the session's turn for as long as we listen, None if nobody asks for it.
    :param takeover: end a connection of the session that the hub still has.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        token: str,
        audience: Audience,
        *,
        once: bool = False,
        deadline: float | None = None,
        orders: int | None = None,
        output: int | None = None,
        seat: Seat | None = None,
        takeover: bool = False,
        connect: Connect = ensure_hub,
    ) -> None:
        self._paths = paths
        self._session = session
        self._token = token
        self._audience = audience
        self._once = once
        self._deadline = deadline
        self._errands = Errands(paths, session, audience, orders)
        self._output = output
        self._connect = connect
        self._seat = seat
        self._takeover = takeover
        self._inbox = Inbox(paths, session, fence=seat.check if seat is not None else None)
        self._acked: Position | None = None
        self._shown: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._shown_any = False
        self._retry = RETRY_FIRST
        self._trouble: IntercomError | None = None
        self._lost_at: float | None = None
        self._lost_original = False
        self._outdated = False

    def run(self) -> None:
        """Listen until the deadline, or with ``once`` until something was shown.

        :raise IntercomError: the session is held by somebody else, or was taken over, or no
            hub could be started.
        :raise BrokenPipeError: nobody reads the output any more.
        """
        try:
            while not self._over():
                hub = self._reach()
                if hub is None:
                    self._follow(time.monotonic() + self._pause(), None)
                    continue
                begun = time.monotonic()
                try:
                    with hub:
                        self._serve(hub)
                except ConnectionLost:
                    self._lost_at = time.monotonic()
                    self._lost_original = hub.original
                    if self._lost_at - begun > STEADY:
                        self._retry = RETRY_FIRST
                    self._follow(self._lost_at + self._pause(), None)
        except Orphaned:
            self._audience.note("the program that started it has ended; what is unread stays so")
        finally:
            ended = HubUnavailable("listening ended before the hub had answered")
            with contextlib.suppress(IntercomError, OSError):
                self._errands.give_up(ended)
                self._settle()
            self._inbox.close()

    # -- reaching the hub -----------------------------------------------------------------

    def _reach(self) -> HubConnection | None:
        """A registered connection, or None if there is none to be had at the moment."""
        hub = None
        try:
            self._settle()
            hub = HubConnection(self._connect(self._paths), self._paths, self._session)
            hub.register(features=FEATURES, token=self._token, takeover=self._takeover)
        except IntercomError as error:
            if hub is not None:
                hub.close()
            if not self._bears(error):
                raise
            if self._trouble is None or self._trouble.details != error.details:
                self._audience.note(f"{error.text}; following the inbox file meanwhile")
            self._trouble = error
            self._errands.give_up(error)
            return None
        if self._trouble is not None:
            self._audience.note(f"connected to the hub of channel {self._paths.name!r}")
        self._trouble = None
        if hub.outdated and not self._outdated:
            self._audience.note(hub.outdated)
            self._outdated = True
        return hub

    def _bears(self, error: IntercomError) -> bool:
        """Whether to go on, on the file, in spite of this."""
        if error.code == "SESSION_COLLISION":
            # An original hub notices that we are gone when the peer it waits for has read on.
            grace = math.inf if self._lost_original else COLLISION_GRACE
            if self._takeover and is_original(self._paths):
                return True  # which knows no take-over; the file is ours, as the turn is
            return self._lost_at is not None and time.monotonic() - self._lost_at < grace
        if isinstance(error, ConnectionLost) or error.retryable:
            return True
        if not isinstance(error, HubUnavailable | CannotCreate):
            return False
        was_reached = self._lost_at is not None or self._trouble is not None
        none_started = isinstance(error, HubUnavailable) and error.details.get("cause") != "failed"
        return was_reached or none_started

    def _pause(self) -> float:
        """How long to follow the file before the hub is tried again."""
        if self._trouble is not None and self._trouble.details.get("cause") == "denied":
            return RETRY_DENIED
        self._retry = min(self._retry * 2, RETRY_LAST)
        return self._retry * (0.5 + os.urandom(1)[0] / 255)

    # -- listening through the hub --------------------------------------------------------

    def _serve(self, hub: HubConnection) -> None:
        """Listen on one connection until it is over.

        :raise ConnectionLost: the hub is gone, or silent.
        """
        self._errands.renew(hub)
        if "cursor" not in hub.features:
            return self._follow(None, hub)
        pulse = _Pulse(time.monotonic(), time.monotonic())
        while not self._over():
            more = self._hear_some(hub, pulse)
            self._beat(hub, pulse, time.monotonic())
            self._errands.expire(time.monotonic())
            if self._wait(0.0 if more else 1.0, hub):
                self._errands.take(hub, None)
        return None

    def _hear_some(self, hub: HubConnection, pulse: _Pulse) -> bool:
        """Deal with what has come, but not for ever: True if there may be more."""
        for _ in range(AT_ONCE):
            received = hub.receive(0)
            if received is None or self._over():
                return False
            pulse.heard, pulse.pinged = time.monotonic(), None
            if self._hear(hub, received):
                pulse.said = pulse.heard
        return True

    def _beat(self, hub: HubConnection, pulse: _Pulse, now: float) -> None:
        """Ping a hub that is silent, or to which we were.

        :raise ConnectionLost: it does not answer.
        """
        if pulse.pinged is not None and now - pulse.pinged > PONG_WITHIN:
            raise ConnectionLost("the hub is silent", details={"cause": "silent"})
        if pulse.pinged is None and now - min(pulse.heard, pulse.said) > PING_AFTER:
            hub.say("heartbeat", {})
            pulse.said = pulse.pinged = now

    def _hear(self, hub: HubConnection, received: Received) -> bool:
        """Deal with one line from the hub; True if it was answered."""
        message = received.envelope
        if message is None:
            self._audience.note("a message from the hub could not be read and was passed over")
            return False
        if received.type not in _CONTROL or message.get("from_session") != "hub":
            self._show(received.line, message)
            return False
        if received.type == "cursor":
            generation, offset = map(received.payload.get, ("generation", "offset"))
            if isinstance(generation, int) and isinstance(offset, int):
                return self._acknowledge(hub, Position(generation, offset))
        if received.type == "heartbeat" and message["reply_to"] is None:
            hub.say("heartbeat", {}, reply_to=message.get("id"))
            return True
        if received.type in ("receipt", "error"):
            self._told(received)
        return False

    def _show(self, line: bytes, message: dict[str, Any]) -> None:
        """Show a message unless it was shown before; one without an id is always another."""
        key = (str(message.get("from_session")), str(message.get("id")))
        if key in self._shown:
            return
        if self._seat is not None:
            self._seat.check_to_show()
        self._audience.show(line, message)
        self._shown_any = True
        if message.get("id") is not None:
            self._shown[key] = None
            if len(self._shown) > REMEMBERED:
                self._shown.popitem(last=False)

    def _acknowledge(self, hub: HubConnection, position: Position) -> bool:
        """All before ``position`` was shown: say so."""
        if self._seat is not None:
            self._seat.check()
        hub.say("ack", {"generation": position.generation, "offset": position.offset})
        self._acked = position
        if self._once and self._shown_any:
            self._deadline = 0.0
        return True

    def _told(self, received: Received) -> None:
        """A receipt, or an error: of a message of ours, or the end of the connection.

        :raise ConnectionLost: the hub is about to go.
        :raise IntercomError: it no longer wants us.
        """
        if received.type == "error":
            error = refusal(received.payload)
            if error.code == "SHUTTING_DOWN":
                raise ConnectionLost(error.text, details={"cause": "refused"})
            if error.code in CLOSING_CODES:
                raise error
        if not self._errands.told(received) and received.type == "error":
            self._audience.note(f"{error.code}: {error.text}")

    # -- listening on the inbox file ------------------------------------------------------

    def _follow(self, until: float | None, hub: HubConnection | None) -> None:
        """Show what the inbox file holds behind the stored position, until ``until``.

        :param hub: an original hub to stay connected to: it counts us as present, and
            what it says is the sign to look at the file.
        """
        pause, seen = LOOK_FIRST, -1
        while not self._over() and (until is None or time.monotonic() < until):
            size = self._inbox.size()
            if size != seen:
                with contextlib.suppress(InboxLocked):  # then look again, soon
                    self._show_unread()
                    seen, pause = size, LOOK_FIRST
            left = pause if until is None else min(pause, max(0.0, until - time.monotonic()))
            if self._wait(left, hub):
                self._errands.take(hub, self._trouble)
            pause = min(pause * 2, LOOK_LAST)
            while hub is not None and (received := hub.receive(0)) is not None:
                pause = LOOK_FIRST
                if received.type == "error":
                    self._told(received)

    def _show_unread(self) -> None:
        """Show and commit what lies unread, batch by batch."""
        while not self._over():
            self._settle()  # what a hub was told and perhaps never did
            batch = self._inbox.read()
            if batch.damaged:
                self._audience.note(f"passed over {len(batch.damaged)} damaged lines of the inbox")
            for record in batch.records:
                try:
                    self._show(record.line, envelope.parse(record.line))
                except ProtocolError:
                    self._audience.note(f"passed over a line at byte {record.start} of the inbox")
                self._acked = Position(batch.next.generation, record.end)
            self._acked = batch.next
            self._settle()
            if self._once and self._shown_any:
                self._deadline = 0.0
            if batch.at_end:
                return

    def _settle(self) -> None:
        """Make sure that what was acknowledged is stored, whether or not a hub heard of it.

        So whoever reads on, we after a reconnect or another command, starts exactly there.
        """
        if self._acked is not None:
            with contextlib.suppress(StalePosition):  # emptied meanwhile: all of it was read
                self._inbox.commit(self._acked)
            self._acked = None

    # -- waiting --------------------------------------------------------------------------

    def _over(self) -> bool:
        if self._seat is not None:
            self._seat.check_to_show()
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _wait(self, timeout: float, hub: HubConnection | None) -> bool:
        """Wait for hub or standard input; True if there are orders to read.

        :raise BrokenPipeError: whoever read our output is gone.
        """
        if self._deadline is not None:
            timeout = min(timeout, max(0.0, self._deadline - time.monotonic()))
        poller = select.poll()
        if hub is not None:
            poller.register(hub, select.POLLIN)
        if self._errands.fd is not None:
            poller.register(self._errands.fd, select.POLLIN)
        if self._output is not None:
            poller.register(self._output, 0)
        ready = dict(poller.poll(timeout * 1000))
        if self._output is not None and ready.get(self._output, 0) & (
            select.POLLERR | select.POLLHUP
        ):
            raise BrokenPipeError
        return self._errands.fd in ready
