"""Inboxes that are read are emptied in place, and no crash on the way loses a message."""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any

import pytest

from intercom.errors import SpoolError, StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.files import Inbox
from intercom.spool.store import Store

LINE = b'{"a":1}\n'


def fill(paths: ChannelPaths, lines: int = 100) -> None:
    with open(paths.inbox("bob"), "ab") as file:
        file.write(LINE * lines)


def read_all(paths: ChannelPaths) -> Inbox:
    inbox = Inbox(paths, "bob")
    inbox.skip_to_end()
    return inbox


def put_offset_of_the_original(paths: ChannelPaths, offset: int, age: float) -> None:
    with open(paths.offset("bob"), "w") as file:
        json.dump({"offset": offset, "updated_at": 1.0}, file)
    then = time.time() - age
    os.utime(paths.offset("bob"), (then, then))


def test_an_inbox_that_is_read_is_emptied_in_the_next_generation(paths: ChannelPaths) -> None:
    fill(paths)
    inbox = read_all(paths)
    before = os.stat(paths.inbox("bob")).st_ino
    assert inbox.compact()
    after = os.stat(paths.inbox("bob"))
    assert (after.st_size, after.st_ino) == (0, before)
    fill(paths, 1)
    batch = inbox.read()
    assert (batch.start, len(batch.records)) == (Position(2, 0), 1)
    assert inbox.commit(Position(1, 800)) == Position(2, 0)  # that is where it is now
    assert inbox.read(Position(1, 800)).start == Position(2, 0)
    os.unlink(paths.trail("bob"))
    with pytest.raises(StalePosition):
        inbox.commit(Position(1, 800))


def test_nothing_unread_is_ever_dropped(paths: ChannelPaths) -> None:
    inbox = Inbox(paths, "bob")
    assert not inbox.compact()  # there is none
    fill(paths)
    assert not inbox.compact()  # nothing was read
    inbox.commit(Position(1, 400))
    with open(paths.inbox("bob"), "ab") as file:
        file.write(b'{"unfinished')
    assert inbox.compact()
    assert inbox.size() == 412
    assert len(inbox.read().records) == 50
    inbox.skip_to_end()
    assert inbox.compact()
    assert inbox.size() == len(b'{"unfinished')
    with open(paths.inbox("bob"), "ab") as file:
        file.write(b'":1}\n')
    assert [record.line for record in inbox.read().records] == [b'{"unfinished":1}']


def test_an_empty_inbox_needs_no_emptying(paths: ChannelPaths) -> None:
    inbox = Inbox(paths, "bob")
    inbox.enrol()
    assert not inbox.compact()


def test_a_reader_that_knows_no_generations_is_given_ten_minutes(paths: ChannelPaths) -> None:
    fill(paths)
    put_offset_of_the_original(paths, 800, age=590)
    inbox = Inbox(paths, "bob")
    assert not inbox.compact()
    put_offset_of_the_original(paths, 800, age=610)
    assert inbox.compact()


def test_our_own_commit_does_not_hide_that_reader(paths: ChannelPaths) -> None:
    fill(paths)
    put_offset_of_the_original(paths, 400, age=30)
    inbox = read_all(paths)
    inbox.commit(Position(1, 800))
    assert not inbox.compact()


def test_a_failure_to_write_the_mark_changes_nothing(paths: ChannelPaths, calls: Any) -> None:
    fill(paths)
    read_all(paths)
    calls.failing["rename"] = errno.ENOSPC
    with pytest.raises(SpoolError):
        Inbox(paths, "bob", calls=calls).compact()
    assert Inbox(paths, "bob").read().next == Position(1, 800)


#: Every write, sync, rename and truncation of one emptying.
STEPS = range(14)


def crashed(paths: ChannelPaths, calls: Any, crash: type[BaseException], step: int) -> bool:
    """Empty an inbox but die at a step; whether there was such a step."""
    calls.die_at = step
    try:
        Inbox(paths, "bob", calls=calls).compact()
    except crash:
        return True
    return False


@pytest.mark.parametrize("foreign", [False, True], ids=["own position", "original's position"])
@pytest.mark.parametrize(
    "then", ["read", "commit", "append", "hub appends", "original appends", "empty"]
)
@pytest.mark.parametrize("step", STEPS)
def test_a_crash_at_any_step_is_finished_or_undone(
    paths: ChannelPaths,
    calls: Any,
    crash: type[BaseException],
    step: int,
    then: str,
    foreign: bool,
    entry: Any,
) -> None:
    fill(paths)
    read_all(paths)
    if foreign:
        put_offset_of_the_original(paths, 800, age=700)
    crashed(paths, calls, crash, step)
    inbox = Inbox(paths, "bob")
    size = inbox.size()
    assert size in (0, 800)
    new = b'{"new":1}'
    if then == "read":
        batch = inbox.read()
        assert batch.records == []
        assert batch.start.generation == (1 if size else 2)
        assert batch.warning == ""
    elif then == "commit":
        position = inbox.read().start
        assert inbox.commit(position) == position
    elif then == "empty":
        assert inbox.compact() == bool(size)
        assert inbox.size() == 0
        assert inbox.read().start == Position(2, 0)
    else:
        if then == "append":
            assert inbox.append(new, sender="ann", message_id="m1")
        elif then == "hub appends":
            store = Store(paths)
            store.start()
            assert len(store.append_batch([entry(1, line=new)]).outcomes) == 1
            store.close()
        else:
            with open(paths.inbox("bob"), "ab") as file:  # as much as there was, or more
                file.write((new + b"\n") * 200)
        lines = [record.line for record in inbox.read().records]
        assert lines == [new] * (200 if then == "original appends" else 1)
        inbox.skip_to_end()
        assert inbox.read().records == []
    # Whatever the crash left is mended now, by the first who held the lock.
    inbox.enrol()
    with open(paths.meta("bob")) as file:
        assert "emptying" not in json.load(file)


def test_the_steps_above_are_all_there_are(
    paths: ChannelPaths, calls: Any, crash: type[BaseException]
) -> None:
    fill(paths)
    read_all(paths)
    put_offset_of_the_original(paths, 800, age=700)
    assert not crashed(paths, calls, crash, len(STEPS))
    assert calls.log == [
        *("write", "rename"),  # the position gets a generation
        *("write", "sync", "rename", "sync_directory"),  # the mark
        "ftruncate",
        *("write", "sync", "rename", "sync_directory"),  # the new generation
        *("write", "rename"),  # its position
        "write",  # the trail
    ]
    assert len(calls.log) == len(STEPS)


@pytest.mark.parametrize("step", range(8))
def test_a_crash_while_a_reset_is_written_down_loses_nothing(
    paths: ChannelPaths, calls: Any, crash: type[BaseException], step: int
) -> None:
    fill(paths)
    read_all(paths)
    os.truncate(paths.inbox("bob"), 0)
    fill(paths, 2)
    calls.die_at = step
    try:
        Inbox(paths, "bob", calls=calls).commit(Position(2, 8))
    except crash:
        assert step < 8
    inbox = Inbox(paths, "bob")
    batch = inbox.read()
    assert batch.start.generation >= 2
    assert batch.start.offset == 0 or (step == 7 and batch.start.offset == 8)
    assert inbox.commit(batch.next).offset == 16
