"""After the death of a hub, or of the machine: what the journal promised is there."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import InboxLocked
from intercom.paths import ChannelPaths
from intercom.records import Entry, Position
from intercom.spool.files import Inbox
from intercom.spool.format import dump_offset
from intercom.spool.journal import Journal, dump
from intercom.spool.recovery import MARKER, is_due, recover

MakeEntry = Callable[..., Entry]


@pytest.fixture
def written(paths: ChannelPaths, calls: Any) -> Callable[[Sequence[Entry]], None]:
    """Write entries to their inboxes and to the journal, as a hub does, which then dies."""

    def written(entries: Sequence[Entry], generation: int = 1) -> None:
        journal = Journal(paths, calls, "boot-1")
        journal.turn(full=False)
        for entry in entries:
            path = Path(paths.inbox(entry.inbox))
            start = path.stat().st_size if path.exists() else 0
            with path.open("ab") as file:
                file.write(entry.line + b"\n")
            path.chmod(0o600)
            journal.write([dump(entry, generation, start)])
        journal.close()

    return written


def ids(paths: ChannelPaths, inbox: str = "bob") -> list[str]:
    import json

    with Inbox(paths, inbox) as found:
        return [json.loads(record.line)["id"] for record in found.read().records]


def test_a_power_cut_costs_nothing_that_the_journal_has(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    entries = [entry(n, inbox=name) for n in range(4) for name in ("bob", "cy")]
    written(entries)
    whole = Path(paths.inbox("bob")).read_bytes()
    for cut in range(0, len(whole), 7):
        Path(paths.inbox("bob")).write_bytes(whole[:cut])
        written_again = Path(paths.file("journal.0")).read_bytes()
        done = recover(paths, calls, "boot-2")
        assert done.power_cut
        assert ids(paths) == ["msg_0", "msg_1", "msg_2", "msg_3"], cut
        assert ids(paths, "cy") == ["msg_0", "msg_1", "msg_2", "msg_3"]
        assert not os.path.exists(paths.file("journal.0"))
        Path(paths.file("journal.0")).write_bytes(written_again)
        Path(paths.file("journal.0")).chmod(0o600)


def test_an_inbox_that_is_gone_is_there_again(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1), entry(2)])
    os.unlink(paths.inbox("bob"))
    assert recover(paths, calls, "boot-2").appended == {"bob": 2}
    assert ids(paths) == ["msg_1", "msg_2"]


def test_zeros_in_the_place_of_lines_are_passed_over(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1), entry(2), entry(3)])
    path = Path(paths.inbox("bob"))
    whole = path.read_bytes()
    length = len(whole) // 3
    path.write_bytes(whole[:length] + bytes(2 * length))
    assert recover(paths, calls, "boot-2").appended == {"bob": 2}
    assert ids(paths) == ["msg_1", "msg_2", "msg_3"]


def test_a_position_behind_what_was_lost_is_good_again(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    """Read before the recovery it would look like a reset, and raise the generation."""
    written([entry(1), entry(2), entry(3)])
    path = Path(paths.inbox("bob"))
    whole = path.read_bytes()
    length = len(whole) // 3
    Path(paths.offset("bob")).write_bytes(dump_offset(Position(1, 2 * length), "bob", 1.0))
    Path(paths.offset("bob")).chmod(0o600)
    path.write_bytes(whole[:length])
    recover(paths, calls, "boot-2")
    assert path.read_bytes() == whole
    assert ids(paths) == ["msg_3"]


def test_what_was_read_and_emptied_does_not_come_back(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1)])
    with Inbox(paths, "bob") as inbox:
        inbox.commit(inbox.read().next)
        assert inbox.compact()
    assert recover(paths, calls, "boot-2").appended == {}
    assert ids(paths) == []


def test_in_the_same_boot_nothing_is_changed_and_all_is_synced(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1), entry(2, inbox="cy")])
    os.truncate(paths.inbox("bob"), 0)  # somebody reset it: that is no loss
    calls.log.clear()
    done = recover(paths, calls, "boot-1")
    assert not done.power_cut
    assert not done.appended
    assert [step for step in calls.log if step != "unlink"] == ["sync", "sync", "sync_directory"]
    assert ids(paths) == []


def test_after_a_failed_sync_everything_is_written_anew(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1), entry(2)])
    Path(paths.file(MARKER)).touch(0o600)
    calls.log.clear()
    assert recover(paths, calls, "boot-1").appended == {}
    assert calls.log.count("pwrite") == 2
    assert ids(paths) == ["msg_1", "msg_2"]
    assert not os.path.exists(paths.file(MARKER))


def test_a_recovery_whose_sync_fails_is_not_followed_by_one_that_trusts_the_kernel(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    """The kernel tells of a lost page once; the second sync of the same boot would be a lie."""
    written([entry(1)])
    calls.failing["sync"] = errno.EIO
    with pytest.raises(OSError, match=os.path.basename(paths.inbox("bob"))):
        recover(paths, calls, "boot-1")
    assert os.path.exists(paths.file("journal.0"))
    calls.failing.clear()
    calls.log.clear()
    recover(paths, calls, "boot-1")
    assert "pwrite" in calls.log, "it was not written anew"
    assert not os.path.exists(paths.file(MARKER))


def test_a_crash_at_any_step_is_followed_by_a_whole_recovery(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any, crash: type[BaseException]
) -> None:
    entries = [entry(n, inbox=name) for n in range(3) for name in ("bob", "cy")]
    written(entries)
    Path(paths.inbox("bob")).write_bytes(b"")
    os.unlink(paths.inbox("cy"))
    crashed = True
    steps = 0
    while crashed:
        calls.log.clear()
        calls.die_at = steps
        try:
            recover(paths, calls, "boot-2")
            crashed = False
        except crash:
            steps += 1
    assert steps > 4
    assert ids(paths) == ids(paths, "cy") == ["msg_0", "msg_1", "msg_2"]


def test_a_disk_that_takes_nothing_leaves_the_journal(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1)])
    Path(paths.inbox("bob")).write_bytes(b"")
    calls.failing["sync"] = 5
    with pytest.raises(OSError, match="Input/output"):
        recover(paths, calls, "boot-2")
    calls.failing.clear()
    assert is_due(paths, calls, "boot-2")
    recover(paths, calls, "boot-2")
    assert ids(paths) == ["msg_1"]
    assert not is_due(paths, calls, "boot-2")


def test_an_inbox_that_stays_locked_stops_the_recovery(
    paths: ChannelPaths, calls: Any, entry: MakeEntry, written: Any
) -> None:
    written([entry(1)])
    with open(paths.inbox("bob"), "rb") as holder:
        fcntl.flock(holder, fcntl.LOCK_SH)
        with pytest.raises(InboxLocked, match="power cut"):
            recover(paths, calls, "boot-2", sleep=lambda _: None)
    assert is_due(paths, calls, "boot-2")
