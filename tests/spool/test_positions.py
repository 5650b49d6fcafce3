"""Where a session stands, whatever its small files say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import StalePosition
from intercom.records import Position
from intercom.spool.format import LARGEST, Damaged, Mark, Meta, Stored, head_of
from intercom.spool.positions import Resolution, advance, place, resolve

DATA = b'{"a":1}\n{"b":2}\n{"c":3}\n'  # boundaries 0, 8, 16, 24
BAD = Damaged("it is not JSON")


def boundary(offset: int) -> int:
    return DATA.rfind(b"\n", 0, offset) + 1


def head(length: int) -> str:
    return head_of(DATA[:length])


def solve(stored: Stored | Damaged | None, meta: Meta | Damaged | None) -> Resolution:
    return resolve(stored, meta, len(DATA), boundary, head)


def test_without_small_files_reading_begins_at_the_beginning() -> None:
    assert solve(None, None) == Resolution(Position(1, 0))


def test_a_position_of_the_current_generation_counts() -> None:
    assert solve(Stored(16, 3), Meta(3)) == Resolution(Position(3, 16))


def test_the_original_programs_position_counts_on_a_boundary() -> None:
    assert solve(Stored(16, None), Meta(3)) == Resolution(Position(3, 16))


@pytest.mark.parametrize("generation", [None, 3])
def test_a_position_inside_a_line_falls_back_to_its_beginning(generation: int | None) -> None:
    found = solve(Stored(12, generation), Meta(3))
    assert found.position == Position(3, 8)
    assert "inside a line" in found.warning


def test_an_old_generation_means_the_beginning_of_the_current_one() -> None:
    assert solve(Stored(16, 2), Meta(3)) == Resolution(Position(3, 0))


@pytest.mark.parametrize("generation", [None, 3])
def test_a_position_past_the_end_means_a_reset(generation: int | None) -> None:
    found = solve(Stored(25, generation), Meta(3))
    assert found.position == Position(4, 0)
    assert found.raised
    assert "reset" in found.warning


@pytest.mark.parametrize("meta", [None, BAD])
def test_a_lost_meta_file_is_replaced_by_what_the_offset_file_knows(meta: Damaged | None) -> None:
    assert solve(Stored(16, 7), meta).position == Position(7, 16)
    assert solve(Stored(16, None), meta).position == Position(1, 16)
    assert solve(BAD, meta).position == Position(1, 0)


def test_an_unreadable_position_begins_the_generation_again_and_says_so() -> None:
    found = solve(BAD, Meta(3))
    assert found.position == Position(3, 0)
    assert "damaged" in found.warning


def test_a_mark_of_an_emptying_that_happened_counts() -> None:
    mark = Mark(4, 1000, head_of(b"longer ago"))
    assert solve(Stored(1000, 3), Meta(3, mark=mark)) == Resolution(Position(4, 0), emptied=True)


def test_a_mark_whose_file_was_emptied_and_grew_again_is_told_by_its_beginning() -> None:
    mark = Mark(4, 16, head_of(b"something else  "))
    assert solve(Stored(16, 3), Meta(3, mark=mark)).position == Position(4, 0)


def test_a_mark_of_an_emptying_that_never_happened_is_ignored() -> None:
    mark = Mark(4, 16, head(16))
    assert solve(Stored(16, 3), Meta(3, mark=mark)) == Resolution(Position(3, 16))


NUMBERS = st.one_of(st.integers(0, 40), st.integers(0, LARGEST))
GENERATIONS = st.one_of(st.none(), st.integers(1, 5), st.just(LARGEST))


@given(
    st.one_of(st.none(), st.just(BAD), st.builds(Stored, NUMBERS, GENERATIONS)),
    st.one_of(
        st.none(),
        st.just(BAD),
        st.builds(
            Meta,
            st.one_of(st.integers(1, 5), st.just(LARGEST)),
            mark=st.one_of(st.none(), st.builds(Mark, st.integers(1, 6), NUMBERS, st.text())),
        ),
    ),
)
def test_whatever_the_files_say_the_position_is_a_boundary_that_skips_nothing(
    stored: Stored | Damaged | None, meta: Meta | Damaged | None
) -> None:
    found = solve(stored, meta)
    assert boundary(found.position.offset) == found.position.offset
    said = stored.offset if isinstance(stored, Stored) else 0
    assert found.position.offset <= said


@pytest.mark.parametrize(
    ("start", "begin"),
    [
        (Position(3, 8), Position(3, 8)),
        (Position(3, 24), Position(3, 24)),
        (Position(3, 9), Position(3, 8)),
        (Position(2, 8), Position(3, 0)),
        (Position(4, 8), Position(3, 0)),
        (Position(3, 25), Position(3, 0)),
        (Position(3, -1), Position(3, 0)),
    ],
)
def test_reading_from_a_given_place_never_skips(start: Position, begin: Position) -> None:
    assert place(start, 3, len(DATA), boundary) == begin


def test_a_commit_moves_forward_only() -> None:
    assert advance(Position(3, 8), Position(3, 16), 24, boundary) == Position(3, 16)
    assert advance(Position(3, 16), Position(3, 8), 24, boundary) == Position(3, 16)


@pytest.mark.parametrize(
    "wanted",
    [Position(2, 16), Position(4, 16), *(Position(3, at) for at in (25, 9, -8, 1 << 200))],
)
def test_a_commit_that_fits_nowhere_is_refused_with_the_true_position(wanted: Position) -> None:
    with pytest.raises(StalePosition) as refusal:
        advance(Position(3, 8), wanted, 24, boundary)
    assert refusal.value.details == {"generation": 3, "offset": 8}
