"""The list of messages that nobody will see."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.spool import deadletters
from intercom.spool.deadletters import KEPT, DeadLetters, Letter
from intercom.spool.locking import Busy

Message = Callable[..., bytes]


def letter(message: Message, number: int, why: str = "expired", **more: Any) -> Letter:
    return Letter(why, "bob", message(f"m{number}"), **more)


def ids(paths: ChannelPaths, newest: int = 1000) -> list[Any]:
    return [found["id"] for found in DeadLetters(paths).read(newest)]


def test_letters_are_kept_in_their_order_with_all_that_they_say(
    paths: ChannelPaths, message: Message
) -> None:
    dead = DeadLetters(paths, clock=lambda: 7.5)
    assert dead.read(5) == []
    assert dead.add([]) == 0
    assert os.listdir(paths.directory) == []
    assert dead.add([letter(message, 1), letter(message, 2, "refused", code="INBOX_LOCKED")]) == 2
    first, second = dead.read(5)
    assert first == {
        "at": 7.5,
        "why": "expired",
        "inbox": "bob",
        "id": "m1",
        "from": "ann",
        "timestamp": "2026-01-01T00:00:00.000000+00:00",
        "message": json.loads(message("m1")),
    }
    assert (second["why"], second["code"], second["id"]) == ("refused", "INBOX_LOCKED", "m2")
    assert [found["id"] for found in dead.read(1)] == ["m2"]
    assert dead.read(0) == []
    assert os.stat(paths.file("dead.ndjson")).st_mode & 0o777 == 0o600


def test_what_is_listed_is_not_listed_again(paths: ChannelPaths, message: Message) -> None:
    dead = DeadLetters(paths)
    dead.add([letter(message, 1), letter(message, 2)])
    assert dead.add([letter(message, 2), letter(message, 3), letter(message, 3)]) == 1
    assert ids(paths) == ["m1", "m2", "m3"]
    others = [
        Letter("expired", "eve", message("m1")),
        Letter("expired", "bob", message("m1", sender="eve")),
        Letter("skipped", "bob", message("m1")),
    ]
    assert dead.add(others) == 3
    nameless = [Letter("expired", "bob", b'{"odd":%d}' % n) for n in (1, 2, 1)]
    assert dead.add(nameless) == 2
    assert dead.add(nameless) == 0


def test_only_so_much_is_kept_of_what_messages_say(paths: ChannelPaths, message: Message) -> None:
    large = [Letter("skipped", "bob", message(f"m{n}", "x" * 300_000)) for n in range(5)]
    small = Letter("skipped", "bob", message("m5"))
    assert DeadLetters(paths).add([*large, small]) == 6
    kept = [found["message"] is not None for found in DeadLetters(paths).read(9)]
    assert kept == [True, True, True, False, False, True]
    assert ids(paths) == [f"m{n}" for n in range(6)]
    assert os.path.getsize(paths.file("dead.ndjson")) < KEPT + 5000


def test_a_message_that_cannot_be_read_is_listed_all_the_same(paths: ChannelPaths) -> None:
    dead = DeadLetters(paths)
    assert (
        dead.add([Letter("expired", "bob", data) for data in (b"\xff", b"[1]", b'{"id":7}')]) == 3
    )
    assert [(found["id"], found["from"]) for found in dead.read(9)] == [(None, None)] * 3
    assert dead.add([Letter("expired", "bob", b'{"id":"\\ud800","from_session":"ann"}')]) == 1
    assert len(dead.read(9)) == 4


def test_a_long_list_becomes_the_older_one(
    paths: ChannelPaths, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadletters, "LONGEST", 2000)
    dead = DeadLetters(paths)
    for n in range(20):
        dead.add([letter(message, n)])
        assert ids(paths, 1) == [f"m{n}"]
    found = ids(paths)
    assert found == [f"m{n}" for n in range(20 - len(found), 20)]
    assert 6 <= len(found) < 20
    assert ids(paths, 6) == [f"m{n}" for n in range(14, 20)]
    assert dead.add([letter(message, 19), letter(message, 15)]) == 0  # whichever list it is in
    assert os.path.getsize(paths.file("dead.ndjson")) < 3000
    assert os.path.getsize(paths.file("dead.1.ndjson")) < 3000


def test_damage_in_the_list_costs_no_other_letter(paths: ChannelPaths, message: Message) -> None:
    dead = DeadLetters(paths)
    dead.add([letter(message, 1)])
    with open(paths.file("dead.ndjson"), "ab") as file:
        file.write(b'nonsense\n\n[1]\n{"why": 5}\n\xff\n' + b"[" * 100000 + b'\n{"why": "expi')
    dead.add([letter(message, 2)])
    assert ids(paths) == ["m1", "m2"]


def test_one_writes_at_a_time(paths: ChannelPaths, message: Message) -> None:
    dead = DeadLetters(paths)
    dead.add([letter(message, 1)])
    fd = os.open(paths.file("dead.ndjson"), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(Busy):
        dead.add([letter(message, 2)])
    os.close(fd)
    assert dead.add([letter(message, 2)]) == 1


def test_a_list_that_cannot_be_written_is_said(
    paths: ChannelPaths, message: Message, calls: Any
) -> None:
    for name in ("write", "sync", "sync_directory"):
        calls.failing = {name: errno.EIO}
        with pytest.raises(OSError, match="error"):
            DeadLetters(paths, calls).add([letter(message, 1)])
        Path(paths.file("dead.ndjson")).unlink()
    calls.failing = {}
    calls.write_limit = 30
    with pytest.raises(OSError, match="space"):
        DeadLetters(paths, calls).add([letter(message, 1)])
    calls.write_limit = None
    assert DeadLetters(paths, calls).add([letter(message, 1)]) == 1
    assert ids(paths) == ["m1"]
