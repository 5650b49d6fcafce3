"""Asking a channel's files how far messages have come. Standard library only.

No hub is asked and nothing is written, so this works in a sandbox and after the hub is
gone. What the files say is gathered here; what follows from it is worked out in
:mod:`intercom.client.standing`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from intercom.client.standing import Death, Facts, Spot, Standing, derive
from intercom.errors import IntercomError, UnsafePlace
from intercom.names import ANONYMOUS
from intercom.paths import ChannelPaths, file_level
from intercom.records import Moved, Position
from intercom.spool import history
from intercom.spool.book import last_boundary
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters
from intercom.spool.files import Inbox, Patience
from intercom.spool.format import LARGEST, split_name
from intercom.spool.known import session_of
from intercom.spool.trail import Cut, Trail
from intercom.wire.envelope import MAX_LINE, identify

#: Bytes of a file that are looked through at a time.
_PIECE = 4 << 20
#: How often an inbox is looked at again that was emptied meanwhile.
_TRIES = 3
#: Lines of the history, and bytes at the end of each inbox, in which the last messages of
#: a sender are looked for.
_LINES = 10_000
_TAIL = 1 << 20


class Told(NamedTuple):
    """One message, and how far it has come with each recipient.

    :ivar sent_at: what its sender's clock said, in epoch seconds; None where the line is
        not there any more, or does not say.
    """

    message_id: str
    sender: str
    sent_at: float | None
    recipients: dict[str, Standing]


class _Found(NamedTuple):
    """A line in an inbox file."""

    start: int
    end: int
    line: bytes


class _Inbox(NamedTuple):
    """What was noted of an inbox, and how far it is read (None: it cannot be found out).

    :ivar cuts: how its generations ended.
    """

    position: Position | None
    position_at: float | None
    moves: list[Moved]
    cuts: dict[int, Cut]


class Inquiry:
    """One look at a channel; what the files of an inbox say is read once.

    :param patience: shared with what else the same command reads.
    """

    def __init__(self, paths: ChannelPaths, patience: Patience | None = None) -> None:
        self._paths = paths
        self._patience = patience or Patience()
        self._calls = FileCalls()
        self._reachable = file_level(paths.directory)
        self._inboxes: dict[str, _Inbox] = {}
        self._dead: dict[tuple[str, str], dict[str, Death]] | None = None

    def about(self, message_id: str, sender: str | None = None) -> list[Told]:
        """Every message of this id: one for each sender that used it, or of the one that is named.

        What the history does not know, a client may have appended itself, so then the
        inboxes are searched; at last the dead letters.
        """
        lines = history.lookup(self._paths, message_id, sender)
        places = _by_message(lines)
        if not places:
            for inbox, found in self._search(message_id):
                said = identify(found.line)
                if said and said.message_id == message_id and sender in (None, said.sender):
                    places.setdefault((said.sender, message_id), {}).setdefault(inbox, Facts())
        for key, deaths in self._deaths().items():
            if key[1] == message_id and sender in (None, key[0]) and key not in places:
                places[key] = {inbox: Facts() for inbox in deaths}
        return [self._told(key, facts) for key, facts in places.items()]

    def newest(self, sender: str, count: int) -> list[Told]:
        """The last messages of a sender, the newest last."""
        places = _by_message(history.newest(self._paths, sender, _LINES))
        when = {key: min(map(_moment, facts.values())) for key, facts in places.items()}
        for inbox, path in self._files():
            for found in self._tail(path):
                said = identify(found.line)
                if said is None or said.sender != sender:
                    continue
                key = said[:2]
                if key not in when or inbox not in places[key]:
                    when.setdefault(key, _timestamp(found.line) or 0.0)
                    places.setdefault(key, {})[inbox] = Facts()
        last = sorted(places, key=lambda key: when[key])[-count:]
        return [self._told(key, places[key]) for key in last]

    # -- one message ------------------------------------------------------------------------------

    def _told(self, key: tuple[str, str], places: dict[str, Facts]) -> Told:
        """Add what the inboxes say, and draw the conclusions."""
        standings: dict[str, Standing] = {}
        sent_at: float | None = None
        for inbox, noted in places.items():
            facts, line = self._look(inbox, key, noted)
            standings[inbox] = derive(facts)
            if sent_at is None and line is not None:
                sent_at = _timestamp(line)
        return Told(key[1], key[0], sent_at, standings)

    def _look(self, inbox: str, key: tuple[str, str], noted: Facts) -> tuple[Facts, bytes | None]:
        """Look for a message in an inbox: what is so now, and its line if it stands there."""
        path = self._paths.inbox(inbox)
        for _ in range(_TRIES):
            known = self._known(inbox)
            found, another_at = self._find(path, key, noted.stored)
            if known.position is None or known.position == self._position(inbox):
                break
            del self._inboxes[inbox]  # somebody has read, or emptied it, meanwhile
        position, was = known.position, noted.stored
        here = None
        if found is not None:
            generation = was.generation if was is not None else 0
            if position is not None:
                generation = position.generation
            here = Spot(generation, found.start, found.end)
        if was is None or position is None or was.generation != position.generation:
            another_at = None  # what stands there now is of another generation
        facts = replace(
            noted,
            here=here,
            position=position,
            position_at=known.position_at,
            level=self._reached(noted.level),
            cut=known.cuts[was.generation].read if was and was.generation in known.cuts else None,
            moves=known.moves,
            another_at=another_at,
            death=self._deaths().get(key, {}).get(inbox),
        )
        return facts, found and found.line

    def _find(
        self, path: str, key: tuple[str, str], was: Spot | None
    ) -> tuple[_Found | None, float | None]:
        """The line of a message in a file; if another stands in its place, when that was sent."""
        another_at = None
        if was is not None and (there := self._line_at(path, was.start)) is not None:
            if _is(there.line, key):
                return there, None
            another_at = _timestamp(there.line)
        for found in self._lines_with(path, key[1]):
            if _is(found.line, key):
                return found, another_at
        return None, another_at

    def _reached(self, asked: str | None) -> str | None:
        """The level that a message has where this much was asked for."""
        return self._reachable if asked == "disk" else asked

    # -- files ------------------------------------------------------------------------------------

    def _known(self, inbox: str) -> _Inbox:
        """What was noted of an inbox."""
        known = self._inboxes.get(inbox)
        if known is None:
            position = self._position(inbox)
            found = self._calls.stat(self._paths.offset(inbox))
            moves = [one for one in history.pushes(self._paths, inbox) if _spot(one[2:5])]
            cuts: dict[int, Cut] = {}
            with contextlib.suppress(OSError, UnsafePlace):
                trail = Trail(self._paths, inbox, self._calls)
                moves += trail.events()
                cuts = trail.cuts()
            known = _Inbox(position, found and found.st_mtime, moves, cuts)
            self._inboxes[inbox] = known
        return known

    def _position(self, inbox: str) -> Position | None:
        """How far an inbox is read, None if that cannot be found out."""
        with contextlib.suppress(IntercomError, OSError):
            return Inbox(self._paths, inbox, patience=self._patience).read(None, 1).start
        return None

    def _deaths(self) -> dict[tuple[str, str], dict[str, Death]]:
        """The dead letters: by sender and id, and then by inbox."""
        if self._dead is None:
            self._dead = {}
            letters: list[dict[str, Any]] = []
            with contextlib.suppress(OSError, UnsafePlace):
                letters = DeadLetters(self._paths).read(_LINES)
            for letter in letters:
                if not isinstance(letter.get("id"), str):
                    continue
                with contextlib.suppress(KeyError):
                    death = Death(
                        str(letter["why"]), _number(letter["at"]), str(letter.get("code") or "")
                    )
                    key = (str(letter["from"] or ANONYMOUS), letter["id"])
                    self._dead.setdefault(key, {})[str(letter["inbox"])] = death
        return self._dead

    def _files(self) -> Iterator[tuple[str, str]]:
        """Every inbox: whose it is, and its path."""
        for name in sorted(os.listdir(self._paths.directory)):
            parts = split_name(name)
            if parts is not None and parts[0] == "inbox":
                session = session_of(self._paths, self._calls, parts[1])
                if session is not None and self._paths.inbox(session) == self._paths.file(name):
                    yield session, self._paths.file(name)

    def _search(self, message_id: str) -> Iterator[tuple[str, _Found]]:
        """The lines of all inboxes that hold an id; nobody's id is empty."""
        for inbox, path in self._files() if message_id else ():
            for found in self._lines_with(path, message_id):
                yield inbox, found

    def _lines_with(self, path: str, message_id: str) -> Iterator[_Found]:
        """The complete lines of a file that hold an id, as it may be written in JSON."""
        wanted = {json.dumps(message_id, ensure_ascii=way)[1:-1].encode() for way in (True, False)}
        for begin, data in self._pieces(path):
            for needle in wanted:
                at = data.find(needle)
                while at >= 0:
                    start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at) + 1
                    yield _Found(begin + start, begin + end, data[start : end - 1])
                    at = data.find(needle, end)

    def _pieces(self, path: str) -> Iterator[tuple[int, bytes]]:
        """A file in pieces of complete lines, each with its place."""
        with self._opened(path) as fd:
            begin, rest = 0, b""
            while fd is not None:
                data = self._calls.pread(fd, _PIECE, begin + len(rest))
                whole, ended, after = (rest + data).rpartition(b"\n")
                if whole or ended:
                    yield begin, whole + ended
                begin, rest = begin + len(whole + ended), after
                if not data:
                    return

    def _line_at(self, path: str, place: int) -> _Found | None:
        """The complete line of a file to which a byte belongs, None if there is none."""
        with self._opened(path) as fd:
            if fd is None or place >= self._calls.fstat(fd).st_size:
                return None
            begin = last_boundary(self._calls, fd, place)
            data = self._calls.pread(fd, MAX_LINE + 1, begin)
        line, ended, _rest = data.partition(b"\n")
        return _Found(begin, begin + len(line) + 1, line) if ended else None

    def _tail(self, path: str) -> Iterator[_Found]:
        """The last lines of a file."""
        with self._opened(path) as fd:
            if fd is None:
                return
            size = self._calls.fstat(fd).st_size
            begin = last_boundary(self._calls, fd, max(0, size - _TAIL))
            data = self._calls.pread(fd, size - begin, begin)
        for line in data.split(b"\n")[:-1]:
            yield _Found(begin, begin + len(line) + 1, line)
            begin += len(line) + 1

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """A file to be read, None if there is none that can be."""
        try:
            fd = self._calls.open(path, os.O_RDONLY)
        except (OSError, UnsafePlace):
            yield None
            return
        try:
            yield fd
        finally:
            self._calls.close(fd)


# -- reading what was noted -----------------------------------------------------------------------


def _by_message(lines: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Facts]]:
    """What the history's lines say, by sender and id, and then by recipient.

    Where a message was first stored counts; a refusal counts where it was never stored.
    """
    found: dict[tuple[str, str], dict[str, Facts]] = {}
    for line in lines:
        places = found.setdefault((str(line.get("from")), str(line.get("id"))), {})
        at, level = _number(line.get("at")), line.get("level")
        with contextlib.suppress(ValueError, TypeError):
            for inbox, *place in line.get("to", ()):
                if (spot := _spot(place)) and _is_unknown(places.get(str(inbox))):
                    places[str(inbox)] = Facts(spot, at, None if level is None else str(level))
            for inbox, code, text in line.get("refused", ()):
                if _is_unknown(places.get(str(inbox))):
                    places[str(inbox)] = Facts(refused=(str(code), str(text)), refused_at=at)
    return {key: places for key, places in found.items() if places}


def _is_unknown(facts: Facts | None) -> bool:
    return facts is None or facts.stored is None


def _spot(place: Sequence[object]) -> Spot | None:
    """A place in an inbox, None for what cannot be one."""
    numbers = [one for one in place if type(one) is int and 0 <= one <= LARGEST]
    return Spot(*numbers) if len(numbers) == len(place) == 3 else None


def _moment(facts: Facts) -> float:
    """When the hub dealt with a message."""
    return facts.stored_at or facts.refused_at or 0.0


def _is(line: bytes, key: tuple[str, str]) -> bool:
    said = identify(line)
    return said is not None and said[:2] == key


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _timestamp(line: bytes) -> float | None:
    """When its sender says that a message was written; without a zone it is UTC."""
    with contextlib.suppress(ValueError, RecursionError, OverflowError, AttributeError):
        moment = datetime.fromisoformat(str(json.loads(line).get("timestamp")))
        return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()
    return None
