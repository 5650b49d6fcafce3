"""After a power cut: the first command finds what was lost, whether or not a hub runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client.mending import mend
from intercom.election.locks import take_locks
from intercom.errors import InboxLocked
from intercom.paths import ChannelPaths
from intercom.records import Entry, Position
from intercom.spool.calls import FileCalls
from intercom.spool.format import dump_offset
from intercom.spool.journal import Journal, dump
from intercom.wire.envelope import make

Agents = Callable[[str], Any]


def lose_power(paths: ChannelPaths, ids: list[str]) -> None:
    """Leave a journal of an earlier boot, an inbox that lost all, and a position behind that."""
    journal = Journal(paths, FileCalls(), "an-earlier-boot")
    journal.turn(full=False)
    start = 0
    for one in ids:
        line = make(
            type="chat", message_id=one, from_session="ann", to_session="bob",
            channel="default", payload={"text": one}, timestamp="2026-01-01T00:00:00+00:00",
        )  # fmt: skip
        journal.write([dump(Entry(1, "bob", line, "ann", one, b"", "disk"), 1, start)])
        start += len(line) + 1
        if one == ids[0]:
            written = dump_offset(Position(1, start), "bob", 1.0)
            Path(paths.offset("bob")).write_bytes(written)
            Path(paths.offset("bob")).chmod(0o600)
    journal.close()


def test_the_first_poll_finds_what_was_lost(agent: Agents) -> None:
    bob = agent("bob")
    bob.paths.prepare()
    lose_power(bob.paths, ["m1", "m2", "m3"])
    done = bob.run("poll")
    assert [one["payload"]["text"] for one in done.ok()["messages"]] == ["m2", "m3"]
    assert "taken 3 messages" in done.err
    assert bob.texts() == []
    assert not os.path.exists(bob.paths.file("journal.0"))


def test_a_hub_that_starts_gives_it_back(agent: Agents) -> None:
    bob = agent("bob")
    bob.paths.prepare()
    lose_power(bob.paths, ["m1", "m2"])
    inbox = Path(bob.paths.inbox("bob"))
    assert bob.run("hub", "start").ok()
    assert [json.loads(line)["id"] for line in inbox.read_bytes().splitlines()] == ["m1", "m2"]


def test_whoever_recovers_is_waited_for(agent: Agents) -> None:
    bob = agent("bob")
    bob.paths.prepare()
    lose_power(bob.paths, ["m1"])
    locks = take_locks(bob.paths)
    assert locks is not None
    with pytest.raises(InboxLocked, match="being recovered"):
        mend(bob.paths, patience=0.05)
    locks.release()
    assert mend(bob.paths) == 1
    assert mend(bob.paths) == 0
