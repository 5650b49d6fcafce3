"""When an inbox's messages were shown, read or skipped: a small log beside its position.

One JSON object a line, see ``docs/files.md``. It only informs: where a session stands says
its offset file, and a trail that cannot be written stops nothing. It is appended to under
the inbox's exclusive lock, read under none, and never synced. Standard library only.
"""

from __future__ import annotations

import os

from intercom import plainjson as json
from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.records import Moved, Position, Shifted
from intercom.spool.aside import Range
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import LARGEST, split_name
from intercom.spool.known import session_of
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

#: A trail longer than so many bytes is replaced by its younger half.
LONGEST = 4 << 20
#: What trails tell of; ``pushed`` is the hub's affair.
STATES = ("shown", "read", "skipped")
#: How far back from its end a trail is searched for what was shown last, in bytes.
_TAIL = 1 << 16
_CUT = b'"state": "cut"'


class Following(NamedTuple):
    """Up to where a trail is known to who follows it.

    :ivar identity: the file, None while there is none.
    :ivar size: so many bytes of it are known.
    :ivar last: the last line that is known, empty if none was read.
    :ivar at: when that happened, or since when the trail is followed; epoch seconds.
    """

    identity: tuple[int, int] | None = None
    size: int = 0
    last: bytes = b""
    at: float = 0.0


class Cut(NamedTuple):
    """How a generation ended: up to where it was read, and which of its bytes begin the next."""

    read: int
    stays: tuple[Range, ...]


class Trail:
    """The trail of one session.

    :param known: for who follows it, see :meth:`append` and :meth:`news`; None for others.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        calls: FileCalls,
        known: Following | None = None,
    ) -> None:
        self._path = paths.trail(session)
        self._session = session
        self._calls = calls
        self._known = known
        self._shown = Position(0, 0)
        self._shown_at: tuple[tuple[int, int], int] | None = None

    def append(self, moves: Sequence[Moved]) -> list[Moved]:
        """Write down what has just happened; what the system refuses is not written.

        The caller holds the inbox's exclusive lock.

        :return: ``moves``, for who follows the trail behind what others had written since
            the last call of this or :meth:`news`: all in its order, and each once.
        """
        others: list[Moved] = []
        with suppress(OSError, UnsafePlace):
            if self._known is not None:
                others = self.news()
            if moves:
                end = self._write(b"".join(map(dump, moves)), moves)
                if self._known is not None:
                    self._known = end
        return [*others, *moves]

    def news(self) -> list[Moved]:
        """What others wrote since the last call of this or :meth:`append`.

        Of a trail that was replaced or cut, what stands behind the line known last; where
        that is gone, what is younger.

        :raise OSError: the file cannot be read.
        """
        known = self._known or Following()
        now = self._calls.stat(self._path)
        if now is not None and (_identity(now), now.st_size) == known[:2]:
            return []
        identity, size, data = self._content(known.size)
        if identity is None:
            self._known = Following(at=known.at)
            return []
        start = known.size
        if size < start or identity != (known.identity or identity):
            data = self._content(0)[2]
            found = data.rfind(known.last) if known.last else -1
            start = found + len(known.last) if found >= 0 else self._younger(data, known.at)
            data = data[start:]
        fresh = data[: data.rfind(b"\n") + 1]
        moves = parse(fresh, self._session)
        self._known = Following(
            identity,
            start + len(fresh),
            _last_line(fresh) or known.last,
            moves[-1].at if moves else known.at,
        )
        return moves

    def note_cut(self, generation: int, read: int, stays: Iterable[Range]) -> None:
        """Write down how far a generation was read when it ended, and what begins the next one.

        So that a message that history knows in an older generation is found in this one, or
        is known to have been read, and a late acknowledgement is understood. What the system
        refuses is not written.
        """
        fields = {"state": "cut", "generation": generation, "read": read, "stays": [*stays]}
        with suppress(OSError, UnsafePlace):
            self._write(json.dumps(fields).encode() + b"\n", ())

    def cuts(self) -> dict[int, Cut]:
        """By generation: how it ended, as far as it was noted.

        :raise OSError: the file cannot be read.
        """
        found = {}
        data = self._content(0)[2]
        at = data.find(_CUT)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            with suppress(ValueError, KeyError, TypeError, RecursionError):
                fields = json.loads(data[start : end if end >= 0 else None])
                generation, read = _numbers(fields, "generation", "read")
                stays = [_checked([low, high]) for low, high in fields["stays"]]
                found[generation] = Cut(read, tuple((low, high) for low, high in stays))
            at = data.find(_CUT, at + 1)
        return found

    def remove(self) -> None:
        """Take the trail away: its inbox goes, too."""
        if self._calls.stat(self._path) is not None:
            self._calls.unlink(self._path)

    def follow(self, position: Position, generation: int) -> Position:
        """Where a position of an older generation is in this one.

        As it was, where nobody noted how the generations between them ended.
        """
        now = position
        with suppress(OSError, UnsafePlace, KeyError):
            cuts = self.cuts() if position.generation < generation else {}
            while now.generation < generation:
                stays = cuts[now.generation].stays
                now = Shifted("", now.generation, now.generation + 1, stays).place(now)
            return now
        return position

    def events(self) -> list[Moved]:
        """All that the trail tells, in order. What is unreadable in it is passed over.

        :raise OSError: the file cannot be read.
        """
        return parse(self._content(0)[2], self._session)

    def shown(self, generation: int) -> int:
        """The byte of a generation up to which messages were noted as shown, lately at least."""
        with suppress(OSError, UnsafePlace):
            found = self._calls.stat(self._path)
            if found is None:
                return 0
            now = _identity(found), found.st_size
            if now != self._shown_at:
                tail = self._content(max(0, found.st_size - _TAIL))[2]
                self._note(parse(tail, self._session))
                self._shown_at = now
        return self._shown.offset if self._shown.generation == generation else 0

    # -----------------------------------------------------------------------------------------

    def _content(self, start: int) -> tuple[tuple[int, int] | None, int, bytes]:
        """The file's identity (None: there is none), its size, and its bytes from ``start`` on."""
        try:
            fd = self._calls.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return None, 0, b""
        try:
            found = self._calls.fstat(fd)
            size = found.st_size
            data = self._calls.pread(fd, size - start, start) if size > start else b""
            return _identity(found), size, data
        finally:
            self._calls.close(fd)

    def _younger(self, data: bytes, at: float) -> int:
        """Where in a trail begins what is younger than a time."""
        end = start = 0
        for line in data.splitlines(keepends=True):
            end += len(line)
            if any(move.at <= at for move in parse(line, self._session)):
                start = end
        return start

    def _write(self, fresh: bytes, moves: Sequence[Moved]) -> Following:
        """Append lines; what is known to who has read all before them, and them."""
        fd = self._calls.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            found = self._calls.fstat(fd)
            identity, size = before = _identity(found), found.st_size
            if size > 0 and self._calls.pread(fd, 1, size - 1) != b"\n":
                fresh = b"\n" + fresh  # whoever died here must not swallow our line
            if size <= LONGEST:
                write_all(self._calls, fd, fresh)
            else:
                old = self._calls.pread(fd, size - size // 2, size // 2)
                old = old[old.find(b"\n") + 1 :]
                self._calls.replace(self._path, old + fresh, durable=False)
                size = len(old)
                found = self._calls.stat(self._path) or found
                identity = _identity(found)
        finally:
            self._calls.close(fd)
        size += len(fresh)
        if self._shown_at == before:
            self._note(moves)
            self._shown_at = identity, size
        return Following(identity, size, _last_line(fresh), moves[-1].at if moves else 0.0)

    def _note(self, moves: Iterable[Moved]) -> None:
        ends = [Position(move.generation, move.end) for move in moves if move.state == "shown"]
        self._shown = max([self._shown, *ends])


class Trails:
    """The trails of all sessions, for the hub, which tells of every event once.

    For one thread. What stands in them when it begins is not news.
    """

    def __init__(self, paths: ChannelPaths, calls: FileCalls) -> None:
        self._paths = paths
        self._calls = calls
        self._trails: dict[str, Trail] = {}
        self._initial: dict[str, Following] = {}
        self._began = 0.0

    def start(self, now: float) -> None:
        """Note where every trail ends now.

        :param now: epoch seconds.
        :raise OSError: the channel's directory cannot be read.
        """
        self._began = now
        for name in os.listdir(self._paths.directory):
            parts = split_name(name)
            path = self._paths.file(name)
            if parts is not None and parts[0] == "trail":
                found = self._calls.stat(path)
                if found is not None:
                    self._initial[path] = Following(_identity(found), found.st_size, at=now)

    def of(self, session: str) -> Trail:
        """A session's trail, followed."""
        trail = self._trails.get(session)
        if trail is None:
            initial = self._initial.pop(self._paths.trail(session), Following(at=self._began))
            trail = Trail(self._paths, session, self._calls, initial)
            self._trails[session] = trail
        return trail

    def news(self, encoded: Iterable[str]) -> list[Moved]:
        """What others did to the inboxes of some encoded ids; nothing where none can be read."""
        moves: list[Moved] = []
        for name in encoded:
            session = session_of(self._paths, self._calls, name)
            if session is not None:
                with suppress(OSError, UnsafePlace):
                    moves += self.of(session).news()
        return moves


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _last_line(data: bytes) -> bytes:
    """The last of some whole lines, with its line feed."""
    return data[data.rfind(b"\n", 0, -1) + 1 :]


def dump(move: Moved) -> bytes:
    """An event as a line."""
    fields = {"at": move.at, "state": move.state, "generation": move.generation}
    return json.dumps(fields | {"start": move.start, "end": move.end}).encode() + b"\n"


def parse(data: bytes, session: str) -> list[Moved]:
    """The events in whole lines; what is none is passed over."""
    moves = []
    for line in data.split(b"\n"):
        with suppress(ValueError, KeyError, TypeError, RecursionError):
            fields = json.loads(line)
            generation, start, end = _numbers(fields, "generation", "start", "end")
            at = fields["at"]
            if fields["state"] in STATES and type(at) in (int, float) and 0 <= at < LARGEST:
                moves.append(Moved(session, fields["state"], generation, start, end, float(at)))
    return moves


def _numbers(fields: dict[str, Any], *names: str) -> list[int]:
    """Some members that are to be offsets or generations.

    :raise ValueError: one is not; also KeyError, TypeError.
    """
    return _checked([fields[name] for name in names])


def _checked(numbers: list[Any]) -> list[int]:
    """Offsets or generations, or ``ValueError``."""
    if not all(type(one) is int and 0 <= one <= LARGEST for one in numbers):
        raise ValueError
    return numbers
