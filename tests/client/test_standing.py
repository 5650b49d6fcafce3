"""What follows from what files say of a message: every combination, and the hard cases."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from intercom.client.standing import Death, Facts, Spot, Standing, derive
from intercom.records import Moved, Position

#: The message under test: bytes 100 to 200 of generation 2, stored at second 1000.
SPOT = Spot(2, 100, 200)
STORED = 1000.0
ORDER = ("stored", "pushed", "shown", "read", "skipped", "expired")


def move(state: str, at: float, start: int = 100, end: int = 200, generation: int = 2) -> Moved:
    """A note about bytes of the inbox."""
    return Moved("bob", state, generation, start, end, at)


def facts(**more: Any) -> Facts:
    """A message that is stored and stands where it was put, unread."""
    known: dict[str, Any] = {
        "stored": SPOT,
        "stored_at": STORED,
        "level": "disk",
        "here": SPOT,
        "position": Position(2, 100),
        "position_at": 1300.0,
    }
    return Facts(**known | more)


# -- all combinations -------------------------------------------------------------------------

PUSHED = [None, move("pushed", 1001.0), move("pushed", 1001.0, 0, 500)]
SHOWN = [None, move("shown", 1010.0), move("shown", 1010.0, 0, 200)]
PASSED = [None, move("read", 1020.0), move("skipped", 1020.0, 50, 200)]
NOISE: list[Moved] = [
    move("read", 1005.0, 0, 100),
    move("skipped", 1006.0, 200, 300),
    move("shown", 1007.0, 100, 150),
    move("pushed", 1008.0, generation=1),
    move("read", 1009.0, generation=3),
    move("read", 900.0, 0, 500),
]
POSITIONS = [Position(2, 100), Position(2, 200), Position(2, 500), Position(3, 0), None]
HERE = [SPOT, None]
DEATHS = [None, Death("expired", 1100.0), Death("skipped", 1020.0)]


def everything() -> list[tuple[Any, ...]]:
    """Each combination of what may be noted, and of what may be seen."""
    found = []
    for combination in itertools.product(PUSHED, SHOWN, PASSED, POSITIONS, HERE, DEATHS):
        position, here = combination[3], combination[4]
        if here is not None and position is not None and position.generation != here.generation:
            continue  # what stands in the inbox is of its present generation
        found.append(combination)
    return found


def concluded(combination: tuple[Any, ...], noise: bool = False) -> Standing:
    """What follows from a combination."""
    pushed, shown, passed, position, here, death = combination
    moves = [one for one in (pushed, shown, passed) if one is not None]
    if noise:
        moves = [*NOISE, *moves]
    cut = 200 if position is not None and position.generation == 3 else None
    return derive(facts(moves=moves, position=position, here=here, death=death, cut=cut))


def unread(combination: tuple[Any, ...]) -> bool:
    """Whether it stands in the inbox, behind the position."""
    position, here = combination[3], combination[4]
    return here is not None and position is not None and position.offset < here.end


def test_there_are_combinations() -> None:
    """Else the tests below would pass by looking at nothing."""
    found = [concluded(one).state for one in everything()]
    assert len(found) > 500
    assert set(found) == {"stored", "pushed", "shown", "read", "skipped", "expired"}


@pytest.mark.parametrize("noise", [False, True])
def test_the_state_is_the_furthest_whose_time_is_told(noise: bool) -> None:
    """Whatever is noted: nothing is claimed that is not among the times, and none beyond it."""
    for one in everything():
        standing = concluded(one, noise)
        assert standing.state == max(standing.times, key=ORDER.index)
        assert standing.times["stored"] == STORED
        assert len({"read", "skipped", "expired"} & standing.times.keys()) <= 1


def test_what_is_noted_of_other_lines_changes_nothing() -> None:
    """Of other bytes, of parts of the line, of other generations, of before it was stored."""
    for one in everything():
        assert concluded(one, noise=True) == concluded(one)


def test_behind_the_position_nothing_is_read_or_skipped() -> None:
    """However much was noted of these bytes: the position is the truth."""
    for one in filter(unread, everything()):
        standing = concluded(one)
        assert standing.state in ("stored", "pushed", "shown")
        assert not standing.gone


def test_what_was_skipped_is_never_called_read() -> None:
    """By the trail or by the dead letters, wherever the inbox stands now."""
    looked = 0
    for one in everything():
        passed, death = one[2], one[5]
        skipped = (
            passed.state == "skipped" if passed else death is not None and death.why == "skipped"
        )
        if skipped:
            looked += 1
            assert concluded(one).state != "read", one
            assert "read" not in concluded(one).times
    assert looked > 100


def test_read_implies_shown_and_a_known_time_stays() -> None:
    """Shown when it was read, unless it is known that it was shown before."""
    for one in everything():
        standing, shown = concluded(one), one[1]
        if standing.state == "read":
            assert standing.times["shown"] == (1010.0 if shown else standing.times["read"])
        elif shown is None:
            assert "shown" not in standing.times


def test_a_reading_has_a_time_or_a_moment_before_which_it_was() -> None:
    """That of the offset file; and only a reading has that."""
    for one in everything():
        standing = concluded(one)
        unknown = standing.state == "read" and standing.times["read"] is None
        assert standing.before == (1300.0 if unknown else None)


def test_a_line_that_is_gone_without_a_note_is_said_to_be() -> None:
    """An original program has emptied the inbox: nobody knows whether it was read."""
    for one in everything():
        position, here = one[3], one[4]
        emptied = here is None and (position is None or position.generation == 2)
        noted = one[2] is not None or one[5] is not None
        assert concluded(one).gone == (emptied and not noted)


# -- cases ------------------------------------------------------------------------------------


def test_a_refusal_counts_where_nothing_was_stored() -> None:
    """With its code and sentence; a later storing makes it good."""
    refused = Facts(refused=("DISK_FULL", "no room"), refused_at=990.0)
    assert derive(refused) == Standing(
        "refused", {"refused": 990.0}, code="DISK_FULL", text="no room"
    )
    found = derive(Facts(refused=("DISK_FULL", "no room"), here=SPOT, position=Position(2, 0)))
    assert (found.state, found.code) == ("stored", "")


def test_a_message_that_only_the_dead_letters_know() -> None:
    """They say what became of it."""
    assert derive(Facts(death=Death("expired", 5.0))) == Standing("expired", {"expired": 5.0})
    with pytest.raises(ValueError, match="nothing"):
        derive(Facts())


def test_a_client_s_own_append_is_stored_at_an_unknown_time() -> None:
    """There is no line of the history, and so neither time nor level."""
    found = derive(Facts(here=SPOT, position=Position(2, 0)))
    assert found == Standing("stored", {"stored": None})


def test_what_was_read_before_the_hub_found_it_is_read_then() -> None:
    """Others appended it (no level is known): the history's time is that of finding it."""
    moves = [move("read", 400.0)]
    found = derive(facts(level=None, position=Position(2, 200), moves=moves))
    assert found.times == {"stored": STORED, "shown": 400.0, "read": 400.0}


def test_an_unread_rest_that_moved_is_looked_for_where_it_stands_now() -> None:
    """The inbox was emptied but for it: notes of both places count, the position is of one."""
    moves = [move("shown", 1010.0), move("shown", 1015.0, 0, 100, 3)]
    here = Spot(3, 0, 100)
    found = derive(facts(here=here, position=Position(3, 0), moves=moves))
    assert (found.state, found.times["shown"]) == ("shown", 1010.0)
    moves.append(move("read", 1030.0, 0, 100, 3))
    found = derive(facts(here=here, position=Position(3, 100), moves=moves))
    assert (found.state, found.times["read"]) == ("read", 1030.0)


def test_what_was_noted_of_a_line_in_the_same_place_is_not_about_this_one() -> None:
    """An original program emptied the inbox in one generation; another line stands there."""
    later = move("read", 1200.0)
    found = derive(facts(here=None, another_at=1150.0, position=Position(2, 200), moves=[later]))
    assert (found.state, found.gone) == ("stored", True)
    before = move("read", 1100.0)
    found = derive(facts(here=None, another_at=1150.0, moves=[before, later]))
    assert (found.state, found.times["read"]) == ("read", 1100.0)


def test_what_is_gone_with_its_generation_is_read_only_if_that_was_noted() -> None:
    """An inbox that somebody emptied by hand is in another generation, too."""
    for cut, state in ((None, "stored"), (100, "stored"), (150, "stored"), (200, "read")):
        found = derive(facts(here=None, position=Position(3, 0), cut=cut))
        assert (found.state, found.gone) == (state, state == "stored")


def test_the_times_are_of_the_first_push_and_the_first_showing() -> None:
    """Later ones tell nothing new; in whatever order they are noted."""
    moves = [move("pushed", 1030.0), move("pushed", 1002.0), move("shown", 1040.0)]
    moves.append(move("shown", 1003.0))
    found = derive(facts(moves=moves))
    assert found.times == {"stored": STORED, "pushed": 1002.0, "shown": 1003.0}
