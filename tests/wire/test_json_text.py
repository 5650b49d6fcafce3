"""The strict reading of JSON: exact places, exact depth, no input that takes long."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire.jsontext import (
    MAX_DEPTH,
    MAX_DIGITS,
    is_too_deep,
    may_hold_long_number,
    members,
    read_object,
)

TEXTS = st.text(
    st.sampled_from('[]{}"\\,:aé🙂\n') | st.characters(exclude_categories=["Cs"]), max_size=8
)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=6)


def read(text: str) -> dict[str, Any]:
    return {key: member.value for key, member in read_object(text.encode(), text).items()}


def outcome(text: str) -> tuple[int | None, Any]:
    """The place of the fault, or what was read; any other exception comes through."""
    try:
        return None, read(text)
    except json.JSONDecodeError as error:
        return error.pos, None


def refusal(text: str) -> json.JSONDecodeError:
    with pytest.raises(json.JSONDecodeError) as caught:
        read(text)
    return caught.value


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth, value), default=0)
    return 0


def nested(levels: int, core: Any = 1) -> Any:
    """A value that many containers deep, of both kinds."""
    for level in range(levels):
        core = [core] if level % 2 else {'"[{\\': core}
    return core


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_every_object_is_read_as_the_standard_library_reads_it(
    value: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = f" \t{json.dumps(value, ensure_ascii=ascii_only, indent=indent)}\r "
    assert read(text) == value


@given(OBJECTS, st.booleans(), st.sampled_from([None, 1]))
def test_each_member_knows_where_it_stands(
    value: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    for member in members(text):
        assert json.loads(text[member.start : member.end]) == value[member.key]
        assert json.loads("{" + text[member.at : member.end] + "}") == {member.key: member.value}


@given(st.binary(max_size=40) | st.text(st.sampled_from('{}[]",:\\ u0d8na1-.e'), max_size=40))
def test_what_is_refused_is_refused_with_its_place_and_never_otherwise(data: bytes | str) -> None:
    text = data if isinstance(data, str) else data.decode("utf-8", "replace")
    place, value = outcome(text)
    if place is None:
        assert json.loads(text) == value
    else:
        assert 0 <= place <= len(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"é":1,"b":NaN}', 11),
        ('{"a":"NaN","b":-Infinity}', 15),
        ('{"a":1,"é":2,"a":3}', 13),
        ('{"a":"\\\\ud800","b":"\\ud800"}', 20),
        ('{"a":"\\ud83d\\ude00\\udE00"}', 18),
        ('{"a":' + "[" * 70, 68),
        ('{"a":"[[[","b":' + "[" * 70, 78),
        ('{"a":[1,' + "2" * (MAX_DIGITS + 1) + "]}", 8),
        ('{"a":"' + "2" * 9000 + '","b":-' + "2" * 9000 + "}", 9012),
        ("", 0),
        (" 5", 1),
        ('{"a":1} x', 8),
        ("\ufeff{}", 0),
    ],
)
def test_the_place_of_the_fault_is_named(text: str, place: int) -> None:
    assert refusal(text).pos == place


def test_a_long_number_that_is_no_integer_is_read() -> None:
    fraction = "0." + "3" * 9000
    assert read('{"a":' + fraction + ',"b":"' + "7" * 9000 + '"}')["a"] == float(fraction)


def test_an_integer_of_the_most_digits_is_read() -> None:
    assert read('{"a":-' + "7" * MAX_DIGITS + "}") == {"a": -int("7" * MAX_DIGITS)}


@pytest.mark.parametrize("before", [0, 1, 2149, 2150, 4299, 5000])
def test_a_long_run_of_digits_is_seen_wherever_it_stands(before: int) -> None:
    assert may_hold_long_number(b"x" * before + b"1" * (MAX_DIGITS + 1) + b"x" * 3000)
    assert not may_hold_long_number(b"1" * 2149 + b"x" + b"1" * 2149 + b"x" * 3000)


@pytest.mark.parametrize(("levels", "deep"), [(MAX_DEPTH, False), (MAX_DEPTH + 1, True)])
@pytest.mark.parametrize("core", [1, "]]]]", {"text": '"}}]\\'}])
def test_the_deepest_allowed_is_allowed_and_one_more_is_not(
    levels: int, deep: bool, core: Any
) -> None:
    value = nested(levels - depth(core), core)
    assert depth(value) == levels
    assert is_too_deep(json.dumps(value).encode()) is deep


@given(VALUES, st.integers(50, 75), st.booleans())
def test_depth_is_exact_whatever_stands_in_strings(value: Any, levels: int, around: bool) -> None:
    value = nested(levels, value) if around else [nested(levels), value]
    line = json.dumps(value, ensure_ascii=False).encode()
    assert is_too_deep(line) is (depth(value) > MAX_DEPTH)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        '{"a":' * 200_000,
        "{" + '"' * 200_000,
        '{"a":"' + '\\"' * 200_000,
        '{"a":"' + '\\"' * 200_000 + "\\",
        '{"a":' + '[[["\\"' * 100_000,
        '{"a":' + "[[[" * 30 + '"' + '\\"' * 300_000 + "\\",
        '{"a":NaN,"b":"' + '\\"' * 200_000,
        '{"' + "a" * 300_000,
        '{"' + "a" * 300_000 + "\\",
        '{"a"' + " " * 300_000,
        '{"a":1' + " " * 300_000,
        '{"a":' + "1" * 300_000 + ".}",
        '{"a":' + "1" * 300_000 + "}",
        '{"a":[' + ("1" * 4300 + ",") * 60,
        '{"a":"' + "\\ud83d\\ude00" * 50_000 + "\\ud83d",
        '{"a":[' + "[]," * 100_000,
    ],
    ids=lambda text: f"{text[:12]}..{len(text)}",
)
def test_no_broken_text_takes_long_or_overflows_the_stack(text: str) -> None:
    """Each of these keeps a parser that backs up, or recurses, busy for minutes, or kills it."""
    refusal(text)
