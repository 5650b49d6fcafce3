"""What a single field may hold, in the words of the two clients.

A *label* (name, model, directory, status, thread, topic) is not empty and has no control
characters; a *text* may have tabs and line ends as well. Both are rules of pi-subagents only.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any, Literal, TypeGuard

from intercom.wire.pi.javascript import MAX_SAFE_INTEGER

Record = dict[str, Any]
Check = Callable[[Any], bool]
#: Which of the two clients a connection is.
Variant = Literal["intercom", "subagents"]

#: Integers of so many bits are within the range of doubles.
_DOUBLE_BITS = 1023
#: Stands for a character that a client would not take.
REPLACEMENT = "\ufffd"

_UNSAFE_IN_LABEL = re.compile("[\x00-\x1f\x7f-\x9f]")
_UNSAFE_IN_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def is_string(value: Any) -> TypeGuard[str]:
    """Any string, the empty one too."""
    return isinstance(value, str)


def is_boolean(value: Any) -> TypeGuard[bool]:
    """True or false."""
    return isinstance(value, bool)


def is_number(value: Any) -> TypeGuard[float]:
    """A finite number: JSON has no other, and a client that got ``null`` instead would leave."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value.bit_length() <= _DOUBLE_BITS
    return isinstance(value, float) and isfinite(value)


def is_integer(value: Any) -> TypeGuard[float]:
    """A number without fraction; ``5.0`` is one in JavaScript."""
    return is_number(value) and value == int(value)


def is_safe_integer(value: Any) -> TypeGuard[float]:
    """An integer of which JavaScript knows the neighbours."""
    return is_integer(value) and abs(value) <= MAX_SAFE_INTEGER


def is_count(value: Any) -> TypeGuard[float]:
    """An integer from 0."""
    return is_integer(value) and value >= 0


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Any list."""
    return isinstance(value, list)


def is_record(value: Any) -> TypeGuard[Record]:
    """Any object."""
    return isinstance(value, dict)


def is_label(value: Any) -> TypeGuard[str]:
    """A string that is not empty, without control characters."""
    return isinstance(value, str) and bool(value) and not _UNSAFE_IN_LABEL.search(value)


def is_text(value: Any) -> TypeGuard[str]:
    """A string without control characters but tab, line feed and carriage return."""
    return isinstance(value, str) and not _UNSAFE_IN_TEXT.search(value)


def clean_label(text: str) -> str:
    """A string with U+FFFD where a label has no character; an empty one stays empty."""
    return _UNSAFE_IN_LABEL.sub(REPLACEMENT, text)


def clean_text(text: str) -> str:
    """A string with U+FFFD where a text has no character."""
    return _UNSAFE_IN_TEXT.sub(REPLACEMENT, text)


def one_of(*words: str) -> Check:
    """A check for one of these strings."""
    return lambda value: isinstance(value, str) and value in words


def every(check: Check) -> Check:
    """A check for a list of which each item passes."""
    return lambda value: isinstance(value, list) and all(map(check, value))


def holds(record: Record, required: Mapping[str, Check], optional: Mapping[str, Check]) -> bool:
    """Whether the required fields are there and good, and the optional ones good or absent.

    ``null`` is not absent. Other fields are not looked at.
    """
    for name, check in required.items():
        if name not in record or not check(record[name]):
            return False
    for name, value in record.items():  # of those that may be there, few are
        if name in optional and not optional[name](value):
            return False
    return True
