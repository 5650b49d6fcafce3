"""Loads that are measured with something beside them, or part by part."""

from __future__ import annotations

import dataclasses

import pytest
from gauge import load, main
from gauge.dialects import DIALECTS
from gauge.dialects.ndjson import Ndjson
from gauge.doubles import Crooked, measured
from gauge.targets import Ours, targets_named
from gauge.texts import Broken
from gauge.workloads import LOADS, Workload

PAIR = Workload("pair", "arrival_p50_us", 100)
STALLED = Workload("flood", "messages_per_s", 600, window=64, size=4096, reads=False)


def test_a_hub_with_idle_connections_is_compared_with_itself() -> None:
    """What each of them costs in memory, and what they cost those who talk."""
    found = measured(Ours("memory"), dataclasses.replace(PAIR, idle=40))
    assert found["messages"] == 72  # a twentieth to warm up, a quarter of the rest without them
    assert found["times_calm"] == pytest.approx(found["arrival_p50_us"] / found["calm_us"])
    assert found["peak_mib"] >= found["memory_mib"] > 0
    assert "kib_each" in found
    assert found["connects_per_s"] > 0


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine is not taken for a server that blocks."""
    monkeypatch.setattr(load, "BLOCKED", 60.0)


@pytest.mark.usefixtures("patient")
def test_what_a_stalled_receiver_left_unread_comes_when_it_reads_on() -> None:
    """All of it, from a hub that promises that; and meanwhile others talk."""
    found = measured(Ours("memory"), dataclasses.replace(PAIR, messages=5000, beside=STALLED))
    assert found["fate"] == "all came later"
    assert found["messages"] > 600
    assert found["arrival_p50_us"] > 0
    assert found["stalled_mib"] > 0


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("promised", [False, True])
def test_what_a_stalled_receiver_never_gets_is_told(
    promised: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends the run where the server had promised to keep it."""
    monkeypatch.setitem(DIALECTS, "Ndjson", Promising if promised else Ndjson)
    pair = dataclasses.replace(PAIR, messages=2, beside=STALLED)
    if promised:
        with pytest.raises(Broken, match="is lost or damaged"):
            measured(Crooked("lose"), pair)
    else:
        fate = measured(Crooked("lose"), pair)["fate"]
        assert "is lost or damaged" in fate
        assert "did not arrive" in fate


class Promising(Ndjson):
    """Says that the hub keeps what is not read."""

    def greet(self, receives: bool) -> None:
        """See :meth:`Ndjson.greet`."""
        super().greet(receives)
        self.keeps = True


def test_a_sender_whose_receiver_does_not_read_may_be_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By a server that no longer reads from it; what it has sent comes later, too."""
    monkeypatch.setattr(load, "BLOCKED", 0.2)
    pair = dataclasses.replace(PAIR, messages=2, beside=STALLED)
    assert measured(Crooked("stop reading"), pair)["fate"] == "its sender was blocked"


def test_a_probe_lasts_as_long_as_the_flood_beside_it() -> None:
    """Its messages are timed, and those of the flood are counted."""
    (relay,) = targets_named("relay", ())
    flood = Workload("flood", "messages_per_s", 2000, 2, 2, window=8)
    paced = dataclasses.replace(PAIR, messages=3000, window=8, rate=100.0)
    found = measured(relay, dataclasses.replace(paced, beside=flood))
    assert found["messages"] > 2000
    assert found["flood_per_s"] > 0
    assert found["late_p50_us"] >= 0


def test_the_last_part_of_a_long_run_is_compared_with_the_first() -> None:
    """Each part has its own messages, and sequences go on through all of them."""
    (relay,) = targets_named("relay", ())
    found = measured(relay, Workload("long", "kept", 800, 4, 2, window=8, parts=10))
    assert found["messages"] == 760
    assert found["kept"] > 0
    assert found["cpu_grown"] > 0


def test_a_crowd_is_kept_from_a_hub_that_takes_none() -> None:
    """The hub for pi clients is shipped with a limit below the number of idle connections."""
    (relay,), (pi,), (echo,) = (targets_named(name, ["disk"]) for name in ("relay", "pi", "echo"))
    crowd, stalled = LOADS["idle-1000"], LOADS["stalled"]
    assert [main.fits(crowd, target) for target in (relay, pi, echo)] == [True, False, True]
    assert [main.fits(stalled, target) for target in (relay, pi, echo)] == [True, True, False]
