"""The wall clock of a whole hub jumps, for every library and system call in it (libfaketime).

Its short form is in the sharp tests, where only what Python calls is deceived.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths

#: Where Debian, Fedora and Homebrew put it.
CANDIDATES = (
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
    *Path("/usr/lib64").glob("faketime/libfaketimeMT.so.1"),
)
#: What the clock shows from some moment on: ahead, behind, long ago, standing still.
JUMPS = {
    "an hour ahead": "+3600",
    "an hour back": "-3600",
    "a day ahead": "+86400",
    "a day back": "-86400",
    "1970": "1970-01-01 00:00:10",
    "frozen": "2026-01-01 00:00:00",
}


@pytest.fixture
def faked(hub: Any, channel_dir: Path, tmp_path: Path) -> Any:
    """Start a hub whose clock is right until ``set`` is called."""
    if not CANDIDATES:
        pytest.skip("not run: needs libfaketime")

    def start(number: int) -> tuple[Any, Path]:
        said = tmp_path / f"faketimerc{number}"
        said.write_text("+0\n")
        where = ChannelPaths(str(channel_dir), f"clock{number}")
        where.prepare()
        one = hub(
            "--idle-exit",
            "4",
            where=where,
            LD_PRELOAD=str(CANDIDATES[0]),
            FAKETIME_TIMESTAMP_FILE=str(said),
            DONT_FAKE_MONOTONIC="1",
            FAKETIME_CACHE_DURATION="1",
            FAKETIME_DONT_RESET="1",
        )
        return one, said

    return start


@pytest.mark.slow
@pytest.mark.parametrize("attempt", range(7))
def test_hubs_serve_and_leave_in_time_after_every_jump(faked: Any, attempt: int) -> None:
    serve_and_leave(faked, list(JUMPS), attempt / 7)


def serve_and_leave(faked: Any, jumps: list[str], late: float) -> None:
    """Messages go through before and after a jump, and idleness lasts as long as it should.

    :param late: seconds between the first message and the jump.
    """
    rows = []
    for number in range(len(jumps)):
        one, said = faked(number)
        rows.append((one, said, one.connect("ada", "receipts"), one.connect("bob")))
    for jump, (_one, said, ada, bob) in zip(jumps, rows, strict=True):
        for text in ("before", "after"):
            ada.chat("bob", text)
            assert bob.until("chat")["payload"]["text"] == text
            assert ada.until("receipt")["payload"]["state"] == "stored"
            time.sleep(late)
            said.write_text(JUMPS[jump] + "\n")
    began = time.monotonic()
    while time.monotonic() - began < 5.0:  # longer than it would wait for somebody
        for _one, _said, ada, _bob in rows:
            ada.say("heartbeat", id="h")
            assert ada.until("heartbeat", "error")["type"] == "heartbeat"
        time.sleep(0.5)
    for _one, _said, ada, bob in rows:
        ada.close()
        bob.close()
    left = time.monotonic()
    for one, *_rest in rows:
        assert one.process.wait(timeout=60) == 0
        assert 3.9 < time.monotonic() - left < 15.0, "it looks once a second"
        logged = [datetime.fromisoformat(line["time"]).timestamp() for line in one.log()]
        assert abs(logged[-1] - time.time()) > 1800, "no jump was seen"
