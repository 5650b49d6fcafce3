"""Every state in which a crash may leave a channel, recovered by the product's own code.

A workload of a few operations runs on a disk that writes down what is done to it
(``disk_log``). For every moment of it, the states that a kill or a power cut could leave are
laid out as files, a hub and readers come to them, and nothing may be missing of what had been
promised by then (``disk_workload``).
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from disk_channel import real_disk
from disk_log import (
    CHANGING,
    HARMLESS,
    LoggingCalls,
    Op,
    State,
    Sync,
    after_a_kill,
    after_a_power_cut,
)
from disk_workload import OPERATIONS, Promises, Recovery, Workload

from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.spool.recovery import Recovery as Recovered

#: Of the long form: how many states in all, of all sequences of three operations.
STATES = int(os.environ.get("INTERCOM_CRASH_STATES", "200000"))
#: What a hub that starts has to do after no crash.
NOTHING = Recovered()
#: Of the short form: workloads that have broken programs of this kind.
SHORT = ("ab", "pca", "ack", "acak", "acr", "ptb", "poa")


@pytest.fixture(autouse=True)
def _files_are_on_a_disk() -> Iterator[None]:
    with real_disk():
        yield


class Ground:
    """Two channels: one on which workloads run, one on which crashes are laid out."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._count = 0
        self._seen: set[bytes] = set()
        self.crashed = ChannelPaths(str(base / "crashed"), "room")
        self.crashed.prepare()

    def log_of(self, letters: str) -> list[Op]:
        """Run a workload in a directory of its own; what was done and said."""
        self._count += 1
        paths = ChannelPaths(str(self._base / f"run{self._count}"), "room")
        paths.prepare()
        workload = Workload(paths, letters)
        log = list(workload.log)
        workload.end()
        return log

    def check(self, log: Sequence[Op], end: int, states: Iterator[State], power: bool) -> int:
        """Recover from states of one moment; how many of them were met for the first time."""
        promises = Promises(log, end, power)
        boot = "second" if power else "first"
        return sum(self.recover(state, promises, power, boot) for state in states)

    def recover(self, state: State, promises: Promises, power: bool, boot: str) -> bool:
        """Recover from one state; False if that was done before."""
        mark = promises.mark(state) + boot.encode()
        if mark in self._seen:
            return False
        self._seen.add(mark)
        try:
            Recovery(self.crashed, state, promises, power, boot).check()
        except AssertionError:
            print("recovering, in boot", boot, "from:")
            for name, data in sorted(state.items()):
                print(f"  {name}: {data.rstrip(bytes(1))!r}, and zeros to byte {len(data)}")
            raise
        return True


@pytest.fixture
def ground() -> Iterator[Ground]:
    """Where workloads run and crashes are laid out: in memory, for thousands are."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.path.isdir(memory) else None) as base:
        yield Ground(Path(base))


def moments(log: Sequence[Op]) -> range:
    """Behind everything that was done or said."""
    return range(1, len(log) + 1)


def cut_the_power(ground: Ground, log: Sequence[Op]) -> None:
    """A few states of every moment, of those in which something had been promised."""
    for end in moments(log):
        if Promises(log, end, power=True).due:
            states = after_a_power_cut(log, end, cuts=1, mixtures=0, chance=random.Random(0))
            ground.check(log, end, states, power=True)


def test_every_call_that_changes_a_disk_is_written_down() -> None:
    calls = {name for name in dir(FileCalls) if not name.startswith("_")}
    assert calls == CHANGING | HARMLESS
    assert all(name in LoggingCalls.__dict__ for name in CHANGING)


@pytest.mark.parametrize("letters", SHORT)
def test_a_kill_at_any_moment_loses_nothing_that_was_called_stored(
    ground: Ground, letters: str
) -> None:
    log = ground.log_of(letters)
    met = 0
    for end in moments(log):
        met += ground.check(log, end, after_a_kill(log, end, cuts=6), power=False)
    assert met > 5


@pytest.mark.parametrize("letters", SHORT)
def test_a_power_cut_at_any_moment_loses_nothing_that_was_called_safe(
    ground: Ground, letters: str
) -> None:
    log = ground.log_of(letters)
    assert any(isinstance(op, Sync) for op in log)
    chance = random.Random(letters)
    met = 0
    for end in moments(log):
        states = after_a_power_cut(log, end, cuts=2, mixtures=4, chance=chance)
        met += ground.check(log, end, states, power=True)
    assert met > 50


@pytest.mark.parametrize("letters", ["ab", "ack"])
def test_another_crash_during_the_recovery_loses_nothing_either(
    ground: Ground, letters: str
) -> None:
    log = ground.log_of(letters)
    chance = random.Random(letters)
    met = 0
    for end in moments(log):
        promises = Promises(log, end, power=True)
        states = list(after_a_power_cut(log, end, cuts=2, mixtures=4, chance=chance))
        for state in chance.sample(states, min(2, len(states))):
            again, began = Recovery(ground.crashed, state, promises, True, "second").log()
            for then in range(began + 1, len(again) + 1):
                for left in after_a_kill(again, then, cuts=2):
                    met += ground.recover(left, promises, True, "second")
                for left in after_a_power_cut(again, then, cuts=1, mixtures=1, chance=chance):
                    met += ground.recover(left, promises, True, "third")
    assert met > 50


def test_a_disk_that_forgets_what_was_synced_is_found_out(ground: Ground) -> None:
    """The same states are a failure where nothing is ever safe: so they would show one."""
    log = [op for op in ground.log_of("ab") if not isinstance(op, Sync)]
    with pytest.raises(AssertionError, match="owes"):
        cut_the_power(ground, log)


def test_a_hub_that_does_not_look_at_the_journal_is_found_out(ground: Ground) -> None:
    log = ground.log_of("ab")
    with (
        patch("intercom.spool.threaded.recover", return_value=NOTHING),
        pytest.raises(AssertionError, match="owes"),
    ):
        cut_the_power(ground, log)


@pytest.mark.slow
def test_all_sequences_of_three_operations(ground: Ground) -> None:
    sequences = ["".join(three) for three in itertools.product(OPERATIONS, repeat=3)]
    chance = random.Random("three")
    chance.shuffle(sequences)
    met, cuts = 0, 4
    for letters in sequences:
        log = ground.log_of(letters)
        for end in moments(log):
            for power in (False, True):
                states = (
                    after_a_power_cut(log, end, cuts, 4, chance)
                    if power
                    else after_a_kill(log, end, cuts)
                )
                try:
                    met += ground.check(log, end, states, power)
                except AssertionError as error:
                    raise AssertionError(f"{letters!r}, {end=}, {power=}") from error
        if met > STATES:
            break
    print(f"{met} states")
    assert met >= min(STATES, 100_000)
