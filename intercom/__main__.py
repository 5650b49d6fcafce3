"""``python -m intercom``: the same as the command ``intercom``."""

from __future__ import annotations

from intercom.cli.main import run

if __name__ == "__main__":
    run()
