"""Parts of the standard library that commands take without the rest: they do what those do."""

from __future__ import annotations

import contextlib
import copy
import datetime
import hashlib
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from intercom import hashes, moments, plain, plainjson
from intercom.tuples import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

scalars = some.none() | some.booleans() | some.integers() | some.floats() | some.text()
values = some.recursive(
    scalars,
    lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner),
    max_leaves=10,
)
#: Texts that are JSON, nearly JSON, or none.
TEXTS = [
    "{}", " [1] \r\n\t", "nul", "[1,]", '{"a":1,"a":2}', "NaN", "-Infinity", "[Infinity]", "1e999",
    "", " ", '"x"', "\ufeff{}", "{} x", '{"a"', '"\\ud800"', '"\x01"', "[" * 5000, "1" * 5000,
    b"\xff", b'{"\xc3\xa9":1}', '"é"'.encode("utf-16"), b"", b"\xef\xbb\xbf{}",
]  # fmt: skip


def told(read: Any, text: Any) -> Any:
    """What comes of a reading: a value, or an error."""
    try:
        return repr(read(text))
    except (ValueError, RecursionError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("text", TEXTS)
def test_json_is_read_as_ever(text: str | bytes) -> None:
    assert told(plainjson.loads, text) == told(json.loads, text)


def test_what_is_no_json_is_told_where_json_is_not_loaded() -> None:
    """The compiled scanner cannot raise its own error then."""
    code = (
        "import sys\nfrom intercom import plainjson\nassert 'json' not in sys.modules\n"
        'try: plainjson.loads(\'{"a":"\')\n'
        "except ValueError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.stdout.startswith("JSONDecodeError Unterminated string"), done.stderr


@given(values)
def test_json_is_written_as_ever(value: Any) -> None:
    for options in ({}, {"ensure_ascii": False, "separators": (",", ":")}, {"indent": 1}):
        assert plainjson.dumps(value, **options) == json.dumps(value, **options)
    assert told(plainjson.loads, json.dumps(value)) == told(json.loads, json.dumps(value))


@pytest.mark.parametrize("value", [math.nan, [math.inf], {1: object()}, {(): 1}, "\ud800", (1, 2)])
def test_what_json_refuses_is_refused(value: Any) -> None:
    def outcome(write: Any) -> Any:
        try:
            return write(value, allow_nan=False)
        except (TypeError, ValueError) as error:
            return type(error), str(error)

    assert outcome(plainjson.dumps) == outcome(json.dumps)


class Place(NamedTuple):
    """A named tuple."""

    line: int
    column: int = 0

    @property
    def far(self) -> bool:
        """A method of its own."""
        return self.column > 80


class Nothing(NamedTuple):
    """One without fields."""


def test_named_tuples_are_as_ever() -> None:
    place = Place(3)
    assert place == (3, 0) == Place(column=0, line=3)
    assert (place.line, place.far, Place._fields) == (3, False, ("line", "column"))
    assert repr(place) == "Place(line=3, column=0)"
    assert place._replace(column=81).far
    assert place._asdict() == {"line": 3, "column": 0}
    assert Place._make([1, 2]) == Place(1, 2)
    assert copy.copy(place) == place
    assert type(Place) is type
    assert Nothing() == ()
    match place:
        case Place(line, column):
            assert (line, column) == place


@pytest.mark.parametrize("how", ["missing", "extra", "unknown", "replaced", "made"])
def test_named_tuples_refuse_what_does_not_fit(how: str) -> None:
    calls: dict[str, Any] = {
        "missing": lambda: Place(),  # type: ignore[call-arg]
        "extra": lambda: Place(1, 2, 3),  # type: ignore[call-arg]
        "unknown": lambda: Place(1, row=2),  # type: ignore[call-arg]
        "replaced": lambda: Place(1)._replace(row=2),
        "made": lambda: Place._make([1]),
    }
    with pytest.raises((TypeError, ValueError)):
        calls[how]()


def test_a_default_is_followed_by_defaults() -> None:
    with pytest.raises(TypeError):
        type(NamedTuple)("Odd", (NamedTuple,), {"__annotations__": {"a": int, "b": int}, "a": 1})


def test_the_others_are_the_same_things() -> None:
    assert hashes.sha256(b"x").digest() == hashlib.sha256(b"x").digest()


@pytest.mark.parametrize("number", [1, 200])
def test_named_tuples_are_the_same_when_many_were_made(number: int) -> None:
    """Of a kind that is made often the constructor is compiled."""

    class Pair(NamedTuple):
        one: int
        other: str = "x"

    class Further(Pair):
        pass

    for _ in range(number):
        assert Further(1) == (1, "x") == Pair(other="x", one=1)
    assert type(Further(1)) is Further
    for wrong in ({}, {"one": 1, "more": 2}):
        with pytest.raises(TypeError):
            Pair(**wrong)
    with pytest.raises(TypeError):
        Pair(1, "x", 3)  # type: ignore[call-arg]


def by_datetime(epoch_s: float) -> str:
    """What the standard library makes of it."""
    return datetime.datetime.fromtimestamp(epoch_s, datetime.UTC).isoformat(timespec="microseconds")


@given(some.floats(0, 253402300799, allow_nan=False) | some.integers(0, 253402300799))
def test_times_are_those_of_datetime(epoch_s: float) -> None:
    text = moments.written(epoch_s)
    assert text == by_datetime(epoch_s)
    assert moments.read(text) == datetime.datetime.fromisoformat(text).timestamp()


@pytest.mark.parametrize("epoch_s", [-1.5, 0, 951782399.9999996, 951868800, 4107542400, 1e9 + 0.1])
def test_times_at_the_ends_of_days_are_too(epoch_s: float) -> None:
    assert moments.read(moments.written(epoch_s)) == pytest.approx(epoch_s, abs=1e-6)
    assert moments.written(epoch_s) == by_datetime(epoch_s)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-30", "2026-11-30T20:00:00Z", "2026-11-30T20:00:00.5+02:00", "20261130T200000",
        "2026-02-30T20:00:00.000000+00:00", "2026-11-30T24:00:00.000000+00:00", "now", "",
        "2026-11-30 20:00:00.000000+00:00", "2026-11-30T20:00:00.00000١+00:00", "1969-11-30",
        " 026-11-30T20:00:00.000000+00:00", "2026-11-30T20:00:00.000000-00:00",
    ],
)  # fmt: skip
def test_times_of_others_are_read_as_by_datetime(text: str) -> None:
    def read(text: str) -> float:
        said = datetime.datetime.fromisoformat(text)
        return said.replace(tzinfo=said.tzinfo or datetime.UTC).timestamp()

    assert told(moments.read, text) == told(read, text)


# -- blocks, and what is kept -------------------------------------------------------------------

#: What happens in a block, and what a generator around it does.
ERRORS = [None, KeyError("k"), OSError(2, "no"), StopIteration(3), RuntimeError("r"), SystemExit(1)]


def in_block(tools: Any, around: str, error: BaseException | None) -> tuple[Any, ...]:
    """What comes of a block that raises an error, within a block of one of these kinds."""
    log: list[str] = []

    @tools.contextmanager
    def block(what: str) -> Iterator[str]:
        if what == "nothing":
            return
        try:
            yield what
            if what == "twice":
                yield "more"
        except Exception as caught:
            log.append(repr(caught))
            if what == "again":
                raise
            if what == "another":
                raise ValueError("another") from caught
            if what == "twice":
                yield "more"
        finally:
            log.append("end")

    made = {
        "suppress": lambda: tools.suppress(OSError, KeyError),
        "null": lambda: tools.nullcontext("given"),
    }.get(around, lambda: block(around))()
    try:
        with made as given:
            log.append(repr(given))
            if error is not None:
                raise error
        log.append("after")
    except BaseException as raised:
        return log, repr(raised), raised is error, repr(raised.__cause__)
    return (log,)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    "around", ["plain", "again", "another", "twice", "nothing", "suppress", "null"]
)
def test_blocks_end_as_ever(around: str, error: BaseException | None) -> None:
    wanted, found = (in_block(tools, around, error) for tools in (contextlib, plain))
    if around in ("twice", "nothing"):  # mistakes of ours: only the words differ
        assert str(found).count("RuntimeError") == str(wanted).count("RuntimeError")
    else:
        assert found == wanted


def test_what_is_worked_out_once_is_kept() -> None:
    asked: list[int] = []

    class One:
        @plain.cached_property
        def number(self) -> int:
            """How often it was asked for."""
            asked.append(0)
            return len(asked)

    @plain.cache
    def double(number: int) -> int:
        """Twice the number."""
        asked.append(number)
        return 2 * number

    one = One()
    assert (one.number, one.number, One().number) == (1, 1, 2)
    assert (double(7), double(7), double(8), asked[2:]) == (14, 14, 16, [7, 8])
    assert (double.__name__, double.__doc__) == ("double", "Twice the number.")
    assert One.number.__doc__ == "How often it was asked for."
