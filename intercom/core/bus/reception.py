"""What becomes of the frames of a connection, with and without a session."""

from __future__ import annotations

import hmac

from intercom.core.bus.directory import Session
from intercom.core.bus.entrance import Entrance
from intercom.core.bus.handling import Handling
from intercom.core.bus.lines import Connection, Lines
from intercom.core.bus.staging import Staging
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.core.effects import Note
from intercom.wire.pi import replies
from intercom.wire.pi.fields import Record
from intercom.wire.pi.requests import Health, Peer, Refusal, Register, Unregister
from intercom.wire.pi.schema import parse


class Reception:
    """Reads frames, lets connections register and unregister, and has the rest handled.

    :param state_id: what connections that are not local must show.
    :ivar lines: the connections.
    """

    def __init__(
        self,
        world: World,
        entrance: Entrance,
        handling: Handling,
        staging: Staging,
        state_id: str | None,
    ) -> None:
        self._world = world
        self._entrance = entrance
        self._handling = handling
        self._staging = staging
        self._state_id = state_id
        self.lines = Lines(world, self._handle, self.leave)

    def leave(self, number: int) -> None:
        """A connection speaks for nobody any more; what waits for its session is dropped."""
        session = self._entrance.leave(number)
        if session is not None:
            self._staging.left(session)

    def _handle(self, connection: Connection, frame: Record) -> Work | None:
        """Handle a frame; what is left to do of it, if it takes time."""
        number, registered = connection.number, connection.registered
        session = self._world.directory.holder(number)
        parsed = parse(frame, self._peer(connection, session))
        if isinstance(parsed, Health):
            if self._may_enter(connection, parsed.state_id):
                self._world.say(number, replies.health_ok(parsed.request_id))
            return None
        if isinstance(parsed, Register):
            return self._register(connection, parsed)
        if isinstance(parsed, Unregister):
            self.leave(number)
            connection.registered = False
            self.lines.wait(number)
            return None
        if session is None and registered:
            parsed = self._handling.ousted(parsed, frame)
        if session is not None:
            self._world.touch(session)
        if not isinstance(parsed, Refusal):
            result = self._handling.handle(number, session, parsed)
            if not isinstance(result, Refusal):
                return result
            parsed = result
        self._refuse(number, parsed)
        return None

    def _peer(self, connection: Connection, session: Session | None) -> Peer:
        """What the reading of a frame must know of a connection."""
        namespaces = self._world.extensions.of(connection.number)
        topics = session is not None and session.topic_frames
        limits = self._world.limits
        return Peer(
            connection.variant,
            connection.registered,
            topics,
            namespaces,
            limits.extensions,
            limits.extension_bytes,
        )

    def _refuse(self, number: int, refusal: Refusal) -> None:
        """Answer what is not carried out, or end the connection."""
        if refusal.answer is None:
            self._world.do(Note("refused", {"connection": number, "reason": refusal.reason}))
            self.lines.end(number)
        else:
            self._world.say(number, refusal.answer)

    def _register(self, connection: Connection, request: Register) -> Work | None:
        number = connection.number
        if not self._may_enter(connection, request.state_id):
            return None
        session = self._entrance.session_for(number, request, connection.trusted)
        if isinstance(session, Refusal):
            if session.answer is not None:
                self._world.say(number, session.answer)
            self.lines.end(number)
            return None
        connection.variant, connection.registered = request.variant, True
        self.lines.lobby.leave(number)
        return self._entrance.register(session, request)

    def _may_enter(self, connection: Connection, shown: str | None) -> bool:
        """Whether it is local, or has shown what is in the port file; else it ends."""
        if connection.trusted:
            return True
        wanted = self._state_id
        if wanted is not None and shown is not None and _same(wanted, shown):
            return True
        self._world.do(Note("unauthorized", {"connection": connection.number}))
        self.lines.end(connection.number)
        return False


def _same(one: str, other: str) -> bool:
    """Whether two texts are the same, without telling by time how far they are."""
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )
