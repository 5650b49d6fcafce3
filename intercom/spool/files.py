"""An inbox for programs outside of the hub: reading, committing, falling back to appending.

Blocking, standard library only. Every call opens the file, works under its lock and lets
go of it, so that a hub that watches the directory notices an append as soon as it is done.
"""

from __future__ import annotations

import time

from intercom.errors import InboxLocked, StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Batch, Position, Record
from intercom.spool.calls import FileCalls
from intercom.spool.inboxfile import Busy, Commit, InboxFile, Unsettled
from intercom.tuples import TYPE_CHECKING
from intercom.wire.envelope import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    _T = TypeVar("_T")

#: How often an unreadable offset file is looked at again, and after how many seconds: the
#: original programs rewrite it in place, which takes them far less.
SETTLE_TRIES = 3
SETTLE_PAUSE = 0.02

#: Seconds for which others may keep a lock before a call gives up.
PATIENCE = 2.0
#: Nobody who is in order keeps a lock longer than this: so much has everyone time.
_MOMENT = 0.05
_LONGEST_PAUSE = 0.02


class Patience:
    """Seconds for which a look at many inboxes waits for locks, all in all.

    Of any number of stuck inboxes the first use it up; each further one gets a moment.
    """

    def __init__(self, seconds: float = PATIENCE) -> None:
        self._left = seconds

    @property
    def left(self) -> float:
        """Seconds for the next inbox."""
        return max(self._left, _MOMENT)

    def spend(self, seconds: float) -> None:
        """So many were waited."""
        self._left -= seconds


class Inbox:
    """One session's inbox, shared by locks with the hub and with the original programs.

    Any method that needs the lock raises ``InboxLocked`` if others keep it too long
    (two seconds unless said otherwise), and ``SpoolError`` where the system refuses.

    :param paths: the channel, whose directory exists.
    :param session: whose inbox it is.
    :param calls: the door to the file system; for tests.
    :param sleep: waits so many seconds; for tests.
    :param fence: asked under the lock before every commit; raises if we may not (any more).
    :param patience: shared with the other inboxes that the same command reads.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        *,
        calls: FileCalls | None = None,
        sleep: Callable[[float], None] = time.sleep,
        fence: Callable[[], None] | None = None,
        patience: Patience | None = None,
    ) -> None:
        self._file = InboxFile(paths, session, calls)
        self._fence = fence
        self._patience = patience
        self._session = session
        self._sleep = sleep

    def size(self) -> int:
        """The inbox's size in bytes, 0 if there is none. No lock is taken."""
        return self._file.size()

    def read(self, start: Position | None = None, limit: int = 1 << 20) -> Batch:
        """Read complete lines: about ``limit`` bytes, at least one line if there is one.

        Nothing moves: see :meth:`commit`.

        :param start: where to begin, None for the stored position. A start of another
            generation, or past the end, begins at the current generation's start.
        """
        shared = self._patience
        timeout = PATIENCE if shared is None else shared.left
        begun = time.monotonic()
        try:
            return self._persist(timeout, lambda patient: self._file.read(start, limit, patient))
        except InboxLocked:
            if shared is not None:
                shared.spend(time.monotonic() - begun)
            raise

    def commit(
        self, position: Position, *, state: str = "read", timeout: float = PATIENCE
    ) -> Position:
        """Move the stored position forward and tell what is stored now.

        Monotonic: a position behind the stored one changes nothing. Survives the death of
        any process; after a power cut messages may be seen again.

        :param state: ``read``, or ``skipped`` for what is passed without being shown.
        :param timeout: seconds to wait for the lock.
        :raise StalePosition: another generation, no record boundary, or past the end.
        """
        wanted = [Commit(position, state)]
        done = self._persist(
            timeout, lambda patient: self._file.commit(wanted, patient, self._fence)
        )
        if isinstance(done.results[0], StalePosition):
            raise done.results[0]
        return done.results[0]

    def shown(self, position: Position) -> Position:
        """Note that the messages before ``position`` were shown; nothing moves.

        :return: the stored position.
        :raise StalePosition: another generation, no record boundary, or past the end.
        """
        return self.commit(position, state="shown")

    def append(
        self,
        line: bytes,
        *,
        sender: str,
        message_id: str,
        after: int = 0,
        timeout: float = PATIENCE,
    ) -> bool:
        """Append a line without the hub's help, whole, synced, and once.

        :param line: the envelope without line feed.
        :param after: the inbox's size noted before the first try to send: if the sender's
            id stands at or behind this byte, that try did arrive. In a file that is smaller
            now, all of it is looked at.
        :param timeout: seconds to wait for the lock.
        :return: False if it stood there already and nothing was appended.
        """
        if b"\n" in line or len(line) > MAX_LINE:
            raise ValueError(f"a line has at most {MAX_LINE} bytes and no line feed")
        return self._persist(
            timeout, lambda _patient: self._file.append(line, sender, message_id, after)
        )

    def find(self, sender: str, message_id: str, after: int = 0) -> bytes | None:
        """The line of a message that stands at or behind byte ``after``, None if none does.

        In a file that is smaller than ``after`` now, all of it is looked at.
        """
        return self._persist(PATIENCE, lambda _patient: self._file.find(sender, message_id, after))

    def skip_to_end(self) -> tuple[int, Position]:
        """Move the stored position behind the last complete line, whatever came meanwhile.

        What is passed counts as skipped, never as read.

        :return: how many messages were passed over, and the position.
        """
        count, end = self._count()
        return count, self.commit(end, state="skipped")

    def unread(self) -> int:
        """How many messages lie behind the stored position."""
        return self._count()[0]

    def enrol(self) -> None:
        """Make the session known to later senders. Idempotent."""
        self._persist(PATIENCE, lambda _patient: self._file.enrol())

    def compact(self) -> bool:
        """Take out of the inbox what is read, raising its generation; True if done.

        What is unread stays, and begins the new generation. Refused (False) where nothing is
        read, or an original program, which knows no generations, may be reading.
        """
        return self._persist(PATIENCE, lambda _patient: self._file.compact())

    def expire(self, keep_bytes: int | None, older_than: float | None = None) -> list[Record]:
        """Drop the oldest messages, so that the inbox keeps at most so many bytes.

        Unread ones are listed as dead letters (``expired``) first, synced. What is read goes,
        too, when anything does. Nothing is done while an original program, which knows no
        generations, may be reading.

        :param older_than: drop also what was sent more than so many seconds ago.
        :return: the unread messages that were dropped: their senders may want to know.
        """
        return self._persist(PATIENCE, lambda _patient: self._file.expire(keep_bytes, older_than))

    def close(self) -> None:
        """Nothing is kept open between calls; for symmetry. Idempotent."""

    def __enter__(self) -> Inbox:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _count(self) -> tuple[int, Position]:
        batch = self.read()
        count = len(batch.records)
        while not batch.at_end:
            batch = self.read(batch.next)
            count += len(batch.records)
        return count, batch.next

    def _persist(self, timeout: float, work: Callable[[bool], _T]) -> _T:
        """Do ``work(patient)`` until the lock was free and the offset file readable."""
        deadline = time.monotonic() + timeout
        pause, tries = 0.001, 1
        while True:
            try:
                return work(tries < SETTLE_TRIES)
            except Unsettled:
                tries += 1
                self._sleep(SETTLE_PAUSE)
            except Busy:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise InboxLocked(
                        f"another program has kept the inbox of {self._session!r} locked"
                        f" for {timeout:g} seconds",
                        remedy=f"see which, a stopped one perhaps: fuser -v {self._file.path}",
                    ) from None
                self._sleep(min(pause, left))
                pause = min(pause * 2, _LONGEST_PAUSE)
