"""Removing one session from a channel: its messages, position, secret and name.

Standard library only. The inbox goes under its own lock, and an appender who waits for
that looks at the path again afterwards; the name goes under its lock, too, unless a
command speaks under it at this moment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator

from intercom.client import claims
from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths
from intercom.spool import turns
from intercom.spool.book import Book
from intercom.spool.calls import FileCalls
from intercom.spool.format import Cutter, split_name
from intercom.spool.inboxfile import InboxFile
from intercom.spool.known import session_of
from intercom.spool.locking import locked

#: Seconds to wait for an inbox's lock, and for a name that a command uses for a moment.
PATIENCE = 2.0
NAME_PATIENCE = 0.3
#: Seconds in which a program that waited for an inbox's lock writes once it has it.
LAST_WORDS = 0.05
_ASIDE = "forgotten_"
#: How the name begins of what a crash has left of an inbox that was being made smaller.
KEEP = ".keep_"
_CHUNK = 1 << 20


class Traces:
    """All that a channel has of one session.

    :param encoded: the session's id as it stands in file names.
    :ivar session: the id, or the encoded one where only a hash of it is left.
    """

    def __init__(self, paths: ChannelPaths, encoded: str) -> None:
        known = session_of(paths, FileCalls(), encoded)
        self.session = known or encoded
        self._known = known is not None
        self._paths = paths
        self._encoded = encoded
        self._inbox = paths.file(f"inbox_{encoded}.ndjson")
        self._name = paths.file(f"name_{encoded}.json")
        # The secret first: it is spared where the session is in use.
        small = (f"token_{encoded}", f"offset_{encoded}.json", f"meta_{encoded}.json")
        others = (f"trail_{encoded}.ndjson", f"bell_{encoded}.json", f"{KEEP}{encoded}")
        self._small = [paths.file(name) for name in (*small, *others)]

    def is_used(self) -> bool:
        """Whether a command of ours speaks as this session now, connected or not."""
        return self._known and claims.is_used(self._paths, self.session)

    def unread(self) -> int:
        """How many messages lie unread.

        :raise InboxLocked: others keep the inbox's lock.
        """
        with self._locked(exclusive=False) as fd:
            return self._count(fd) + self._count_aside()

    def erase(self, removed: list[str], *, despite_unread: bool) -> int:
        """Remove the files, unless messages are unread and that is in the way.

        Whoever speaks as the session now keeps its name and its secret. The inbox goes last:
        one without its small files is read again from its beginning, small files without
        their inbox would one day pass over messages of another.

        :param removed: takes the names of the files that were removed.
        :return: how many messages were unread; if those are in the way, nothing is removed.
        :raise InboxLocked: others keep the inbox's lock.
        """
        with self._named() as used, self._locked(exclusive=True) as fd:
            count = self._count(fd) + self._count_aside()
            if count and not despite_unread:
                return count
            unlink(self._small[used:], self._paths, removed)
            unlink(self._aside(), self._paths, removed)
            if fd is not None:
                unlink([self._inbox], self._paths, removed)
            if not used:
                unlink([self._name], self._paths, removed)
            removed += map(os.path.basename, turns.remove(self._paths, self._encoded))
            return count

    def exist(self) -> bool:
        """Whether the channel has anything of this session."""
        return any(map(os.path.lexists, (*self._small, self._inbox, self._name))) or bool(
            self._aside()
        )

    def put_aside(self) -> None:
        """Remove the files, but let the inbox step aside under a name to which nobody writes.

        The caller keeps the name from being used. Whoever appends at the same moment does
        so before, and is found in what lies aside, or finds a name that nobody knows.

        :raise InboxLocked: others keep the inbox's lock.
        """
        with self._locked(exclusive=True, create=True) as fd:
            assert fd is not None
            at = self._position(fd)
            unlink(self._small, self._paths, [])
            # The time keeps those apart, and in order, that were not buried yet.
            aside = f"{_ASIDE}{self._encoded}.{at}.{time.time_ns()}.ndjson"
            os.rename(self._inbox, self._paths.file(aside))
        unlink([self._name], self._paths, [])
        turns.remove(self._paths, self._encoded)

    def lines_aside(self) -> Iterator[bytes]:
        """The unread messages that lie aside, after the last who might add to them has.

        Programs of the original mesh do not look again at the path when they have the lock.
        """
        time.sleep(LAST_WORDS)
        for path in self._aside():
            calls = FileCalls()
            with self._locked(exclusive=True, path=path) as fd:
                if fd is None:
                    continue
                at = int(path.rsplit(".", 3)[1])
                cutter = Cutter(at)
                while piece := calls.pread(fd, _CHUNK, at):
                    cutter.feed(piece)
                    at += len(piece)
                    yield from (record.line for record in cutter.records)
                    cutter.records.clear()

    def _count_aside(self) -> int:
        return sum(1 for _ in self.lines_aside()) if self._aside() else 0

    def bury(self) -> None:
        """Remove what lies aside."""
        unlink(self._aside(), self._paths, [])

    def _aside(self) -> list[str]:
        """What stepped aside and was not buried, the oldest first."""
        found = []
        for name in os.listdir(self._paths.directory):
            if asides_session(name) == self._encoded:
                found.append(self._paths.file(name))
        return sorted(found, key=lambda path: int(path.rsplit(".", 3)[2]))

    @contextlib.contextmanager
    def _named(self) -> Iterator[bool]:
        """Keep others from using the name; or not, where somebody does: then ``with`` gives True.

        A name without a file is used by nobody whom this could tell.
        """
        if self._known and os.path.lexists(self._name):
            with claims.alone(self._paths, self.session, NAME_PATIENCE) as unused:
                yield not unused
        else:
            yield False

    @contextlib.contextmanager
    def _locked(
        self, *, exclusive: bool, create: bool = False, path: str | None = None
    ) -> Iterator[int | None]:
        """The inbox (or another file), open and locked; None if there is none.

        What a crash has left of an inbox is in it again then.
        """
        path = path or self._inbox
        flags = os.O_RDONLY | (os.O_CREAT if create else 0)

        def settle() -> None:
            if self._known and path == self._inbox:
                with contextlib.suppress(UnsafePlace):  # what was planted goes like the rest
                    InboxFile(self._paths, self.session).settle()

        with locked(
            FileCalls(), path, flags, exclusive=exclusive, patience=PATIENCE, before=settle
        ) as fd:
            yield fd

    def _position(self, fd: int) -> int:
        """The byte of the locked inbox up to which it is read."""
        if not self._known:
            return 0  # there is no position, either
        calls = FileCalls()
        book = Book(self._paths, self.session, calls)
        return book.look(fd, calls.fstat(fd).st_size).truth.position.offset

    def _count(self, fd: int | None) -> int:
        """How many messages of the locked inbox lie behind its stored position."""
        if fd is None:
            return 0
        calls = FileCalls()
        at = self._position(fd)
        cutter = Cutter(at)
        count = 0
        while piece := calls.pread(fd, _CHUNK, at):
            cutter.feed(piece)
            at += len(piece)
            count += len(cutter.records)
            cutter.records.clear()
        return count


def asides_session(name: str) -> str | None:
    """Whose inbox a file is that stepped aside (the encoded id), None for other files."""
    if not name.startswith(_ASIDE):
        return None
    parts = name[len(_ASIDE) :].rsplit(".", 3)
    numbered = len(parts) == 4 and parts[1].isdecimal() and parts[2].isdecimal()
    return parts[0] or None if numbered else None


def all_traces(paths: ChannelPaths) -> list[Traces]:
    """Every session that has any file on the channel, by the order of their names."""
    names = os.listdir(paths.directory)
    encoded = turns.encoded_of(names)
    for name in names:
        parts = split_name(name)
        if parts is not None:
            encoded.add(parts[1])
        elif name.startswith("name_") and name.endswith(".json"):
            encoded.add(name[len("name_") : -len(".json")])
        elif (aside := asides_session(name)) is not None:
            encoded.add(aside)
        elif name.startswith(KEEP):
            encoded.add(name[len(KEEP) :])
    return [Traces(paths, one) for one in sorted(encoded)]


def unlink(them: Iterable[str], paths: ChannelPaths, removed: list[str]) -> None:
    """Remove files that are there, and note their names: whole where they lie elsewhere."""
    for path in them:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
            here, name = os.path.split(path)
            removed.append(name if here == paths.directory else path)
