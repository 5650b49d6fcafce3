"""The proof's own modules can be imported by their names, and its storms have a place each."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from storm_place import Place  # noqa: E402  the path comes first

from intercom.paths import file_level  # noqa: E402


@pytest.fixture
def storm(tmp_path: Path) -> Iterator[Callable[..., Place]]:
    """Make places for storms, at a level; histories stay where pytest keeps its last runs."""
    places: list[Place] = []

    def make(level: str = "process", **environ: str) -> Place:
        base = tempfile.mkdtemp(prefix="ic-", dir=_parent(level))
        history = tmp_path / f"history-{len(places)}"
        places.append(Place(base, level, history, environ))
        print(f"histories: {history}")  # pytest shows this where the test fails
        return places[-1]

    try:
        yield make
    finally:
        for place in places:
            try:
                place.close()
            finally:
                shutil.rmtree(place.paths.base)


def _parent(level: str) -> str:
    """Where files of a level can be: for ``disk`` that is not everywhere."""
    candidates = ("/tmp", "/var/tmp", str(HERE))
    for candidate in candidates:
        if level != "disk" or file_level(candidate) == "disk":
            return candidate
    pytest.skip(f"not run: no file of {', '.join(candidates)} survives a power cut")
