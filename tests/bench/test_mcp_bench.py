"""The comparison of servers of tools runs, and measures what it says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path


def test_both_servers_are_measured() -> None:
    script = Path(__file__).with_name("mcp_servers.py")
    done = subprocess.run(
        [sys.executable, str(script), "--starts", "1", "--calls", "2", "--json"],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ours, stock = json.loads(done.stdout)
    assert [ours["server"], stock["server"]] == ["intercom mcp", "official library"]
    for row in (ours, stock):
        assert 0 < row["inbox_p50"] <= row["inbox_p95"]
        assert 0 < row["start_best"] <= row["start_median"]
        assert row["memory"] > 1
