"""Hubs, senders and readers killed at any moment: nothing acknowledged is lost, doubled or moved.

The short forms run in the ordinary suite. The long ones (``-m slow``) take their numbers
from INTERCOM_PROOF_KILLS, and leave figures in the file that INTERCOM_PROOF_REPORT names.
"""

from __future__ import annotations

import os
import random
import subprocess
import time
from collections.abc import Callable
from typing import Any

import pytest
from storm_place import Place, quantile, record, rounds
from storm_torn import leave_torn_line

LISTENERS = ("lis-1", "lis-2")
POLLERS = ("pol-1", "pol-2")
READERS = LISTENERS + POLLERS
SIZES = (200, 4_000, 64_000)
KILLS = 15
#: The kills of each level and size, in rounds.
ROUNDS = rounds(int(os.environ.get("INTERCOM_PROOF_KILLS", "400")), 100)


def start_clients(place: Place, sizes: tuple[int, ...]) -> list[subprocess.Popen[bytes]]:
    """Four senders, two listeners, two pollers."""
    place.enrol(*READERS)
    clients = [place.client("listener", name) for name in LISTENERS]
    clients += [place.client("poller", name) for name in POLLERS]
    for number in range(4):
        role = ("sender", "burst")[number % 2]
        size = sizes[number % len(sizes)]
        job = {"to": list(READERS), "size": size, "pause": 0.02 if size < 10_000 else 0.05}
        clients.append(place.client(role, f"sender-{number}", **job))
    return clients


def kill_hubs(place: Place, kills: int, pauses: tuple[float, float], seed: int) -> list[float]:
    """Kill one hub after another; the seconds from each kill to the next registration."""
    chance = random.Random(seed)
    restarts: list[float] = []
    pid = place.serving()
    for number in range(kills):
        begun = time.monotonic()
        time.sleep(chance.uniform(*pauses))
        if number == kills // 2:
            leave_torn_line(place, POLLERS[0])
        place.kill_hub(pid)
        killed = time.monotonic()
        place.history.led(place.paths.directory, begun, killed, f"hub {pid}")
        pid = place.serving()
        restarts.append(time.monotonic() - killed)
    return restarts


def figures_of(place: Place, restarts: list[float]) -> dict[str, Any]:
    """Judge a storm and fail on what is wrong with it, or tell its figures."""
    report = place.judge()
    restart = {f"restart_p{p}": round(quantile(restarts, p / 100), 3) for p in (50, 99)}
    found = {name: len(texts) for name, texts in report.anomalies.items()}
    doubled = found.get("duplicate position", 0) + found.get("delivered twice", 0)
    judged: dict[str, Any] = {"lost": found.get("lost", 0), "duplicated": doubled}
    judged |= {"out of order": found.get("order", 0), "anomalies": found}
    # One torn line was made on purpose; what is over that, kills have left.
    judged["torn by kills"] = report.figures["torn"] - 1
    figures: dict[str, Any] = judged | report.figures | restart
    print(figures)
    record(os.environ["PYTEST_CURRENT_TEST"].split(" ")[0].rpartition("::")[2], figures)
    return figures | {"report": report}


def storm_of_hubs(
    place: Place, kills: int, sizes: tuple[int, ...], pauses: tuple[float, float], seed: int
) -> dict[str, Any]:
    """The whole storm, and its figures."""
    clients = start_clients(place, sizes)
    restarts = kill_hubs(place, kills, pauses, seed)
    place.end(clients)
    place.serving()  # what the last one that was killed had yet to do
    return figures_of(place, restarts)


@pytest.mark.parametrize("level", ["process", "disk"])
def test_hubs_killed_while_everybody_talks(storm: Callable[..., Place], level: str) -> None:
    place = storm(level)
    found = storm_of_hubs(place, KILLS, SIZES, (0.2, 0.8), seed=1)
    place.require(found["report"], acked=200, kills=KILLS, torn=1, leaders=2, delivered=200)


def test_senders_and_readers_killed_while_the_hub_lives(storm: Callable[..., Place]) -> None:
    place = storm("process")
    kill_clients(place, 24, seed=2)


def kill_clients(place: Place, kills: int, seed: int) -> None:
    """Kill senders, listeners and pollers in turn; others take their places."""
    chance = random.Random(seed)
    pid = place.serving()
    clients = start_clients(place, SIZES)
    jobs: list[tuple[str, str, dict[str, Any]]]
    jobs = [("listener", name, {}) for name in LISTENERS]
    jobs += [("poller", name, {}) for name in POLLERS]
    for number in range(4):
        job = {"to": list(READERS), "size": SIZES[number % 3], "pause": 0.01}
        jobs.append((("sender", "burst")[number % 2], f"sender-{number}", job))
    time.sleep(1.0)
    for number in range(kills):
        time.sleep(chance.uniform(0.02, 0.3))
        at = number % len(clients)
        role, session, job = jobs[at]
        place.kill(clients[at], session)
        clients[at] = place.client(role, session, **job)
    leave_torn_line(place, POLLERS[0])
    time.sleep(1.0)
    place.end(clients)
    place.history.led(place.paths.directory, 0.0, 1.0, f"hub {pid}")
    assert place.serving() == pid  # nobody's death was the hub's
    found = figures_of(place, [])
    place.require(found["report"], acked=100, kills=kills, torn=1, delivered=100)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROUNDS)))
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("level", ["process", "disk"])
def test_many_hubs_killed(storm: Callable[..., Place], level: str, size: int, number: int) -> None:
    place, kills = storm(level), ROUNDS[number]
    found = storm_of_hubs(place, kills, (size,), (0.2, 1.0), seed=size + number)
    place.require(found["report"], acked=5 * kills, kills=kills, torn=1, leaders=2)
    assert found["restart_p99"] <= 2.0, found


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(ROUNDS)))
def test_many_senders_and_readers_killed(storm: Callable[..., Place], number: int) -> None:
    kill_clients(storm("process"), ROUNDS[number], seed=number)
