"""The proof is worth something: each fault that is put into the product on purpose is found.

Every scenario passes with the product as it is, and fails with its mutant in every process.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import storm_scenarios as scenarios
from storm_place import HERE, ROOT, Place

MUTATION = str(Path(HERE) / "mutation")
sys.path.insert(0, MUTATION)

from mutants import MUTANTS  # noqa: E402  the path comes first


def retry_after_append(place: Place) -> None:
    """The hub dies when a broadcast is appended and not acknowledged; it is sent again."""
    scenarios.kill_at(place, ["write", "inbox_", 4, "after"])


#: Which scenario kills which mutant, at which level, and by which anomaly.
KILLERS: dict[str, tuple[Callable[[Place], None], str, str]] = {
    "ack before write": (scenarios.kill_upon_receipt, "process", "lost"),
    "reader passes a torn tail": (scenarios.read_unended_line, "process", "skip"),
    "unlink of the lock": (scenarios.elect_among_originals, "process", "double leader"),
    "no end of a torn tail": (scenarios.send_behind_torn_line, "process", "lost"),
    "commit before print": (scenarios.kill_poll_in_print, "process", "skip"),
    "two writer threads": (scenarios.send_in_a_row, "process", "order"),
    "no dedupe of a retry": (retry_after_append, "process", "duplicate position"),
    "sync failure ignored": (scenarios.send_with_broken_disk, "disk", "lost"),
}


@pytest.mark.parametrize("mutant", KILLERS)
def test_without_the_fault_the_scenario_passes(storm: Callable[..., Place], mutant: str) -> None:
    scenario, level, _anomaly = KILLERS[mutant]
    scenario(storm(level))


def test_with_the_fault_every_scenario_fails(storm: Callable[..., Place]) -> None:
    assert set(KILLERS) == set(MUTANTS)
    fates = {mutant: fate_of(mutant, storm) for mutant in MUTANTS}
    for mutant, fate in fates.items():
        print(f"{mutant}: {fate}")
    killed = [mutant for mutant, fate in fates.items() if fate.startswith("killed by ")]
    assert len(killed) == len(MUTANTS) == 8, fates


def fate_of(mutant: str, storm: Callable[..., Place]) -> str:
    """What the proof says of a mutant."""
    scenario, level, anomaly = KILLERS[mutant]
    path = os.pathsep.join([MUTATION, str(HERE), str(ROOT)])
    place = storm(level, INTERCOM_PROOF_MUTANT=mutant, PYTHONPATH=path)
    try:
        scenario(place)
    except AssertionError as error:
        found = str(error).splitlines()
        named = [line for line in found if line.startswith(anomaly)]
        return f"killed by {scenario.__name__}: {named[0]}" if named else f"not as such: {found}"
    return "lives"
