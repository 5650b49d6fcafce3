"""How the hub's spool gathers work, syncs in groups, and takes its own bugs."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.logger import LogEvent, globalLogPublisher

from intercom.errors import InboxLocked, IntercomError, SpoolError
from intercom.paths import ChannelPaths
from intercom.records import (
    Appeared,
    Entry,
    Moved,
    Position,
    Refused,
    Remembered,
    Written,
)
from intercom.spool import requests, threaded
from intercom.spool.deadletters import DeadLetters
from intercom.spool.files import Inbox
from intercom.spool.history import lookup, pushes
from intercom.spool.journal import read_segments
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.worker import MemoryWorker

MakeEntry = Callable[..., Entry]


class Listener:
    """Keeps what it is told, in order."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.moves: list[Moved] = []
        self.raising = False

    def written(self, outcomes: Sequence[Written | Refused | Appeared]) -> None:
        self.events.append(("written", [getattr(o, "ticket", o.inbox) for o in outcomes]))
        if self.raising:
            raise RuntimeError("a bug of the listener")

    def stored(self, tickets: Sequence[int], level: str) -> None:
        self.events.append(("stored", list(tickets), level))

    def unsynced(self, tickets: Sequence[int], text: str) -> None:
        self.events.append(("unsynced", list(tickets)))

    def remembered(self, messages: Iterable[Remembered]) -> None:
        self.events.append(("remembered", [one.message_id for one in messages]))

    def moved(self, moves: Sequence[Moved]) -> None:
        self.moves += [move._replace(at=0.0) for move in moves]

    def seen(self, sessions: dict[str, float | None]) -> None:
        self.events.append(("seen", sessions))

    def forgotten(self, sessions: Sequence[str]) -> None:
        self.events.append(("forgotten", list(sessions)))


class Bench:
    """A spool whose threads and clock go step by step."""

    def __init__(self, paths: ChannelPaths, calls: Any) -> None:
        self.clock = Clock()
        self.calls = calls
        self.writer, self.syncer, self.reader = MemoryWorker(), MemoryWorker(), MemoryWorker()
        self.listener = Listener()
        self.spool = ThreadedSpool(
            self.clock,
            paths,
            calls=calls,
            writer=self.writer,
            syncer=self.syncer,
            reader=self.reader,
        )
        opened = self.spool.open(self.listener)
        self.run_all()
        assert opened.called
        self.listener.events.clear()
        calls.log.clear()

    def turn(self) -> None:
        self.clock.advance(0)

    def run_all(self) -> None:
        workers = (self.writer, self.syncer, self.reader)
        self.turn()
        while sum(worker.perform() for worker in workers):  # each, not only the first
            self.turn()

    def told(self) -> list[tuple[Any, ...]]:
        events, self.listener.events = self.listener.events, []
        return events


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The level that the channel's place can give; a test may change it before ``bench``."""
    level = ["disk"]
    monkeypatch.setattr(threaded, "file_level", lambda _path: level[0])
    return level


@pytest.fixture
def bench(paths: ChannelPaths, calls: Any, place: list[str]) -> Any:
    bench = Bench(paths, calls)
    yield bench
    closed = bench.spool.close()
    while not closed.called:
        bench.run_all()
        bench.clock.advance(0.1)


def failure_of(answer: Deferred[Any]) -> BaseException:
    caught: list[Any] = []
    answer.addErrback(caught.append)
    assert caught, "it has not failed"
    return caught[0].value  # type: ignore[no-any-return]


# -- gathering --------------------------------------------------------------------------------


def test_all_of_a_turn_is_one_job_and_one_sync(bench: Bench, entry: MakeEntry) -> None:
    for ticket in range(50):
        bench.spool.append([entry(ticket)])
    bench.turn()
    assert bench.writer.perform()
    assert bench.told() == [("written", list(range(50)))]  # pushed before the sync
    assert not bench.writer.perform()
    assert bench.syncer.perform()
    assert bench.told() == [("stored", list(range(50)), "disk")]
    assert bench.calls.log.count("write") == 2  # bob's inbox, the history
    assert bench.calls.log[-2:] == ["pwrite", "sync"]
    assert bench.calls.log.count("sync") == 1


def test_what_comes_while_the_writer_is_busy_is_its_next_job(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(0)])
    bench.turn()  # the job is on its way
    for ticket in range(1, 20):
        bench.spool.append([entry(ticket)])
        bench.turn()
    assert bench.writer.perform()
    assert bench.writer.perform()
    assert bench.told() == [("written", [0]), ("written", list(range(1, 20)))]
    assert not bench.writer.perform()


def test_one_sync_serves_all_that_was_written_during_the_one_before(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(0)])
    bench.turn()
    bench.writer.perform()
    for ticket in range(1, 6):  # the first sync is still to come back
        bench.spool.append([entry(ticket, inbox="bob" if ticket % 2 else "eve")])
        bench.turn()
        bench.writer.perform()
    bench.told()
    assert bench.syncer.perform()
    assert bench.told() == [("stored", [0], "disk")]
    assert bench.syncer.perform()
    [(event, tickets, level)] = bench.told()
    assert (event, sorted(tickets), level) == ("stored", [1, 2, 3, 4, 5], "disk")
    assert not bench.syncer.perform()
    assert bench.calls.log.count("sync") == 2


# -- levels -----------------------------------------------------------------------------------


def test_process_level_is_told_at_once_and_synced_within_a_second(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1, level="process"), entry(2, level="memory")])
    bench.turn()
    bench.writer.perform()
    assert bench.told() == [
        ("written", [1, 2]),
        ("stored", [1], "process"),
        ("stored", [2], "memory"),
    ]
    assert not bench.syncer.perform()
    bench.clock.advance(0.9)
    assert bench.syncer.perform()
    assert bench.calls.log == ["write", "write", "sync", "sync_directory"]
    assert bench.told() == []
    bench.clock.advance(5)
    assert not bench.syncer.perform()  # nothing new, nothing to sync


def test_a_place_that_forgets_is_not_called_a_disk(
    paths: ChannelPaths, calls: Any, place: list[str], entry: MakeEntry
) -> None:
    place[0] = "process"
    bench = Bench(paths, calls)
    bench.spool.append([entry(1), entry(2, level="memory")])
    bench.run_all()
    bench.clock.advance(5)
    bench.run_all()
    assert bench.told() == [
        ("written", [1, 2]),
        ("stored", [1], "process"),
        ("stored", [2], "memory"),
    ]
    closed = bench.spool.close()
    bench.run_all()
    assert closed.called
    assert "sync" not in calls.log


def test_after_a_failed_sync_nothing_is_called_safe_any_more(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1), entry(2, inbox="eve")])
    bench.turn()
    bench.writer.perform()
    bench.calls.failing["sync"] = errno.EIO
    bench.spool.append([entry(3)])  # written before anybody knows
    bench.turn()
    bench.writer.perform()
    bench.told()
    bench.syncer.perform()
    bench.calls.failing.clear()
    assert bench.told() == [("unsynced", [1, 2])]
    bench.syncer.perform()
    assert bench.told() == [("unsynced", [3])]
    bench.spool.append([entry(4)])
    bench.run_all()
    assert bench.told() == [("written", [4]), ("unsynced", [4])]


def test_a_failed_sync_of_an_inbox_in_the_background_is_told_once(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1), entry(2, inbox="eve")])
    bench.run_all()
    bench.told()
    bench.calls.failing["sync"] = errno.EIO
    for _ in range(40):
        bench.clock.advance(0.5)
        bench.run_all()
    bench.calls.failing.clear()
    assert bench.told() == [("unsynced", [])]


def test_in_a_quiet_moment_the_inboxes_catch_up_and_the_journal_forgets(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    bench.spool.append([entry(n, inbox=f"s{n}") for n in range(5)])
    bench.run_all()
    assert len(read_segments(paths, bench.calls)) == 1
    assert bench.calls.log.count("sync") == 1
    for _ in range(10):
        bench.clock.advance(0.5)
        bench.run_all()
    assert bench.calls.log.count("sync") == 7  # five inboxes, the history
    assert read_segments(paths, bench.calls) == []
    bench.clock.advance(60)
    bench.run_all()
    assert bench.calls.log.count("sync") == 7


def test_what_was_pushed_is_written_with_what_comes_next_or_soon(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    bench.spool.pushed("bob", 1, 0, 100)
    bench.run_all()
    assert pushes(paths, "bob") == []
    bench.spool.append([entry(1)])
    bench.run_all()
    assert [(move.start, move.end) for move in pushes(paths, "bob")] == [(0, 100)]
    bench.spool.pushed("bob", 1, 100, 200)
    bench.clock.advance(threaded.PUSHES_PAUSE)
    bench.run_all()
    bench.spool.pushed("bob", 1, 200, 300)
    closed = bench.spool.close()
    bench.run_all()
    assert closed.called
    assert [move.end for move in pushes(paths, "bob")] == [100, 200, 300]


def test_a_message_goes_by_its_own_level_in_any_channel(bench: Bench, entry: MakeEntry) -> None:
    bench.spool.append([entry(1, level="process"), entry(2), entry(3, level="memory")])
    bench.turn()
    bench.writer.perform()
    assert bench.told()[1:] == [("stored", [1], "process"), ("stored", [3], "memory")]
    bench.syncer.perform()
    assert bench.told() == [("stored", [2], "disk")]


def test_what_others_read_is_told_once_and_what_we_read_too(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1), entry(2)])
    bench.run_all()
    size = len(entry(1).line) + 1
    Inbox(paths, "bob").commit(Position(1, size))
    bench.clock.advance(2.0)
    bench.run_all()
    bench.clock.advance(0.1)
    bench.run_all()
    assert bench.listener.moves == [Moved("bob", "read", 1, 0, size, 0.0)]
    bench.spool.commit("bob", Position(1, 2 * size))
    bench.run_all()
    for _ in range(4):
        bench.clock.advance(2.0)
        bench.run_all()
    assert bench.listener.moves[1:] == [Moved("bob", "read", 1, size, 2 * size, 0.0)]


# -- reading ----------------------------------------------------------------------------------


def test_a_long_read_delays_no_append(bench: Bench, entry: MakeEntry) -> None:
    reading = bench.spool.read("bob", None, 1 << 30)
    bench.spool.append([entry(1)])
    bench.turn()
    assert bench.writer.perform()
    assert bench.told() == [("written", [1])]
    assert not reading.called


def test_a_commit_is_done_at_once_and_those_that_follow_it_together(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(n) for n in range(10)])
    bench.run_all()
    size = len(entry(0).line) + 1
    bench.calls.log.clear()
    first = bench.spool.commit("bob", Position(1, size))
    bench.run_all()
    assert first.result == Position(1, size)
    answers = [bench.spool.commit("bob", Position(1, n * size)) for n in range(2, 11)]
    bench.run_all()
    assert not any(answer.called for answer in answers)
    bench.clock.advance(requests.COMMIT_PAUSE)
    bench.run_all()
    assert [answer.result.offset for answer in answers] == [n * size for n in range(2, 11)]
    assert bench.calls.log.count("rename") == 2  # the first, then all others
    assert Inbox(bench.spool._paths, "bob").unread() == 0


def test_a_commit_that_waits_for_others_is_done_when_the_spool_closes(
    bench: Bench, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1), entry(2)])
    bench.run_all()
    size = len(entry(1).line) + 1
    bench.spool.commit("bob", Position(1, size))
    bench.run_all()
    late = bench.spool.commit("bob", Position(1, 2 * size))
    closed = bench.spool.close()
    bench.run_all()
    assert late.result == Position(1, 2 * size)
    assert closed.called
    assert Inbox(bench.spool._paths, "bob").unread() == 0


def test_a_large_inbox_is_emptied_as_soon_as_it_is_read(
    bench: Bench, entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "WORTH_EMPTYING", 4000)
    bench.spool.append([entry(n, "x" * 300) for n in range(20)])
    bench.run_all()
    size = os.path.getsize(bench.spool._paths.inbox("bob"))
    assert size > 4000
    first = bench.spool.commit("bob", Position(1, len(entry(0, "x" * 300).line) + 1))
    bench.run_all()
    assert first.called
    assert os.path.getsize(bench.spool._paths.inbox("bob")) == size
    bench.clock.advance(requests.COMMIT_PAUSE)
    last = bench.spool.commit("bob", Position(1, size))
    bench.run_all()
    assert last.result == Position(1, size)
    assert os.path.getsize(bench.spool._paths.inbox("bob")) == 0
    bench.told()
    bench.spool.append([entry(50), entry(5, "x" * 300)])  # the second comes again
    bench.run_all()
    again = bench.spool.read("bob", None, 9999)
    bench.run_all()
    assert (again.result.start, len(again.result.records)) == (Position(2, 0), 1)


@pytest.mark.parametrize(("unread", "emptied"), [(0, True), (1, False)])
def test_a_large_inbox_is_emptied_when_others_have_read_it(
    bench: Bench,
    paths: ChannelPaths,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
    unread: int,
    emptied: bool,
) -> None:
    """So it is with whoever only polls: the hub commits nothing for them."""
    monkeypatch.setattr(requests, "WORTH_EMPTYING", 4000)
    bench.spool.append([entry(n, "x" * 300) for n in range(20)])
    bench.run_all()
    size = os.path.getsize(paths.inbox("bob"))
    read = size - unread * (len(entry(19, "x" * 300).line) + 1)
    Inbox(paths, "bob").commit(Position(1, read))
    bench.clock.advance(2.0)
    bench.run_all()
    bench.clock.advance(0.1)
    bench.run_all()
    assert os.path.getsize(paths.inbox("bob")) == (0 if emptied else size)


def test_what_was_given_up_is_refused_in_the_history_and_listed_if_it_was_called_stored(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    first = entry(1, level="memory")
    bench.spool.append([first])
    bench.run_all()
    fd = os.open(paths.inbox("bob"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    bench.spool.append([entry(2), entry(3, level="memory"), first._replace(ticket=4)])
    for _ in range(210):
        bench.run_all()
        bench.clock.advance(0.01)
    bench.run_all()
    os.close(fd)
    for message_id in ("msg_2", "msg_3"):
        [line] = lookup(paths, message_id)
        assert line["refused"][0][:2] == ["bob", "INBOX_LOCKED"]
    [letter] = DeadLetters(paths).read(9)
    told = (letter["why"], letter["code"], letter["inbox"], letter["id"], letter["message"]["id"])
    assert told == ("refused", "INBOX_LOCKED", "bob", "msg_3", "msg_3")


def test_an_unreadable_position_is_looked_at_three_times(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1), entry(2)])
    bench.run_all()
    with open(paths.offset("bob"), "w"):
        pass
    reading = bench.spool.read("bob", None, 9999)
    for _ in range(2):
        bench.run_all()
        assert not reading.called
        bench.clock.advance(0.02)
    bench.run_all()
    assert "damaged" in reading.result.warning
    assert len(reading.result.records) == 2
    reading = bench.spool.read("bob", None, 9999)
    bench.run_all()
    end = len(entry(1).line) + 1
    with open(paths.offset("bob"), "w") as file:
        json.dump({"offset": end}, file)
    bench.clock.advance(0.02)
    bench.run_all()
    assert reading.result.start == Position(1, end)


def test_a_read_of_an_inbox_that_stays_locked_is_refused_after_two_seconds(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    bench.spool.append([entry(1)])
    bench.run_all()
    fd = os.open(paths.inbox("bob"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    reading, committing = (
        bench.spool.read("bob", None, 9),
        bench.spool.commit("bob", Position(1, 0)),
    )
    for _ in range(190):
        bench.run_all()
        bench.clock.advance(0.01)
    assert not reading.called
    for _ in range(20):
        bench.run_all()
        bench.clock.advance(0.01)
    os.close(fd)
    assert isinstance(failure_of(reading), InboxLocked)
    assert isinstance(failure_of(committing), InboxLocked)


def test_what_the_system_refuses_is_said_to_whoever_asked(bench: Bench, entry: MakeEntry) -> None:
    bench.calls.failing["open"] = errno.EACCES
    answers = [
        bench.spool.read("bob", None, 9),
        bench.spool.commit("bob", Position(1, 0)),
        bench.spool.enrol("bob"),
        bench.spool.compact("bob"),
    ]
    bench.run_all()
    for answer in answers:
        error = failure_of(answer)
        assert isinstance(error, SpoolError)
        assert error.code == "SPOOL_FAILED"
    bench.calls.failing.clear()


# -- others -----------------------------------------------------------------------------------


def test_a_look_at_a_locked_inbox_is_repeated_until_it_succeeds(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    fd = os.open(paths.inbox("bob"), os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    os.write(fd, entry(1).line + b"\n")
    for _ in range(60):
        bench.clock.advance(0.1)
        bench.run_all()
    assert [event for event in bench.told() if event[0] == "written"] == []
    os.close(fd)
    bench.clock.advance(0.1)
    bench.run_all()
    assert bench.told() == [("written", ["bob"])]


def test_sessions_are_seen_when_their_files_change(bench: Bench, paths: ChannelPaths) -> None:
    Inbox(paths, "eve").enrol()
    bench.clock.advance(2.0)
    bench.run_all()
    bench.clock.advance(0.1)
    bench.run_all()
    assert bench.told() == [("seen", {"eve": None})]
    Inbox(paths, "eve").commit(Position(1, 0))
    bench.clock.advance(2.0)
    bench.run_all()
    bench.clock.advance(0.1)
    bench.run_all()
    [(_, sessions)] = bench.told()
    assert 0 <= sessions["eve"] < 60
    bench.clock.advance(10.0)
    bench.run_all()
    assert bench.told() == []


def test_damage_is_logged_without_bodies(
    bench: Bench, paths: ChannelPaths, entry: MakeEntry
) -> None:
    events: list[LogEvent] = []
    globalLogPublisher.addObserver(events.append)
    try:
        with open(paths.inbox("bob"), "wb") as file:
            file.write(b"secret rubbish\nsecret tail")
        bench.spool.append([entry(1)])
        bench.run_all()
    finally:
        globalLogPublisher.removeObserver(events.append)
    texts = [str(event.get("log_format")) for event in events]
    assert any("no message" in text for text in texts)
    assert any("unfinished" in text for text in texts)
    assert "secret" not in repr(events)


# -- bugs -------------------------------------------------------------------------------------


def test_a_bug_in_the_writer_loses_no_outcome_and_stops_nothing(
    bench: Bench, entry: MakeEntry, logged_failures: list[Any]
) -> None:
    bench.spool.append([entry(1)])
    bench.turn()
    work = bench.spool._store._append
    bench.spool._store._append = lambda *_args: 1 / 0  # type: ignore[assignment,return-value,method-assign]
    bench.writer.perform()
    bench.spool._store._append = work  # type: ignore[method-assign]
    assert bench.told() == [("written", [1])]
    bench.spool.append([entry(2)])
    bench.run_all()
    assert bench.told() == [("written", [2]), ("stored", [2], "disk")]
    assert logged_failures.pop().check(ZeroDivisionError)


def test_a_listener_that_raises_stops_nothing(
    bench: Bench, entry: MakeEntry, logged_failures: list[Any]
) -> None:
    bench.listener.raising = True
    bench.spool.append([entry(1)])
    bench.run_all()
    assert bench.told() == [("written", [1]), ("stored", [1], "disk")]
    bench.listener.raising = False
    assert logged_failures.pop().check(RuntimeError)


def test_a_channel_that_is_gone_cannot_be_opened_and_its_entries_are_refused(
    paths: ChannelPaths, entry: MakeEntry
) -> None:
    clock, worker = Clock(), MemoryWorker()
    nowhere = ChannelPaths(paths.base, "nowhere")
    spool = ThreadedSpool(clock, nowhere, writer=worker, syncer=worker, reader=worker)
    listener = Listener()
    opened = spool.open(listener)
    spool.append([entry(1)])
    worker.perform_all()
    assert isinstance(failure_of(opened), OSError | IntercomError)
    closed = spool.close()
    clock.advance(0)
    worker.perform_all()
    assert closed.called
    assert listener.events == [("written", [1])]
