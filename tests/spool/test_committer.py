"""How batches become safe: one sync through the journal, and inboxes that catch up with it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Entry
from intercom.spool.commit import Committer
from intercom.spool.journal import LARGEST, SMALLEST, Journal, read_segments
from intercom.spool.recovery import MARKER
from intercom.spool.store import Store

MakeEntry = Callable[..., Entry]


class Bench:
    """A store, and the committer that makes safe what it wrote."""

    def __init__(self, paths: ChannelPaths, calls: Any) -> None:
        self.calls = calls
        self.store = Store(paths, calls)
        self.store.start()
        self.committer = Committer(paths, calls, Journal(paths, calls, "boot-1"))

    def append(self, *entries: Entry) -> None:
        claims = self.store.append_batch(entries).claims
        records = [record for claim in claims for record in claim.records]
        assert self.store.history.file is not None
        files = {claim.file for claim in claims} | {self.store.history.file}
        self.committer.commit(records, files, [])

    def settle(self) -> int:
        """Let everything catch up; in how many steps."""
        steps = 1
        while self.committer.settle():
            steps += 1
        return steps


@pytest.fixture
def bench(paths: ChannelPaths, calls: Any) -> Bench:
    return Bench(paths, calls)


def test_a_broadcast_to_a_hundred_costs_one_sync(
    bench: Bench, calls: Any, entry: MakeEntry
) -> None:
    bench.append(entry(0))
    calls.log.clear()
    bench.append(*(entry(n, inbox=f"s{n}", message_id="m") for n in range(100)))
    assert calls.log.count("sync") == 1
    assert calls.log.count("sync_directory") == 0
    assert bench.committer.problem == ""


def test_the_inboxes_catch_up_one_by_one_and_then_the_journal_forgets(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    bench.append(*(entry(n, inbox=f"s{n}") for n in range(3)))
    assert len(read_segments(paths, calls)) == 1
    calls.log.clear()
    assert bench.settle() == 4  # and the history
    assert calls.log.count("sync") == 4
    assert read_segments(paths, calls) == []
    assert not bench.committer.settle()


def test_before_a_segment_is_used_again_its_inboxes_are_safe(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    big = "x" * 400_000
    unsafe: set[str] = set()
    held: set[str] = set()
    for number in range(12):
        bench.append(entry(number, big, inbox=f"s{number}"))
        held = {r.inbox for segment in read_segments(paths, calls) for r in segment.records}
        dirty = {
            os.path.basename(file.path) for file in bench.store._files._files.values() if file.dirty
        }
        unsafe = {f"inbox_s{n}.ndjson" for n in range(number + 1)} & dirty
        assert unsafe <= {f"inbox_{name}.ndjson" for name in held}
    assert len(held) < 12, "no segment was ever used again"


def test_a_failed_sync_is_never_claimed_and_leaves_its_mark(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    bench.append(entry(1))
    calls.failing["sync"] = 5
    bench.append(entry(2))
    assert "journal" in bench.committer.problem
    del calls.failing["sync"]
    bench.append(entry(3))
    assert bench.committer.problem, "a later sync proves nothing"
    assert os.path.exists(paths.file(MARKER))
    assert read_segments(paths, calls), "what was safe before must stay so"


def test_an_inbox_that_cannot_be_synced_leaves_the_journal_as_it_is(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    bench.append(entry(1))
    calls.failing["sync"] = 5
    bench.settle()
    assert bench.committer.problem
    bench.committer.close([])
    assert [r.message_id for s in read_segments(paths, calls) for r in s.records] == ["msg_1"]


@pytest.mark.parametrize("call", ["allocate", "pwrite"])
def test_without_room_for_a_journal_the_files_are_synced_themselves(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry, call: str
) -> None:
    calls.failing[call] = 28
    calls.log.clear()
    bench.append(entry(1), entry(2, inbox="cy"))
    assert bench.committer.problem == ""
    assert calls.log.count("sync") == 3  # two inboxes, the history
    assert read_segments(paths, calls) == []
    calls.failing.clear()
    calls.log.clear()
    bench.append(entry(3), entry(4, inbox="cy"))
    assert calls.log.count("sync") == 1, "there is room again"


def test_a_journal_that_finds_too_little_room_gives_back_what_it_took(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry, monkeypatch: Any
) -> None:
    def allocate(fd: int, length: int) -> None:
        os.ftruncate(fd, length // 2)
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(calls, "allocate", allocate)
    bench.append(entry(1))
    assert bench.committer.problem == ""
    assert os.path.getsize(paths.file("journal.0")) == 0


@pytest.mark.parametrize(("free", "kept"), [(SMALLEST + 100, True), (SMALLEST + 99, False)])
def test_a_journal_leaves_free_what_messages_leave_free(
    paths: ChannelPaths, calls: Any, monkeypatch: Any, free: int, kept: bool
) -> None:
    found = SimpleNamespace(f_bavail=free, f_frsize=1, f_blocks=1000)  # a tenth: 100
    monkeypatch.setattr(calls, "space", lambda _path: found)
    committer = Committer(paths, calls, Journal(paths, calls, "boot-1", floor=64 << 20))
    committer.commit([b"x"], [], [])
    assert os.path.getsize(paths.file("journal.0")) == (SMALLEST if kept else 0)
    assert committer.problem == ""
    committer.close([])


def test_a_batch_that_no_segment_takes_is_synced_file_by_file(
    bench: Bench, calls: Any, entry: MakeEntry
) -> None:
    calls.log.clear()
    bench.append(*(entry(n, "x" * 1_000_000) for n in range(9)))
    assert bench.committer.problem == ""
    assert "pwrite" not in calls.log


@pytest.mark.parametrize("size", [SMALLEST - 200, SMALLEST, SMALLEST + 1, 5 << 20, LARGEST // 2])
def test_a_first_batch_of_any_size_becomes_safe(paths: ChannelPaths, calls: Any, size: int) -> None:
    """A segment grows as far as it must; this once went round in a circle for ever."""
    salts = (bytes([number] * 8) for number in range(10))
    committer = Committer(paths, calls, Journal(paths, calls, "boot-1", salts.__next__))
    for _ in range(2):
        committer.commit([b"x" * size], [], [])
    assert committer.problem == ""
    assert calls.log.count("sync") == 2
    committer.close([])


def test_a_clean_end_leaves_no_journal(
    bench: Bench, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    bench.append(entry(1))
    bench.committer.close([])
    bench.store.close()
    assert not [name for name in os.listdir(paths.directory) if name.startswith("journal")]
