"""How a letter is handed over: to its receiver, or to nobody any more."""

from __future__ import annotations

from intercom.core.bus.directory import INTERCOM, SUBAGENTS, Session
from intercom.core.bus.effects import Commit, Notice, Pushed, Skip, Watch
from intercom.core.bus.keys import Key, inbox_of
from intercom.core.bus.letters import Content
from intercom.core.bus.mailbox import Box, Letter, Place
from intercom.core.bus.outcomes import DELIVERED, FAILED
from intercom.core.bus.routes import Route
from intercom.core.bus.world import World
from intercom.core.effects import Note
from intercom.errors import ProtocolError
from intercom.wire.pi import replies
from intercom.wire.pi.forms import intercom_row, message_frame, stamped
from intercom.wire.pi.frames import dump_frame

EXPIRED = ("Mailbox delivery expired", "E_DELIVERY_EXPIRED")


class Handover:
    """The last step of the mail, and what follows from it for its sender and its inbox."""

    def __init__(self, world: World) -> None:
        self._world = world

    # -- who gets what

    def receiver(self, letter: Letter) -> Session | None:
        """Who is here to get a letter: its target, else that one's heir."""
        directory = self._world.directory
        session = directory.get(letter.target)
        if session is None and letter.heir is not None:
            session = directory.get(letter.heir)
        return session

    def can_take(self, session: Session | None) -> bool:
        """Whether a session's connection takes mail now."""
        return (
            session is not None
            and not session.elsewhere
            and session.number not in self._world.paused
        )

    # -- letters go

    def frame(self, content: Content, receiver: Session | None) -> bytes:
        """The frame of a message, in the form of who gets it now.

        :param receiver: None: it is not here; then that of pi-intercom's clients.
        :raise ProtocolError: it is too large in this form, or the receiver cannot be sent it.
        """
        message, since = content.message, content.received
        if receiver is not None and receiver.dialect == SUBAGENTS:
            short = receiver.topic_frames
            return dump_frame(message_frame(content.info, message, SUBAGENTS, topic_frames=short))
        message = stamped(message, content.received, self._world.now)
        return dump_frame(message_frame(content.info, message, INTERCOM, registered_at=since))

    def push(self, letter: Letter, content: Content, receiver: Session) -> None:
        """Write a letter to a connection, behind the news that it replaces another."""
        world = self._world
        try:
            frame = self.frame(content, receiver)
        except ProtocolError as error:
            world.do(Note("letter_unfit", {"inbox": letter.inbox, "reason": error.text}))
            self.give_up(letter, error.text, "E_DELIVERY_FAILED")
            if content.foreign:  # it was told that the message is stored, and no more
                self._apologize(letter, error)
            return
        if not letter.pushed:
            self._supersede(letter, content, receiver)
        world.mailbox.hold(letter, receiver.number)
        world.routes.add(Route(letter.sender, receiver.key, letter.message_id, world.now))
        world.outcomes.amend(letter.sender, letter.message_id, DELIVERED)
        world.say_data(receiver.number, frame)
        world.do(Pushed(letter.inbox, *letter.place))
        if receiver.dialect == SUBAGENTS:
            world.touch(receiver, mail=True)
            world.do(Watch(receiver.number))
        old = world.mailbox.overheld(letter.inbox)
        if old is not None:
            world.mailbox.settle(old)
            self.commit(world.mailbox.box(letter.inbox))

    def _apologize(self, letter: Letter, error: ProtocolError) -> None:
        """A session that speaks lines hears that its message cannot be brought."""
        message_id, inbox = letter.message_id, letter.inbox
        text = f"your message {message_id} cannot be brought to {inbox}: {error.text}"
        details = {"code": error.code, "session": inbox}
        self._world.do(Notice(inbox_of(letter.sender), text, message_id, details))

    def _supersede(self, letter: Letter, content: Content, receiver: Session) -> None:
        """Say before a letter which earlier one it replaces; that is not brought again."""
        world = self._world
        replaced = content.message.get("supersedes")
        if not (replaced and isinstance(replaced, str)):
            return  # another dialect's message may have anything under this name
        if not self.may_supersede(letter.sender, replaced, receiver.key):
            return
        if receiver.dialect == INTERCOM:
            row = intercom_row(content.info, content.received)
            control = replies.superseded(row, replaced, letter.message_id, world.now)
            world.say(receiver.number, control)
        reason, code = f"Superseded by {letter.message_id}", "E_DELIVERY_SUPERSEDED"
        world.outcomes.amend(letter.sender, replaced, FAILED, reason, code)
        old = world.mailbox.sent(letter.sender, replaced)
        if old is not None and old.inbox == letter.inbox:
            self.withdraw(old, code)

    def may_supersede(self, sender: Key, message_id: str, receiver: Key) -> bool:
        """Whether a sender's message went, or is to go, to this receiver."""
        world = self._world
        route = world.routes.sent(sender, message_id, world.now)
        if route is not None:
            return route.receiver == receiver
        letter = world.mailbox.waits(sender, message_id)
        return letter is not None and letter.target == receiver

    def received(self, number: int, message_id: str) -> None:
        """A receiver says that it has a message: it is settled."""
        for letter in self._world.mailbox.held(number, message_id):
            self._world.mailbox.settle(letter)
            self.commit(self._world.mailbox.box(letter.inbox))

    def taken(self, number: int) -> None:
        """A receiver has read all that was written to it: that is settled."""
        letters = self._world.mailbox.held_by(number)
        for letter in letters:
            self._world.mailbox.settle(letter)
        for inbox in dict.fromkeys(letter.inbox for letter in letters):
            self.commit(self._world.mailbox.box(inbox))

    def give_up(self, letter: Letter, reason: str, code: str) -> tuple[str, int]:
        """A letter is to be shown to nobody; its sender's record says why. See withdraw."""
        world = self._world
        world.outcomes.amend(letter.sender, letter.message_id, FAILED, reason, code)
        return self.withdraw(letter, code)

    def withdraw(self, letter: Letter, code: str) -> tuple[str, int]:
        """A letter is to be shown to nobody (any more); the name of the answer, for who waits."""
        world, ticket = self._world, self._world.ticket()
        world.mailbox.settle(letter)
        world.do(Skip(ticket, letter.inbox, *letter.place, code))
        self.commit(world.mailbox.box(letter.inbox))
        return ("saved", ticket)

    def expire(self) -> None:
        """Give up what has waited for a day, and the asks in it."""
        world = self._world
        for letter in world.mailbox.expired(world.now):
            ask = world.asks.get(letter.sender.scope, letter.message_id)
            if letter.asks and ask is not None and ask.asker == letter.sender:
                world.remove_ask(ask)
            world.routes.remove(letter.sender, letter.message_id)
            self.give_up(letter, *EXPIRED)

    def commit(self, box: Box) -> None:
        """The stored position follows what is settled."""
        position = box.trim()
        if position is not None:
            world, ticket = self._world, self._world.ticket()
            world.storing[box.inbox], world.commits[ticket] = ticket, box.inbox
            world.do(Commit(ticket, box.inbox, *position))


def letter_of(content: Content, place: Place) -> Letter:
    """The letter of a content, at its place in the target's inbox."""
    return Letter(
        inbox_of(content.target),
        place,
        content.target,
        content.addressed,
        content.sender,
        content.author,
        content.message["id"],
        content.message.get("expectsReply") is True,
        content.received,
    )
