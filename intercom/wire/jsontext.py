"""JSON as our lines may hold it: the standard library's reading, made exact and strict.

RFC 8259 and no more: no ``NaN``, no byte order mark, no half of a surrogate pair, no
nesting or integers on which some reader's parser gives up, no key of the outer object
twice. All of it takes time linear in the length of the text, whatever is in it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from json import JSONDecodeError as JSONDecodeError

from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire.plaintext import MAX_DEPTH as MAX_DEPTH
from intercom.wire.plaintext import MAX_DIGITS as MAX_DIGITS
from intercom.wire.plaintext import TOO_DEEP
from intercom.wire.plaintext import is_too_deep as is_too_deep
from intercom.wire.plaintext import may_hold_long_number as may_hold_long_number

if TYPE_CHECKING:
    from typing import Any

_BLANKS = (" ", "\t", "\n", "\r")
_space = re.compile(r"[ \t\n\r]*").match
_plain_key = re.compile(r'"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match

# Patterns of what goes wrong rarely: compiled where they are needed, since commands pay
# for their start. A string is passed over as a whole; an unfinished one runs to the end
# of the text, so that no pattern ever backs up and tries again from the next quote.
_STRING = r'(?s:"[^"\\]*+(?:\\.?+[^"\\]*+)*+(?:"|\Z))|'
_OPENING = _STRING + r"(?P<open>[\[{])|(?P<close>[\]}])"
_NUMBER = _STRING + r"(?P<number>-?\d[\d.eE+-]*+)"
_CONSTANT = _STRING + r"(?P<constant>-?Infinity|NaN)"
_SURROGATE = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>\\u[dD][89a-fA-F])"
)


class Member(NamedTuple):
    """One member of the outer object and where its text stands.

    :ivar at: where the key begins; ``start`` and ``end``: the value, in characters.
    """

    key: str
    value: Any
    at: int
    start: int
    end: int


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_strict = json.JSONDecoder(parse_constant=_refuse_constant)
_lenient = json.JSONDecoder()


def read_object(line: bytes, text: str) -> dict[str, Member]:
    """Read a text as the one JSON object that it must be.

    :param line: the bytes that the text was decoded from.
    :return: the object's members by key, in their order.
    :raise json.JSONDecodeError: it is something else; always this, with the place.
    """
    check_text(line, text)
    found: dict[str, Member] = {}
    try:
        for member in members(text, _strict):
            if member.key in found:
                said = f"the key {member.key[:64]!r} stands there twice"
                raise json.JSONDecodeError(said, text, member.at)
            found[member.key] = member
    except json.JSONDecodeError:
        raise
    except ValueError as error:
        # The parser does not say where it met NaN or Infinity.
        at = next((m.start() for m in re.finditer(_CONSTANT, text) if m["constant"]), 0)
        raise json.JSONDecodeError(str(error), text, at) from None
    return found


def check_text(line: bytes, text: str) -> None:
    """Refuse what the JSON parser takes and we do not.

    :raise json.JSONDecodeError: with the place.
    """
    if text.startswith("\ufeff"):
        raise json.JSONDecodeError("it begins with a byte order mark", text, 0)
    if "\0" in text[:4]:
        raise json.JSONDecodeError(
            "NUL bytes at the beginning, as in UTF-16; UTF-8 was expected", text, 0
        )
    if is_too_deep(line):
        raise json.JSONDecodeError(TOO_DEEP, text, _place_of_depth(text))
    if may_hold_long_number(line):
        for match in re.finditer(_NUMBER, text):
            digits = (match["number"] or "").lstrip("-")
            if len(digits) > MAX_DIGITS and digits.isdigit():
                said = f"an integer has over {MAX_DIGITS} digits"
                raise json.JSONDecodeError(said, text, match.start())
    if "\\ud" in text or "\\uD" in text:
        # An escaped backslash in front of a "u" is no escape; hide these, keeping places.
        for match in re.finditer(_SURROGATE, text.replace("\\\\", "__")):
            if match["lone"]:
                said = "a string holds half of a surrogate pair"
                raise json.JSONDecodeError(said, text, match.start())


def _place_of_depth(text: str) -> int:
    """Where the first container begins that lies too deep."""
    depth = 0
    for match in re.finditer(_OPENING, text):
        if match["open"]:
            depth += 1
        elif match["close"]:
            depth -= 1
        if depth > MAX_DEPTH:
            return match.start()
    return len(text)


def members(text: str, decoder: json.JSONDecoder = _lenient) -> Iterator[Member]:
    """Go through the outer object's members in their order, with each value's place.

    As it is, takes what Python's parser takes, duplicate keys and ``NaN`` too.

    :raise ValueError: not an object, or not JSON; after the members before the fault.
    :raise RecursionError: nested deeper than Python reads.
    """
    at = _skip(text, 0, "{", "an object was expected")
    more = not text.startswith("}", at)
    while more:
        plain = _plain_key(text, at)
        key, start = (plain[1], plain.end()) if plain else _odd_key(text, at, decoder)
        value, end = decoder.raw_decode(text, start)
        yield Member(key, value, at, start, end)
        at = _skip(text, end)
        more = not text.startswith("}", at)
        if more:
            at = _skip(text, at, ",", "a comma or the object's end was expected")
    at = _skip(text, at + 1)
    if at != len(text):
        raise json.JSONDecodeError("something follows the object", text, at)


def _odd_key(text: str, at: int, decoder: json.JSONDecoder) -> tuple[str, int]:
    """A key that is written with escapes, or is none; and where its value begins."""
    if not text.startswith('"', at):
        raise json.JSONDecodeError("a key in double quotes was expected", text, at)
    key, at = decoder.raw_decode(text, at)
    return key, _skip(text, at, ":", "a colon was expected")


def _skip(text: str, at: int, mark: str = "", otherwise: str = "") -> int:
    """The place behind ``mark`` and all white space on both sides of it."""
    if text.startswith(_BLANKS, at):
        at = _behind_space(text, at)
    if not mark:
        return at
    if not text.startswith(mark, at):
        raise json.JSONDecodeError(otherwise, text, at)
    at += 1
    return _behind_space(text, at) if text.startswith(_BLANKS, at) else at


def _behind_space(text: str, at: int) -> int:
    found = _space(text, at)
    return found.end() if found else at
