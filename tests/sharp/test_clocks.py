"""A wall clock that jumps; timers and memories follow another."""

from __future__ import annotations

import os
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Entry, Position, Written
from intercom.spool.inboxfile import Commit, InboxFile
from intercom.spool.store import Store
from intercom.wire import envelope

HOUR, DAY = 3600.0, 86400.0

#: By how much the wall clock jumps, each way and back to its beginning; or it stands still.
JUMPS = (-HOUR, HOUR, -DAY, DAY, -time.time(), "frozen")

#: Found by every Python that starts: wall clock times that jump once a file is there.
CUSTOMIZE = """
import os, time
_true, _place, _jump = time.time, os.environ.get("JUMPED_WHEN"), os.environ.get("JUMP", "0")
_started = _true()
def _changed():
    return _started if _jump == "frozen" else _true() + float(_jump)
if _place:
    time.time = lambda: _changed() if os.path.exists(_place) else _true()
    time.time_ns = lambda: int(time.time() * 1e9)
"""


def test_a_hub_keeps_its_times_whatever_the_wall_clock_does(
    hub: Any, channel_dir: Path, tmp_path: Path
) -> None:
    """Set back by an hour it does not wait for that hour, set ahead it drops nobody.

    A clock that goes back to 1970, or stands still, is none to it either.
    """
    (tmp_path / "sitecustomize.py").write_text(CUSTOMIZE)
    root = Path(__file__).resolve().parents[2]
    rows, jumped = [], tmp_path / "jumped"
    for n, jump in enumerate(JUMPS):
        where = ChannelPaths(str(channel_dir), f"clock{n}")
        where.prepare()
        found = [str(tmp_path), str(root), *filter(None, [os.environ.get("PYTHONPATH")])]
        environ = {"PYTHONPATH": os.pathsep.join(found)}
        environ |= {"JUMP": str(jump), "JUMPED_WHEN": str(jumped)}
        one = hub("--idle-exit", "3", where=where, **environ)
        began = time.monotonic()
        rows.append((one, one.connect("ada", "receipts"), one.connect("bob"), began))
    jumped.touch()
    lefts = []
    for one, ada, bob, _began in rows:
        ada.chat("bob", "after the jump")
        assert bob.until("chat")["payload"]["text"] == "after the jump"
        assert ada.until("receipt")["payload"]["state"] == "stored"
        assert one.process.poll() is None
        lefts.append(time.monotonic())
        ada.close()
        bob.close()
    for (one, _ada, _bob, began), left in zip(rows, lefts, strict=True):
        assert one.process.wait(timeout=60) == 0
        ended = time.monotonic()
        assert 2.9 < ended - left < 15.0, "it looks once a second"
        logged = [datetime.fromisoformat(line["time"]).timestamp() for line in one.log()]
        off = abs((logged[-1] - logged[0]) - (ended - began))
        assert off > 1.5, "no jump was seen"


@pytest.mark.parametrize("jump", [-HOUR, DAY, -time.time()], ids=["-3600", "86400", "1970"])
def test_a_repetition_is_recognised_across_a_jump(paths: ChannelPaths, jump: float) -> None:
    """What the hub remembers does not expire early; 1970 is a time like any other."""
    now = [time.time()]
    store = Store(paths, clock=lambda: now[0])
    store.start()
    line = envelope.make(
        type="chat",
        message_id="m1",
        from_session="ada",
        to_session="bob",
        channel=paths.name,
        payload={"text": "x"},
        timestamp=envelope.format_timestamp(now[0]),
    )
    found = envelope.identify(line)
    assert found is not None
    entries = [Entry(n, "bob", line, "ada", "m1", found.digest, "process") for n in (1, 2)]
    (first,) = store.append_batch(entries[:1]).outcomes
    now[0] += jump
    (second,) = store.append_batch(entries[1:]).outcomes
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert (first.duplicate, second.duplicate) == (False, True)
    assert Path(paths.inbox("bob")).read_bytes() == line + b"\n"
    store.close()


@pytest.mark.parametrize("jump", [-HOUR, DAY])
def test_positions_move_on_across_a_jump(paths: ChannelPaths, jump: float) -> None:
    """A position that seems to come from the future is no reason to stand still."""
    now = [time.time()]
    Path(paths.inbox("bob")).write_bytes(b"{}\n{}\n{}\n")
    file = InboxFile(paths, "bob", clock=lambda: now[0])
    assert file.commit([Commit(Position(1, 3))]).results == [Position(1, 3)]
    now[0] += jump
    assert file.commit([Commit(Position(1, 6))]).results == [Position(1, 6)]
    assert file.commit([Commit(Position(1, 3))]).results == [Position(1, 6)]
    assert file.read(None, 1 << 20).start == Position(1, 6)
