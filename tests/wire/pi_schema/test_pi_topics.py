"""Topics: what may be published, and what a change makes of a session."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire.pi.requests import Listing, Peer, Refusal, TopicChange
from intercom.wire.pi.schema import parse
from intercom.wire.pi.topics import (
    BadTopicChange,
    apply_change,
    compacted,
    is_subscription,
    is_update,
    restored,
    subscription_to,
    topic_message,
)

PEER = Peer("subagents", registered=True, topic_frames=True)
UPDATE = {"topic": " t ", "text": "hi", "event": "update", "revision": 1, "updatedAt": 2.5}
HELD = {**UPDATE, "resource": "db", "ownership": "held"}
RELEASE = {**HELD, "event": "release", "ownership": "released"}
SUBSCRIPTION = {"topic": " t ", "awaitRelease": True, "own": 1}


@pytest.mark.parametrize(
    "good",
    [
        UPDATE,
        HELD,
        RELEASE,
        {**UPDATE, "text": "a\tb\r\n", "own": 1, "resource": "r"},
        {**UPDATE, "event": "blocker", "revision": 2**53 - 1},
        {**UPDATE, "event": "decision", "revision": 5.0},
        {**HELD, "event": "release"},
    ],
)
def test_good_updates(good: Any) -> None:
    assert is_update(good)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        *({key: UPDATE[key] for key in UPDATE if key != gone} for gone in UPDATE),
        *({**UPDATE, "topic": bad} for bad in ("", " \ufeff", "a\tb", None)),
        *({**UPDATE, "text": bad} for bad in ("\x00", None)),
        *({**UPDATE, "event": bad} for bad in ("other", None, ["update"])),
        *({**UPDATE, "revision": bad} for bad in (0, -1, 1.5, 2**53, "1", True)),
        *({**UPDATE, "updatedAt": bad} for bad in ("1", None, 10**400)),
        *({**UPDATE, "resource": bad} for bad in ("", "\n", None)),
        {**UPDATE, "ownership": "held"},
        {**HELD, "ownership": "taken"},
        {**HELD, "ownership": None},
        {**HELD, "ownership": "released"},
    ],
)
def test_bad_updates(bad: Any) -> None:
    assert not is_update(bad)


@pytest.mark.parametrize(
    ("value", "good"),
    [
        (SUBSCRIPTION, True),
        ({"topic": "t"}, True),
        ({"topic": " "}, False),
        ({"topic": "t", "awaitRelease": None}, False),
        ({}, False),
        ([], False),
        (None, False),
    ],
)
def test_subscriptions(value: Any, good: bool) -> None:
    assert is_subscription(value) is good


# -- reading changes --------------------------------------------------------------------------


def change(value: Any, peer: Peer = PEER) -> Any:
    return parse({"type": "list", "requestId": "r", "stream": True, "change": value}, peer)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"action": "publish", "topic": UPDATE}, TopicChange("publish", topic=UPDATE)),
        ({"action": "publish", "topic": RELEASE}, TopicChange("publish", topic=RELEASE)),
        ({"action": "restore", "topic": UPDATE}, TopicChange("restore", topic=UPDATE)),
        (
            {"action": "subscribe", "subscription": SUBSCRIPTION},
            TopicChange("subscribe", subscription=SUBSCRIPTION),
        ),
        (
            {"action": "restore", "topic": {}, "subscription": SUBSCRIPTION},
            TopicChange("restore", subscription=SUBSCRIPTION),
        ),
        ({"action": "unsubscribe", "topic": ""}, TopicChange("unsubscribe", name="")),
    ],
)
def test_good_changes(value: Any, expected: TopicChange) -> None:
    assert change(value) == Listing("r", stream=True, change=expected)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "Topic snapshots unavailable for this client"),
        ("publish", "Topic snapshots unavailable for this client"),
        ([], "Invalid topic change"),
        ({}, "Invalid topic change"),
        ({"action": ["publish"], "topic": UPDATE}, "Invalid topic change"),
        ({"action": "publish", "topic": {**UPDATE, "revision": 0}}, "Invalid topic change"),
        ({"action": "publish", "subscription": SUBSCRIPTION}, "Invalid topic change"),
        ({"action": "subscribe", "topic": UPDATE}, "Invalid topic change"),
        ({"action": "unsubscribe", "topic": UPDATE}, "Invalid topic change"),
        ({"action": "publish", "topic": {**UPDATE, "text": " \n"}}, "Invalid topic publication"),
        (
            {"action": "publish", "topic": {**UPDATE, "event": "release"}},
            "Invalid topic publication",
        ),
        (
            {"action": "restore", "topic": {**RELEASE, "ownership": "held"}},
            "Invalid topic publication",
        ),
    ],
)
def test_bad_changes_are_answered(value: Any, reason: str) -> None:
    refusal = change(value)
    assert isinstance(refusal, Refusal)
    assert list((refusal.answer or {}).items()) == [
        ("type", "sessions"),
        ("requestId", "r"),
        ("sessions", []),
        ("error", reason),
    ]


def test_changes_are_for_those_who_asked_for_topic_frames() -> None:
    refusal = change({"action": "publish", "topic": UPDATE}, Peer("subagents", registered=True))
    assert refusal.reason == "Topic snapshots unavailable for this client"


# -- carrying them out ------------------------------------------------------------------------

INFO: dict[str, Any] = {"id": "i", "cwd": "/", "model": "m", "lastIntercomActivity": 1}


def test_publishing_counts_revisions_up() -> None:
    first, sent = apply_change(INFO, TopicChange("publish", topic=UPDATE), 9)
    assert sent == UPDATE
    assert first == {**INFO, "topics": [UPDATE], "subscriptions": [], "lastIntercomActivity": 9}
    other = {**UPDATE, "topic": "t"}  # names are not trimmed
    second, _ = apply_change(first, TopicChange("publish", topic=other), 10)
    third, sent = apply_change(second, TopicChange("publish", topic={**UPDATE, "text": "new"}), 11)
    assert sent == {**UPDATE, "text": "new", "revision": 2}
    assert third["topics"] == [sent, other]
    _, sent = apply_change(third, TopicChange("publish", topic={**UPDATE, "revision": 7}), 12)
    assert sent
    assert sent["revision"] == 7
    assert INFO == {"id": "i", "cwd": "/", "model": "m", "lastIntercomActivity": 1}


def test_revisions_end() -> None:
    last = {**UPDATE, "revision": 2**53 - 1}
    info, _ = apply_change(INFO, TopicChange("publish", topic=last), 9)
    with pytest.raises(BadTopicChange, match="Invalid topic revision"):
        apply_change(info, TopicChange("publish", topic=UPDATE), 10)


def test_restoring_takes_what_is_newer_and_tells_nobody() -> None:
    info = {**INFO, "topics": [{**UPDATE, "revision": 5}]}
    old, sent = apply_change(info, TopicChange("restore", topic={**UPDATE, "revision": 5}), 9)
    assert (old, sent) == ({**info, "subscriptions": []}, None)
    new, sent = apply_change(
        info, TopicChange("restore", topic={**UPDATE, "revision": 6, "text": "x"}), 9
    )
    assert sent is None
    assert new["topics"] == [{**UPDATE, "revision": 6, "text": "x"}]


def test_subscribing_and_leaving() -> None:
    info, sent = apply_change(INFO, TopicChange("subscribe", subscription=SUBSCRIPTION), 9)
    assert sent is None
    assert info["subscriptions"] == [SUBSCRIPTION]
    assert subscription_to(info, " t ") == SUBSCRIPTION
    assert subscription_to(info, "t") is None
    again = {"topic": " t "}
    info, _ = apply_change(info, TopicChange("subscribe", subscription=again), 9)
    assert info["subscriptions"] == [again]
    same, _ = apply_change(info, TopicChange("unsubscribe", name="t"), 9)
    assert same["subscriptions"] == [again]
    gone, _ = apply_change(info, TopicChange("unsubscribe", name=" t "), 9)
    assert gone["subscriptions"] == []
    assert gone["lastIntercomActivity"] == 1


@pytest.mark.parametrize(
    ("update", "awaited", "urgent"),
    [
        (UPDATE, True, False),
        ({**UPDATE, "event": "blocker"}, False, True),
        ({**UPDATE, "event": "decision"}, False, True),
        (RELEASE, False, False),
        (RELEASE, True, True),
    ],
)
def test_what_is_urgent_comes_at_once(update: Any, awaited: bool, urgent: bool) -> None:
    told = topic_message(update, {"topic": " t ", "awaitRelease": awaited}, "m", 9)
    head = {"id": "m", "timestamp": 9, "topic": update, "content": {"text": "hi"}}
    tail = {"delivery": "queue", "queueMode": "replace", "threadId": "topic: t "}
    assert list(told.items()) == list(
        {**head, **({"delivery": "steer"} if urgent else tail)}.items()
    )


# -- the compact form -------------------------------------------------------------------------


def test_the_compact_form_says_nothing_twice_and_can_be_undone() -> None:
    told = topic_message(UPDATE, SUBSCRIPTION, "m", 9)
    short = compacted(told)
    assert "text" not in short["topic"]
    assert "threadId" not in short
    assert restored(short) == told
    assert told["topic"] == UPDATE


@pytest.mark.parametrize(
    "message",
    [
        {"id": "m", "timestamp": 1, "content": {"text": "hi"}},
        {
            "id": "m",
            "timestamp": 1,
            "content": {"text": "other"},
            "topic": UPDATE,
            "delivery": "queue",
            "queueMode": "replace",
            "threadId": "own",
        },
    ],
)
def test_what_is_not_said_twice_stays(message: Any) -> None:
    assert compacted(message) == message
