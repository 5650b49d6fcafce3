"""Commits from the reactor: what they tell, and when what is read is taken out of an inbox."""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from intercom.errors import StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Moved, Position
from intercom.spool import requests
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters
from intercom.spool.files import Inbox
from intercom.spool.inboxfile import InboxFile
from intercom.spool.requests import COMMIT_PAUSE, COMMIT_SHARE, InboxRequests
from intercom.spool.trail import Trails
from intercom.spool.worker import MemoryWorker


class Desk:
    """Requests whose thread works when it is told to."""

    def __init__(self, paths: ChannelPaths, calls: FileCalls) -> None:
        self.clock, self.worker = Clock(), MemoryWorker()
        self.moves: list[Moved] = []
        self.works = 0
        trails = Trails(paths, calls)
        trails.start(0.0)

        def open_inbox(session: str) -> InboxFile:
            self.works += 1
            return InboxFile(paths, session, calls, trail=trails.of(session))

        self.requests = InboxRequests(
            self.clock, self.worker, open_inbox, 2.0, lambda: None, moved=self.moves.extend
        )

    def run(self, seconds: float = 0.0) -> None:
        self.worker.perform()
        self.clock.advance(seconds)
        while self.worker.perform():
            self.clock.advance(0)

    def commit(self, offset: int, state: str = "read", generation: int = 1) -> Any:
        answer = self.requests.commit("bob", Position(generation, offset), state)
        self.run(COMMIT_PAUSE * 2)
        return answer.result


@pytest.fixture
def desk(paths: ChannelPaths, calls: Any) -> Desk:
    return Desk(paths, calls)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inboxes are worth emptying at 1000 bytes, and moving in at 3000."""
    monkeypatch.setattr(requests, "WORTH_EMPTYING", 1000)
    monkeypatch.setattr(requests, "WORTH_MOVING", 3000)


def fill(paths: ChannelPaths, lines: int) -> None:
    """Lines of 10 bytes."""
    with open(paths.inbox("bob"), "ab") as file:
        file.write(b"".join(b'{"n":%03d}\n' % n for n in range(lines)))


def size(paths: ChannelPaths) -> int:
    return os.path.getsize(paths.inbox("bob"))


def test_what_commits_bring_is_told_before_they_are_answered(
    desk: Desk, paths: ChannelPaths
) -> None:
    fill(paths, 10)
    told: list[int] = []
    answers: list[Deferred[Position]] = []
    for offset, state in ((10, "read"), (30, "shown"), (20, "read"), (40, "skipped"), (5, "read")):
        answer = desk.requests.commit("bob", Position(1, offset), state)
        answer.addCallback(lambda position: told.append(len(desk.moves)) or position)
        answers.append(answer)
    desk.run()
    assert told == [1]
    works = desk.works
    desk.run(COMMIT_PAUSE)
    assert desk.works == works + 1  # the others as one
    assert told == [1, 4, 4, 4]
    assert [answer.result for answer in answers[:4]] == [Position(1, n) for n in (10, 10, 20, 40)]
    answers[4].addErrback(lambda failure: told.append(failure.check(StalePosition) is not None))
    assert told[-1] == 1
    assert [one[1:5] for one in desk.moves] == [
        ("read", 1, 0, 10),
        ("shown", 1, 10, 30),
        ("read", 1, 10, 20),
        ("skipped", 1, 20, 40),
    ]


def test_where_many_inboxes_are_busy_commits_gather_for_longer(desk: Desk) -> None:
    """The more of them, the longer, but for a second at most."""
    busy = 150  # 0.75 s
    for number in range(busy):
        desk.requests.commit(f"s{number}", Position(1, 0))
    desk.run()
    works = desk.works
    for number in range(busy):
        desk.requests.commit(f"s{number}", Position(1, 0))
    desk.run(COMMIT_PAUSE)
    assert desk.works - works < busy // 2  # those that came when few were busy
    desk.run(COMMIT_SHARE * busy)
    assert desk.works - works == busy


def test_an_unknown_state_is_refused(desk: Desk, paths: ChannelPaths) -> None:
    fill(paths, 1)
    answer = desk.requests.commit("bob", Position(1, 0), "pushed")
    desk.run()
    failed: list[Any] = []
    answer.addErrback(failed.append)
    assert failed[0].check(ValueError)


@pytest.mark.usefixtures("sizes")
def test_an_inbox_is_emptied_as_soon_as_it_is_read(desk: Desk, paths: ChannelPaths) -> None:
    fill(paths, 99)
    desk.commit(990)
    assert size(paths) == 990  # too small to be worth it
    fill(paths, 1)
    desk.commit(1000)
    assert size(paths) == 0
    assert Inbox(paths, "bob").read().start == Position(2, 0)


@pytest.mark.usefixtures("sizes")
@pytest.mark.parametrize(
    ("read", "whole", "moves"),
    [
        (2990, 3500, False),  # not enough
        (3000, 6010, False),  # less than half
        (3000, 6000, True),
        (3010, 6010, True),
        (5000, 5010, True),
    ],
)
def test_what_is_read_is_taken_out_where_that_is_worth_while(
    desk: Desk, paths: ChannelPaths, read: int, whole: int, moves: bool
) -> None:
    fill(paths, whole // 10)
    desk.commit(read)
    assert size(paths) == (whole - read if moves else whole)
    batch = Inbox(paths, "bob").read()
    assert batch.start == (Position(2, 0) if moves else Position(1, read))
    assert len(batch.records) == (whole - read) // 10


@pytest.mark.usefixtures("sizes")
def test_what_was_only_shown_is_not_taken_out(desk: Desk, paths: ChannelPaths) -> None:
    fill(paths, 500)
    desk.commit(5000, "shown")
    assert size(paths) == 5000
    desk.commit(5000, "skipped")
    assert size(paths) == 0


@pytest.mark.usefixtures("sizes")
def test_an_original_reader_keeps_it_from_being_taken_out(desk: Desk, paths: ChannelPaths) -> None:
    fill(paths, 500)
    Path(paths.offset("bob")).write_text(json.dumps({"offset": 4000}))
    desk.commit(5000)
    assert size(paths) == 5000
    fields = json.loads(Path(paths.offset("bob")).read_text())
    fields["foreign_at"] = time.time() - 601
    Path(paths.offset("bob")).write_text(json.dumps(fields))
    desk.commit(5000)
    assert size(paths) == 0


@pytest.mark.usefixtures("sizes")
def test_one_at_a_time_and_none_any_more_when_it_closes(desk: Desk, paths: ChannelPaths) -> None:
    fill(paths, 500)
    first = desk.requests.commit("bob", Position(1, 4000))
    desk.worker.perform()
    late = desk.requests.commit("bob", Position(1, 5000))
    desk.requests.close()
    desk.run()
    assert first.result == Position(1, 4000)
    failed: list[Any] = []
    late.addErrback(failed.append)
    # What was begun is done, and the commit that came behind it is understood all the same.
    assert size(paths) in (1000, 5000)
    assert not failed
    assert not desk.requests
    assert desk.clock.getDelayedCalls() == []


@pytest.mark.usefixtures("sizes")
def test_what_cannot_be_taken_out_stays_and_is_no_trouble(
    desk: Desk, paths: ChannelPaths, calls: Any
) -> None:
    fill(paths, 500)
    calls.failing["ftruncate"] = errno.EIO
    assert desk.commit(4000) == Position(1, 4000)
    del calls.failing["ftruncate"]
    assert [record.line for record in Inbox(paths, "bob").read().records] == [
        b'{"n":%03d}' % n for n in range(400, 500)
    ]
    assert desk.commit(4500) == Position(1, 4500)
    assert size(paths) == 500


def test_the_hub_may_let_messages_expire(
    desk: Desk, paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    lines = [message(f"m{n}") for n in range(3)]
    Path(paths.inbox("bob")).write_bytes(b"".join(line + b"\n" for line in lines))
    keep = len(lines[0]) + 1
    answer = desk.requests.ask("bob", lambda file, _patient: file.expire(keep, None))
    desk.run()
    assert [record.line for record in answer.result] == lines[:2]
    assert [letter["id"] for letter in DeadLetters(paths).read(9)] == ["m0", "m1"]
