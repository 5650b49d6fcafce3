"""One golden transcript for each behaviour, over real sockets; see ``mesh_transcripts``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pi_player import Plays

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_mesh_transcript(mesh_plays: Plays, path: Path) -> None:
    found, recorded = mesh_plays[path], path.read_text()
    if os.environ.get("PI_MESH_TRANSCRIPTS") == "write":
        path.write_text(found)
    else:
        assert found.split("\n") == recorded.split("\n")
