"""What crosses between the core and the spool: positions, records, outcomes.

Plain tuples of the standard library, shared by the hub and by commands that
read inbox files themselves.
"""

from __future__ import annotations

from typing import NamedTuple

#: How safe a message is before its sender is told "stored" (docs/protocol, "Delivery"):
#: ``memory``: the hub has parsed it; ``process``: write(2) of the whole line returned;
#: ``disk``: the bytes were synced to stable storage.
LEVELS = ("memory", "process", "disk")


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
    """

    start: Position
    records: list[Record]
    next: Position
    at_end: bool
    damaged: list[Span]
    warning: str = ""


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
    """

    ticket: int
    inbox: str
    code: str
    text: str
    known: tuple[str, ...] = ()


class Appeared(NamedTuple):
    """Lines that others appended to an inbox, in file order, complete lines only."""

    inbox: str
    generation: int
    records: list[Record]
