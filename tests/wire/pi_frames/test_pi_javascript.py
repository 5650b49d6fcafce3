"""Values as JavaScript prints them; the vectors follow ECMA-262, and none comes from our code."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire.pi.javascript import js_json, js_string, trimmed
from intercom.wire.pi.printing import js_bytes, js_size, js_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (7, "7"),
        (-7, "-7"),
        (5.0, "5"),
        (-5.0, "-5"),
        (0.1, "0.1"),
        (-0.5, "-0.5"),
        (12.5, "12.5"),
        (1 / 3, "0.3333333333333333"),
        (1795982932418, "1795982932418"),
        (1795982932418.0, "1795982932418"),
        (1795982932418.25, "1795982932418.25"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (-(2**53) - 1, "-9007199254740992"),
        (2**53 + 2, "9007199254740994"),
        (1e15, "1000000000000000"),
        (1e16, "10000000000000000"),
        (123456789012345680000, "123456789012345680000"),
        (123456789012345678901, "123456789012345680000"),
        (1e20, "100000000000000000000"),
        (999999999999999900000.0, "999999999999999900000"),
        (1e21, "1e+21"),
        (10**21, "1e+21"),
        (1.5e21, "1.5e+21"),
        (-1.25e300, "-1.25e+300"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (0.001, "0.001"),
        (0.00001, "0.00001"),
        (0.000001, "0.000001"),
        (0.0000012, "0.0000012"),
        (1e-7, "1e-7"),
        (1.2e-7, "1.2e-7"),
        (-1e-10, "-1e-10"),
        (2.2250738585072014e-308, "2.2250738585072014e-308"),
        (5e-324, "5e-324"),
        (math.inf, "null"),
        (-math.inf, "null"),
        (math.nan, "null"),
        (10**400, "null"),
    ],
)
def test_numbers(value: float, text: str) -> None:
    assert js_json(value) == js_text(value) == text
    assert js_json({"k": [value]}) == js_text({"k": [value]})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", '""'),
        ('a"b\\c/d', '"a\\"b\\\\c/d"'),
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ("\0\x01\x0b\x1f", '"\\u0000\\u0001\\u000b\\u001f"'),
        ("\x7f\x80\u2028\u2029\ufeff", '"\x7f\x80\u2028\u2029\ufeff"'),
        ("é🙂", '"é🙂"'),
        ("\ud800", '"\\ud800"'),
        ("a\udfffb", '"a\\udfffb"'),
        ("\udc00\ud800", '"\\udc00\\ud800"'),
        ("\ud83d\ude42", '"🙂"'),
        ("\ud83d\ud83d\ude42", '"\\ud83d🙂"'),
    ],
)
def test_strings(value: str, text: str) -> None:
    assert js_json(value) == js_text(value) == text
    assert js_json({"k": [value]}) == js_text({"k": [value]})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        ({}, "{}"),
        ([], "[]"),
        ((1, "a"), '[1,"a"]'),
        ([[], {}, [None]], "[[],{},[null]]"),
        ({"b": 1, "a": {"z": [], "y": 2.0}}, '{"b":1,"a":{"z":[],"y":2}}'),
        ({"b": 1, "10": 2, "9": 3, "0": 4}, '{"0":4,"9":3,"10":2,"b":1}'),
        (
            {"01": 1, "-1": 2, "1.5": 3, "4294967295": 4, "4294967294": 5, "": 6, "٣": 7},
            '{"4294967294":5,"01":1,"-1":2,"1.5":3,"4294967295":4,"":6,"٣":7}',
        ),
        ({"__proto__": 1, 'k"': "\ud800"}, '{"__proto__":1,"k\\"":"\\ud800"}'),
    ],
)
def test_containers(value: Any, text: str) -> None:
    assert js_json(value) == js_text(value) == text
    assert js_json({"k": [value]}) == js_text({"k": [value]})


def test_what_is_no_json_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError, match="bytes"):
        js_json({"a": [b""]})
    with pytest.raises(TypeError):
        js_bytes({"a": [b""]})


def test_every_character_is_printed_alike() -> None:
    for begin in range(0, 0x110000, 0x100):
        codes = range(begin, begin + 0x100)
        value = {chr(code): f"{chr(code)}, " for code in codes}
        assert js_bytes(value) == js_json(value).encode()


def test_sizes_are_bytes_of_utf_8() -> None:
    assert js_size({"é": "🙂", "n": 1.0}) == len('{"é":"🙂","n":1}'.encode())


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def as_doubles(value: Any) -> Any:
    """A value as JavaScript has it: every number a double, what is beyond them null."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    if isinstance(value, list):
        return [as_doubles(item) for item in value]
    return {key: as_doubles(item) for key, item in value.items()}


@given(VALUES)
def test_what_is_printed_reads_back_as_the_same(value: Any) -> None:
    assert as_doubles(json.loads(js_json(value))) == as_doubles(value)
    assert js_bytes(value) == js_json(value).encode()


@given(st.integers(0, 2**64 - 1))
def test_every_double_is_printed_with_digits_that_read_back_and_in_one_form(bits: int) -> None:
    (value,) = struct.unpack("d", struct.pack("Q", bits))
    text = js_json(value)
    assert js_text(value) == text
    if not math.isfinite(value):
        assert text == "null"
        return
    assert float(text) == value
    mantissa, e, exponent = text.lstrip("-").partition("e")
    if e:
        assert exponent[0] in "+-"
        assert not -7 < int(exponent) < 21
        assert mantissa[0] != "0"
        assert mantissa[1:2] in ("", ".")
    assert not text.endswith((".", ".0"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("x", "x"),
        (None, "null"),
        (True, "true"),
        (1e21, "1e+21"),
        ({"a": 1}, "[object Object]"),
        ([], ""),
        ([1, [None, "a"], {}, False], "1,,a,[object Object],false"),
    ],
)
def test_string_of_a_value(value: Any, text: str) -> None:
    assert js_string(value) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (" \t\n\v\f\r\xa0\ufeff\u2003\u2028\u3000x y\u2029\u202f\u205f\u1680 ", "x y"),
        ("\x1cx\x85", "\x1cx\x85"),
        ("\u200bx\u180e", "\u200bx\u180e"),
        ("\ufeff", ""),
    ],
)
def test_trimming_takes_the_white_space_of_javascript(text: str, left: str) -> None:
    assert trimmed(text) == left
