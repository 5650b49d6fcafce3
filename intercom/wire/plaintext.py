"""What can be said of a line of JSON at a glance. Nearly all lines need no closer look.

Commands that must start fast read with this; :mod:`intercom.wire.jsontext`, which needs
``re``, is loaded only for lines that are odd, and says what is wrong with them.
"""

from __future__ import annotations

from intercom.plainjson import Reader
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

#: How deep containers may be nested, the outermost included.
MAX_DEPTH = 64
#: Digits of an integer that every Python still reads without being asked to.
MAX_DIGITS = 4300

TOO_DEEP = f"containers are nested over {MAX_DEPTH} deep"

_BLOCK = MAX_DIGITS // 2
#: Brackets become round ones, quotes stay, everything else goes.
_TO_SKELETON = bytes.maketrans(b"[]{}", b"()()")
_NO_SKELETON = bytes(sorted(set(range(256)) - set(b'[]{}"')))
_OPEN = ord("(")


def is_too_deep(line: bytes) -> bool:
    """Whether containers nest over :data:`MAX_DEPTH`; exact if the line is valid JSON.

    If it is not, exact up to its first error, so that a parser may be let loose on it.
    """
    if line.count(b"[") + line.count(b"{") <= MAX_DEPTH:
        return False
    unescaped = line.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = unescaped.translate(_TO_SKELETON, _NO_SKELETON)
    depth = 0
    for mark in b"".join(marks.split(b'"')[::2]):
        if mark != _OPEN:
            depth -= 1
        elif depth == MAX_DEPTH:
            return True
        else:
            depth += 1
    return False


def may_hold_long_number(line: bytes) -> bool:
    """Whether over :data:`MAX_DIGITS` digits may stand in a row; no false no.

    So many digits fill at least one whole block of half as many.
    """
    if len(line) <= MAX_DIGITS:
        return False
    return any(line[at : at + _BLOCK].isdigit() for at in range(0, len(line), _BLOCK))


def is_plain(line: bytes, text: str) -> bool:
    """Whether ``jsontext.check_text`` has surely nothing to refuse; no false yes.

    :param line: the bytes that the text was decoded from, or is encoded to.
    """
    return not (
        text.startswith("\ufeff")
        or "\0" in text[:4]
        or "\\ud" in text
        or "\\uD" in text
        or is_too_deep(line)
        or may_hold_long_number(line)
    )


class _Odd(ValueError):
    """Something that deserves a closer look."""


def _refuse_constant(name: str) -> None:
    raise _Odd(name)


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object, if no key stands in it twice."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise _Odd("a key stands twice")
    return made


_read = Reader(pairs=_distinct, constant=_refuse_constant)


def read_plain(line: bytes, text: str) -> dict[str, Any] | None:
    """Read a text as the one JSON object that it must be.

    :return: its members; None where ``jsontext.read_object`` has to take a closer look.
    """
    if not is_plain(line, text):
        return None
    try:
        found = _read(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
