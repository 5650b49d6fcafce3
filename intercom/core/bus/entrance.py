"""Who comes, goes and changes: ``register``, ``unregister``, ``presence``, ``list``."""

from __future__ import annotations

from intercom.core.bus.carrier import Carrier
from intercom.core.bus.directory import INTERCOM, SUBAGENTS, Session
from intercom.core.bus.effects import Hurry, SaveRoll
from intercom.core.bus.keys import Key, inbox_of, scope_hash
from intercom.core.bus.sharing import Sharing
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.wire.pi import replies
from intercom.wire.pi.fields import Record, Variant, is_label
from intercom.wire.pi.frames import FrameTooLarge
from intercom.wire.pi.listing import check_fits, intercom_listing
from intercom.wire.pi.requests import Listing, Presence, Refusal, Register
from intercom.wire.pi.sessions import apply_presence, intercom_info, subagents_info

#: Fields of a session that others can do without, if all of it is too much for a frame.
_DISPENSABLE = ("status", "tmuxPane", "name")


class Entrance:
    """The door, and what is announced there."""

    def __init__(self, world: World, carrier: Carrier, sharing: Sharing) -> None:
        self._world = world
        self._carrier = carrier
        self._sharing = sharing

    def session_for(self, number: int, request: Register, trusted: bool) -> Session | Refusal:
        """The session that a connection claims; or why not, and the connection ends.

        :param trusted: the connection is local.
        """
        if request.variant == SUBAGENTS:
            return self._subagents(number, request)
        reason = self._room_for(request)
        if reason is not None:
            return Refusal(reason, replies.error(reason))
        return self._intercom(number, request, trusted)

    def _room_for(self, request: Register) -> str | None:
        """Why a session cannot be had, to be said in ``error`` before the connection ends."""
        world = self._world
        if request.wished_id is None:
            previous = None
        else:
            key = Key(scope_hash(request.scope), request.wished_id)
            previous = world.directory.get(key)
        wished = request.wished_id
        if previous is None and wished and not request.scope and world.claimed(wished):
            return "Session id is in use by another kind of client"
        if previous is None:
            full = world.directory.count(INTERCOM) >= world.limits.sessions
            return "Too many registered intercom sessions" if full else None
        if previous.dialect != INTERCOM:
            return "Session id is in use by another kind of client"
        return None

    def register(self, session: Session, request: Register) -> Work:
        """Claim a session: welcome, news to the others, its mail, and its extensions."""
        world, number = self._world, session.number
        self._carrier.look_after()
        previous = world.directory.get(session.key)
        if previous is not None:
            self._oust(previous)
        world.directory.join(session)
        world.do(SaveRoll())
        world.presence.shown(number, world.now)
        spaces = [(one.namespace, one.owner_eligible) for one in request.extensions]
        world.extensions.advertise(number, spaces)
        world.idle_at = None
        topics = session.topic_frames
        world.say(number, replies.registered(session.key.id, request.variant, topics))
        self.announce(session, "session_joined")
        self._sharing.announce_owners()
        if previous is not None:
            self._carrier.left(previous.number)
        for inbox in sorted(self._carrier.call(session)):
            while world.mailbox.box(inbox).reading:
                yield ("mail", inbox)
        self._carrier.bring_gathered(session.key)
        names = [namespace for namespace, _ in spaces]
        yield from self._sharing.introduce(number, session, names)

    def _subagents(self, number: int, request: Register) -> Session | Refusal:
        """Its own id if that is free, and never another's."""
        world, wished = self._world, request.wished_id
        if wished is not None and (
            world.directory.get(Key(None, wished)) is not None or world.claimed(wished)
        ):
            wished = None
        session_id = world.draw() if wished is None else wished
        info = subagents_info(request, session_id, world.now)
        try:
            check_fits(info)
        except FrameTooLarge as error:
            return Refusal(error.text)
        return Session(
            key=Key(None, session_id),
            number=number,
            dialect=SUBAGENTS,
            info=info,
            scope_name=None,
            place=world.resolve(info["cwd"]),
            since=world.now,
            drawn=wished is None,
            topic_frames=request.topic_frames,
        )

    def _intercom(self, number: int, request: Register, trusted: bool) -> Session:
        world = self._world
        session_id = world.draw() if request.wished_id is None else request.wished_id
        return Session(
            key=Key(scope_hash(request.scope), session_id),
            number=number,
            dialect=INTERCOM,
            info=intercom_info(request, session_id, world.draw(), trusted),
            scope_name=request.scope,
            place=world.resolve(request.session["cwd"]),
            since=world.now,
            drawn=request.wished_id is None,
        )

    def _oust(self, previous: Session) -> None:
        """Another connection has the session now; nobody hears that it left."""
        world = self._world
        world.routes.clear(previous.key)
        world.presence.forget(previous.number)
        world.extensions.forget(previous.number)
        world.close(previous.number)

    def leave(self, number: int) -> Session | None:
        """A connection speaks for nobody any more; the others hear it, if it did: that one."""
        world = self._world
        session = world.directory.leave(number, world.now)
        if session is None:
            return None
        world.do(SaveRoll(session.elsewhere))
        world.presence.forget(number)
        world.extensions.forget(number)
        world.routes.clear(session.key)
        audience = world.audience(session.key.scope, "session_left")
        if not is_label(session.key.id):  # a subagents client would leave, and never saw it
            audience = [one for one in audience if one.dialect != SUBAGENTS]
        world.tell(audience, replies.session_left(session.key.id))
        self._sharing.announce_owners()
        self._carrier.left(number)
        world.arm_idle()
        return session

    # -- while it is here

    def presence(self, session: Session, said: Presence) -> Refusal | None:
        """A session changes; the others hear it at once, or at the next heartbeat.

        A subagents session that no listing could show then is refused, and nothing changes.
        """
        world = self._world
        identity = session.identity
        variant: Variant = SUBAGENTS if session.dialect == SUBAGENTS else INTERCOM
        info, changed = apply_presence(session.info, said, variant, world.now)
        if variant == SUBAGENTS:
            try:
                check_fits(info)
            except FrameTooLarge as error:
                return Refusal(error.text)
        session.info = info
        if session.identity != identity:
            world.do(SaveRoll())
        if world.presence.is_due(session.number, changed, world.now):
            self.announce(session, "presence_update")
        return None

    def listing(self, number: int, session: Session, said: Listing) -> Work:
        """Who is in an intercom session's scope, itself included.

        Its clients ask this every now and then, and before they send: a moment at which what
        they have said to have received is out of danger, too.
        """
        world = self._world
        inbox = inbox_of(session.key)
        storing = world.storing.get(inbox)
        if storing is not None:
            world.do(Hurry(inbox))
            yield ("saved", storing)
        rows = [world.row(one) for one in world.directory.of(session.key.scope)]
        try:
            world.say_data(number, intercom_listing(said.request_id, rows))
        except FrameTooLarge as error:
            world.say(number, replies.error(error.text))

    def announce(self, session: Session, what: str) -> None:
        """Show a session to the others, shortened where a frame cannot hold it."""
        world = self._world
        audience = world.audience(session.key.scope, what, but={session.number})
        if audience:
            tell = replies.session_joined if what == "session_joined" else replies.presence_update
            frame = world.fit(tell(row) for row in _shorter(world.row(session)))
            world.tell_data(audience, frame)


def _shorter(row: Record) -> list[Record]:
    """A row, and the same with less and less in it."""
    rows = [row]
    for name in _DISPENSABLE:
        rows.append({key: value for key, value in rows[-1].items() if key != name})
    return rows
