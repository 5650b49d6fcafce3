"""``list`` of pi-subagents clients: who is here, and what it changes of the own topics.

A change that cannot be shown, or of which a subscriber could not be told, changes nothing; all
is looked at before any of it counts, as in these clients' own broker.
"""

from __future__ import annotations

from intercom.core.bus.directory import SUBAGENTS, Session
from intercom.core.bus.passing import Passing
from intercom.core.bus.turns import Step, Work
from intercom.core.bus.world import World
from intercom.errors import ProtocolError
from intercom.wire.pi.fields import Record
from intercom.wire.pi.forms import as_sender, message_frame
from intercom.wire.pi.frames import dump_frame
from intercom.wire.pi.listing import snapshot
from intercom.wire.pi.replies import sessions_error, sessions_receipt, topic_receipt
from intercom.wire.pi.requests import Listing, TopicChange
from intercom.wire.pi.topics import apply_change, subscription_to, topic_message

#: A subscriber, and what it is told.
Update = tuple[Session, Record]


class Publishing:
    """Listings and topics of these clients."""

    def __init__(self, world: World, passing: Passing) -> None:
        self._world = world
        self._passing = passing

    def listing(self, number: int, session: Session, said: Listing) -> Work:
        """Change topics if that is asked, tell subscribers, and answer with who is here."""
        world, info, publication = self._world, session.info, None
        try:
            if said.change is not None:
                info, publication = apply_change(info, said.change, world.now)
            updates = [] if publication is None else self._updates(session, info, publication)
            *frames, last = self._frames(session, info, said)
        except ProtocolError as error:
            world.say(number, sessions_error(said.request_id, error.text))
            return
        session.info = info
        receipts = yield from self._tell_all(session, updates)
        for frame in frames:
            world.say_data(number, frame)
        for receipt in receipts:
            world.say(number, sessions_receipt(said.request_id, receipt))
        world.say_data(number, last)

    def _frames(self, session: Session, info: Record, said: Listing) -> list[bytes]:
        """The listing as it will be with a session's new info; ``restore`` answers no rows.

        :raise ProtocolError: it cannot be shown.
        """
        infos = [
            info if one is session else one.info
            for one in self._world.directory.of(session.key.scope)
        ]
        if _restores(said.change):
            snapshot(said.request_id, [info], stream=True)
            infos = []
        return snapshot(said.request_id, infos, said.stream)

    def _updates(self, session: Session, info: Record, publication: Record) -> list[Update]:
        """What each subscriber is to be told.

        :raise ProtocolError: one of them cannot be told.
        """
        world, updates = self._world, []
        for target in world.directory.of(session.key.scope):
            if target is session or target.dialect != SUBAGENTS:
                continue
            subscription = subscription_to(target.info, publication["topic"])
            if subscription is not None:
                message = topic_message(publication, subscription, world.draw(), world.now)
                short = target.topic_frames
                sender = as_sender(info)
                dump_frame(message_frame(sender, message, SUBAGENTS, topic_frames=short))
                updates.append((target, message))
        return updates

    def _tell_all(self, session: Session, updates: list[Update]) -> Step[list[Record]]:
        """Tell all subscribers side by side; a receipt for each, in order."""
        turns, names = self._world.turns, []
        for target, message in updates:
            name = ("told", self._world.ticket())
            turns.expect(name)
            turns.start(self._tell(session, target, message, name), lambda: None)
            names.append(name)
        receipts = []
        for name in names:
            receipts.append((yield name))
        return receipts

    def _tell(
        self, session: Session, target: Session, message: Record, name: tuple[str, int]
    ) -> Work:
        fate = yield from self._passing.pass_on(session, target, message)
        receipt = topic_receipt(target.key.id, message["id"], fate.state, fate.reason)
        self._world.turns.answer(name, receipt)


def _restores(change: TopicChange | None) -> bool:
    return change is not None and change.action == "restore"
