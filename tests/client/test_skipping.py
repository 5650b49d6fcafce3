"""Passing over messages unread: noted, listed, and told to whoever sent them."""

from __future__ import annotations

import fcntl
import json
import os
from typing import Any

import pytest

from intercom.client import skipping
from intercom.client.inquiry import Inquiry
from intercom.client.offline import store_offline
from intercom.client.outbox import compose
from intercom.errors import HubUnavailable, StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.deadletters import DeadLetters
from intercom.spool.files import Inbox
from intercom.spool.trail import Trail
from intercom.wire import envelope

NOW = 1_000_000.0


def put(paths: ChannelPaths, sender: str, *ids: str) -> None:
    """Append messages to bob's inbox as a client without a hub does."""
    for one in ids:
        letter = compose(paths, sender, "bob", {"text": one}, message_id=one)
        store_offline(paths, letter, HubUnavailable("none"))


def enrol(paths: ChannelPaths, *sessions: str) -> None:
    """Make sessions known."""
    for one in sessions:
        with Inbox(paths, one) as inbox:
            inbox.enrol()


def skip(paths: ChannelPaths, upto: Position | None = None) -> skipping.Skipped:
    """Pass over what bob has."""
    return skipping.skip(paths, "bob", upto, clock=lambda: NOW)


def messages(paths: ChannelPaths, session: str) -> list[dict[str, Any]]:
    """The unread messages of a session."""
    with Inbox(paths, session) as inbox:
        return [json.loads(record.line) for record in inbox.read().records]


def dead(paths: ChannelPaths) -> list[tuple[Any, ...]]:
    """What is listed as given up."""
    letters = DeadLetters(paths).read(100)
    return [(one["why"], one["inbox"], one["from"], one["id"]) for one in letters]


def test_what_is_skipped_is_noted_listed_and_told(paths: ChannelPaths) -> None:
    """Each sender once, in the form of a hub's notice; and nothing is deleted."""
    enrol(paths, "ada", "eve", "bob")
    put(paths, "ada", "a1", "a2")
    put(paths, "eve", "e1")
    done = skip(paths)
    assert (done.number, done.problem) == (3, "")
    assert messages(paths, "bob") == []
    with Inbox(paths, "bob") as inbox:
        assert len(inbox.read(Position(1, 0)).records) == 3
        assert done.position == inbox.read().start == Position(1, inbox.size())
    moves = Trail(paths, "bob", FileCalls()).events()
    assert [move.state for move in moves] == ["skipped"]
    assert dead(paths) == [
        ("skipped", "bob", "ada", "a1"),
        ("skipped", "bob", "ada", "a2"),
        ("skipped", "bob", "eve", "e1"),
    ]
    (told,) = messages(paths, "ada")
    at = envelope.format_timestamp(NOW)
    assert (told["type"], told["from_session"], told["to_session"]) == ("chat", "hub", "ada")
    assert told["reply_to"] is None
    assert told["payload"]["text"] == (
        f"2 messages of yours to 'bob' were passed over unread at {at}: a1, a2"
    )
    assert told["payload"]["notice"] == {
        "code": "SKIPPED",
        "session": "bob",
        "count": 2,
        "ids": ["a1", "a2"],
        "at": at,
    }
    assert messages(paths, "eve")[0]["reply_to"] == "e1"
    for message_id in ("a1", "e1"):
        assert Inquiry(paths).about(message_id)[0].recipients["bob"].state == "skipped"


def test_strangers_the_hub_and_oneself_are_told_nothing(paths: ChannelPaths) -> None:
    """For strangers no inbox comes into being; a notice about a notice would never end."""
    enrol(paths, "bob")
    put(paths, "bob", "b1")
    put(paths, "stranger", "s1")
    put(paths, "hub", "h1")
    put(paths, "*", "x1")
    assert skip(paths).number == 4
    assert not [path for path in ("stranger", "hub", "*") if messages(paths, path)]
    assert messages(paths, "bob") == []
    assert len(dead(paths)) == 4


def test_a_notice_names_the_first_twenty(paths: ChannelPaths) -> None:
    """And says how many there are; one that skips it tells nobody again."""
    enrol(paths, "ada", "bob")
    put(paths, "ada", *[f"a{n}" for n in range(23)])
    skip(paths)
    (told,) = messages(paths, "ada")
    assert told["payload"]["text"].endswith("a18, a19 and 3 more")
    assert len(told["payload"]["notice"]["ids"]) == 20
    assert told["payload"]["notice"]["count"] == 23
    skipping.skip(paths, "ada")
    assert messages(paths, "bob") == []


def test_only_what_lies_before_the_position_is_skipped(paths: ChannelPaths) -> None:
    """What was read before is not, and what lies behind is unread."""
    enrol(paths, "ada", "bob")
    put(paths, "ada", "a1", "a2", "a3")
    with Inbox(paths, "bob") as inbox:
        ends = [Position(1, record.end) for record in inbox.read().records]
        inbox.commit(ends[0])
    done = skip(paths, ends[1])
    assert (done.number, done.position) == (1, ends[1])
    assert [one[3] for one in dead(paths)] == ["a2"]
    assert [one["id"] for one in messages(paths, "bob")] == ["a3"]
    behind = skip(paths, ends[0])
    assert (behind.number, behind.position) == (0, ends[1])
    states = [Inquiry(paths).about(one)[0].recipients["bob"].state for one in ("a1", "a2", "a3")]
    assert states == ["read", "skipped", "stored"]


@pytest.mark.parametrize("wrong", [Position(1, 7), Position(2, 0), Position(1, 1 << 40)])
def test_a_position_that_is_none_skips_nothing(paths: ChannelPaths, wrong: Position) -> None:
    """And nobody is told that anything was."""
    enrol(paths, "ada", "bob")
    put(paths, "ada", "a1")
    with pytest.raises(StalePosition):
        skip(paths, wrong)
    assert [one["id"] for one in messages(paths, "bob")] == ["a1"]
    assert dead(paths) == messages(paths, "ada") == []


def test_nothing_unread_is_no_news(paths: ChannelPaths) -> None:
    """No list, no notice."""
    enrol(paths, "bob")
    assert skip(paths) == skipping.Skipped(0, Position(1, 0))
    assert dead(paths) == []


def test_what_another_reader_read_meanwhile_was_not_skipped(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is unread and the moving of the position."""
    enrol(paths, "ada", "bob")
    put(paths, "ada", "a1", "a2")
    look = skipping._unread

    def slow(inbox: Inbox, upto: Position | None) -> Any:
        found = look(inbox, upto)
        with Inbox(paths, "bob") as other:
            other.commit(Position(1, found[1][0].end))
        return found

    monkeypatch.setattr(skipping, "_unread", slow)
    assert skip(paths).number == 1
    assert [one[3] for one in dead(paths)] == ["a2"]
    assert messages(paths, "ada")[0]["payload"]["notice"]["ids"] == ["a2"]


def test_an_inbox_that_is_emptied_meanwhile_is_looked_at_again(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reader has read all of it; what came since then is skipped."""
    enrol(paths, "ada", "bob")
    put(paths, "ada", "a1")
    look, looks = skipping._unread, []

    def slow(inbox: Inbox, upto: Position | None) -> Any:
        found = look(inbox, upto)
        if not looks:
            with Inbox(paths, "bob") as other:
                other.commit(found[2])
                assert other.compact()
            put(paths, "ada", "a2")
        looks.append(found)
        return found

    monkeypatch.setattr(skipping, "_unread", slow)
    assert skip(paths).number == 1
    assert [one[3] for one in dead(paths)] == ["a2"]
    assert len(looks) == 2


def test_whom_a_busy_inbox_keeps_from_being_told_is_said(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is skipped and listed nevertheless, and the others are told."""
    monkeypatch.setattr(skipping, "NOTICE_TIMEOUT", 0.05)
    enrol(paths, "ada", "eve", "bob")
    put(paths, "ada", "a1")
    put(paths, "eve", "e1")
    with open(paths.inbox("ada"), "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = skip(paths)
    assert done.number == 2
    assert "'ada' could not be told" in done.problem
    assert messages(paths, "ada") == []
    assert len(messages(paths, "eve")) == 1


@pytest.mark.parametrize("fault", ["locked", "directory"])
def test_a_list_that_cannot_be_written_stops_nothing(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """It is said; senders are told, and the trail has it."""
    monkeypatch.setattr(skipping, "LIST_TRIES", 2)
    monkeypatch.setattr(skipping, "LIST_PAUSE", 0.001)
    enrol(paths, "ada", "bob")
    put(paths, "ada", "a1")
    if fault == "directory":
        os.mkdir(paths.file("dead.ndjson"), 0o700)
        done = skip(paths)
    else:
        with open(paths.file("dead.ndjson"), "ab") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            done = skip(paths)
    assert "could not be listed" in done.problem
    assert done.number == len(messages(paths, "ada")) == 1
