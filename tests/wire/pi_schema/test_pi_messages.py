"""Which messages are good, for whom, and what a bad one is answered with."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire.pi.messages import (
    fingerprint,
    is_intercom_message,
    is_staged,
    is_subagents_message,
)
from intercom.wire.pi.requests import Peer, Refusal, Send
from intercom.wire.pi.schema import parse

INTERCOM = Peer("intercom", registered=True)
SUBAGENTS = Peer("subagents", registered=True)
MESSAGE = {"id": "m", "timestamp": 1, "content": {"text": "hi"}}
FILE = {"type": "file", "name": "a.py", "content": "x", "language": "python", "own": 1}
TOPIC = {"topic": "t", "text": "hi", "event": "update", "revision": 1, "updatedAt": 2}
HUMAN = {"ownerSessionId": "a-B_1", "runId": "r", "index": 0}
PROVENANCE = {"type": "extension_outbox", "extensionId": "", "extensionName": "", "requestId": ""}


def message(**fields: Any) -> dict[str, Any]:
    return {**MESSAGE, **fields}


def text(text: Any, **fields: Any) -> dict[str, Any]:
    return message(content={"text": text, **fields})


def attached(**fields: Any) -> dict[str, Any]:
    return text("hi", attachments=[FILE, {**FILE, **fields}])


BOTH_GOOD = [
    MESSAGE,
    message(own={"deep": [1]}, timestamp=-0.5),
    message(replyTo="r", expectsReply=False),
    message(expectsReply=True),
    text("", attachments=[], own=1),
    text("tab\tline\r\nend é🙂\ud800\u2028"),
    attached(),
    attached(type="snippet"),
    attached(type="context"),
]
BOTH_BAD = [
    None,
    [],
    "m",
    {},
    *({key: MESSAGE[key] for key in MESSAGE if key != gone} for gone in MESSAGE),
    message(id=5),
    message(id=None),
    message(timestamp="1"),
    message(timestamp=True),
    message(timestamp=None),
    message(replyTo=None),
    message(expectsReply=None),
    message(expectsReply=1),
    message(content=None),
    message(content=[]),
    message(content="hi"),
    text(None),
    text(5),
    text("hi", attachments=None),
    text("hi", attachments={}),
    text("hi", attachments=[None]),
    attached(type="image"),
    attached(type=None),
    attached(name=5),
    attached(content=None),
    attached(language=None),
]
INTERCOM_GOOD = [
    message(id=""),
    message(id="a\x00b", replyTo="", supersedes="", retryOf="x"),
    text("\x00\x1b"),
    attached(name="", language="", content="\x7f"),
    message(
        senderSequence=1,
        brokerReceivedAt=2,
        brokerDeliveredAt=3,
        receiverReceivedAt=4,
        injectedAt=5,
    ),
    message(provenance=PROVENANCE),
    message(provenance={"source": 5}),
    message(delivery="other", queueMode=5, threadId=None, topic=[], human=1, passive="yes"),
]
INTERCOM_BAD = [
    message(supersedes=None),
    message(retryOf=5),
    *(
        message(**{name: bad})
        for name in (
            "senderSequence",
            "brokerReceivedAt",
            "brokerDeliveredAt",
            "receiverReceivedAt",
            "injectedAt",
        )
        for bad in ("1", None, False)
    ),
]
SUBAGENTS_GOOD = [
    message(supersedes=5, provenance=1, senderSequence="x"),
    message(delivery="queue"),
    message(delivery="steer", passive=False, expectsReply=True),
    message(delivery="passive", passive=True),
    message(delivery="passive", expectsReply=False),
    message(passive=True),
    message(delivery="queue", queueMode="stack"),
    message(delivery="queue", queueMode="replace", threadId=" t\n", expectsReply=True),
    message(topic=TOPIC),
    message(topic=TOPIC, expectsReply=False, delivery="steer"),
    message(human=HUMAN),
    message(human={**HUMAN, "own": 1, "index": 5.0}),
]
SUBAGENTS_BAD = [
    message(id=""),
    message(id="a\tb"),
    message(replyTo=""),
    message(replyTo="a\x85"),
    text("\x00"),
    text("a\x0bb"),
    text("a\x7fb"),
    text("a\x9fb"),
    attached(name=""),
    attached(name="a\nb"),
    attached(language=""),
    attached(content="\x1b"),
    message(delivery="later"),
    message(delivery=None),
    message(delivery="queue", queueMode="drop"),
    message(queueMode="stack"),
    message(delivery="steer", queueMode="stack"),
    message(delivery="queue", queueMode="replace"),
    message(delivery="queue", threadId="t"),
    message(delivery="queue", queueMode="stack", threadId="t"),
    *(message(delivery="queue", queueMode="replace", threadId=bad) for bad in ("", " ", 5, "a\tb")),
    message(passive=1),
    message(passive=True, delivery="queue"),
    message(passive=True, expectsReply=True),
    message(delivery="passive", expectsReply=True),
    message(topic=TOPIC, expectsReply=True),
    message(topic=TOPIC, replyTo="r"),
    message(topic=TOPIC, human=HUMAN),
    message(topic=None),
    message(human=None),
    message(human=[]),
    *(message(human={**HUMAN, "index": bad}) for bad in (-1, 0.5, "0", True, 2**53)),
    *(message(human={**HUMAN, "runId": bad}) for bad in ("", "a b", "é", "a\n", 5)),
    message(human={**HUMAN, "ownerSessionId": "a:b"}),
]


@pytest.mark.parametrize("good", [*BOTH_GOOD, *INTERCOM_GOOD])
def test_what_intercom_takes_is_passed_on_unchanged(good: dict[str, Any]) -> None:
    assert parse({"type": "send", "to": "x", "message": good}, INTERCOM) == Send("x", good)


@pytest.mark.parametrize("good", [*BOTH_GOOD, *SUBAGENTS_GOOD])
def test_what_subagents_takes_is_passed_on_unchanged(good: dict[str, Any]) -> None:
    frame = {"type": "send", "to": "x", "message": good, "targetId": 5}
    assert parse(frame, SUBAGENTS) == Send("x", good)


@pytest.mark.parametrize("bad", [*BOTH_BAD, *INTERCOM_BAD])
def test_a_bad_message_of_intercom_is_answered(bad: Any) -> None:
    assert not is_intercom_message(bad)
    refusal = parse({"type": "send", "to": "x", "message": bad}, INTERCOM)
    assert isinstance(refusal, Refusal)
    assert list((refusal.answer or {}).items()) == [
        ("type", "delivery_failed"),
        ("messageId", "unknown"),
        ("reason", "Invalid message format"),
        ("delivery", "failed"),
        ("code", "E_INVALID_MESSAGE"),
        ("retryable", False),
        ("outcomeKnown", True),
    ]


@pytest.mark.parametrize("bad", [*BOTH_BAD, *SUBAGENTS_BAD])
def test_a_bad_message_of_subagents_is_answered(bad: Any) -> None:
    assert not is_subagents_message(bad)
    refusal = parse({"type": "send", "to": "x", "message": bad}, SUBAGENTS)
    assert isinstance(refusal, Refusal)
    assert list((refusal.answer or {}).items()) == [
        ("type", "delivery_failed"),
        ("messageId", "unknown"),
        ("reason", "Invalid message format"),
    ]


@pytest.mark.parametrize("peer", [INTERCOM, SUBAGENTS])
def test_a_bad_target_is_answered_with_the_id(peer: Peer) -> None:
    refusal = parse({"type": "send", "to": None, "message": MESSAGE}, peer)
    assert isinstance(refusal, Refusal)
    assert refusal.answer
    assert refusal.answer["messageId"] == "m"
    assert refusal.answer["reason"] == "Invalid message format"


# -- exact targets ----------------------------------------------------------------------------


def exact(**fields: Any) -> Any:
    return parse({"type": "send", "to": "name", "message": MESSAGE, **fields}, INTERCOM)


def test_an_exact_target_takes_the_place_of_the_name() -> None:
    assert exact(targetId="i", targetEpoch="e") == Send("i", MESSAGE, ("i", "e"))


@pytest.mark.parametrize(
    "fields",
    [
        {"targetId": "i"},
        {"targetEpoch": "e"},
        {"targetId": "", "targetEpoch": "e"},
        {"targetId": "i", "targetEpoch": ""},
        {"targetId": None, "targetEpoch": "e"},
        {"targetId": "i", "targetEpoch": 5},
        {"targetId": None},
    ],
)
def test_half_an_exact_target_is_answered(fields: dict[str, Any]) -> None:
    answer = exact(**fields).answer
    assert answer["code"] == "E_INVALID_TARGET"
    assert answer["reason"] == "Exact target requires an id and endpoint epoch"
    assert answer["messageId"] == "m"


# -- the compact form -------------------------------------------------------------------------


def test_what_the_compact_form_leaves_out_is_restored() -> None:
    short = {key: TOPIC[key] for key in TOPIC if key != "text"}
    sent = message(topic=short, delivery="queue", queueMode="replace")
    request = parse({"type": "send", "to": "x", "message": sent}, SUBAGENTS)
    assert isinstance(request, Send)
    whole = message(topic=TOPIC, delivery="queue", queueMode="replace", threadId="topic:t")
    assert request.message == whole
    assert list(request.message["topic"]) == [*short, "text"]


@pytest.mark.parametrize(
    "bad",
    [
        {"topic": [], "delivery": "queue", "queueMode": "replace"},
        {"topic": {"topic": "t"}},
        {"topic": {**TOPIC, "revision": 0}},
        {"topic": TOPIC, "content": "hi"},
        {"topic": TOPIC, "content": []},
        {"topic": {**TOPIC, "text": None}},
    ],
)
def test_what_cannot_be_restored_is_answered(bad: dict[str, Any]) -> None:
    refusal = parse({"type": "send", "to": "x", "message": message(**bad)}, SUBAGENTS)
    assert isinstance(refusal, Refusal)
    assert not refusal.closes


# -- sameness and staging ---------------------------------------------------------------------


def test_the_content_comparison_is_over_what_was_authored() -> None:
    whole = attached()
    whole |= {"replyTo": "r", "expectsReply": True, "supersedes": "s", "retryOf": "o"}
    whole |= {"provenance": PROVENANCE, "timestamp": 5, "senderSequence": 1}
    same = fingerprint({**whole, "id": "other", "timestamp": 9, "senderSequence": 2}, "t")
    assert fingerprint(whole, "t") == same
    assert same.startswith('{"targetId":"t","text":"hi","attachments":[{"type":"file"')
    for name in ("replyTo", "expectsReply", "supersedes", "retryOf", "provenance"):
        less = {key: whole[key] for key in whole if key != name}
        assert fingerprint(less, "t") != same
    assert fingerprint(whole, "u") != same
    assert fingerprint({**whole, "content": {"text": "hi"}}, "t") != same
    assert fingerprint(MESSAGE, "t") == '{"targetId":"t","text":"hi"}'


REPLACE = message(delivery="queue", queueMode="replace", threadId="t")


@pytest.mark.parametrize(
    ("sent", "receiver", "staged"),
    [
        (REPLACE, {}, False),
        (REPLACE, {"status": "busy"}, False),
        (REPLACE, {"status": "idle"}, True),
        (REPLACE, {"status": "idle 5m"}, True),
        (REPLACE, {"status": "idled"}, False),
        (REPLACE, {"status": "idle", "acceptsAsks": True}, True),
        (REPLACE, {"status": "idle", "acceptsAsks": False}, False),
        ({**REPLACE, "expectsReply": True}, {"acceptsAsks": False}, True),
        (message(delivery="queue", queueMode="stack"), {"status": "idle"}, False),
        (message(delivery="queue"), {"status": "idle"}, False),
        (MESSAGE, {"status": "idle"}, False),
    ],
)
def test_what_is_staged(sent: Any, receiver: Any, staged: bool) -> None:
    assert is_staged(sent, receiver) is staged
