"""JSON as JavaScript reads it; with the standard library alone."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from intercom.errors import ProtocolError

#: How deep containers may be nested in a frame, the outermost included.
MAX_DEPTH = 256

#: Integers of up to so many characters are exact as doubles, too.
_EXACT_DIGITS = 15


class FrameError(ProtocolError):
    """What came is no frame of this dialect: the connection is closed, without an answer."""

    code = "BAD_JSON"


def read_json(text: bytes) -> Any:
    """Read JSON as JavaScript would.

    A larger integer becomes a double, and what no double holds becomes None, since that is how
    it would be passed on. The last of several equal keys counts.

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
