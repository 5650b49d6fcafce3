"""One golden transcript for each behaviour of the broker, in ``transcripts``."""

from __future__ import annotations

from pathlib import Path

import pytest
from bus_script import Script

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    Script().run(path.read_text())
