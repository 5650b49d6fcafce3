"""A whole hub in simulation: one seed is one run, the same one every time.

``sim_world`` says what happens in a run. A failure names its seed; a seed that once showed a
fault stays in :data:`REGRESSIONS`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from checker import check  # noqa: E402  the path comes first
from sim_hub import small_limits  # noqa: E402
from sim_world import World  # noqa: E402

ROOT = HERE.parents[1]
SEEDS = int(os.environ.get("INTERCOM_SIMULATION_SEEDS", "20000"))
#: Seeds, and numbers of steps, of runs that once went wrong.
REGRESSIONS = {117: 200, 309: 200}
#: What must have happened in any hundred runs, or they show nothing.
LEAST = {
    "lives": 200,
    "connections": 800,
    "heard chat": 2000,
    "receipt stored": 1500,
    "receipt refused": 10,
    "heard cursor": 1000,
    "acks": 100,
    "polled": 50,
    "offline": 200,
    "torn": 50,
    "left": 1,
    "error INBOX_LOCKED": 1,
    "error DISK_FULL": 5,
    "error MESSAGE_ID_REUSE": 1,
}


def run(seed: int, steps: int) -> World:
    """One run, judged."""
    world = World(seed)
    try:
        with small_limits():
            world.run(steps)
        report = check(world.story.events)
        assert not report.anomalies, str(report)
    except BaseException:
        print(f"the seed is {seed}, of {steps} steps")
        raise
    return world


def run_all(seeds: Iterable[int], steps: int) -> Counter[str]:
    """Many runs; how often what happened in them."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        counts += run(seed, steps).counts
    return counts


def test_many_runs_keep_every_promise() -> None:
    counts = run_all(range(100), 150)
    missing = {name: counts[name] for name, least in LEAST.items() if counts[name] < least}
    assert not missing, f"the runs show too little: {missing}"


@pytest.mark.parametrize("seed", REGRESSIONS)
def test_what_once_went_wrong(seed: int) -> None:
    run(seed, REGRESSIONS[seed])


def test_one_seed_is_one_run() -> None:
    marks = [run(seed, 120).mark for seed in (1, 2, 1)]
    assert marks[0] == marks[2] != marks[1]


def test_a_run_does_not_depend_on_hashes_of_strings() -> None:
    """Sets and dictionaries of texts are ordered by chance; nothing may follow from it."""
    told = [_marks_under(hash_seed) for hash_seed in ("0", "1", "4711")]
    assert told[0] == told[1] == told[2]
    assert len(told[0].split()) == 5


def _marks_under(hash_seed: str) -> str:
    """The marks of some runs in a process of their own."""
    environ = os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, __file__, "0", "5", "150"],
        capture_output=True,
        text=True,
        env=environ,
        timeout=120,
        check=True,
    )
    return done.stdout


@pytest.mark.slow
def test_very_many_runs_keep_every_promise() -> None:
    run_all(range(1000, 1000 + SEEDS), 300)


if __name__ == "__main__":  # first seed, how many, and of how many steps
    first, count, length = map(int, sys.argv[1:])
    for number in range(first, first + count):
        print(run(number, length).mark)
