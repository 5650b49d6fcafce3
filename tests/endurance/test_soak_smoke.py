"""The soak script itself, for some seconds: it kills, judges and measures, and can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import soak
from soak import Sample, complaints, growth, slope

MIB = 1 << 20


def test_a_short_soak_is_clean_and_tells_its_figures(tmp_path: Path) -> None:
    """Whoever runs the long one can rely on the script."""
    report = tmp_path / "report.json"
    words = ["--minutes", "0.25", "--agents", "8", "--rate", "20", "--kill-every", "2.5"]
    command = [sys.executable, str(soak.HERE / "soak.py"), *words, "--report", str(report)]
    done = subprocess.run(
        [*command, "--place", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(report.read_text())
    assert figures == json.loads(done.stdout)
    assert figures["wrong"] == []
    assert figures["acked"] > 50
    assert figures["kills by kind"]["hub"] >= 1
    assert figures["kills by kind"]["sender"] >= 1
    assert figures["leaders"] >= 2
    assert figures["agent"]["memory_at_most"] > 0
    assert list(tmp_path.iterdir()) == [report], "nothing is left behind"


def samples(memory: float, descriptors: float) -> list[Sample]:
    """An hour in which both grow evenly by so much."""
    return [
        Sample(at, 10.0, int(50 * MIB + memory * at / 3600), int(20 + descriptors * at / 3600))
        for at in range(0, 3600, 10)
    ]


@pytest.mark.parametrize(
    ("memory", "descriptors", "words"),
    [
        (0, 0, []),
        (0.5 * MIB, 2, []),
        (2 * MIB, 0, ["memory grows by"]),
        (30 * MIB, 0, ["memory grew by", "memory grows by"]),
        (0, 30, ["descriptors grew by"]),
    ],
)
def test_what_grows_is_noticed(memory: float, descriptors: float, words: list[str]) -> None:
    found = complaints("hubs", growth(samples(memory, descriptors), 3600), 3600)
    assert len(found) == len(words)
    for sentence, word in zip(found, words, strict=True):
        assert word in sentence


def test_a_soak_without_samples_proves_nothing() -> None:
    assert complaints("hubs", growth([], 60), 60) == ["hubs: no samples to compare"]
    assert slope([]) == slope([(1, 5)]) == slope([(1, 5), (1, 9)]) == 0.0
    assert slope([(0, 1), (1, 3), (2, 5)]) == 2.0


@pytest.mark.parametrize("words", [["--agents", "2"], ["--rate", "0"], ["--level", "none"]])
def test_an_impossible_soak_is_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        soak.main(words)
    assert ended.value.code == 2
