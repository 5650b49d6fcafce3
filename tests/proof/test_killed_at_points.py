"""Hubs killed at a chosen system call: each inbox has all of a message or nothing of it.

What was acknowledged is there, what was not is completed by the sender's next try, and
nothing is there twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from storm_place import Place
from storm_scenarios import kill_at, kill_unpublished, send_with_broken_disk

REPEATS = int(os.environ.get("INTERCOM_PROOF_REPEATS", "50"))

#: Name of each point; then the level, and where the hub stops (see ``storm_hub.py``).
POINTS: dict[str, tuple[str, list[Any]]] = {
    "before the first append": ("process", ["write", "inbox_", 1, "before"]),
    "after 1 of 4 appends": ("process", ["write", "inbox_", 1, "after"]),
    "after 3 of 4 appends": ("process", ["write", "inbox_", 3, "after"]),
    "in the middle of the second append": ("process", ["write", "inbox_", 2, "half"]),
    "after all appends, before the receipt": ("process", ["write", "inbox_", 4, "after"]),
    "after 2 of 4 appends at level disk": ("disk", ["write", "inbox_", 2, "after"]),
    "in the middle of the journal's batch": ("disk", ["pwrite", "journal", 1, "half"]),
    "after the journal's batch, before its sync": ("disk", ["pwrite", "journal", 1, "after"]),
    "after the writes, before the sync": ("disk", ["sync", "", 1, "before"]),
    "after the first sync, before the receipt": ("disk", ["sync", "", 1, "after"]),
}


@pytest.mark.parametrize("point", POINTS)
def test_a_hub_killed_in_a_broadcast(storm: Callable[..., Place], point: str) -> None:
    level, stop = POINTS[point]
    kill_at(storm(level), stop)


def test_a_hub_killed_between_bind_and_rename(storm: Callable[..., Place]) -> None:
    """Its socket has another name than the one that clients look for, and the next removes it."""
    kill_unpublished(storm())


def test_a_hub_whose_disk_fails_acknowledges_nothing_more(storm: Callable[..., Place]) -> None:
    send_with_broken_disk(storm("disk"))


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_hubs_killed_often_in_a_broadcast(storm: Callable[..., Place], point: str) -> None:
    level, stop = POINTS[point]
    for _ in range(REPEATS):
        kill_at(storm(level), stop)


@pytest.mark.slow
def test_hubs_killed_often_between_bind_and_rename(storm: Callable[..., Place]) -> None:
    for _ in range(REPEATS):
        kill_unpublished(storm())
