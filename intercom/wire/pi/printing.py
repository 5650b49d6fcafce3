"""Values as JavaScript prints them, quickly: what the hub writes, hashes and measures.

:mod:`intercom.wire.pi.javascript` says what is to be printed, with the standard library alone.
"""

from __future__ import annotations

from typing import Any

import msgspec

from intercom.wire.pi.javascript import MAX_SAFE_INTEGER, js_json


def js_bytes(value: Any) -> bytes:
    """What ``js_json`` prints, in UTF-8.

    :raise TypeError: a value that JSON does not have.
    """
    if _is_plain(value):
        try:
            return _encoder.encode(value)
        except UnicodeEncodeError:
            pass  # half of a surrogate pair
    return js_json(value).encode()


def js_text(value: Any) -> str:
    """The same as a text."""
    return js_bytes(value).decode()


def js_size(value: Any) -> int:
    """How many bytes it has."""
    return len(js_bytes(value))


def _is_plain(value: Any) -> bool:
    """Whether any encoder would print a value so: no fractions, and no keys that may be indices.

    To ask costs a quarter of printing in Python, and a compiled encoder then next to nothing.
    """
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return True
    if kind is int:
        return bool(-MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER)
    if kind is dict:
        for key, item in value.items():
            if "0" <= key < ":" or not (type(item) is str or _is_plain(item)):
                return False
        return True
    return kind is list and all(map(_is_plain, value))


_encoder = msgspec.json.Encoder()
