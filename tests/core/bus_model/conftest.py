"""Lets the tests of this directory import the model, and the scene of the golden transcripts."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
for place in (HERE, HERE.parent / "bus_golden"):
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
