"""What the official client library makes of a bridge, in both of the protocol's eras."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).with_name("official_client.py")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_is_served(agent: Callable[[str], Any], mode: str) -> None:
    """One that begins in the way of 2026 falls back; it leaves, and so does the bridge."""
    ada = agent("ada")
    bridge = [sys.executable, "-m", "intercom", "mcp"]
    done = subprocess.run(
        [sys.executable, str(SCRIPT), mode, *bridge],
        capture_output=True,
        text=True,
        cwd=ada.project,
        env=ada.environ,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    found = json.loads(done.stdout)
    assert found["version"] == "2025-11-25"
    assert found["server"] == "intercom"
    assert "You are ada, on channel default." in found["instructions"]
    assert found["tools"] == {"send": False, "inbox": True, "ask": False, "peers": True}
    assert found["loaded"] == ["send", "inbox"]
    assert found["peers"][0] is False
    assert found["inbox"] == [False, "nothing unread"]
    assert found["send"][0] is True
    assert found["send"][1].startswith("TARGET_NOT_FOUND: ")
    assert found["ask"][0] is True
    assert found["pinged"]
    deadline = time.monotonic() + 20
    while "ada" in json.loads(ada.run("peers").out).get("sessions", ["ada"]):
        assert time.monotonic() < deadline
