"""Taking a session's turn, who reads it, mail elsewhere, reading from another place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.client import readers, resuming
from intercom.client.elsewhere import waiting_elsewhere
from intercom.client.parent import Parent
from intercom.client.readers import Seat
from intercom.client.readership import readership
from intercom.client.resuming import resume
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.deadletters import DeadLetters
from intercom.spool.files import Inbox, Patience
from intercom.wire import envelope

ROOT = str(Path(__file__).resolve().parents[2])
NOW = 1_800_000_000.0


def line(message_id: str, *, sender: str = "ann", at: object = None) -> bytes:
    return envelope.make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session="bob",
        channel="room",
        payload={"text": f"text of {message_id}"},
        timestamp=envelope.format_timestamp(NOW) if at is None else str(at),
    )


@pytest.fixture
def paths(tmp_path: Path) -> ChannelPaths:
    paths = ChannelPaths(str(tmp_path / "base"), "room")
    paths.prepare()
    return paths


@pytest.fixture
def fill(paths: ChannelPaths) -> Callable[..., list[int]]:
    """Fill bob's inbox with m1, m2 ...; gives the offsets behind each."""

    def fill(count: int, session: str = "bob", channel: ChannelPaths = paths) -> list[int]:
        ends = [0]
        with Inbox(channel, session) as inbox:
            for number in range(1, count + 1):
                inbox.append(line(f"m{number}"), sender="ann", message_id=f"m{number}")
                ends.append(inbox.size())
        return ends

    return fill


# -- the seat ---------------------------------------------------------------------------------


def test_a_turn_is_taken_given_back_and_taken_again(paths: ChannelPaths) -> None:
    with Seat(paths, "bob", "intercom poll", NOW) as mine:
        with Seat(paths, "bob", "intercom listen", NOW) as other:
            assert mine.take() is None
            assert mine.take() is None
            holder = other.take(0.0)
            assert holder is not None
            assert (holder.pid, holder.program, holder.since) == (os.getpid(), "intercom poll", NOW)
            mine.give_back()
            mine.give_back()
            assert other.take() is None
            assert mine.take(0.0) is not None
        assert mine.take() is None
    found = readership(paths, "bob").holder
    assert found is None


def test_one_that_would_stay_is_refused_with_a_reason(paths: ChannelPaths) -> None:
    with (
        Seat(paths, "bob", "intercom listen", NOW) as first,
        Seat(paths, "bob", "intercom listen", NOW) as second,
    ):
        first.take_for_long(takeover=False)
        with pytest.raises(IntercomError) as caught:
            second.take_for_long(takeover=False, patience=0.0)
        error = caught.value
        assert (error.code, error.exit_code) == ("SESSION_COLLISION", 77)
        assert f"process {os.getpid()} (intercom listen)" in error.text
        assert "--takeover" in error.remedy
        assert error.details["reading"]["pid"] == os.getpid()
        first.check()
        second.take_for_long(takeover=True)
        second.check()
        with pytest.raises(IntercomError, match="has taken over") as ended:
            first.check()
        assert ended.value.code == "TAKEN_OVER"


def test_a_seat_without_a_turn_has_nothing_to_lose(paths: ChannelPaths) -> None:
    with Seat(paths, "bob", "intercom poll", NOW) as seat:
        seat.check()


def test_a_holder_is_told_for_programs_and_people() -> None:
    holder = readers.Holder(7, "intercom listen", 0.0)
    assert readers.fields(holder) == {
        "pid": 7,
        "program": "intercom listen",
        "since": "1970-01-01T00:00:00.000000+00:00",
    }
    assert readers.described(holder) == "process 7 (intercom listen)"
    assert readers.described(readers.Holder()) == "another program"
    assert readers.fields(readers.Holder())["since"] is None


# -- the parent -------------------------------------------------------------------------------


def test_a_parent_is_gone_once_another_has_adopted_us() -> None:
    answers = iter([500, 500, 500, 1, 1])
    parent = Parent(lambda: next(answers))
    assert [parent.is_gone() for _ in range(4)] == [False, False, True, True]


def test_a_reaper_is_no_parent_of_ours() -> None:
    answers = iter([500, 900])
    assert Parent(lambda: next(answers)).is_gone()


def test_whoever_was_started_without_a_parent_has_none_to_lose() -> None:
    parent = Parent(lambda: 1)
    assert not parent.is_gone()


def test_the_end_of_a_real_parent_is_seen(tmp_path: Path) -> None:
    """A killed parent, seen by its child within moments, wherever that is adopted."""
    mark = tmp_path / "gone"
    child = (
        "import pathlib, sys, time\n"
        "from intercom.client.parent import Parent\n"
        "parent = Parent()\n"
        "print('child', flush=True)\n"
        "deadline = time.monotonic() + 60\n"
        "while not parent.is_gone() and time.monotonic() < deadline: time.sleep(0.01)\n"
        "pathlib.Path(sys.argv[1]).write_text(str(parent.is_gone()))\n"
    )
    middle = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    process = subprocess.Popen(
        [sys.executable, "-c", middle, child, str(mark)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"child\n"
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    process.stdout.close()
    deadline = time.monotonic() + 60
    while not mark.exists() or not mark.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert mark.read_text() == "True"


# -- who reads, and what waits ----------------------------------------------------------------


def test_nobody_has_ever_read_and_nothing_waits(paths: ChannelPaths) -> None:
    found = readership(paths, "bob")
    assert found == (None, None, 0, None)
    assert found.fields(NOW) == {
        "reader": {"state": "none", "last_read": None},
        "unread": 0,
        "oldest_unread_age": None,
    }
    assert os.listdir(paths.directory) == []


def test_unread_messages_are_counted_and_the_oldest_is_dated(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    ends = fill(4)
    found = readership(paths, "bob")
    assert (found.unread, found.oldest, found.last_read) == (4, NOW, None)
    with Inbox(paths, "bob") as inbox:
        inbox.commit(Position(1, ends[3]))
    os.utime(paths.offset("bob"), (NOW + 60, NOW + 60))
    fields = readership(paths, "bob").fields(NOW + 90)
    assert fields == {
        "reader": {"state": "none", "last_read": envelope.format_timestamp(NOW + 60)},
        "unread": 1,
        "oldest_unread_age": 90.0,
    }


def test_a_message_without_a_readable_time_has_no_age(paths: ChannelPaths) -> None:
    with Inbox(paths, "bob") as inbox:
        inbox.append(line("m1", at="yesterday"), sender="ann", message_id="m1")
    found = readership(paths, "bob")
    assert (found.unread, found.oldest) == (1, None)


def test_who_reads_is_said(paths: ChannelPaths) -> None:
    with Seat(paths, "bob", "intercom poll", NOW) as seat:
        waiting = readership(paths, "bob").fields(NOW)["reader"]
        assert (waiting["state"], waiting["pid"]) == ("reading", os.getpid())
        seat.take_for_long(takeover=False)
        reading = readership(paths, "bob").fields(NOW)["reader"]
        assert (reading["state"], reading["program"]) == ("reading", "intercom poll")
        assert reading["since"] == envelope.format_timestamp(NOW)


def test_an_inbox_that_cannot_be_read_is_no_failure(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, fill: Callable[..., list[int]]
) -> None:
    fill(1)

    def refuse(*_args: object) -> None:
        raise IntercomError("locked", code="INBOX_LOCKED")

    monkeypatch.setattr(Inbox, "read", refuse)
    assert readership(paths, "bob").fields(NOW)["unread"] is None


def test_many_locked_inboxes_are_waited_for_once(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    """All that a command looks at share its two seconds; who is not locked is told as ever."""
    names = [f"stuck-{number}" for number in range(12)]
    for name in [*names, "bob"]:
        fill(1, session=name)
    with contextlib.ExitStack() as stack:
        for name in names:
            held = stack.enter_context(open(paths.inbox(name), "rb"))
            fcntl.flock(held, fcntl.LOCK_EX)
        begun = time.monotonic()
        patience = Patience()
        found = [readership(paths, name, patience).unread for name in [*names, "bob"]]
    assert found == [None] * len(names) + [1]
    assert time.monotonic() - begun < 12, "each was waited for anew"


def test_a_second_listener_is_told_how_to_take_over_this_session(paths: ChannelPaths) -> None:
    with Seat(paths, "odd name", "intercom listen", NOW) as seat:
        seat.take_for_long(takeover=False)
        with (
            Seat(paths, "odd name", "intercom listen", NOW) as second,
            pytest.raises(IntercomError) as refused,
        ):
            second.take_for_long(takeover=False, patience=0.0)
    assert refused.value.remedy.endswith(f"{paths.command} listen --takeover --session 'odd name'")


# -- elsewhere --------------------------------------------------------------------------------


def test_mail_in_other_channels_is_found_and_counted(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    for name, count in (("one", 1), ("two", 3), ("größe", 2)):
        other = ChannelPaths(paths.base, name)
        other.prepare()
        fill(count, channel=other)
        fill(1, session="eve", channel=other)
    fill(5)  # here
    found = waiting_elsewhere(paths, "bob")
    assert [(one.paths.name, one.number) for one in found] == [("two", 3), ("größe", 2), ("one", 1)]
    assert waiting_elsewhere(paths, "nobody") == []


def test_what_was_read_elsewhere_does_not_wait(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    other = ChannelPaths(paths.base, "other")
    other.prepare()
    ends = fill(2, channel=other)
    with Inbox(other, "bob") as inbox:
        inbox.commit(Position(1, ends[2]))
    before = sorted(os.listdir(other.directory))
    assert waiting_elsewhere(paths, "bob") == []
    assert sorted(os.listdir(other.directory)) == before


def test_places_that_are_no_channels_of_ours_are_left_alone(
    paths: ChannelPaths, tmp_path: Path, fill: Callable[..., list[int]]
) -> None:
    other = ChannelPaths(str(tmp_path / "foreign"), "true")
    other.prepare()
    fill(1, channel=other)
    base = Path(paths.base)
    (base / "link").symlink_to(other.directory)
    (base / "file").write_text("x")
    (base / "Upper").mkdir()
    (base / "%zz").mkdir()
    (base / "open").mkdir()
    (base / "open").chmod(0o777)
    (base / "open" / "inbox_bob.ndjson").write_bytes(line("m1") + b"\n")
    assert waiting_elsewhere(paths, "bob") == []


# -- from another place -----------------------------------------------------------------------


def test_now_passes_over_all_and_lists_it(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    ends = fill(3)
    found = resume(paths, "bob", resuming.NOW, lambda: NOW)
    assert (found.start, found.skipped, found.problem) == (None, 3, "")
    with Inbox(paths, "bob") as inbox:
        assert inbox.read(None, 0).start == Position(1, ends[3])
    letters = DeadLetters(paths).read(10)
    assert [letter["id"] for letter in letters] == ["m1", "m2", "m3"]


def test_now_at_the_end_changes_nothing(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    ends = fill(2)
    with Inbox(paths, "bob") as inbox:
        inbox.commit(Position(1, ends[2]))
    assert resume(paths, "bob", resuming.NOW, lambda: NOW) == (None, 0, "")


def test_start_shows_again_and_leaves_the_position(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    ends = fill(3)
    with Inbox(paths, "bob") as inbox:
        inbox.commit(Position(1, ends[2]))
        found = resume(paths, "bob", resuming.START, lambda: NOW)
        assert found == (Position(1, 0), 0, "")
        again = [record.start for record in resuming.between(inbox, Position(1, 0))]
        assert again == ends[:2]
        assert inbox.read(None, 0).start == Position(1, ends[2])


def test_a_message_is_a_place_before_and_behind_the_position(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    ends = fill(5)
    with Inbox(paths, "bob") as inbox:
        inbox.commit(Position(1, ends[2]))
    assert resume(paths, "bob", "m2", lambda: NOW) == (Position(1, ends[1]), 0, "")
    assert resume(paths, "bob", "m3", lambda: NOW) == (None, 0, "")
    assert resume(paths, "bob", "m5", lambda: NOW, skip=False) == (Position(1, ends[4]), 0, "")
    assert resume(paths, "bob", "m5", lambda: NOW) == (None, 2, "")
    with Inbox(paths, "bob") as inbox:
        assert inbox.read(None, 0).start == Position(1, ends[4])
    assert [letter["id"] for letter in DeadLetters(paths).read(10)] == ["m3", "m4"]


def test_a_message_that_is_not_there_is_no_place(
    paths: ChannelPaths, fill: Callable[..., list[int]]
) -> None:
    fill(2)
    with pytest.raises(IntercomError, match="m9") as caught:
        resume(paths, "bob", "m9")
    assert (caught.value.code, caught.value.exit_code) == ("UNKNOWN_MESSAGE", 66)
    assert "status m9" in caught.value.remedy
