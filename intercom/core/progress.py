"""Who is told how far a message has come beyond being stored. Pure bookkeeping.

A sender with the feature ``progress`` watches each inbox that its message went into, from
the moment it is written there until it is read or skipped. What is watched is bounded per
connection, oldest forgotten first, and gone with the connection, so that memory grows with
connections and not with unread messages; ``intercom status`` knows what was forgotten here.

Each state is told at most once, and only where it was reported: by the hub's own pushes, or
by the spool for what readers did. An inbox's watches stand in file order, so that a range
of its bytes finds them by bisection.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from operator import attrgetter

from intercom.core.effects import Answer
from intercom.messages import Progress
from intercom.records import Moved, Position, Shifted

#: Watched entries (a message in one inbox) of one connection.
WATCH_MAX = 1000
_PUSHED, _SHOWN = 1, 2
_LASTING = {"pushed": _PUSHED, "shown": _SHOWN}


class Watch:
    """One message in one inbox, whose sender wants to hear of it.

    :ivar link: number of the connection to tell.
    :ivar place: generation and first byte; ``end``: the byte behind it.
    :ivar told: which states were told, as bits.
    """

    __slots__ = ("end", "inbox", "link", "message_id", "place", "sender", "told")

    def __init__(
        self, link: int, sender: str, message_id: str, inbox: str, place: tuple[int, int], end: int
    ) -> None:
        self.link = link
        self.sender = sender
        self.message_id = message_id
        self.inbox = inbox
        self.place = place
        self.end = end
        self.told = 0

    def tell(self, state: str, at: float | None) -> Answer:
        """Say that it has reached a state."""
        return Answer(self.link, Progress(self.sender, self.message_id, state, self.inbox, at))


_place = attrgetter("place")


class Watchers:
    """All watches of a channel, by connection and by inbox."""

    def __init__(self) -> None:
        self._watched: dict[int, OrderedDict[Watch, None]] = {}
        self._inboxes: dict[str, list[Watch]] = {}
        #: Where readers stand: the last that was heard, for what is read before its sender's
        #: turn to watch has come. Kept only while anybody watches.
        self._passed: dict[str, Moved] = {}

    def __len__(self) -> int:
        return sum(map(len, self._watched.values()))

    def expect(self, link: int) -> None:
        """A connection is about to watch: from now on its recipients' readers count."""
        if link not in self._watched:
            self._watched[link] = OrderedDict()

    def watch(self, watch: Watch, pushed: bool) -> list[Answer]:
        """Begin; what is known already is told at once.

        :param pushed: it is on its way to a live connection of the recipient.
        """
        told = [watch.tell("pushed", None)] if pushed else []
        watch.told = _PUSHED if pushed else 0
        passed = self._passed.get(watch.inbox)
        if passed is not None and passed.generation == watch.place[0] and watch.end <= passed.end:
            return [*told, _last_word(watch, passed)]
        watches = self._inboxes.setdefault(watch.inbox, [])
        if watches and watches[-1].place >= watch.place:
            # Its files were removed, and its generations begin anew: those lines are gone.
            for gone in watches:
                del self._watched[gone.link][gone]
            watches.clear()
        watches.append(watch)
        own = self._watched.setdefault(watch.link, OrderedDict())
        own[watch] = None
        if len(own) > WATCH_MAX:
            self._leave(own.popitem(last=False)[0])
        return told

    def pushed(self, inbox: str, generation: int, start: int, end: int) -> list[Answer]:
        """These lines are on their way to a live connection of the recipient."""
        if inbox not in self._inboxes:
            return []
        return self._reached("pushed", None, self._between(inbox, generation, start, end))

    def moved(self, move: Moved) -> list[Answer]:
        """Readers have shown, read or skipped these lines."""
        if not self._watched:
            return []
        if move.state in _LASTING:
            if move.inbox not in self._inboxes:
                return []
            watches = self._between(move.inbox, move.generation, move.start, move.end)
            return self._reached(move.state, move.at, watches)
        self._passed[move.inbox] = move
        if move.inbox not in self._inboxes:
            return []
        # All before the position: an original program moves it without noting when.
        watches = self._between(move.inbox, move.generation, 0, move.end)
        told = [_last_word(watch, move) for watch in watches]
        self._end(move.inbox, watches)
        return told

    def shifted(self, shift: Shifted) -> None:
        """An inbox was compacted or reset: what is left of it is watched where it is now."""
        watches = self._inboxes.get(shift.inbox, [])
        for watch in [one for one in watches if one.place[0] == shift.generation]:
            start = watch.place[1]
            if any(low <= start and watch.end <= high for low, high in shift.stays):
                now = shift.place(Position(*watch.place))
                watch.place, watch.end = (
                    (now.generation, now.offset),
                    watch.end - start + now.offset,
                )
            else:
                self._end(shift.inbox, [watch])

    def forget(self, link: int) -> None:
        """A connection is gone, or wants to hear no more."""
        for watch in self._watched.pop(link, ()):
            self._leave(watch)
        if not self._watched:
            self._passed.clear()

    def _between(self, inbox: str, generation: int, start: int, end: int) -> list[Watch]:
        """Watches of lines that begin in a range, in file order."""
        watches = self._inboxes[inbox]
        first = bisect_left(watches, (generation, start), key=_place)
        return watches[first : bisect_left(watches, (generation, end), lo=first, key=_place)]

    def _reached(self, state: str, at: float | None, watches: list[Watch]) -> list[Answer]:
        """Tell a state after which others may come."""
        bit, told = _LASTING[state], []
        for watch in watches:
            if not watch.told & bit:
                watch.told |= bit
                told.append(watch.tell(state, at))
        return told

    def _end(self, inbox: str, watches: list[Watch]) -> None:
        """Stop watching neighbours of one inbox: nothing can be said of them any more."""
        if not watches:
            return
        for watch in watches:
            del self._watched[watch.link][watch]
        kept = self._inboxes[inbox]
        first = bisect_left(kept, watches[0].place, key=_place)
        del kept[first : first + len(watches)]
        if not kept:
            del self._inboxes[inbox]

    def _leave(self, watch: Watch) -> None:
        """Take one out of its inbox's list."""
        watches = self._inboxes[watch.inbox]
        del watches[bisect_left(watches, watch.place, key=_place)]
        if not watches:
            del self._inboxes[watch.inbox]


def _last_word(watch: Watch, move: Moved) -> Answer:
    """Tell that it was read or skipped: as a whole in this move, or before, nobody noted when."""
    if watch.place[1] >= move.start:
        return watch.tell(move.state, move.at)
    return watch.tell("read", None)
