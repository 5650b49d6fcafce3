"""What a hub that starts learns from the channel's history: spent ids, and known inboxes' ends.

Blocking, for the hub's writer thread.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Position, Remembered
from intercom.spool.book import Book
from intercom.spool.calls import FileCalls
from intercom.spool.recent import RecentIds, Seen, key_of
from intercom.wire.envelope import identify

#: Messages read in any case, whatever the clocks say; more only as long as they are within
#: the time in which a repetition is to be recognised, in seconds.
LINES = 20_000
WINDOW = 600.0
MOST = 100_000

_MESSAGE = b',"to":[['


class Past(NamedTuple):
    """What the history tells.

    :ivar remembered: the last messages, the oldest first; read as they are asked for. One
        that reached its inboxes at different times occurs once for each.
    :ivar ends: the byte up to which each inbox that occurs is in the history.
    :ivar messages: how many the current file holds.
    """

    remembered: Iterator[Remembered]
    ends: dict[str, Position]
    messages: int


class _Line(msgspec.Struct, gc=False):
    """A line about a message; others lack some of it."""

    at: float
    id: str = ""
    sender: str = msgspec.field(name="from", default="")
    digest: str = ""
    to: list[tuple[str, int, int, int]] = []
    waiting: list[str] = []


_decode = msgspec.json.Decoder(_Line).decode


def read_past(
    paths: ChannelPaths, calls: FileCalls, now: float, boot: str, recent: RecentIds
) -> Past:
    """Read the history's end. What is unreadable in it is passed over.

    Of another boot than this one, only what the inboxes bear out is believed: history is
    not synced with each message, and may have come through a power cut that they have not.

    :param now: epoch seconds.
    :param recent: takes the messages' places.
    """
    young = _content(paths.file("history.ndjson"), calls)
    messages = young.count(_MESSAGE)
    witness = None if _boot(young) == boot else Witness(paths, calls)
    tail, count = _tail(young, now, 0)
    tails = [tail]
    if len(tail) == len(young):
        tails.insert(0, _tail(_content(paths.file("history.1.ndjson"), calls), now, count)[0])
    del young
    ends: dict[str, Position] = {}
    for line in _lines(tails):
        digest = bytes.fromhex(line.digest)
        for inbox, generation, start, end in line.to:
            if witness is not None and not witness.bears_out(line, inbox, generation, start, end):
                continue
            key = key_of(inbox, line.sender, line.id)
            if recent.get(key) is None:
                recent.add({key: Seen(digest, generation, start, end)})
            ends[inbox] = max(ends.get(inbox, Position(0, 0)), Position(generation, end))
    return Past(_remembered(tails, now), ends, messages)


def _remembered(tails: Iterable[bytes], now: float) -> Iterator[Remembered]:
    for line in _lines(tails):
        age = max(0.0, now - line.at)
        if age < WINDOW:
            inboxes = tuple(dict.fromkeys([*(place[0] for place in line.to), *line.waiting]))
            yield Remembered(line.sender, line.id, bytes.fromhex(line.digest), inboxes, age)


def _tail(data: bytes, now: float, count: int) -> tuple[bytes, int]:
    """The end of a file that is to be read, and how many messages there are with it.

    :param count: how many younger files hold.
    """
    start = data.rfind(b"\n") + 1  # what stands behind it is not a line
    end = start
    while start:
        before = data.rfind(b"\n", 0, start - 1) + 1
        if data.find(_MESSAGE, before, start) >= 0:
            if count >= LINES and (count >= MOST or now - _at(data, before) > WINDOW):
                break
            count += 1
        start = before
    return data[start:end], count


def _at(data: bytes, start: int) -> float:
    """When a line was written; one that does not say is old."""
    try:
        return float(data[start + len(b'{"at":') : data.index(b",", start)])
    except ValueError:
        return 0.0


def _lines(tails: Iterable[bytes]) -> Iterator[_Line]:
    """The lines about stored messages, the oldest first."""
    for data in tails:
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            piece, start = data[start:end], end + 1
            if _MESSAGE in piece:
                with contextlib.suppress(msgspec.MsgspecError, ValueError):
                    line = _decode(piece)
                    bytes.fromhex(line.digest)
                    yield line


class Witness:
    """What the inboxes say to what the history says."""

    def __init__(self, paths: ChannelPaths, calls: FileCalls) -> None:
        self._paths = paths
        self._calls = calls
        self._generations: dict[str, int] = {}

    def bears_out(self, line: _Line, inbox: str, generation: int, start: int, end: int) -> bool:
        """Whether the message stands there, or was read there and taken out since."""
        try:
            if inbox not in self._generations:
                book = Book(self._paths, inbox, self._calls)
                self._generations[inbox] = book.noted_generation()
            if generation < self._generations[inbox]:
                return True  # only what is read is taken out, and that is synced at every step
            fd = self._calls.open(self._paths.inbox(inbox), os.O_RDONLY)
        except (OSError, UnsafePlace):
            return False
        try:
            data = self._calls.pread(fd, end - max(0, start - 1), max(0, start - 1))
            if start:
                if data[:1] != b"\n":
                    return False  # what stands before it was lost, and swallows it
                data = data[1:]
            found = identify(data[:-1]) if data[-1:] == b"\n" else None
            return found is not None and found[:2] == (line.sender, line.id)
        finally:
            self._calls.close(fd)


def _boot(young: bytes) -> str | None:
    """Under which boot the history was last written, None if it does not say."""
    at = young.rfind(b',"boot":')
    end = young.find(b"\n", at)
    with contextlib.suppress(msgspec.MsgspecError, ValueError, TypeError):
        if at >= 0:
            start = young.rfind(b"\n", 0, at) + 1
            return str(msgspec.json.decode(young[start:end])["boot"])
    return None


def _content(path: str, calls: FileCalls) -> bytes:
    """All of a file, nothing if there is none that can be read."""
    try:
        fd = calls.open(path, os.O_RDONLY)
    except (OSError, UnsafePlace):
        return b""
    try:
        return calls.pread(fd, calls.fstat(fd).st_size, 0)
    except OSError:
        return b""
    finally:
        calls.close(fd)
