"""Removing sessions takes everything of theirs, and loses nothing that was still to be shown."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client.cleaning import clear
from intercom.client.erasing import Traces, all_traces
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.deadletters import DeadLetters, Letter
from intercom.spool.files import Inbox

Message = Callable[..., bytes]
ALL = 6
#: A step of a compaction behind which the inbox lacks what lies aside.
CUT = 9


def fill(paths: ChannelPaths, message: Message) -> list[bytes]:
    """Bob's inbox with six messages, of which two are read."""
    lines = [message(f"m{n}") for n in range(ALL)]
    Path(paths.inbox("bob")).write_bytes(b"".join(line + b"\n" for line in lines))
    Path(paths.inbox("bob")).chmod(0o600)
    Inbox(paths, "bob").enrol()
    Inbox(paths, "bob").commit(Position(1, 2 * len(lines[0]) + 2))
    return lines


def break_off(paths: ChannelPaths, calls: Any, crash: type[BaseException]) -> None:
    """Die in the midst of a compaction, the inbox empty."""
    calls.die_at = CUT
    with pytest.raises(crash):
        Inbox(paths, "bob", calls=calls).compact()
    assert os.path.getsize(paths.inbox("bob")) == 0


def test_what_lies_aside_counts_as_unread_and_is_in_the_way(
    paths: ChannelPaths, message: Message, calls: Any, crash: Any
) -> None:
    fill(paths, message)
    break_off(paths, calls, crash)
    assert [one.session for one in all_traces(paths)] == ["bob"]
    assert Traces(paths, "bob").unread() == 4
    removed: list[str] = []
    assert Traces(paths, "bob").erase(removed, despite_unread=False) == 4
    assert removed == []
    assert len(Inbox(paths, "bob").read().records) == 4


def test_what_lies_aside_is_told_when_a_name_is_forgotten(
    paths: ChannelPaths, message: Message, calls: Any, crash: Any
) -> None:
    lines = fill(paths, message)
    break_off(paths, calls, crash)
    traces = Traces(paths, "bob")
    traces.put_aside()
    assert list(traces.lines_aside()) == lines[2:]
    traces.bury()
    assert os.listdir(paths.directory) == []


def test_everything_of_a_session_goes(
    paths: ChannelPaths, message: Message, calls: Any, crash: Any
) -> None:
    fill(paths, message)
    break_off(paths, calls, crash)
    removed: list[str] = []
    assert Traces(paths, "bob").erase(removed, despite_unread=True) == 4
    assert os.listdir(paths.directory) == []
    assert "trail_bob.ndjson" in removed
    Path(paths.file(".keep_eve")).write_bytes(b"left alone")
    (traces,) = all_traces(paths)
    assert traces.exist()
    traces.erase(removed, despite_unread=False)
    assert os.listdir(paths.directory) == []


def test_clearing_a_channel_takes_what_was_kept_about_messages(
    paths: ChannelPaths, message: Message
) -> None:
    fill(paths, message)
    DeadLetters(paths).add([Letter("expired", "bob", message("m9"))])
    records = {"history.ndjson", "history.1.ndjson", "journal.0", "journal.1", "dead.1.ndjson"}
    for name in records:
        Path(paths.file(name)).write_bytes(b"")
    before = set(os.listdir(paths.directory))
    with pytest.raises(IntercomError) as refusal:
        clear(paths, force=False)
    assert refusal.value.code == "IN_USE"
    assert before <= set(os.listdir(paths.directory))
    removed = set(clear(paths, force=True).removed)
    assert removed >= records | {"dead.ndjson", "trail_bob.ndjson", "inbox_bob.ndjson"}
    left = os.listdir(paths.directory)
    assert [name for name in left if not name.endswith(".lock")] == []
