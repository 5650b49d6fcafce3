"""What crosses between the core and the spool: positions, records, outcomes.

Plain tuples of the standard library, shared by the hub and by commands that
read inbox files themselves.
"""

from __future__ import annotations

from intercom.levels import LEVELS as LEVELS
from intercom.tuples import NamedTuple


class Position(NamedTuple):
    """A place in an inbox: byte ``offset`` within ``generation``.

    Only record boundaries are valid: 0, or the byte just behind a line feed.
    Generations count from 1 and are raised by every reset and compaction, so
    positions of one inbox compare as tuples.
    """

    generation: int
    offset: int


class Record(NamedTuple):
    """One line of an inbox: bytes ``start`` to ``end`` with its line feed; ``line`` is without."""

    start: int
    end: int
    line: bytes


class Span(NamedTuple):
    """Bytes of an inbox that are no message (a torn or bad line), and why."""

    start: int
    end: int
    reason: str


class Batch(NamedTuple):
    """What one read of an inbox gave.

    :ivar start: where the reading began (after every repair of a damaged position).
    :ivar records: the complete lines found, in file order.
    :ivar next: where the next read begins; never behind an unterminated last line.
    :ivar at_end: nothing complete lay behind ``next`` at the time.
    :ivar damaged: bytes skipped because they are no message.
    :ivar warning: what was wrong with the stored position, or an empty string.
    :ivar repeated: messages left out of ``records`` because they stand shortly before, too:
        a program of the original mesh appends again what its hub had stored.
    """

    start: Position
    records: list[Record]
    next: Position
    at_end: bool
    damaged: list[Span]
    warning: str = ""
    repeated: tuple[Span, ...] = ()


class Entry(NamedTuple):
    """One message to append to one inbox.

    :ivar ticket: the core's number for it; it comes back in every outcome.
    :ivar inbox: the recipient's session id.
    :ivar line: the message's bytes without line feed.
    :ivar sender: from_session; with ``message_id`` the key against duplicates.
    :ivar digest: hash of the content (``wire.envelope.digest``).
    :ivar level: durability level asked for, one of :data:`LEVELS`.
    :ivar ask_known: look whether this session was ever used, and say so.
    :ivar only_known: refuse (``TARGET_NOT_FOUND``) rather than make an inbox for a stranger.
    :ivar left: it was left in a file: no connection of its sender has said it.
    """

    ticket: int
    inbox: str
    line: bytes
    sender: str
    message_id: str
    digest: bytes
    level: str
    ask_known: bool = False
    only_known: bool = False
    left: bool = False


class Written(NamedTuple):
    """An entry is in its inbox file: ``write(2)`` of the whole line returned.

    :ivar record: where it stands and its bytes.
    :ivar generation: the inbox's generation.
    :ivar duplicate: it stood there already (same sender and id, same content):
        nothing was appended, and ``record`` is the earlier one.
    :ivar known: False if ``ask_known`` found that nobody ever used this session.
    """

    ticket: int
    inbox: str
    record: Record
    generation: int
    duplicate: bool = False
    known: bool = True


class Refused(NamedTuple):
    """An entry is not in its inbox, wholly or in part, and will not be.

    ``INBOX_LOCKED``, ``DISK_FULL``, ``SPOOL_FAILED``, ``MESSAGE_ID_REUSE``,
    ``TARGET_NOT_FOUND`` (then ``known`` holds the names that exist).

    :ivar noted: it is written down for ``intercom status``; not where the disk is filling up,
        of which what is left is not for that.
    """

    ticket: int
    inbox: str
    code: str
    text: str
    known: tuple[str, ...] = ()
    noted: bool = True


class Appeared(NamedTuple):
    """Lines that others appended to an inbox, in file order, complete lines only.

    :ivar repeated: where those begin of which the message stood there before.
    """

    inbox: str
    generation: int
    records: list[Record]
    repeated: frozenset[int] = frozenset()


class Shifted(NamedTuple):
    """An inbox was compacted or reset: stretches of its bytes, in order, begin a new generation.

    :ivar generation: the one that is over; ``into``: the new one.
    :ivar stays: what is left, from which byte to before which; nothing after a reset.
    """

    inbox: str
    generation: int
    into: int
    stays: tuple[tuple[int, int], ...]

    def place(self, position: Position) -> Position:
        """Where a position of the old generation is now; others are as they were."""
        if position.generation != self.generation:
            return position
        offset = sum(
            min(end, position.offset) - start
            for start, end in self.stays
            if start < position.offset
        )
        return Position(self.into, offset)


#: How far bytes of an inbox have come beyond being stored (docs/protocol, "Delivery"):
#: ``pushed``: written to a live connection of the recipient; ``shown``: handed over by its
#: reader; ``read``: acknowledged past; ``skipped``: passed without being shown.
STATES = ("pushed", "shown", "read", "skipped")


class Moved(NamedTuple):
    """Whole lines of an inbox, bytes ``start`` to ``end``, have reached a state.

    :ivar state: one of :data:`STATES`.
    :ivar at: when, in epoch seconds.
    """

    inbox: str
    state: str
    generation: int
    start: int
    end: int
    at: float


class Receiver(NamedTuple):
    """A session whose messages are pushed to a live connection.

    :ivar pid: of the process at the other end, None where the kernel does not say.
    """

    session: str
    pid: int | None = None


class Remembered(NamedTuple):
    """A message that an earlier hub of the channel stored.

    :ivar digest: hash of its content (``wire.envelope.digest``).
    :ivar inboxes: who it went to.
    :ivar age: seconds since then, never negative.
    """

    sender: str
    message_id: str
    digest: bytes
    inboxes: tuple[str, ...]
    age: float


#: What the spool tells of its inboxes, per inbox in file order.
Outcome = Written | Refused | Appeared | Shifted
