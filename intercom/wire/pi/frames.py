"""Frames: four bytes of length, most significant first, and that many bytes of UTF-8 JSON.

Time is linear in the bytes, however they are split. Nothing can be skipped in such a stream,
so the first frame that is none ends the connection; those before it count.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from intercom.errors import ProtocolError
from intercom.wire.pi.printing import js_bytes
from intercom.wire.pi.reading import FrameError, read_json

#: Bytes of JSON in a frame, both ways, without the four of the length.
MAX_FRAME = 1 << 20

_HEADER = 4


class FrameTooLarge(ProtocolError):
    """A frame for a client is over the limit; ``text`` is the reason to give to the sender."""

    code = "LINE_TOO_LONG"


class FrameCutter:
    """Cut what a connection sends into frames, each read as the JSON object that it holds.

    Keeps at most one unfinished frame and the chunk at hand, as long as frames are taken.
    """

    def __init__(self, limit: int = MAX_FRAME) -> None:
        self._limit = limit
        self._begun = bytearray()
        self._at = 0
        self._error: FrameError | None = None

    @property
    def pending(self) -> int:
        """Bytes that are kept: of an unfinished frame, and of frames that were not yet taken."""
        return len(self._begun) - self._at

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes of the stream, at once, and give the frames that are complete.

        Each frame is read when it is asked for. Whoever stops asking loses nothing: the next
        call's frames begin with those that were not yet taken.

        :param data: any number of bytes, cut anywhere.
        :return: objects with a string ``type``, in order.
        :raise FrameError: by the iterator, behind the last good frame; and again by each later
            one, since nothing behind a bad frame can be read.
        """
        if self._error is None:
            del self._begun[: self._at]
            self._at = 0
            self._begun += data
        return self._frames()

    def _frames(self) -> Iterator[dict[str, Any]]:
        while (frame := self._next()) is not None:
            yield frame

    def _next(self) -> dict[str, Any] | None:
        if self._error is not None:
            raise self._error
        try:
            body = self._cut()
            return None if body is None else read_object(body)
        except FrameError as error:
            self._error = error
            self._begun = bytearray()
            self._at = 0
            raise

    def _cut(self) -> bytes | None:
        """The bytes of the next frame, None until all of them are there."""
        start = self._at + _HEADER
        if len(self._begun) < start:
            return None
        length = int.from_bytes(self._begun[self._at : start])
        if not 1 <= length <= self._limit:
            text = f"a frame has 1 to {self._limit} bytes, not {length}"
            raise FrameError(text, code="LINE_TOO_LONG", details={"limit": self._limit})
        if len(self._begun) < start + length:
            return None
        self._at = start + length
        return bytes(self._begun[start : self._at])


def read_object(body: bytes) -> dict[str, Any]:
    """Read the JSON of one frame: an object with a string ``type``.

    Numbers are read as JavaScript reads them: a larger integer becomes a double, and what no
    double holds becomes None, since that is how it would be passed on. The last of several
    equal keys counts.

    :raise FrameError: ``BAD_JSON``, or ``BAD_ENVELOPE`` where the JSON is good.
    """
    frame = read_json(body)
    if not isinstance(frame, dict) or not isinstance(frame.get("type"), str):
        raise FrameError("a frame is an object with a string type", code="BAD_ENVELOPE")
    return frame


def dump_frame(frame: dict[str, Any]) -> bytes:
    """Write a frame, length first, its JSON as ``JSON.stringify`` prints it.

    :raise FrameTooLarge: the JSON has over :data:`MAX_FRAME` bytes.
    """
    body = js_bytes(frame)
    if len(body) > MAX_FRAME:
        raise FrameTooLarge(
            f"Intercom message too large ({len(body)} bytes; max {MAX_FRAME})",
            details={"limit": MAX_FRAME},
        )
    return len(body).to_bytes(_HEADER) + body
