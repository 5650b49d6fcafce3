"""How letters come from an inbox to a connection, and how its position follows.

Per inbox, letters are written to their receiver in the order of the file. One that is just
written to the file goes out at once, if nothing before it waits; else the file is read from
where something waits. A connection that does not drain gets none until it does.
"""

from __future__ import annotations

from collections.abc import Collection

from intercom.core.bus.directory import Absent, Session
from intercom.core.bus.effects import Discard, DropStaged, Keep, Read
from intercom.core.bus.handover import EXPIRED, Handover, letter_of
from intercom.core.bus.hearing import Hearing
from intercom.core.bus.keys import Key, inbox_of
from intercom.core.bus.letters import Content, read
from intercom.core.bus.mailbox import Box, Letter, Place
from intercom.core.bus.outcomes import QUEUED, Outcome, digest_of
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.records import Batch, Entry, Position, Refused, Written
from intercom.wire.pi.messages import fingerprint

#: Refusals that the same message would only meet again.
_FOR_GOOD = frozenset({"MESSAGE_ID_REUSE", "LINE_TOO_LONG"})


class Carrier:
    """Brings the mail.

    :ivar broken: inboxes that could not be read; they are tried again.
    """

    def __init__(self, world: World, handover: Handover) -> None:
        self._world = world
        self._handover = handover
        self.broken: set[str] = set()
        self._gaps: set[str] = set()
        self._owners: dict[str, Key] = {}
        self._foreign: set[str] = set()
        self._hearing = Hearing(world)
        self._gathered: dict[Key, list[tuple[Letter, Content]]] = {}

    def _next(self, box: Box) -> Letter | None:
        """The first letter of an inbox that could be written to somebody now."""
        handover = self._handover
        for one in box.waiting.values():
            if not one.gathered and handover.can_take(handover.receiver(one)):
                return one
        return None

    @property
    def inboxes(self) -> Collection[str]:
        """The inboxes of which it is known whose they are."""
        return self._owners.keys()

    def owner(self, inbox: str) -> Key | None:
        """Whose inbox it is, if that is known."""
        return self._owners.get(inbox)

    def resident(self, inbox: str) -> Session | None:
        """The pi session that is here and whose inbox it is."""
        owner = self._owners.get(inbox)
        return None if owner is None else self._world.directory.get(owner)

    def own(self, key: Key) -> None:
        """Know whose inbox is whose before anything is read of it."""
        self._owners[inbox_of(key)] = key

    def release(self, inbox: str) -> None:
        """Others look after an inbox from now on, and bring what is in it."""
        self._foreign.add(inbox)
        mailbox = self._world.mailbox
        for letter in list(mailbox.box(inbox).letters.values()):
            mailbox.settle(letter)
        self.forget(inbox)

    # -- letters come

    def arrived(self, letter: Letter, content: Content) -> None:
        """A letter was appended to its inbox."""
        mailbox = self._world.mailbox
        box = mailbox.box(letter.inbox)
        self._owners[letter.inbox] = letter.target
        begin = Position(letter.place.generation, letter.place.start)
        if box.known == begin:
            box.known = Position(letter.place.generation, letter.place.end)
        else:
            self._gaps.add(box.inbox)
        mailbox.keep(letter)
        receiver = self._handover.receiver(letter)
        if receiver is None or not self._handover.can_take(receiver):
            return
        if self._gather(letter, content, receiver):
            return
        if box.inbox in self._gaps or box.reading or self._next(box) is not letter:
            self.fetch(box)
        else:
            self._handover.push(letter, content, receiver)

    def put_in(self, mark: str, entry: Entry) -> Work:
        """Append what an earlier hub had accepted; from its inbox it goes the way of all mail."""
        world, ticket = self._world, self._world.ticket()
        world.do(Keep(entry._replace(ticket=ticket)))
        outcome = yield ("written", ticket)
        if isinstance(outcome, Refused) and outcome.code not in _FOR_GOOD:
            return  # it stays remembered
        world.do(DropStaged(mark))
        if isinstance(outcome, Written):
            self.appeared(outcome.inbox)

    def call(self, session: Session) -> set[str]:
        """A session has registered: fetch what lies there for it; the inboxes that are read."""
        world = self._world
        own = inbox_of(session.key)
        self._owners[own] = session.key
        self._foreign.discard(own)
        self._gaps.add(own)
        inboxes = {own}
        if len(world.directory.namesakes(session.key.scope, session.identity)) == 1:
            inboxes |= world.mailbox.inherit(session.key, session.identity)
        if len(inboxes) > 1:
            self._gathered.setdefault(session.key, [])
        for inbox in sorted(inboxes):
            self.fetch(world.mailbox.box(inbox))
        return inboxes

    def _gather(self, letter: Letter, content: Content, receiver: Session) -> bool:
        """Whether a letter goes to somebody whose mail comes from several inboxes just now."""
        gathered = self._gathered.get(receiver.key)
        if gathered is None:
            return False
        letter.gathered = True
        gathered.append((letter, content))
        return True

    def is_coming(self, letter: Letter) -> bool:
        """Whether a letter will be written to its receiver as soon as a read is done."""
        if letter.settled or letter.pushed:
            return False
        box = self._world.mailbox.box(letter.inbox)
        takes = self._handover.can_take(self._handover.receiver(letter))
        return takes and (box.reading or letter.gathered)

    def bring_gathered(self, key: Key) -> None:
        """All that lay for a session that registered is read: it gets it in order of time."""
        found = self._gathered.pop(key, [])
        for letter, content in sorted(found, key=lambda pair: (pair[0].at, pair[0].order)):
            letter.gathered = False
            receiver = self._handover.receiver(letter)
            waits = not letter.settled and letter.holder is None
            if waits and receiver is not None and self._handover.can_take(receiver):
                self._handover.push(letter, content, receiver)
        for inbox in sorted({letter.inbox for letter, _ in found}):
            self._rest(self._world.mailbox.box(inbox))

    def appeared(self, inbox: str) -> None:
        """Others appended lines to an inbox."""
        if inbox in self._foreign:
            return
        self._gaps.add(inbox)
        self.fetch(self._world.mailbox.box(inbox))

    def fetch(self, box: Box, absent: bool = False) -> None:
        """Read on, if there is something that somebody could take, or that is not known.

        :param absent: look at what is not known though nobody is here to take it.
        """
        if box.reading:
            return
        starts: list[Position | None] = []
        wanted = absent or self._handover.can_take(self.resident(box.inbox))
        if box.inbox in self._gaps and wanted:
            starts.append(box.known)
            self._gaps.discard(box.inbox)  # what comes while it is read is another one
        letter = self._next(box)
        if letter is not None:
            starts.append(Position(letter.place.generation, letter.place.start))
        if not starts:
            return
        box.reading = True
        known = [one for one in starts if one is not None]
        self._world.do(Read(box.inbox, min(known) if len(known) == len(starts) else None))

    def look(self, inbox: str | None) -> Work:
        """Read what lies for sessions that are not here, so that all of it is known.

        :param inbox: only in this one; None: in all of them.
        """
        for one in sorted(self._owners) if inbox is None else [inbox]:
            owner = self._owners.get(one)
            absent = self._world.directory.absent(owner or Key(None, one))
            if one in self._foreign or absent is None or absent.elsewhere:
                continue
            self._gaps.add(one)
            while one in self._gaps and one not in self.broken:
                self.fetch(self._world.mailbox.box(one), absent=True)
                yield ("mail", one)

    def resume(self, number: int) -> None:
        """A connection drains again, or an inbox may be readable now."""
        for box in self._world.mailbox.boxes():
            session = self.resident(box.inbox)
            if box.waiting or (session is not None and session.number == number):
                self.fetch(box)

    def _retry(self) -> None:
        """Try again what could not be read."""
        broken, self.broken = self.broken, set()
        for inbox in broken:
            self.fetch(self._world.mailbox.box(inbox))

    def found(self, inbox: str, batch: Batch) -> None:
        """Lines of an inbox: those that are new are taken in, those that wait are written."""
        if inbox in self._foreign:
            self._world.turns.answer(("mail", inbox))
            return
        box = self._world.mailbox.box(inbox)
        box.reading = False
        if box.stored is None:
            box.stored = batch.start
        contents = self._take_in(box, batch)
        if box.known is None or batch.start <= box.known:
            box.known = max(box.known or batch.next, batch.next)
        if not batch.at_end:
            self._gaps.add(inbox)
        for letter, content in contents:
            receiver = self._handover.receiver(letter)
            if not letter.settled and letter.holder is None and self._handover.can_take(receiver):
                assert receiver is not None
                if not self._gather(letter, content, receiver):
                    self._handover.push(letter, content, receiver)
        self._handover.commit(box)
        self.fetch(box)
        self._rest(box)

    def _take_in(self, box: Box, batch: Batch) -> list[tuple[Letter, Content]]:
        """The letters of a batch; those that it should have and has not are settled."""
        found: list[tuple[Letter, Content]] = []
        generation = batch.start.generation
        starts = {record.start for record in batch.records}
        for where, missing in list(box.waiting.items()):
            if batch.start <= where < batch.next and where.offset not in starts:
                self._world.mailbox.settle(missing)
        for record in batch.records:
            letter = box.at(generation, record.start)
            behind = Position(generation, record.end) <= (box.known or batch.start)
            if letter is None and behind:
                continue  # settled before, or no message
            if letter is not None and not letter.is_to_be_brought:
                continue
            owner = self._owners.get(box.inbox)
            world = self._world
            content = read(record.line, box.inbox, owner, world.resolve, world.now)
            if content is None:
                if letter is not None:
                    world.mailbox.settle(letter)
                continue
            if letter is None:
                place = Place(generation, record.start, record.end)
                content = self._hearing.heard(content)
                letter = self._note(box, place, content)
            found.append((letter, self._hearing.introduced(content)))
        return found

    def _note(self, box: Box, place: Place, content: Content) -> Letter:
        """A letter that another hub or program appended; those that it names are known now."""
        world = self._world
        letter = letter_of(content, place)
        world.mailbox.keep(letter)
        self._owners.setdefault(box.inbox, letter.target)
        outcome = Outcome(
            digest_of(fingerprint(content.message, content.target.id)), QUEUED, world.now
        )
        if world.outcomes.recall(letter.sender, letter.message_id, world.now) is None:
            world.outcomes.record(letter.sender, letter.message_id, outcome)
        if world.directory.absent(letter.target) is None:
            addressed = letter.addressed
            world.directory.remember(Absent(letter.target, addressed.name, addressed, world.now))
        return letter

    def unreadable(self, inbox: str) -> None:
        """An inbox could not be read; it is tried again at a later tick."""
        if inbox in self._foreign:
            self._world.turns.answer(("mail", inbox))
            return
        box = self._world.mailbox.box(inbox)
        box.reading = False
        self.broken.add(inbox)
        self._gaps.add(inbox)
        self._world.turns.answer(("mail", inbox))

    def left(self, number: int) -> None:
        """A connection ended: what it had not received waits, perhaps for the next one."""
        for inbox in sorted({letter.inbox for letter in self._world.mailbox.left(number)}):
            self.fetch(self._world.mailbox.box(inbox))

    def upkeep(self) -> None:
        """Time has passed: what is too old goes, what could not be read is tried again."""
        self.look_after()
        self._retry()
        self._tidy()

    def look_after(self) -> None:
        """What is too old goes."""
        self.forget_absent()
        self._handover.expire()

    def _tidy(self) -> None:
        """Forget inboxes that have nothing in them, of sessions that are not here."""
        for box in self._world.mailbox.boxes():
            if self.resident(box.inbox) is None and not (box.letters or box.reading):
                self.forget(box.inbox)

    def forget(self, inbox: str) -> None:
        """Nothing is known of an inbox any more; it will be read from its position."""
        self._world.mailbox.drop(inbox)
        self._owners.pop(inbox, None)
        self._gaps.discard(inbox)

    def forget_absent(self) -> None:
        """Who left a day ago cannot be written to; if its id was drawn, its inbox goes, too."""
        for absent in self._world.directory.prune(self._world.now):
            if absent.drawn:
                self._discard(inbox_of(absent.key))

    def _discard(self, inbox: str) -> None:
        for letter in list(self._world.mailbox.box(inbox).letters.values()):
            if not letter.settled and letter.holder is None:
                self._handover.give_up(letter, *EXPIRED)
        self.forget(inbox)
        self._world.do(Discard(inbox))

    def _rest(self, box: Box) -> None:
        """Whoever waited until an inbox was read goes on."""
        if not box.reading:
            self._world.turns.answer(("mail", box.inbox))
