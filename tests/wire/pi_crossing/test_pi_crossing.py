"""Messages that change dialect say the same, and lose nothing there and back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import ProtocolError
from intercom.wire.envelope import MAX_LINE, parse
from intercom.wire.pi.crossing import (
    Original,
    envelope_id,
    line_of,
    message_of,
    original_of,
    payload_of,
)
from intercom.wire.pi.javascript import js_json
from intercom.wire.pi.messages import is_intercom_message, is_subagents_message

SENDER = {"id": "ada", "cwd": "/a", "model": "m", "pid": 5}
MESSAGE: dict[str, Any] = {"id": "m1", "timestamp": 1795982932418, "content": {"text": "hi"}}
UPDATE = {"topic": "t", "text": "hi", "event": "update", "revision": 1, "updatedAt": 2}
FILE = {"type": "file", "name": "a.py", "content": "x"}
NOW = 1_700_000_000_000


def spooled(message: dict[str, Any], scope: str | None = None, **sender: Any) -> dict[str, Any]:
    """The fields of the line that a message is kept as."""
    line = line_of(
        Original(message, {**SENDER, **sender}, scope),
        from_session="ada",
        to_session="bob",
        channel="pi",
    )
    return parse(line)


def envelope(payload: Any, **fields: Any) -> dict[str, Any]:
    return {
        "id": "m1",
        "type": "chat",
        "from_session": "ada",
        "to_session": "bob",
        "channel": "pi",
        "reply_to": None,
        "payload": payload,
        "timestamp": "2026-11-29T20:08:52.418000+00:00",
        **fields,
    }


# -- the table --------------------------------------------------------------------------------

TABLE = [
    ({"content": {"text": "a\tb é🙂"}}, {"text": "a\tb é🙂"}),
    ({"content": {"text": "hi", "attachments": [FILE]}}, {"text": "hi", "attachments": [FILE]}),
    ({"expectsReply": True}, {"text": "hi", "expects_reply": True}),
    ({"expectsReply": False}, {"text": "hi", "expects_reply": False}),
    ({"supersedes": "s", "retryOf": "o"}, {"text": "hi", "supersedes": "s", "retry_of": "o"}),
    ({"delivery": "steer"}, {"text": "hi", "delivery": "steer"}),
    (
        {"delivery": "queue", "queueMode": "replace", "threadId": "t"},
        {"text": "hi", "delivery": "queue", "queue_mode": "replace", "thread_id": "t"},
    ),
    (
        {
            "content": {
                "text": "hi",
                "attachments": [
                    {
                        "type": "context",
                        "name": "payload.json",
                        "language": "json",
                        "content": '{"diff":"+1","n":12345678901234567890}',
                    }
                ],
            }
        },
        {"text": "hi", "diff": "+1", "n": 12345678901234567890},
    ),
]


@pytest.mark.parametrize(("fields", "payload"), TABLE)
def test_the_table_from_pi(fields: dict[str, Any], payload: dict[str, Any]) -> None:
    found = spooled({**MESSAGE, **fields}, scope="team")
    kept = found["payload"].pop("pi")
    assert found == envelope(payload)
    assert kept["from"] == SENDER
    assert kept["scope"] == "team"
    assert kept["message"]["id"] == "m1"


@pytest.mark.parametrize(("fields", "payload"), TABLE)
def test_the_table_to_pi(fields: dict[str, Any], payload: dict[str, Any]) -> None:
    assert message_of(envelope(payload), NOW) == {**MESSAGE, **fields}


def test_answers() -> None:
    assert spooled({**MESSAGE, "replyTo": "q"})["reply_to"] == "q"
    assert message_of(envelope({"text": "hi"}, reply_to="q"), NOW) == {**MESSAGE, "replyTo": "q"}
    assert message_of(envelope({"text": "hi"}, reply_to=""), NOW) == MESSAGE


def test_topics_do_not_say_their_text_twice() -> None:
    told = {**MESSAGE, "topic": UPDATE}
    found = spooled(told)
    short = {key: UPDATE[key] for key in UPDATE if key != "text"}
    assert found["payload"]["topic"] == short
    assert list(message_of(found, NOW)["topic"].items()) == list(UPDATE.items())
    for topic in (short, UPDATE):
        assert message_of(envelope({"text": "hi", "topic": topic}), NOW) == told


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        ("2026-11-29T20:08:52.418000+00:00", 1795982932418),
        ("2026-11-29T20:08:52.418Z", 1795982932418),
        ("2026-11-29T20:08:52.418", 1795982932418),
        ("2026-11-29T22:08:52.418499+02:00", 1795982932418),
        ("0001-01-01T00:00:00+14:00", -62135647200000),
        ("yesterday", NOW),
        ("", NOW),
        (None, NOW),
    ],
)
def test_times_to_pi(timestamp: str | None, milliseconds: int) -> None:
    assert message_of(envelope({}, timestamp=timestamp), NOW)["timestamp"] == milliseconds


@pytest.mark.parametrize(
    ("milliseconds", "timestamp"),
    [
        (1795982932418.5, "2026-11-29T20:08:52.418500+00:00"),
        (-1, "1970-01-01T00:00:00.000000+00:00"),
        (1e300, "9999-12-31T23:59:59.998993+00:00"),  # as near as seconds in a double come
    ],
)
def test_times_from_pi(milliseconds: float, timestamp: str) -> None:
    found = spooled({**MESSAGE, "timestamp": milliseconds})
    assert found["timestamp"] == timestamp
    assert message_of(found, NOW)["timestamp"] == milliseconds


# -- what has no counterpart ------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        {"diff": "+1"},
        {"text": 5},
        {"text": None, "attachments": {}},
        {"text": "", "diff": "+1"},
        {"attachments": [], "diff": "+1"},
        {"text": "hi", "attachments": [FILE], "diff": "+1"},
        {"text": "hi", "attachments": [{"type": "image"}]},
        {"text": "hi", "expects_reply": "yes", "supersedes": 5, "delivery": "later"},
        {"text": "hi", "queue_mode": "stack"},
        {"text": "hi", "topic": UPDATE, "expects_reply": True},
        {"text": "hi", "delivery": "passive", "expects_reply": True},
        {"text": "hi", "topic": {"topic": "t"}},
        {"text": "hi", "n": 10**400},
        {"text": "hi", "content": 1, "id": 2, "timestamp": 3},
        {
            "text": "hi",
            "attachments": [
                {"type": "context", "name": "payload.json", "language": "json", "content": "{}"}
            ],
        },
    ],
)
def test_other_keys_are_in_an_attachment_and_come_out_of_it(payload: dict[str, Any]) -> None:
    message = message_of(envelope(payload), NOW)
    assert is_subagents_message(message)
    last = message["content"]["attachments"][-1]
    assert {**last, "content": ""} == {
        "type": "context",
        "name": "payload.json",
        "language": "json",
        "content": "",
    }
    back = payload_of(Original(message, SENDER, None))
    assert {key: back[key] for key in back if key != "pi"} == payload


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{", '{"n":1e999}', '{"n":NaN}', '{"text":"forged"}', '{"pi":{}}', "[" * 5000],
)
def test_an_attachment_that_is_no_payload_stays_one(content: str) -> None:
    fold = {"type": "context", "name": "payload.json", "language": "json", "content": content}
    message = {**MESSAGE, "content": {"text": "hi", "attachments": [fold]}}
    found = spooled(message)
    assert found["payload"]["attachments"] == [fold]
    assert found["payload"]["text"] == "hi"
    assert message_of(found, NOW) == message


# -- the original -----------------------------------------------------------------------------


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "message",
    [
        {"own": {"z": 1, "a": [None, 1.5]}, **MESSAGE, "senderSequence": 3},
        {**MESSAGE, "id": ""},
        {**MESSAGE, "id": "x" * 129},
        {**MESSAGE, "id": "\ud800", "replyTo": "\udfff"},
        {**MESSAGE, "content": {"text": "\ud800", "attachments": [FILE]}},
        {**MESSAGE, "content": {"text": "", "attachments": [{**FILE, "own": nested(70)}]}},
        {**MESSAGE, "own": nested(59)},
        {**MESSAGE, "own": nested(60)},
        {**MESSAGE, "own": nested(250)},
        {**MESSAGE, "topic": {"text": None}},
        {**MESSAGE, "topic": None, "delivery": 5},
        {**MESSAGE, "content": {"text": "\x00\x1b\u2028", "own": None, "attachments": []}},
    ],
)
def test_the_original_is_kept_whole_and_in_order(message: dict[str, Any]) -> None:
    found = spooled(message, scope="s", name="\ud800")
    original = original_of(found)
    assert original
    assert js_json(original.message) == js_json(message)
    assert original.sender == {**SENDER, "name": "\ud800"}
    assert original.scope == "s"
    plain = original_of(spooled(message))
    assert plain
    assert js_json(plain.message) == js_json(message)
    assert plain.scope is None


def test_a_large_text_stands_in_the_line_once() -> None:
    content = {"text": "x" * 500_000, "attachments": [{**FILE, "content": "y" * 500_000}]}
    line = line_of(
        Original({**MESSAGE, "content": content}, SENDER, None),
        from_session="ada",
        to_session="bob",
        channel="pi",
    )
    assert len(line) < 1_001_000
    assert message_of(parse(line), NOW)["content"] == content
    content["text"] *= 2
    with pytest.raises(ProtocolError) as caught:
        spooled({**MESSAGE, "content": {"text": "x" * MAX_LINE}})
    assert caught.value.code == "LINE_TOO_LONG"


KEPT = {"message": MESSAGE, "from": SENDER}


@pytest.mark.parametrize(
    "kept",
    [
        None,
        5,
        [],
        {},
        {"json": "{"},
        {"json": "[]"},
        {"json": "\ud800"},
        {**KEPT, "message": None},
        {**KEPT, "message": {**MESSAGE, "id": "other"}},
        {**KEPT, "message": {**MESSAGE, "timestamp": None}},
        {**KEPT, "message": {**MESSAGE, "content": None}},
        {**KEPT, "message": {**MESSAGE, "content": {"attachments": None, "text": None}}},
        {**KEPT, "from": None},
        {**KEPT, "from": {**SENDER, "cwd": 5}},
        {**KEPT, "scope": 5},
    ],
)
def test_a_broken_original_is_just_another_key(kept: Any) -> None:
    fields = envelope({"text": "hi", "pi": kept})
    assert original_of(fields) is None
    assert message_of(fields, NOW)["content"]["text"] == "hi"


@pytest.mark.parametrize("payload", [None, {}])
def test_an_empty_payload_is_an_empty_text(payload: Any) -> None:
    message = message_of(envelope(payload), NOW)
    assert message == {**MESSAGE, "content": {"text": ""}}


def test_ids_that_an_envelope_cannot_have_are_hashed() -> None:
    assert envelope_id("m1") == "m1"
    assert envelope_id("x" * 128) == "x" * 128
    odd = ["", "x" * 129, "x" * 130, "\ud800", "\udfff"]
    hashed = {envelope_id(one) for one in odd}
    assert len(hashed) == len(odd)
    assert all(one.startswith("pi_") and len(one) == 35 for one in hashed)


# -- there and back ---------------------------------------------------------------------------

TEXTS = st.text(max_size=5) | st.sampled_from(["\ud800", "\x00", "payload.json", "🙂"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
FOLDS = st.dictionaries(
    st.sampled_from(["text", "diff", "pi", "attachments", "topic"]), VALUES, max_size=3
).map(
    lambda held: {
        "type": "context",
        "name": "payload.json",
        "language": "json",
        "content": json.dumps(held),
    }
)
ATTACHMENTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["file", "context"]), "name": TEXTS, "content": TEXTS},
        optional={"language": TEXTS, "own": VALUES},
    )
    | FOLDS,
    max_size=3,
)
CONTENTS = st.fixed_dictionaries(
    {"text": TEXTS}, optional={"attachments": ATTACHMENTS, "own": VALUES}
)
MESSAGES = st.fixed_dictionaries(
    {"id": TEXTS, "timestamp": st.integers(-5, 2**53) | st.floats(-1e300, 1e300)},
    optional={
        "replyTo": TEXTS,
        "expectsReply": st.booleans(),
        "supersedes": TEXTS,
        "retryOf": TEXTS,
        "topic": st.just(UPDATE) | VALUES,
        "delivery": VALUES,
        "threadId": VALUES,
        "queueMode": VALUES,
        "own": VALUES,
        "senderSequence": st.integers(-9, 9),
    },
)


@given(MESSAGES, CONTENTS, st.none() | TEXTS)
def test_a_pi_message_leaves_as_it_came(
    message: dict[str, Any], content: dict[str, Any], scope: str | None
) -> None:
    message = {**message, "content": content}
    assert is_intercom_message(message)
    original = original_of(spooled(message, scope))
    assert original
    assert js_json(original.message) == js_json(message)
    assert (original.sender, original.scope) == (SENDER, scope)


PLAIN = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
LINE_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | PLAIN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PLAIN, inner, max_size=3),
    max_leaves=6,
)
PAYLOADS = st.fixed_dictionaries(
    {"text": PLAIN | LINE_VALUES},
    optional={
        "attachments": st.lists(FOLDS, min_size=1, max_size=2) | st.just([FILE]) | LINE_VALUES,
        "expects_reply": st.booleans() | LINE_VALUES,
        "supersedes": PLAIN | LINE_VALUES,
        "delivery": st.sampled_from(["queue", "steer", "passive"]) | LINE_VALUES,
        "queue_mode": st.sampled_from(["stack", "replace"]) | LINE_VALUES,
        "thread_id": PLAIN | LINE_VALUES,
        "topic": st.just({**UPDATE, "text": "its own text"}) | LINE_VALUES,
        "diff": LINE_VALUES,
        "trace": LINE_VALUES,
    },
)


@given(PAYLOADS, st.none() | PLAIN.filter(bool), st.integers(0, 253402300799999))
def test_an_envelope_leaves_as_it_came(payload: Any, reply_to: str | None, at: int) -> None:
    times = spooled({**MESSAGE, "timestamp": at})["timestamp"]
    fields = envelope(payload, reply_to=reply_to, timestamp=times)
    message = message_of(json.loads(json.dumps(fields)), NOW)
    assert is_intercom_message(message)
    back = spooled(message)
    del back["payload"]["pi"]
    assert back == fields


@given(LINE_VALUES, st.dictionaries(st.sampled_from(["pi", "text", "topic"]), LINE_VALUES))
def test_no_envelope_is_too_odd(kept: Any, payload: dict[str, Any]) -> None:
    fields = envelope({**payload, "pi": {"message": kept, "from": kept}})
    assert is_intercom_message(message_of(fields, NOW))
