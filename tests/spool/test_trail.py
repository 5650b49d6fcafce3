"""The trail beside an inbox: what was shown, read and skipped, and when."""

from __future__ import annotations

import errno
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Moved, Position
from intercom.spool import trail as trail_module
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.format import split_name
from intercom.spool.inboxfile import Commit, InboxFile
from intercom.spool.trail import Cut, Trail, Trails

LINE = b'{"id":"m"}\n'
SIZE = len(LINE)


def fill(paths: ChannelPaths, lines: int = 10) -> None:
    path = Path(paths.inbox("bob"))
    path.write_bytes(b"".join(b'{"id":"%d"}\n' % n for n in range(lines)))
    path.chmod(0o600)


def moved(state: str, start: int, end: int, at: float = 1.0, generation: int = 1) -> Moved:
    return Moved("bob", state, generation, start, end, at)


def at(line: int) -> Position:
    return Position(1, line * SIZE)


def events(paths: ChannelPaths) -> list[tuple[Any, ...]]:
    found = Trail(paths, "bob", FileCalls()).events()
    return [(one.state, one.start // SIZE, one.end // SIZE) for one in found]


def test_a_commit_leaves_a_line_behind_its_position(paths: ChannelPaths) -> None:
    fill(paths)
    file = InboxFile(paths, "bob", clock=lambda: 12.5)
    done = file.commit([Commit(at(2))])
    assert done.results == [at(2)]
    assert (done.stored, done.size) == (at(2), 10 * SIZE)
    assert done.moved == [moved("read", 0, 2 * SIZE, 12.5)]
    text = Path(paths.trail("bob")).read_text()
    expected = {"at": 12.5, "state": "read", "generation": 1, "start": 0, "end": 2 * SIZE}
    assert [json.loads(line) for line in text.splitlines()] == [expected]
    assert stat.S_IMODE(os.stat(paths.trail("bob")).st_mode) == 0o600
    assert split_name(os.path.basename(paths.trail("a/b"))) == ("trail", "a%2Fb")
    assert file.commit([Commit(at(2)), Commit(at(1))]).moved == []  # nothing moved


def test_commits_that_gather_are_one_position_and_few_lines(
    paths: ChannelPaths, calls: Any
) -> None:
    fill(paths)
    states = [(1, "read"), (2, "read"), (4, "shown"), (3, "read"), (5, "skipped"), (6, "skipped")]
    states += [(4, "shown"), (7, "shown"), (9, "shown"), (7, "read"), (99, "read")]
    file = InboxFile(paths, "bob", calls)
    done = file.commit([Commit(at(n), state) for n, state in states])
    stored = [one.offset // SIZE for one in done.results[:-1] if isinstance(one, Position)]
    assert stored == [1, 2, 2, 3, 5, 6, 6, 6, 6, 7]
    assert not isinstance(done.results[-1], Position)
    assert calls.log.count("rename") == 1
    assert events(paths) == [
        ("read", 0, 2),
        ("shown", 2, 4),
        ("read", 2, 3),
        ("skipped", 3, 6),
        ("shown", 6, 9),
        ("read", 6, 7),
    ]


def test_what_was_shown_moves_nothing_and_is_noted_once(paths: ChannelPaths) -> None:
    inbox = Inbox(paths, "bob")
    assert inbox.shown(Position(1, 0)) == Position(1, 0)
    assert os.listdir(paths.directory) == []  # nobody becomes known by it
    fill(paths)
    assert inbox.shown(at(3)) == at(0)
    assert not os.path.exists(paths.offset("bob"))
    assert inbox.shown(at(2)) == inbox.shown(at(3)) == inbox.shown(at(5)) == at(0)
    inbox.commit(at(6))
    assert inbox.shown(at(7)) == at(6)
    assert events(paths) == [("shown", 0, 3), ("shown", 3, 5), ("read", 0, 6), ("shown", 6, 7)]
    inbox.commit(at(7))
    assert inbox.compact()
    assert inbox.shown(Position(2, SIZE)) == Position(2, 0)
    assert events(paths)[-1] == ("shown", 0, 1)
    with pytest.raises(ValueError, match="pushed"):
        inbox.commit(at(0), state="pushed")


def test_what_is_skipped_is_not_called_read(paths: ChannelPaths) -> None:
    fill(paths)
    inbox = Inbox(paths, "bob")
    inbox.commit(at(1))
    assert inbox.skip_to_end() == (9, at(10))
    assert events(paths) == [("read", 0, 1), ("skipped", 1, 10)]


GARBAGE = [
    b"nonsense",
    b"",
    b"[]",
    b"7",
    b"\xff\xfe",
    b'{"at": 1}',
    b'{"at": 1, "state": "eaten", "generation": 1, "start": 0, "end": 5}',
    b'{"at": "x", "state": "read", "generation": 1, "start": 0, "end": 5}',
    b'{"at": NaN, "state": "read", "generation": 1, "start": 0, "end": 5}',
    b'{"at": 1, "state": "read", "generation": 1, "start": true, "end": 5}',
    b'{"at": 1, "state": "read", "generation": 1, "start": -1, "end": 5}',
    b'{"at": 1, "state": ["read"], "generation": 1, "start": 1, "end": 5}',
    b"[" * 100000,
]


def test_what_is_unreadable_in_it_is_passed_over(paths: ChannelPaths) -> None:
    fill(paths)
    inbox = Inbox(paths, "bob")
    inbox.commit(at(1))
    with open(paths.trail("bob"), "ab") as file:
        file.write(b"\n".join(GARBAGE) + b'\n{"at": 1, "sta')  # and somebody died here
    inbox.commit(at(2))
    inbox.shown(at(3))
    assert events(paths) == [("read", 0, 1), ("read", 1, 2), ("shown", 2, 3)]


@pytest.mark.parametrize("way", ["directory", "link", "disk full"])
def test_a_trail_that_cannot_be_written_stops_no_commit(
    paths: ChannelPaths, calls: Any, way: str
) -> None:
    fill(paths)
    if way == "directory":
        os.mkdir(paths.trail("bob"))
    elif way == "link":
        os.symlink(paths.file("elsewhere"), paths.trail("bob"))
    else:
        write = calls.write

        def full(fd: int, data: bytes | memoryview) -> int:
            if b'"state"' in bytes(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(write(fd, data))

        calls.write = full
    inbox = Inbox(paths, "bob", calls=calls)
    assert inbox.commit(at(2)) == at(2)
    assert inbox.shown(at(3)) == at(2)
    assert inbox.commit(at(4)) == at(4)
    assert inbox.compact()
    assert Inbox(paths, "bob").read().start == Position(2, 0)
    done = InboxFile(paths, "bob", calls).commit([Commit(Position(2, SIZE))])
    assert [one[1:5] for one in done.moved] == [("read", 2, 0, SIZE)]  # told nevertheless


@pytest.mark.parametrize("step", range(6))
def test_a_crash_within_a_commit_moves_the_position_or_not(
    paths: ChannelPaths, calls: Any, crash: type[BaseException], step: int
) -> None:
    fill(paths)
    calls.die_at = step
    try:
        Inbox(paths, "bob", calls=calls).commit(at(3))
    except crash:
        assert step < 3
    else:
        assert calls.log == ["write", "rename", "write"]
    position = Inbox(paths, "bob").read().start
    assert position == (at(3) if step >= 2 else at(0))
    assert len(events(paths)) == (1 if step >= 3 else 0)
    assert Inbox(paths, "bob").commit(at(4)) == at(4)
    # Of what a crash left untold nothing is made up.
    assert events(paths)[-1] == ("read", position.offset // SIZE, 4)


def test_a_long_trail_is_replaced_by_its_younger_half(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_module, "LONGEST", 2000)
    fill(paths, 9)
    file = InboxFile(paths, "bob", clock=lambda: 5.0)
    for n in range(9):
        file.commit([Commit(at(n + 1))])
        Trail(paths, "bob", FileCalls()).append([moved("shown", k, k + 1) for k in range(4)])
    found = Trail(paths, "bob", FileCalls()).events()
    assert os.path.getsize(paths.trail("bob")) < 2500
    reads = [one.end // SIZE for one in found if one.state == "read"]
    assert reads == list(range(10 - len(reads), 10))
    assert 2 <= len(reads) < 9
    assert [name for name in os.listdir(paths.directory) if name.startswith(".tmp")] == []


# -- following --------------------------------------------------------------------------------


def followed(paths: ChannelPaths, now: float = 0.0) -> Trails:
    trails = Trails(paths, FileCalls())
    trails.start(now)
    return trails


def put(paths: ChannelPaths, *moves: Moved) -> None:
    Trail(paths, "bob", FileCalls()).append(moves)


def test_news_are_what_others_wrote_each_once_and_in_order(paths: ChannelPaths) -> None:
    first = [moved("read", n, n + 1, float(n)) for n in range(9)]
    put(paths, *first[:2])
    trails = followed(paths, 5.0)
    assert trails.news(["bob"]) == []  # it stood there before
    put(paths, first[2])
    put(paths, first[3])
    assert trails.news(["bob", "nobody", "a%zz"]) == first[2:4]
    assert trails.news(["bob"]) == []
    put(paths, first[4])
    assert trails.of("bob").append([first[5]]) == first[4:6]
    assert trails.news(["bob"]) == []
    assert trails.of("bob").append([]) == []
    put(paths, first[6])
    assert trails.of("bob").append([]) == [first[6]]
    assert trails.of("bob").append([first[7]]) == [first[7]]
    put(paths, first[8])
    assert trails.news(["bob"]) == [first[8]]
    assert Trail(paths, "bob", FileCalls()).events() == first


def test_half_a_line_is_news_when_it_is_whole(paths: ChannelPaths) -> None:
    trails = followed(paths)
    line = trail_module.dump(moved("read", 0, 5))
    with open(paths.trail("bob"), "wb") as file:
        file.write(line[:20])
    assert trails.news(["bob"]) == []
    with open(paths.trail("bob"), "ab") as file:
        file.write(line[20:] + line[:20])
    assert trails.news(["bob"]) == [moved("read", 0, 5)]
    # Whoever wrote the rest of it died: it is ended, and is none.
    assert trails.of("bob").append([moved("read", 5, 6)]) == [moved("read", 5, 6)]
    put(paths, moved("read", 6, 7))
    assert trails.news(["bob"]) == [moved("read", 6, 7)]


@pytest.mark.parametrize("by", ["others", "ourselves"])
def test_a_replaced_trail_is_followed_on(
    paths: ChannelPaths, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trail_module, "LONGEST", 1000)
    trails = followed(paths)
    told: list[Moved] = []
    expected = [moved("read", n, n + 1, 7.0) for n in range(100)]  # all at one time
    for number, one in enumerate(expected):
        if by == "others" or number % 3:
            put(paths, one)
        else:
            told += trails.of("bob").append([one])
        if number % 5 == 4:
            told += trails.news(["bob"])
    assert told == expected


def test_of_a_trail_that_lost_the_last_line_known_what_is_younger_is_news(
    paths: ChannelPaths,
) -> None:
    trails = followed(paths, 3.0)
    put(paths, moved("read", 0, 9, 4.0))
    assert len(trails.news(["bob"])) == 1
    os.unlink(paths.trail("bob"))
    put(paths, moved("read", 1, 2, 4.0), moved("read", 2, 3, 5.0))
    assert trails.news(["bob"]) == [moved("read", 2, 3, 5.0)]
    Path(paths.trail("bob")).write_bytes(trail_module.dump(moved("read", 9, 12, 6.0)))
    assert trails.news(["bob"]) == [moved("read", 9, 12, 6.0)]
    os.unlink(paths.trail("bob"))
    assert trails.news(["bob"]) == []
    put(paths, moved("shown", 0, 1, 7.0))
    assert trails.news(["bob"]) == [moved("shown", 0, 1, 7.0)]


def test_what_one_inbox_brings_is_told_behind_what_others_did(paths: ChannelPaths) -> None:
    fill(paths)
    trails = followed(paths)
    Inbox(paths, "bob").commit(at(1))
    file = InboxFile(paths, "bob", trail=trails.of("bob"))
    told = file.commit([Commit(at(2)), Commit(at(3), "shown")]).moved
    assert [(one.state, one.start // SIZE, one.end // SIZE) for one in told] == [
        ("read", 0, 1),
        ("read", 1, 2),
        ("shown", 2, 3),
    ]
    assert trails.news(["bob"]) == []
    Inbox(paths, "bob").compact()  # notes what stays, which is no event
    assert trails.news(["bob"]) == []
    assert file.commit([Commit(Position(2, SIZE))]).moved[0][1:5] == ("read", 2, 0, SIZE)


# -- places -----------------------------------------------------------------------------------


def test_a_place_is_followed_through_the_generations(paths: ChannelPaths) -> None:
    fill(paths)
    inbox = Inbox(paths, "bob")
    inbox.commit(at(3))
    assert inbox.compact()
    inbox.commit(Position(2, 2 * SIZE))
    assert inbox.compact()
    trail = Trail(paths, "bob", FileCalls())
    assert trail.follow(Position(1, 6 * SIZE), 3) == Position(3, SIZE)
    assert trail.follow(Position(1, 4 * SIZE), 3) == Position(3, 0)  # read before
    assert trail.follow(Position(1, 4 * SIZE), 2) == Position(2, SIZE)
    assert trail.follow(Position(3, SIZE), 3) == Position(3, SIZE)
    assert trail.follow(Position(1, SIZE), 9) == Position(1, SIZE)  # nobody noted an end of 3
    inbox.expire(3 * SIZE)
    assert trail.follow(Position(1, 8 * SIZE), 4) == Position(4, SIZE)
    assert trail.cuts()[1] == Cut(3 * SIZE, ((3 * SIZE, 10 * SIZE),))
    with open(paths.trail("bob"), "ab") as file:
        file.write(b'{"state": "cut", "generation": 1, "read": -5, "stays": 7}\n{"state": "cut"')
    assert trail.cuts()[1].read == 3 * SIZE


def test_an_acknowledgement_from_before_a_compaction_is_understood(paths: ChannelPaths) -> None:
    fill(paths)
    inbox = Inbox(paths, "bob")
    inbox.commit(at(3))
    assert inbox.compact()
    assert inbox.commit(at(2)) == Position(2, 0)  # it was read already
    assert inbox.commit(at(5)) == Position(2, 2 * SIZE)
    assert inbox.commit(Position(2, 3 * SIZE)) == Position(2, 3 * SIZE)
