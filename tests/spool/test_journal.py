"""The write-ahead journal: what it holds, how little it costs, and what a torn one gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.paths import ChannelPaths
from intercom.records import Entry
from intercom.spool.boots import boots
from intercom.spool.journal import (
    SMALLEST,
    Journal,
    JournalRecord,
    Unsafe,
    dump,
    parse,
    read_segments,
)

MakeEntry = Callable[..., Entry]


@pytest.fixture
def journal(paths: ChannelPaths, calls: Any) -> Journal:
    return Journal(paths, calls, "boot-1")


def write(journal: Journal, *records: bytes) -> None:
    if not journal.has_room(sum(map(len, records))):
        journal.turn(full=False)
    journal.write(records)


def held(paths: ChannelPaths, calls: Any) -> list[str]:
    return [
        record.message_id for segment in read_segments(paths, calls) for record in segment.records
    ]


def test_what_was_written_is_read_in_order(
    journal: Journal, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    one, two = entry(1, "héllo \\n"), entry(2, inbox='a "b"', message_id='q"\\')
    write(journal, dump(one, 3, 0), dump(two, 1, 77))
    [segment] = read_segments(paths, calls)
    assert segment.boot == "boot-1"
    assert segment.records == [
        JournalRecord("bob", 3, 0, "ann", "msg_1", one.line),
        JournalRecord('a "b"', 1, 77, "ann", 'q"\\', two.line),
    ]


def test_a_batch_costs_one_write_and_one_sync(
    journal: Journal, calls: Any, entry: MakeEntry
) -> None:
    write(journal, dump(entry(1), 1, 0))
    calls.log.clear()
    write(journal, *(dump(entry(n, inbox=f"s{n}"), 1, 0) for n in range(100)))
    assert calls.log == ["pwrite", "sync"]


def test_a_torn_batch_is_not_taken_for_whole(
    journal: Journal, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    write(journal, dump(entry(1), 1, 0))
    write(journal, dump(entry(2), 1, 99))
    with open(paths.file("journal.0"), "r+b") as file:
        data = file.read().rstrip(b"\0")
        whole = parse(data)
        assert whole is not None
        for length in range(len(data)):
            found = parse(data[:length])
            ids = [record.message_id for record in found.records] if found else []
            assert ids in ([], ["msg_1"]), length
        for at in range(data.index(b"\n") + 1, len(data)):
            spoiled = parse(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert spoiled is not None
            assert spoiled.records == whole.records[: len(spoiled.records)], at


def test_a_segment_used_again_shows_nothing_of_its_earlier_use(
    journal: Journal, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    for number in range(9):
        write(journal, dump(entry(number), 1, 0))
    journal.turn(full=False)
    write(journal, dump(entry(10), 1, 0))
    assert held(paths, calls) == [*(f"msg_{n}" for n in range(9)), "msg_10"]
    journal.turn(full=False)
    write(journal, dump(entry(11), 1, 0))
    assert held(paths, calls) == ["msg_10", "msg_11"]


def test_it_grows_only_while_it_fills(journal: Journal, paths: ChannelPaths, calls: Any) -> None:
    journal.turn(full=False)
    assert journal.has_room(SMALLEST - 500)
    assert not journal.has_room(SMALLEST)
    journal.turn(full=True)
    assert journal.has_room(SMALLEST)


def test_what_is_forgotten_is_not_held(
    journal: Journal, paths: ChannelPaths, calls: Any, entry: MakeEntry
) -> None:
    write(journal, dump(entry(1), 1, 0))
    assert boots(paths, calls) == {"boot-1"}
    journal.forget()
    assert held(paths, calls) == []
    assert boots(paths, calls) == set()
    write(journal, dump(entry(2), 1, 0))
    assert held(paths, calls) == ["msg_2"]
    journal.remove()
    assert held(paths, calls) == []
    assert not calls.stat(paths.file("journal.0"))
    assert not calls.stat(paths.file("journal.1"))


def test_a_failed_sync_is_not_a_full_disk(journal: Journal, calls: Any, entry: MakeEntry) -> None:
    record = dump(entry(1), 1, 0)
    journal.turn(full=False)
    calls.failing["sync"] = 5
    with pytest.raises(Unsafe):
        journal.write([record])
    del calls.failing["sync"]
    calls.failing["pwrite"] = 28
    with pytest.raises(OSError, match="No space") as raised:
        journal.write([record])
    assert not isinstance(raised.value, Unsafe)


@given(st.binary(max_size=400))
def test_no_bytes_break_the_reading(data: bytes) -> None:
    for begun in (b"", b"intercom-journal 1 b 00 1\n"):
        found = parse(begun + data)
        assert found is None or found.records == []
