"""How a hub divides the descriptors that it may have."""

from __future__ import annotations

import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.hub import descriptors
from intercom.hub.descriptors import ENOUGH, KEPT_BACK, Budget, budget, open_at_most, raise_limit


@pytest.mark.parametrize(
    ("available", "expected"),
    [
        (64, Budget(22, 10, 0)),
        (191, Budget(64, 31, 28)),
        (192, Budget(128, 16, 4)),
        (1024, Budget(960, 16, 4)),
        (2048 + KEPT_BACK - 1, Budget(2047, 16, 4)),
        (2048 + KEPT_BACK, Budget(2048, 16, 4)),
        (2048 + KEPT_BACK + 1, Budget(2048, 16, 4)),
        (4096, Budget(2048, 512, 748)),
        (65_536, Budget(2048, 4096, 29_676)),
    ],
)
def test_connections_never_get_the_last_ones(available: int, expected: Budget) -> None:
    assert budget(available, 2048) == expected


@given(st.integers(32, 1 << 20), st.integers(1, 65_536))
def test_something_is_left_for_everything(available: int, wanted: int) -> None:
    served, inboxes, guarded = budget(available, wanted)
    assert 1 <= served <= wanted
    assert inboxes >= 8
    assert guarded >= 0
    if available >= 64:
        assert served + inboxes + 2 * guarded + 20 <= available


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[int, int]]:
    """The limits of this process, as far as the module can see."""
    now = {"limits": (1024, 4096)}

    def change(_which: int, wanted: tuple[int, int]) -> None:
        now["limits"] = wanted

    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _which: now["limits"])
    monkeypatch.setattr(descriptors.resource, "setrlimit", change)
    return now


INFINITE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, ENOUGH + 1), (ENOUGH, ENOUGH + 1)),
        ((1024, INFINITE), (ENOUGH, INFINITE)),
        ((ENOUGH + 5, ENOUGH + 9), (ENOUGH + 5, ENOUGH + 9)),
        ((INFINITE, INFINITE), (INFINITE, INFINITE)),
        ((64, 64), (64, 64)),
    ],
)
def test_the_limit_is_raised_as_far_as_is_useful_and_never_lowered(
    limits: dict[str, tuple[int, int]], before: tuple[int, int], after: tuple[int, int]
) -> None:
    limits["limits"] = before
    raise_limit()
    assert limits["limits"] == after
    assert open_at_most() == (ENOUGH if after[0] == INFINITE else after[0])


def test_a_system_that_does_not_let_us_is_no_trouble(
    limits: dict[str, tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_which: int, _wanted: tuple[int, int]) -> None:
        raise ValueError("not allowed")

    monkeypatch.setattr(descriptors.resource, "setrlimit", refuse)
    raise_limit()
    assert limits["limits"] == (1024, 4096)
