"""Measure our hub and others: ``python tests/bench/run.py --help``; docs/performance.md."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

# From a checkout, installed or not.
sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[2])]

from gauge.main import main  # noqa: E402  the path comes first

if __name__ == "__main__":
    # Whoever ends it ends the servers, too, and leaves none of their files.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
