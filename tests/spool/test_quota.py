"""What does not fit is refused before a byte of it is written, and only that."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Entry, Position, Refused, Written
from intercom.settings.limits import MIB, UNBOUNDED, Limits
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.known import Extent
from intercom.spool.quota import (
    BELIEVED_BYTES,
    BELIEVED_S,
    MAKE_ROOM_S,
    Quota,
    sessions_with_inbox,
)
from intercom.spool.store import Store, Work

MakeEntry = Callable[..., Entry]
BLOCK = 4096


class Disk(FileCalls):
    """A file system of which a test says how much is left.

    :ivar left: free bytes; :ivar inodes: free inodes; of 1,000 blocks and 1,000 inodes.
    :ivar asked: how often somebody wanted to know.
    """

    def __init__(self) -> None:
        self.left = 1000 * BLOCK
        self.inodes = 1000
        self.asked = 0
        self.writes = 0

    def space(self, path: str) -> os.statvfs_result:
        self.asked += 1
        blocks = self.left // BLOCK
        return os.statvfs_result(
            (BLOCK, BLOCK, 1000, blocks, blocks, 1000, self.inodes, self.inodes, 0, 255)
        )

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self.writes += 1
        return super().write(fd, data)


@pytest.fixture
def disk() -> Disk:
    return Disk()


def opened(paths: ChannelPaths, disk: FileCalls, **limits: Any) -> Store:
    store = Store(paths, disk, limits=UNBOUNDED._replace(**limits))
    store.start()
    return store


def told(work: Work) -> list[Any]:
    """Tickets that were written, and codes of what was not."""
    return [
        outcome.code if isinstance(outcome, Refused) else outcome.ticket
        for outcome in work.outcomes
        if isinstance(outcome, Refused | Written)
    ]


def sized(entry: MakeEntry, ticket: int, size: int, **changes: Any) -> Entry:
    """An entry whose line has so many bytes, its line feed among them."""
    spare = size - len(entry(ticket, "", **changes).line) - 1
    made = entry(ticket, "x" * spare, **changes)
    assert len(made.line) + 1 == size
    return made


# -- an inbox ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("second", "outcome"), [(4999, [2]), (5000, [2]), (5001, ["INBOX_FULL"])])
def test_an_inbox_takes_so_many_unread_bytes(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, second: int, outcome: list[Any]
) -> None:
    """Beyond them only that inbox refuses; what is small enough still fits."""
    store = opened(paths, disk, inbox_size=10_000)
    store.append_batch([sized(entry, 1, 5000)])
    assert told(store.append_batch([sized(entry, 2, second)])) == outcome
    size = os.path.getsize(paths.inbox("bob"))
    assert size == 5000 + (second if outcome == [2] else 0)
    others = [sized(entry, 3, 9000, inbox="eve"), sized(entry, 4, 9000), sized(entry, 5, 300)]
    expected = [3, "INBOX_FULL", 5 if size < 9800 else "INBOX_FULL"]
    assert told(store.append_batch(others)) == expected
    store.close()


def test_the_refusal_says_whose_inbox_and_how_much(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    store = opened(paths, disk, inbox_size=5000)
    [_, refused] = store.append_batch([sized(entry, 1, 4000), sized(entry, 2, 2000)]).outcomes
    assert isinstance(refused, Refused)
    assert "the inbox of 'bob' takes 5000 bytes" in refused.text
    store.close()


def test_a_full_inbox_takes_mail_again_as_soon_as_it_is_read(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """What is read does not count, though it still stands in the file."""
    store = opened(paths, disk, inbox_size=10_000)
    store.append_batch([sized(entry, 1, 6000), sized(entry, 2, 4000)])
    assert told(store.append_batch([sized(entry, 3, 300)])) == ["INBOX_FULL"]
    Inbox(paths, "bob").commit(Position(1, 6000))
    work = store.append_batch([sized(entry, 3, 300), sized(entry, 4, 5701), sized(entry, 5, 5700)])
    assert told(work) == [3, "INBOX_FULL", 5]
    assert os.path.getsize(paths.inbox("bob")) == 16_000
    store.close()


def test_a_repetition_needs_no_room(paths: ChannelPaths, entry: MakeEntry, disk: Disk) -> None:
    store = opened(paths, disk, inbox_size=5000)
    first = sized(entry, 1, 5000)
    store.append_batch([first])
    work = store.append_batch([first._replace(ticket=2), sized(entry, 3, 300)])
    assert told(work) == [2, "INBOX_FULL"]
    assert isinstance(work.outcomes[0], Written)
    assert work.outcomes[0].duplicate
    store.close()


def test_the_hub_s_own_notices_always_fit(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """Who is told that mail was dropped may have a full inbox."""
    store = opened(paths, disk, inbox_size=5000, channel_size=5000)
    store.append_batch([sized(entry, 1, 4900)])
    work = store.append_batch([sized(entry, 2, 300, sender="hub"), sized(entry, 3, 300)])
    assert told(work) == [2, "INBOX_FULL"]
    store.close()


def test_a_refused_message_may_be_sent_again(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """Its id is not spent, and the history knows that it was refused."""
    store = opened(paths, disk, inbox_size=5000)
    store.append_batch([sized(entry, 1, 4900), sized(entry, 2, 300)])
    Inbox(paths, "bob").commit(Position(1, 4900))
    assert told(store.append_batch([sized(entry, 2, 300)])) == [2]
    store.close()
    with open(paths.file("history.ndjson"), "rb") as file:
        lines = [json.loads(line) for line in file]
    assert [line["id"] for line in lines if "refused" in line] == ["msg_2"]


def test_without_a_limit_there_is_none(paths: ChannelPaths, entry: MakeEntry, disk: Disk) -> None:
    disk.left = disk.inodes = 0
    store = opened(paths, disk)
    assert told(store.append_batch([sized(entry, 1, 500_000)])) == [1]
    assert disk.asked == 0
    store.close()


# -- a channel --------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "outcome"), [(3999, [9]), (4000, [9]), (4001, ["INBOX_FULL"])])
def test_all_inboxes_together_have_so_many_bytes(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, size: int, outcome: list[Any]
) -> None:
    """What stood there before counts, read or not; others' appends do, too."""
    before = opened(paths, disk)
    before.append_batch([sized(entry, 1, 3000, inbox="ann")])
    before.close()
    store = opened(paths, disk, channel_size=10_000)
    others = sized(entry, 2, 3000, inbox="eve")
    Inbox(paths, "eve").append(others.line, sender="ann", message_id="o")
    store.work(["eve"], [])
    assert told(store.append_batch([sized(entry, 9, size)])) == outcome
    assert os.path.exists(paths.inbox("bob")) == (outcome == [9])  # no empty file is left
    store.close()


def test_room_is_made_of_what_is_read_before_anything_is_refused(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """Nothing unread is touched."""
    store = opened(paths, disk, channel_size=10_000)
    store.append_batch([sized(entry, n, 3000, inbox=f"s{n}") for n in range(3)])
    store.append_batch([sized(entry, 7, 200, inbox="s1")])
    Inbox(paths, "s0").commit(Position(1, 3000))
    Inbox(paths, "s1").commit(Position(1, 3000))
    assert told(store.append_batch([sized(entry, 9, 5000)])) == [9]
    sizes = {name: os.path.getsize(paths.inbox(name)) for name in ("s0", "s1", "s2", "bob")}
    assert sizes["s2"] == 3000
    assert sizes["s1"] in (200, 3200)
    assert Inbox(paths, "s1").unread() == 1
    assert sum(sizes.values()) <= 10_000
    store.close()


def test_inboxes_that_others_emptied_make_room_too(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """Though nobody told: the directory is walked before a refusal, and not for each message."""
    now = [0.0]
    quota = Quota(paths, disk, UNBOUNDED._replace(channel_size=1000), lambda: now[0])
    with open(paths.inbox("ann"), "wb") as file:
        file.write(b"x" * 900)
    quota.begin({"inbox_ann.ndjson": Extent((0, 0), 900)})
    os.truncate(paths.inbox("ann"), 100)
    quota.make_room(100)
    assert quota.total == 900  # it fits, so nobody looked
    quota.make_room(200)
    assert quota.total == 100
    os.truncate(paths.inbox("ann"), 0)
    now[0] += MAKE_ROOM_S - 0.1
    quota.make_room(950)
    assert quota.total == 100  # not again so soon
    now[0] += 0.1
    quota.make_room(950)
    assert quota.total == 0


def test_a_look_that_took_long_is_not_repeated_soon(paths: ChannelPaths, disk: Disk) -> None:
    """It would keep everybody else waiting; a quick one is repeated after a second."""
    now = [0.0]

    def slow() -> float:
        now[0] += 0.5
        return now[0]

    quota = Quota(paths, disk, UNBOUNDED._replace(channel_size=1000), slow)
    with open(paths.inbox("ann"), "wb") as file:
        file.write(b"x" * 900)
    quota.begin({"inbox_ann.ndjson": Extent((0, 0), 950)})
    quota.make_room(200)
    assert quota.total == 900
    os.truncate(paths.inbox("ann"), 0)
    now[0] += 2 * MAKE_ROOM_S
    quota.make_room(950)
    assert quota.total == 900
    now[0] += 10 * MAKE_ROOM_S
    quota.make_room(950)
    assert quota.total == 0


@pytest.mark.parametrize(("count", "outcome"), [(2, [9]), (3, [9]), (4, ["INBOX_FULL"])])
def test_so_many_inboxes_are_made(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, count: int, outcome: list[Any]
) -> None:
    store = opened(paths, disk, session_limit=4)
    store.append_batch([entry(n, inbox=f"s{n}") for n in range(count)])
    assert told(store.append_batch([entry(9)])) == outcome
    assert told(store.append_batch([entry(10, inbox="s0")])) == [10]  # one that is there goes on
    store.close()


def test_the_hub_s_own_inbox_is_no_session_s(paths: ChannelPaths, disk: Disk) -> None:
    """Two sessions have an inbox, and three may; the hub's is not the third."""
    quota = Quota(paths, disk, Limits(session_limit=3))
    for name in ("ann", "bob", "hub"):
        quota.note(os.path.basename(paths.inbox(name)), 10)
    assert quota.newcomer("joe", 100) is None
    quota.note(os.path.basename(paths.inbox("joe")), 10)
    assert quota.newcomer("kim", 100) is not None
    quota.note(os.path.basename(paths.inbox("hub")), None)
    assert quota.newcomer("hub", 100) is None


# -- the file system --------------------------------------------------------------------------


@pytest.mark.parametrize(("left", "outcome"), [(21, [1]), (20, [1]), (19, ["DISK_FULL"])])
def test_so_much_of_the_disk_stays_free(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, left: int, outcome: list[Any]
) -> None:
    disk.left = left * BLOCK
    store = opened(paths, disk, free_space=10 * BLOCK)
    assert told(store.append_batch([sized(entry, 1, 10 * BLOCK)])) == outcome
    assert os.path.exists(paths.inbox("bob")) == (outcome == [1])
    store.close()


def test_a_small_disk_can_be_filled_to_nine_tenths(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    store = opened(paths, disk, free_space=64 * MIB)
    disk.left = 101 * BLOCK
    work = store.append_batch([sized(entry, 1, BLOCK), sized(entry, 2, BLOCK)])
    assert told(work) == [1, "DISK_FULL"]
    assert isinstance(work.outcomes[1], Refused)
    assert f"{100 * BLOCK} bytes" in work.outcomes[1].text
    store.close()


def test_space_that_is_freed_is_noticed_with_the_next_message(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk
) -> None:
    """Nothing is refused by what was true a moment ago."""
    disk.left = 0
    store = opened(paths, disk, free_space=1)
    before = disk.writes
    assert told(store.append_batch([entry(1)])) == ["DISK_FULL"]
    assert disk.writes == before  # not even that it was refused
    disk.left = 100 * BLOCK
    assert told(store.append_batch([entry(2)])) == [2]
    store.close()


def test_the_disk_is_asked_once_a_second_or_for_each_mebibyte(
    paths: ChannelPaths, disk: Disk
) -> None:
    now = [100.0]
    disk.left = 1 << 40
    quota = Quota(paths, disk, UNBOUNDED._replace(free_space=1), lambda: now[0])

    def append(size: int) -> None:
        quota.room("bob", quota.total, size, lambda: 0)
        quota.note(os.path.basename(paths.inbox("bob")), quota.total + size)

    for _ in range(1000):
        append(10)
    assert disk.asked == 1
    now[0] += BELIEVED_S - 0.1
    append(10)
    assert disk.asked == 1
    now[0] += 0.1
    append(10)
    assert disk.asked == 2
    append(BELIEVED_BYTES)
    append(10)
    assert disk.asked == 3


@pytest.mark.parametrize(("inodes", "outcome"), [(12, [1]), (11, [1]), (10, ["DISK_FULL"])])
def test_so_many_inodes_stay_free(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, inodes: int, outcome: list[Any]
) -> None:
    """Only a new inbox needs one."""
    store = opened(paths, disk, free_inodes=10)
    store.append_batch([entry(7, inbox="old")])
    disk.inodes = inodes
    store._quota._asked = None
    assert told(store.append_batch([entry(1)])) == outcome
    assert told(store.append_batch([entry(8, inbox="old")])) == [8]
    store.close()


def test_a_file_system_that_does_not_say_has_room(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: str) -> os.statvfs_result:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(disk, "space", fail)
    store = opened(paths, disk, free_space=1, free_inodes=1)
    assert told(store.append_batch([entry(1)])) == [1]
    store.close()


def test_one_that_counts_no_inodes_has_enough(
    paths: ChannelPaths, entry: MakeEntry, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = os.statvfs_result((BLOCK, BLOCK, 1000, 500, 500, 0, 0, 0, 0, 255))
    monkeypatch.setattr(disk, "space", lambda path: found)
    store = opened(paths, disk, free_space=1, free_inodes=1024)
    assert told(store.append_batch([entry(1)])) == [1]
    store.close()


# -- what the system itself refuses -----------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "DISK_FULL"),
        (errno.EDQUOT, "DISK_FULL"),
        (errno.EFBIG, "DISK_FULL"),
        (errno.EIO, "SPOOL_FAILED"),
        (errno.EROFS, "SPOOL_FAILED"),
    ],
)
@pytest.mark.parametrize("short", [0, 1, 100, 150])
def test_a_failing_write_leaves_the_file_as_it_was_and_the_next_message_is_fine(
    paths: ChannelPaths, entry: MakeEntry, number: int, code: str, short: int
) -> None:
    """Also where a part of it was written, and whatever stood there before."""

    class Failing(FileCalls):
        """Writes so many bytes to inboxes, then fails."""

        left: int | None = None

        def write(self, fd: int, data: bytes | memoryview) -> int:
            if self.left is None or "inbox_" not in os.readlink(f"/proc/self/fd/{fd}"):
                return super().write(fd, data)
            if not self.left:
                raise OSError(number, os.strerror(number))
            part = memoryview(data)[: self.left]
            self.left -= len(part)
            return super().write(fd, part)

    calls = Failing()
    store = opened(paths, calls, inbox_size=64 * MIB, channel_size=1 << 30)
    store.append_batch([entry(1)])
    before = _content(paths)
    calls.left = short
    work = store.append_batch([sized(entry, 2, 300), entry(3, inbox="eve"), entry(4)])
    assert told(work).count(code) >= 2
    assert _content(paths) == before
    calls.left = None
    assert told(store.append_batch([sized(entry, 2, 300), entry(4)])) == [2, 4]
    batch = Inbox(paths, "bob").read()
    assert [json.loads(one.line)["id"] for one in batch.records] == ["msg_1", "msg_2", "msg_4"]
    assert not batch.damaged
    store.close()


def test_a_refused_group_does_not_count(paths: ChannelPaths, entry: MakeEntry, calls: Any) -> None:
    """The bounds go by what stands in the file."""
    store = opened(paths, calls, inbox_size=1000)
    calls.failing["write"] = errno.ENOSPC
    assert told(store.append_batch([sized(entry, 1, 900)])) == ["DISK_FULL"]
    calls.failing.clear()
    assert store._quota.total == 0
    assert told(store.append_batch([sized(entry, 1, 1000)])) == [1]
    assert store._quota.total == 1000
    store.close()


# -- small things -----------------------------------------------------------------------------


def test_every_inbox_is_found_by_the_session_s_name(paths: ChannelPaths) -> None:
    names = ["bob", "Jürgen", "a/b", "x" * 120]
    for name in names:
        Inbox(paths, name).enrol()
    with open(paths.file("inbox_notes.txt"), "w"):
        pass
    assert sorted(sessions_with_inbox(paths, FileCalls())) == sorted(names)


def test_an_inbox_that_is_gone_counts_no_more(paths: ChannelPaths, disk: Disk) -> None:
    quota = Quota(paths, disk, Limits(session_limit=1))
    quota.note(os.path.basename(paths.inbox("ann")), 500)
    assert quota.newcomer("bob", 100) is not None
    quota.note(os.path.basename(paths.inbox("ann")), None)
    assert quota.total == 0
    assert quota.newcomer("bob", 100) is None


def _content(paths: ChannelPaths) -> bytes:
    with open(paths.inbox("bob"), "rb") as file:
        return file.read()
