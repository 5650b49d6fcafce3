"""Cutting a stream of bytes into lines, in linear time, whatever the chunks.

Every byte is looked at once, in the chunk that brought it, and copied a fixed
number of times; what is kept of an unfinished line is never looked at again
before its end has come. A line over the limit is reported once and skipped to
its end, so that it costs its sender that line and not the connection.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING
from intercom.wire.envelope import MAX_LINE

if TYPE_CHECKING:
    from collections.abc import Sequence

_LF = b"\n"
_CR = b"\r"


class LineCutter:
    r"""Cut what a connection sends into lines of at most ``limit`` bytes.

    A line ends with ``\n`` or ``\r\n``; neither is part of it nor counts towards
    the limit. Nothing else ends a line: U+2028, form feeds and other carriage
    returns are content. Keeps at most ``limit`` bytes and the chunk at hand.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        # Not a list of chunks: a peer that sends two bytes at a time would make us
        # keep an object of forty for each.
        self._begun = bytearray()
        self._skipping = False

    @property
    def pending(self) -> int:
        """Bytes of an unfinished line that are kept; 0 while an overlong one is skipped."""
        return len(self._begun)

    def feed(self, data: bytes) -> list[bytes | None]:
        """Take the next bytes of the stream.

        :param data: any number of bytes, cut anywhere.
        :return: the lines that ended in ``data``, in order. None stands for a line over
            the limit; it comes once, as soon as the limit is passed.
        """
        first, *rest = data.split(_LF)
        if not rest:
            return self._begin(first)
        begun = rest.pop()
        lines: list[bytes | None] = []
        if self._skipping:
            self._skipping = False
        else:
            lines.append(self._finish(first))
        lines += self._trimmed(rest, data)
        lines += self._begin(begun)
        return lines

    def _begin(self, part: bytes) -> list[bytes | None]:
        """Keep what came of a line whose end has not; one None if it is over the limit."""
        if self._skipping or not part:
            return []
        self._begun += part
        # A carriage return may stand beyond the limit for now: it could belong to the end.
        if len(self._begun) - part.endswith(_CR) <= self._limit:
            return []
        self._begun = bytearray()
        self._skipping = True
        return [None]

    def _finish(self, part: bytes) -> bytes | None:
        """The line that ends with ``part``, None if it is over the limit."""
        if self._begun:
            self._begun += part
            part = bytes(self._begun)
            self._begun = bytearray()
        return self._checked(part)

    def _trimmed(self, lines: list[bytes], data: bytes) -> Sequence[bytes | None]:
        """Lines that lie whole in one chunk; as a rule there is nothing to do for them."""
        if len(data) <= self._limit and _CR not in data:
            return lines
        return [self._checked(line) for line in lines]

    def _checked(self, line: bytes) -> bytes | None:
        if line.endswith(_CR):
            line = line[:-1]
        return line if len(line) <= self._limit else None
