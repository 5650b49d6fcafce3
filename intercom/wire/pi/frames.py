"""Frames: four bytes of length, most significant first, and that many bytes of UTF-8 JSON.

Time is linear in the bytes, however they are split. Nothing can be skipped in such a stream,
so the first frame that is none ends the connection; those before it count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from typing import Any

from intercom.errors import ProtocolError
from intercom.wire.pi.javascript import js_json

#: Bytes of JSON in a frame, both ways, without the four of the length.
MAX_FRAME = 1 << 20
#: How deep containers may be nested in a frame, the outermost included.
MAX_DEPTH = 256

_HEADER = 4
#: Integers of up to so many characters are exact as doubles, too.
_EXACT_DIGITS = 15


class FrameError(ProtocolError):
    """What came is no frame of this dialect: the connection is closed, without an answer."""

    code = "BAD_JSON"


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


def read_json(text: bytes) -> Any:
    """Read any JSON as :func:`read_object` does.

    :raise FrameError: ``BAD_JSON``: no UTF-8, no JSON, or nested over :data:`MAX_DEPTH`.
    """
    try:
        value = _decoder.decode(text.decode())
    except RecursionError:
        raise FrameError(_TOO_DEEP) from None
    except ValueError as error:  # bad UTF-8 is one, too
        raise FrameError(f"bad JSON: {error}") from None
    if text.count(b"[") + text.count(b"{") > MAX_DEPTH and is_nested_over(value, MAX_DEPTH):
        raise FrameError(_TOO_DEEP)
    return value


def is_nested_over(value: Any, depth: int) -> bool:
    """Whether containers in a value are nested deeper than that, the value itself included."""
    level = [value]
    for _ in range(depth + 1):
        level = [item for item in level if isinstance(item, dict | list)]
        if not level:
            return False
        level = [
            inner for item in level for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return True


def dump_frame(frame: dict[str, Any]) -> bytes:
    """Write a frame, length first, its JSON as ``JSON.stringify`` prints it.

    :raise FrameTooLarge: the JSON has over :data:`MAX_FRAME` bytes.
    """
    body = js_json(frame).encode()
    if len(body) > MAX_FRAME:
        raise FrameTooLarge(
            f"Intercom message too large ({len(body)} bytes; max {MAX_FRAME})",
            details={"limit": MAX_FRAME},
        )
    return len(body).to_bytes(_HEADER) + body


_TOO_DEEP = f"bad JSON: containers are nested over {MAX_DEPTH} deep"


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _integer(text: str) -> float | None:
    return int(text) if len(text) <= _EXACT_DIGITS else _double(text)


def _double(text: str) -> float | None:
    value = float(text)
    return value if isfinite(value) else None


_decoder = json.JSONDecoder(
    parse_int=_integer,
    parse_float=_double,
    parse_constant=_refuse_constant,
)
