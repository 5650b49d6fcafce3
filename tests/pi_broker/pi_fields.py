"""Words for what the fields of a frame may be, from which the strict clients make their checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Frame = dict[str, Any]
Check = Callable[[Any], bool]


class Rejected(AssertionError):
    """The hub said what makes the public client drop its connection."""


def string(value: Any) -> bool:
    return isinstance(value, str)


def boolean(value: Any) -> bool:
    return isinstance(value, bool)


def number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def one_of(*words: str) -> Check:
    return lambda value: value in words


def each(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """An object with these fields; others are not looked at."""

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and all(name in value and good(value[name]) for name, good in required.items())
            and all(good(value[name]) for name, good in (optional or {}).items() if name in value)
        )

    return check
