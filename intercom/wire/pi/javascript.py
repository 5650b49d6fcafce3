"""What JavaScript would do: JSON as ``JSON.stringify`` prints it, ``String``, ``trim``.

The clients of the pi dialect are JavaScript programs, and some of what they agree on is said
in its terms: a size limit or a hash over a value "as JSON.stringify prints it", a text that
is blank after ``trim``. Values are those of :mod:`json`: dict, list, str, int, float, bool, None.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from json.encoder import encode_basestring
from math import isfinite
from typing import Any

#: The largest integer of which JavaScript knows the neighbours (``Number.MAX_SAFE_INTEGER``).
MAX_SAFE_INTEGER = 2**53 - 1
#: Array indices end before this; keys that are such indices come first in every object.
_INDEX_END = 2**32 - 1
_INDEX_DIGITS = 10
#: Numbers of up to so many digits before the point are written without an exponent.
_PLAIN_DIGITS = 21
#: The smallest numbers that are written without an exponent have so many zeros.
_PLAIN_ZEROS = 6

#: What ``trim`` takes off; Python's ``strip`` takes four control characters more and no U+FEFF.
_SPACES = (
    "\t\n\v\f\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def js_json(value: Any) -> str:
    r"""Print a value as ``JSON.stringify`` does, in time linear in its size.

    Keys keep their order, but those that are array indices come first, by number. Numbers are
    doubles: a larger integer is rounded, what is not finite is ``null``. Characters beyond
    ASCII stay as they are; half of a surrogate pair is written as ``\udXXX``.

    :raise TypeError: a value that JSON does not have.
    """
    parts: list[str] = []
    _write(value, parts.append)
    text = "".join(parts)
    try:
        text.encode()
    except UnicodeEncodeError:
        # Two halves that meet are one character to JavaScript.
        joined = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
        return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", joined)
    return text


def js_string(value: Any) -> str:
    """A value as ``String(value)`` says it."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "[object Object]"
    if isinstance(value, list | tuple):
        return ",".join("" if item is None else js_string(item) for item in value)
    return js_json(value)


def trimmed(text: str) -> str:
    """A text without the white space at both ends, as ``trim`` takes it off."""
    return text.strip(_SPACES)


def _write(value: Any, put: Callable[[str], None]) -> None:
    if isinstance(value, str):
        put(encode_basestring(value))
    elif value is None:
        put("null")
    elif isinstance(value, bool):
        put("true" if value else "false")
    elif isinstance(value, int | float):
        put(_number(value))
    elif isinstance(value, dict):
        comma = "{"
        for key in _ordered(value):
            put(comma + encode_basestring(key) + ":")
            _write(value[key], put)
            comma = ","
        put("}" if value else "{}")
    elif isinstance(value, list | tuple):
        comma = "["
        for item in value:
            put(comma)
            _write(item, put)
            comma = ","
        put("]" if value else "[]")
    else:
        raise TypeError(f"{type(value).__name__} is no JSON")


def _ordered(value: dict[str, Any]) -> Iterable[str]:
    """The keys of an object in the order in which JavaScript goes through them."""
    indices = [key for key in value if key[:1].isdecimal() and _is_index(key)]
    if not indices:
        return value
    first = dict.fromkeys(sorted(indices, key=int))
    return first | value


def _is_index(key: str) -> bool:
    """Whether a key is an array index, written as JavaScript writes it."""
    if not (key.isascii() and key.isdecimal() and len(key) <= _INDEX_DIGITS):
        return False
    return (key == "0" or key[0] != "0") and int(key) < _INDEX_END


def _number(value: float) -> str:
    """A number as JavaScript writes it: the shortest digits that read back as the same double."""
    if isinstance(value, int):
        if abs(value) <= MAX_SAFE_INTEGER:
            return str(int(value))
        try:
            value = float(value)
        except OverflowError:
            return "null"
    if not isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign = "-" if value < 0 else ""
    digits, point = _digits(abs(value))
    return sign + _laid_out(digits, point)


def _digits(value: float) -> tuple[str, int]:
    """The shortest digits of a positive double, and before which of them the point stands."""
    # Python finds the same digits as JavaScript, and only sets them differently.
    mantissa, _, exponent = repr(value).partition("e")
    whole, _, fraction = mantissa.partition(".")
    point = len(whole) + int(exponent or 0)
    digits = whole + fraction
    stripped = digits.lstrip("0")
    return stripped.rstrip("0"), point - (len(digits) - len(stripped))


def _laid_out(digits: str, point: int) -> str:
    """Digits and their point in the form that ECMAScript's Number::toString gives them."""
    if len(digits) <= point <= _PLAIN_DIGITS:
        return digits.ljust(point, "0")
    if 0 < point <= _PLAIN_DIGITS:
        return f"{digits[:point]}.{digits[point:]}"
    if -_PLAIN_ZEROS < point <= 0:
        return f"0.{'0' * -point}{digits}"
    fraction = f".{digits[1:]}" if len(digits) > 1 else ""
    return f"{digits[0]}{fraction}e{point - 1:+d}"
