"""Leaders killed, stopped and told to go while others want to lead: never two at a time."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable

import pytest
from checker import Report
from storm_place import Place, record, rounds
from storm_scenarios import CONTENDERS, ELECTIONS, run_election

SHORT = 100
ROUNDS = rounds(int(os.environ.get("INTERCOM_PROOF_TERMS", "5000")), 500)


def require_all(place: Place, scene: str, report: Report, blows: Counter[str], terms: int) -> None:
    """Demand that there was no double leader, and that everything was tried."""
    place.require(report, leaders=terms, kills=CONTENDERS)
    wanted = {"kill", "term", "stop", "child"}
    wanted.add("clean" if "cleaner" in ELECTIONS[scene] else "original")
    assert {name for name, times in blows.items() if times} >= wanted, blows


@pytest.mark.parametrize("scene", ELECTIONS)
def test_there_is_never_a_second_leader(storm: Callable[..., Place], scene: str) -> None:
    place = storm()
    report, blows = run_election(place, scene, terms=SHORT)
    print(scene, report.figures, dict(blows))
    require_all(place, scene, report, blows, terms=SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROUNDS)))
@pytest.mark.parametrize("scene", ELECTIONS)
def test_there_is_no_second_leader_in_many_terms(
    storm: Callable[..., Place], scene: str, number: int
) -> None:
    place, terms = storm(), ROUNDS[number]
    report, blows = run_election(place, scene, terms, seed=1 + number)
    double = len(report.anomalies.get("double leader", ()))
    figures = {"terms": report.figures["leaders"], "double leaders": double}
    record(f"election, {scene}, {number}", figures | {f"done: {k}": v for k, v in blows.items()})
    require_all(place, scene, report, blows, terms)
