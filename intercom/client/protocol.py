"""A session's connection to its hub, for programs that run on Twisted.

The connection itself is made by :func:`intercom.client.spawn.ensure_hub`, in a thread, so that
it is checked and refused as commands have it; what it gives is adopted by the reactor.
"""

from __future__ import annotations

from _socket import AF_UNIX, socket
from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionDone
from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import Factory, Protocol
from twisted.internet.task import LoopingCall
from twisted.python.failure import Failure

from intercom.client.blocking import MAX_INPUT, Received, line_to_hub, read_line, refusal
from intercom.client.dial import ConnectionLost, silent
from intercom.errors import CLOSING_CODES, IntercomError
from intercom.paths import ChannelPaths
from intercom.wire.framing import LineCutter

#: Seconds for a hub to answer.
ANSWER_WITHIN = 5.0
#: Seconds of silence after which the hub is pinged, and then for it to answer.
PING_AFTER, PONG_WITHIN = 25.0, 10.0
#: Seconds between two looks at the time.
BEAT = 5.0


class HubClient(Protocol):
    """One connection of one session.

    Answers the hub's pings, and hangs up on one that answers none of ours.

    :param clock: ``IReactorTime``.
    :param heard: called with each message that was pushed.
    :ivar features: what the hub granted.
    :ivar original: the hub is one of the original mesh.
    :ivar lost: fires with the reason once the connection is over; never fails.
    """

    def __init__(
        self, paths: ChannelPaths, session: str, clock: Any, heard: Callable[[Received], None]
    ) -> None:
        self.session = session
        self.features: frozenset[str] = frozenset()
        self.original = False
        self.hub: dict[str, Any] = {}
        self.lost: Deferred[IntercomError] = Deferred()
        self._paths = paths
        self._clock = clock
        self._heard = heard
        self._cutter = LineCutter(MAX_INPUT)
        self._waiting: dict[str, Deferred[Received]] = {}
        self._registering: str | None = None
        self._last_word: IntercomError | None = None
        self._heard_at = clock.seconds()
        self._pinged_at: float | None = None
        self._beat = LoopingCall(self._look_after)
        self._beat.clock = clock

    # -- what it says

    async def register(
        self, features: Sequence[str], token: str, *, takeover: bool = False
    ) -> None:
        """Claim the session.

        :raise ConnectionLost: the hub hung up, or did not answer.
        :raise IntercomError: the claim is refused.
        """
        payload: dict[str, Any] = {"features": list(features), "token": token}
        if takeover:
            payload["takeover"] = True
        self._registering = self.say("register", payload)
        welcome = (await self._expect(self._registering)).payload
        self.original = "protocol" not in welcome
        granted = welcome.get("features")
        if not self.original and isinstance(granted, list):
            self.features = frozenset(map(str, granted))
        hub = welcome.get("hub")
        self.hub = hub if isinstance(hub, dict) else {}

    async def ask(self, kind: str, payload: dict[str, Any]) -> Received:
        """Say a line of the hub's own protocol, and wait for the answer; raises as :meth:`send`."""
        return await self._expect(self.say(kind, payload))

    async def send(self, line: bytes, message_id: str) -> Received:
        """Send a message, and wait for its receipt.

        :raise ConnectionLost: it is not known what became of it; send it again.
        :raise IntercomError: the hub answered with an error.
        """
        waiting = self._expect(message_id)
        self._write(line)
        return await waiting

    def say(self, kind: str, payload: dict[str, Any], reply_to: str | None = None) -> str:
        """Say a line of the hub's own protocol; return its id."""
        message_id, line = line_to_hub(kind, payload, self.session, self._paths.name, reply_to)
        self._write(line)
        return message_id

    def hang_up(self) -> None:
        """End the connection."""
        if self.transport is not None:
            self.transport.loseConnection()

    def _write(self, line: bytes) -> None:
        if self.transport is not None:
            self.transport.write(line + b"\n")

    def _expect(self, message_id: str) -> Deferred[Received]:
        """Wait for the hub's answer to a line."""
        waiting: Deferred[Received] = Deferred()
        if self.lost.called:
            waiting.errback(self._over())
            return waiting
        self._waiting[message_id] = waiting
        late = self._clock.callLater(ANSWER_WITHIN, self._settle, message_id, None)
        return waiting.addBoth(_stopping(late))

    # -- what it hears

    def connectionMade(self) -> None:
        """Begin to look whether it answers."""
        self._beat.start(BEAT, now=False)

    def dataReceived(self, data: bytes) -> None:
        """Deal with what the hub says, line by line."""
        self._heard_at, self._pinged_at = self._clock.seconds(), None
        for line in self._cutter.feed(data):
            if line:
                self._hear(read_line(line))

    def connectionLost(self, reason: Failure = Failure(ConnectionDone())) -> None:  # noqa: B008
        """Whoever waits for an answer waits no more."""
        if self._beat.running:
            self._beat.stop()
        waiting, self._waiting = list(self._waiting.values()), {}
        for one in waiting:
            one.errback(self._over())
        self.lost.callback(self._over())

    def _over(self) -> IntercomError:
        """Why the connection is over."""
        text = f"the hub of channel {self._paths.name!r} hung up"
        return self._last_word or ConnectionLost(text, details={"cause": "refused"})

    def _hear(self, received: Received) -> None:
        message = received.envelope
        if message is None:
            return
        about, kind = message["reply_to"], received.type
        if message.get("from_session") != "hub" or kind not in _ANSWERS:
            self._heard(received)
        elif kind == "heartbeat":
            if about is None:
                self.say("heartbeat", {}, reply_to=message.get("id"))
        elif kind == "welcome" and self._registering is not None:
            about, self._registering = self._registering, None  # an original hub says to none
            self._settle(about, received)
        else:
            self._answered(about, received)

    def _answered(self, about: object, received: Received) -> None:
        """A receipt, a list, or an error: about a line of ours, or the end."""
        if received.type == "error":
            error = refusal(received.payload)
            if error.code == "SHUTTING_DOWN":
                self._last_word = ConnectionLost(error.text, details={"cause": "refused"})
            elif error.code in CLOSING_CODES:
                self._last_word = error
            if isinstance(about, str):
                self._settle(about, error)
        elif isinstance(about, str):
            self._settle(about, received)

    def _settle(self, message_id: str, result: Received | IntercomError | None) -> None:
        """Tell whoever waits for the answer to a line; None: there was none in time."""
        waiting = self._waiting.pop(message_id, None)
        if waiting is None:
            return
        if result is None:
            result = silent(self._paths, None)
            result = ConnectionLost(result.text, remedy=result.remedy, details=result.details)
            self._give_up(result)
        if isinstance(result, IntercomError):
            waiting.errback(result)
        else:
            waiting.callback(result)

    def _give_up(self, why: IntercomError) -> None:
        """Hang up on a hub that does not answer; the next one may."""
        self._last_word = why
        abort = getattr(self.transport, "abortConnection", self.hang_up)
        abort()

    def _look_after(self) -> None:
        """Ping a hub that says nothing; hang up on one that does not answer."""
        now = self._clock.seconds()
        if self._pinged_at is not None and now - self._pinged_at > PONG_WITHIN:
            self._give_up(silent(self._paths, None))
        elif self._pinged_at is None and now - self._heard_at > PING_AFTER:
            self._pinged_at = now
            self.say("heartbeat", {})


_ANSWERS = frozenset({"welcome", "error", "receipt", "cursor", "heartbeat", "sessions"})


def _stopping(late: Any) -> Callable[[Any], Any]:
    """Pass a result on; the time is not up any more."""

    def stop(result: Any) -> Any:
        if late.active():
            late.cancel()
        return result

    return stop


def adopt(reactor: Any, sock: socket, client: HubClient) -> HubClient:
    """Let a client speak over a socket that is connected already; the socket is closed.

    :param reactor: an ``IReactorSocket``.
    """
    factory = _One(client)
    try:
        reactor.adoptStreamConnection(sock.fileno(), AF_UNIX, factory)
    finally:
        sock.close()
    return client


class _One(Factory):
    """Makes one protocol, which was made already."""

    noisy = False

    def __init__(self, client: HubClient) -> None:
        self._client = client

    def buildProtocol(self, addr: IAddress | None) -> HubClient:
        """Hand it out."""
        return self._client
