"""Mail: which lines of which inbox are whose, who has them, and how far an inbox is settled.

The inbox file is the mailbox; here stands only what is needed to find a letter again. A letter
*waits* until it is written to a connection, is *held* by that connection until its receiver
says that it has it, and waits again if the connection ends before. It is *settled* when it was
received, or is to be shown to nobody. An inbox's position moves over what is settled, from its
beginning on, and never over what was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from intercom.core.bus.directory import Identity
from intercom.core.bus.keys import Key
from intercom.core.bus.limits import Limits
from intercom.records import Position, Shifted

#: Letters that one inbox holds for a receiver that takes them and never says so.
MAX_HELD = 4096


class Place(NamedTuple):
    """Bytes of an inbox, of one generation."""

    generation: int
    start: int
    end: int


class Letter(msgspec.Struct, eq=False):
    """One message in one inbox.

    :ivar target: whose inbox it is; ``addressed``: by what that session is known again.
    :ivar author: name and directory of its sender.
    :ivar asks: it expects an answer. :ivar at: when it was kept.
    :ivar heir: who gets it instead of the target, if the target is not here.
    :ivar holder: the connection that it was written to. :ivar queued: its sender was told so.
    :ivar order: letters count from 1, as they came to be known.
    :ivar gathered: it was read, and goes with what lies in other inboxes, in order of time.
    """

    inbox: str
    place: Place
    target: Key
    addressed: Identity
    sender: Key
    author: Identity
    message_id: str
    asks: bool
    at: int
    heir: Key | None = None
    holder: int | None = None
    queued: bool = False
    settled: bool = False
    pushed: bool = False
    order: int = 0
    gathered: bool = False

    @property
    def is_to_be_brought(self) -> bool:
        """Whether it waits, and is still to be read for that."""
        return not (self.settled or self.gathered) and self.holder is None


class Box:
    """One inbox.

    :ivar letters: that are not behind the position, by where they begin.
    :ivar waiting: those of them that wait.
    :ivar known: all lines before this were looked at; None until the inbox was read.
    :ivar reading: a read is under way.
    """

    def __init__(self, inbox: str) -> None:
        self.inbox = inbox
        self.letters: dict[Position, Letter] = {}
        self.waiting: dict[Position, Letter] = {}
        self.known: Position | None = None
        self.stored: Position | None = None
        self.reading = False

    def at(self, generation: int, start: int) -> Letter | None:
        """The letter that begins there."""
        return self.letters.get(Position(generation, start))

    def insert(self, letter: Letter) -> None:
        """A letter is in the file; it waits."""
        where = _begin(letter)
        late = bool(self.letters) and where < next(reversed(self.letters))
        self.letters[where] = self.waiting[where] = letter
        if late:  # read after one behind it was written
            self.letters = dict(sorted(self.letters.items()))
            self.waiting = dict(sorted(self.waiting.items()))

    def trim(self) -> Position | None:
        """Let go of what is settled at the beginning; the new position, if it moved."""
        while self.letters:
            first, letter = next(iter(self.letters.items()))
            if not letter.settled or self.known is None or first >= self.known:
                break
            del self.letters[first]
        if self.known is None:
            return None
        settled = min(next(iter(self.letters), self.known), self.known)
        if self.stored is not None and settled <= self.stored:
            return None
        self.stored = settled
        return settled


class Mailbox:
    """All inboxes, and their letters by sender and by holder.

    :param limits: how many letters wait, and for how long.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        limits = limits or Limits()
        self._most, self._keep_ms = limits.mailbox, limits.keep_ms
        self._boxes: dict[str, Box] = {}
        self._sent: dict[tuple[Key, str], Letter] = {}
        self._queued: dict[Key, dict[str, Letter]] = {}
        self._held: dict[int, dict[str, list[Letter]]] = {}
        self._count = 0

    def box(self, inbox: str) -> Box:
        """An inbox, known from now on."""
        return self._boxes.setdefault(inbox, Box(inbox))

    def boxes(self) -> Iterable[Box]:
        """All that are known."""
        return list(self._boxes.values())

    def drop(self, inbox: str) -> None:
        """Nobody has this inbox any more."""
        self._boxes.pop(inbox, None)

    # -- a letter's life

    def keep(self, letter: Letter) -> None:
        """A letter is in its inbox."""
        self._count += 1
        letter.order = self._count
        self.box(letter.inbox).insert(letter)
        self._sent[letter.sender, letter.message_id] = letter

    def queue(self, letter: Letter) -> None:
        """Its sender is told that it waits for somebody who is not here."""
        letter.queued = True
        self._queued.setdefault(letter.sender, {})[letter.message_id] = letter

    def surplus(self, sender: Key) -> list[Letter]:
        """What makes room for one more of this sender's letters."""
        queued = list(self._queued.get(sender, {}).values())
        return queued[: max(0, len(queued) + 1 - self._most)]

    def hold(self, letter: Letter, number: int) -> None:
        """It was written to a connection."""
        self._unqueue(letter)
        letter.holder, letter.pushed = number, True
        box = self.box(letter.inbox)
        box.waiting.pop(_begin(letter), None)
        self._held.setdefault(number, {}).setdefault(letter.message_id, []).append(letter)

    def overheld(self, inbox: str) -> Letter | None:
        """What is taken for received, since an inbox holds too much that nobody speaks of."""
        letters = self.box(inbox).letters
        if len(letters) <= MAX_HELD:
            return None
        held = (one for one in letters.values() if one.holder is not None and not one.settled)
        return next(held, None)

    def held(self, number: int, message_id: str) -> list[Letter]:
        """What a connection was written under this id and has not received yet."""
        return list(self._held.get(number, {}).get(message_id, ()))

    def held_by(self, number: int) -> list[Letter]:
        """What a connection was written and has not received yet."""
        return [one for some in self._held.get(number, {}).values() for one in some]

    def waits(self, sender: Key, message_id: str) -> Letter | None:
        """The letter of this sender and id, if it waits."""
        letter = self._sent.get((sender, message_id))
        return letter if letter is not None and letter.holder is None else None

    def sent(self, sender: Key, message_id: str) -> Letter | None:
        """The letter of this sender and id, if it is not settled."""
        return self._sent.get((sender, message_id))

    def settle(self, letter: Letter) -> None:
        """It was received, or is to be shown to nobody. :meth:`Box.trim` says what follows.

        Idempotent.
        """
        if letter.settled:
            return
        letter.settled = True
        self._unqueue(letter)
        self.box(letter.inbox).waiting.pop(_begin(letter), None)
        if self._sent.get((letter.sender, letter.message_id)) is letter:
            del self._sent[letter.sender, letter.message_id]
        if letter.holder is not None:
            held = self._held[letter.holder]
            held[letter.message_id].remove(letter)
            if not held[letter.message_id]:
                del held[letter.message_id]
            if not held:
                del self._held[letter.holder]

    def left(self, number: int) -> list[Letter]:
        """A connection ended: what it held waits again; that."""
        letters = self.held_by(number)
        self._held.pop(number, None)
        changed = set()
        for letter in letters:
            letter.holder = None
            box = self.box(letter.inbox)
            box.waiting[_begin(letter)] = letter
            changed.add(letter.inbox)
        for inbox in changed:
            box = self.box(inbox)
            box.waiting = dict(sorted(box.waiting.items()))
        return letters

    def expired(self, now: int) -> list[Letter]:
        """What has waited for too long. Inboxes are in order of time, so the rest has not."""
        old = []
        for box in self._boxes.values():
            for letter in box.letters.values():
                if now - letter.at <= self._keep_ms:
                    break
                if not letter.settled:
                    old.append(letter)
        return old

    # -- what belongs to whom

    def inherit(self, key: Key, identity: Identity) -> set[str]:
        """Letters to others of this identity that wait are this session's; their inboxes.

        Never back to their sender. Letters of another scope's inboxes are not looked at.
        """
        found = set()
        for box in self._boxes.values():
            for letter in box.waiting.values():
                if (
                    letter.target.scope == key.scope
                    and letter.target != key
                    and identity.matches(letter.addressed)
                    and not identity.matches(letter.author)
                ):
                    letter.heir = key
                    found.add(box.inbox)
        return found

    def shifted(self, news: Shifted) -> None:
        """An inbox was compacted or reset: its letters stand elsewhere now."""
        box = self.box(news.inbox)
        for letter in box.letters.values():
            if letter.place.generation == news.generation:
                begin = news.place(Position(news.generation, letter.place.start))
                end = news.place(Position(news.generation, letter.place.end))
                letter.place = Place(begin.generation, begin.offset, end.offset)
        gone = [one for one in box.letters.values() if one.place.start == one.place.end]
        box.letters = {_begin(one): one for one in box.letters.values() if one not in gone}
        waits = {id(one) for one in box.waiting.values()}
        box.waiting = {where: one for where, one in box.letters.items() if id(one) in waits}
        for letter in gone:
            self.settle(letter)
        box.known = None if box.known is None else news.place(box.known)
        box.stored = None if box.stored is None else news.place(box.stored)

    def _unqueue(self, letter: Letter) -> None:
        own = self._queued.get(letter.sender, {})
        if own.get(letter.message_id) is letter:
            del own[letter.message_id]
            if not own:
                del self._queued[letter.sender]


def _begin(letter: Letter) -> Position:
    return Position(letter.place.generation, letter.place.start)
