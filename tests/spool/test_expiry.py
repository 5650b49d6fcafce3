"""Old messages, and those beyond what an inbox may hold, go: listed first, never in silence."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import SpoolError, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters
from intercom.spool.expiry import sent_at
from intercom.spool.files import Inbox
from intercom.spool.inboxfile import Commit, InboxFile
from intercom.wire.envelope import format_timestamp, make

NOW = 1_800_000_000.0
AGES = [500, 400, 300, 200, 100, 0]


def line(number: int, age: float) -> bytes:
    return make(
        type="chat",
        message_id=f"m{number}",
        from_session="ann",
        to_session="bob",
        channel="room",
        payload={"text": "x" * 50},
        timestamp=format_timestamp(NOW - age),
    )


LINES = [line(number, age) for number, age in enumerate(AGES)]
SIZE = len(LINES[0]) + 1


def fill(paths: ChannelPaths, *more: bytes) -> InboxFile:
    for name in os.listdir(paths.directory):
        os.unlink(paths.file(name))
    path = Path(paths.inbox("bob"))
    path.write_bytes(b"".join(line + b"\n" for line in (*LINES, *more)))
    path.chmod(0o600)
    return InboxFile(paths, "bob", clock=lambda: NOW)


def left(paths: ChannelPaths) -> list[bytes]:
    return Path(paths.inbox("bob")).read_bytes().split(b"\n")[:-1]


def letters(paths: ChannelPaths) -> list[str]:
    return [letter["id"] for letter in DeadLetters(paths).read(100)]


def test_nothing_is_done_while_nothing_is_too_much(paths: ChannelPaths) -> None:
    assert InboxFile(paths, "bob").expire(0, 0.0) == []  # there is no inbox
    assert not os.path.exists(paths.inbox("bob"))
    file = fill(paths)
    for keep, age in ((None, None), (6 * SIZE, None), (None, 500.0), (10**9, 1e12)):
        assert file.expire(keep, age) == []
    assert left(paths) == LINES
    assert file.read(None, 9999).start == Position(1, 0)
    assert letters(paths) == []


@pytest.mark.parametrize(
    ("keep", "age", "kept"),
    [
        (6 * SIZE - 1, None, 5),
        (3 * SIZE, None, 3),
        (SIZE, None, 1),
        (SIZE - 1, None, 0),
        (0, None, 0),
        (None, 250.0, 3),
        (None, 499.0, 5),
        (4 * SIZE, 250.0, 3),
        (2 * SIZE, 250.0, 2),
    ],
)
def test_the_oldest_go_and_are_listed(
    paths: ChannelPaths, keep: int | None, age: float | None, kept: int
) -> None:
    file = fill(paths)
    dropped = file.expire(keep, age)
    assert [record.line for record in dropped] == LINES[: 6 - kept]
    assert left(paths) == LINES[6 - kept :]
    batch = file.read(None, 9999)
    assert batch.start == Position(2, 0)
    assert [record.line for record in batch.records] == LINES[6 - kept :]
    listed = DeadLetters(paths).read(100)
    assert [letter["id"] for letter in listed] == [f"m{n}" for n in range(6 - kept)]
    assert listed[0] == {
        "at": NOW,
        "why": "expired",
        "inbox": "bob",
        "id": "m0",
        "from": "ann",
        "timestamp": format_timestamp(NOW - 500),
        "message": json.loads(LINES[0]),
    }
    assert file.expire(keep, age) == []


def test_what_was_read_goes_without_a_word(paths: ChannelPaths) -> None:
    file = fill(paths)
    file.commit([Commit(Position(1, 4 * SIZE))])
    assert file.expire(3 * SIZE, None) == []
    assert left(paths) == LINES[4:]
    assert file.read(None, 9999).start == Position(2, 0)
    assert [record.line for record in file.expire(SIZE, None)] == [LINES[4]]
    assert letters(paths) == ["m4"]


def test_a_younger_message_that_stands_before_an_older_one_stays(paths: ChannelPaths) -> None:
    file = fill(paths, line(6, 450), line(7, 10))
    dropped = file.expire(None, 350.0)
    assert [record.line for record in dropped] == [*LINES[:2], line(6, 450)]
    assert left(paths) == [*LINES[2:], line(7, 10)]


@pytest.mark.parametrize(
    "stamp", [b"", b'"timestamp":7', b'"timestamp":"soon"', b'"timestamp":"9999999-01-01"']
)
def test_a_time_that_cannot_be_read_is_never_too_old(paths: ChannelPaths, stamp: bytes) -> None:
    odd = b'{"id":"odd"%s}' % (b"," + stamp if stamp else b"")
    file = fill(paths, odd, b"no json", b'{"torn')
    with open(paths.inbox("bob"), "r+b") as whole:
        whole.truncate(os.path.getsize(paths.inbox("bob")) - 1)  # the last line is unfinished
    file.expire(None, 1.0)
    assert Path(paths.inbox("bob")).read_bytes() == b"\n".join(
        [LINES[5], odd, b"no json", b'{"torn']
    )
    file.expire(0, None)  # too much is too much
    assert Path(paths.inbox("bob")).read_bytes() == b'{"torn'
    assert letters(paths)[-2:] == ["m5", "odd"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-01-01T00:00:00+00:00", datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
        ("2026-01-01T02:00:00+02:00", datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
        ("2026-01-01T00:00:00Z", datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
        ("2026-01-01T00:00:00", datetime(2026, 1, 1, tzinfo=UTC).timestamp()),
        ("0001-01-01T00:00:00+23:59", float("inf")),
        ("yesterday", float("inf")),
        (None, float("inf")),
        ([1], float("inf")),
    ],
)
def test_when_a_message_was_sent(text: object, expected: float) -> None:
    found = sent_at(json.dumps({"timestamp": text}).encode())
    assert found == expected or (found < 0 and text == "0001-01-01T00:00:00+23:59")
    assert sent_at(b"[]") == sent_at(b"\xff") == float("inf")


def test_an_original_reader_is_given_ten_minutes(paths: ChannelPaths) -> None:
    file = fill(paths)
    Path(paths.offset("bob")).write_text(json.dumps({"offset": SIZE}))
    os.utime(paths.offset("bob"), (NOW - 590, NOW - 590))
    assert file.expire(0, None) == []
    assert left(paths) == LINES
    assert letters(paths) == []
    os.utime(paths.offset("bob"), (NOW - 610, NOW - 610))
    assert [record.line for record in file.expire(0, None)] == LINES[1:]


def test_what_cannot_be_listed_is_not_dropped(paths: ChannelPaths, calls: Any) -> None:
    fill(paths)
    os.mkdir(paths.file("dead.ndjson"), 0o700)
    with pytest.raises(UnsafePlace):
        Inbox(paths, "bob").expire(0)
    assert left(paths) == LINES
    os.rmdir(paths.file("dead.ndjson"))
    calls.write_limit = 300
    with pytest.raises(SpoolError):
        Inbox(paths, "bob", calls=calls).expire(0)
    assert left(paths) == LINES
    assert len(Inbox(paths, "bob").expire(0)) == 6
    assert Inbox(paths, "bob").size() == 0


@pytest.mark.parametrize("keep", [0, 2 * SIZE])
@pytest.mark.parametrize("age", [None, 250.0])
def test_a_crash_at_any_step_drops_nothing_in_silence(
    paths: ChannelPaths,
    calls: Any,
    crash: type[BaseException],
    monkeypatch: pytest.MonkeyPatch,
    keep: int,
    age: float | None,
) -> None:
    monkeypatch.setattr(FileCalls, "sync", lambda _self, _fd: None)
    monkeypatch.setattr(FileCalls, "sync_directory", lambda _self, _fd: None)
    gone = LINES[: 6 - keep // SIZE]
    step = 0
    while True:
        fill(paths).commit([Commit(Position(1, SIZE))])
        calls.log, calls.die_at = [], step
        file = InboxFile(paths, "bob", calls, lambda: NOW)
        try:
            file.expire(keep, age)
            break
        except crash:
            calls.die_at = None
        inbox = Inbox(paths, "bob")
        there = [record.line for record in inbox.read().records]
        listed = letters(paths)
        unlisted = [one for one in LINES[1:] if json.loads(one)["id"] not in listed]
        assert [one for one in unlisted if one not in there] == [], step
        # Once more: what is still there is dropped, and listed once.
        dropped = [record.line for record in InboxFile(paths, "bob").expire(keep, None)]
        assert dropped in ([], gone[1:]), step
        assert letters(paths) == [json.loads(one)["id"] for one in gone[1:]], step
        assert left(paths) == LINES[len(gone) :]
        inbox.enrol()
        names = os.listdir(paths.directory)
        assert [name for name in names if name.startswith(".keep")] == []
        step += 1
    assert step > 10


def test_a_client_may_expire_by_age(paths: ChannelPaths, message: Callable[..., bytes]) -> None:
    with open(paths.inbox("bob"), "wb") as file:
        file.write(message("old") + b"\n" + LINES[0].replace(b"2027", b"2999") + b"\n")
    assert time.time() < NOW + 10**9
    dropped = Inbox(paths, "bob").expire(None, 3600.0)
    assert [record.line for record in dropped] == [message("old")]
