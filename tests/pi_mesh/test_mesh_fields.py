"""What has a name in two dialects is said by it, and what has none is not lost."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from mesh_hub import Hub
from mesh_members import FOLD, Intercom, Lines, Member, Subagents, member

TOPIC = {
    "topic": "t",
    "text": "said once",
    "event": "release",
    "resource": "db",
    "ownership": "released",
    "revision": 3,
    "updatedAt": 9,
}
#: A pi message's fields, and what an NDJSON payload has of them.
FORMS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"delivery": "steer"}, {"delivery": "steer"}),
    (
        {"delivery": "queue", "queueMode": "replace", "threadId": " a thread"},
        {"delivery": "queue", "queue_mode": "replace", "thread_id": " a thread"},
    ),
    ({"delivery": "passive"}, {"delivery": "passive"}),
    (
        {"delivery": "queue", "queueMode": "stack", "expectsReply": True},
        {"delivery": "queue", "queue_mode": "stack", "expects_reply": True},
    ),
]
pi_kinds = pytest.mark.parametrize("other", ["intercom", "subagents"])


def frame_of(who: Member, message_id: str) -> dict[str, Any]:
    """The message of this id as a pi client gets it."""
    while True:
        frame: dict[str, Any] = who.client.take("message")
        if frame["message"]["id"] == message_id:
            return frame


def line_of(who: Lines, message_id: str) -> dict[str, Any]:
    (line,) = (one for one in who.client.mail(message_id) if one["id"] == message_id)
    return line


@pytest.mark.parametrize(("fields", "keys"), FORMS, ids=["steer", "replace", "passive", "ask"])
def test_fields_have_their_names_in_either(
    hub: Hub, fields: dict[str, Any], keys: dict[str, Any]
) -> None:
    pi, lines, other = Subagents(hub), Lines(hub), Intercom(hub)
    speaker = Lines(hub)  # who is asked may not ask back
    name = f"m-{pi.id}"
    assert pi.client.send(lines.id, name, "hi", **fields)["type"] == "delivered"
    payload = line_of(lines, name)["payload"]
    assert {key: payload[key] for key in payload if key != "pi"} == {"text": "hi", **keys}
    for to in (pi, other):
        said = speaker.client.chat(to.id, f"{name}-{to.kind}", {"text": "hi", **keys})
        assert said["live"] == 1
        message = frame_of(to, f"{name}-{to.kind}")["message"]
        assert message["content"] == {"text": "hi"}
        assert {field: message.get(field) for field in fields} == fields


def test_a_topic_is_read_by_who_speaks_lines_and_may_come_from_there(hub: Hub) -> None:
    new, old, lines = Subagents(hub), hub.subagents("an-older-one", topics=False), Lines(hub)
    thread = {"delivery": "queue", "queueMode": "replace", "threadId": "topic:t"}
    topic = {**TOPIC, "text": "said once"}
    new.client.send(lines.id, "m1", "said once", topic=topic, **thread)
    payload = line_of(lines, "m1")["payload"]
    assert {"text": "said once", **payload["topic"]} == topic
    assert (payload["text"], payload["thread_id"]) == ("said once", "topic:t")
    said = {key: payload[key] for key in payload if key != "pi"}
    for to, short in ((new.id, True), ("an-older-one", False)):
        assert lines.client.chat(to, f"m2-{to}", said)["state"] == "stored"
        client = old if to == "an-older-one" else new.client
        message = client.take("message")["message"]
        assert message["content"] == {"text": "said once"}
        assert ("text" in message["topic"], "threadId" in message) == (not short, not short)


@pi_kinds
def test_what_does_not_go_together_travels_as_other_keys(hub: Hub, other: str) -> None:
    lines, pi = Lines(hub), member(hub, other)
    odd = {"delivery": "steer", "thread_id": "t", "retry_of": 5, "topic": "news", "text_2": "x"}
    assert lines.send(pi.id, "m1", "hi", others=odd) == "delivered"
    message = frame_of(pi, "m1")["message"]
    (fold,) = message["content"]["attachments"]
    assert {**fold, "content": ""} == {**FOLD, "content": ""}
    assert json.loads(fold["content"]) == odd
    assert set(message) <= {"id", "timestamp", "content", "brokerReceivedAt", "brokerDeliveredAt"}


@pi_kinds
def test_attachments_that_are_none_and_texts_that_are_none_travel_too(hub: Hub, other: str) -> None:
    lines, pi = Lines(hub), member(hub, other)
    payload = {"text": 5, "attachments": [{"type": "image", "url": "u"}], "more": None}
    assert lines.client.chat(pi.id, "m1", payload)["live"] == 1
    content = frame_of(pi, "m1")["message"]["content"]
    assert content["text"] == ""
    assert json.loads(content["attachments"][0]["content"]) == payload
    # and an attachment of that name which came from elsewhere is not taken apart
    fold = {**FOLD, "content": '{"mine":1}'}
    assert lines.client.chat(pi.id, "m2", {"text": "t", "attachments": [fold]})["live"] == 1
    attachments = frame_of(pi, "m2")["message"]["content"]["attachments"]
    assert attachments[0] == fold


@pi_kinds
def test_times_are_the_senders(hub: Hub, other: str) -> None:
    lines, pi = Lines(hub), member(hub, other)
    said = datetime(2026, 8, 26, 15, 30, 0, 123000, UTC)
    lines.client.chat(pi.id, "m1", {"text": "x"}, timestamp=said.isoformat(timespec="microseconds"))
    assert frame_of(pi, "m1")["message"]["timestamp"] == said.timestamp() * 1000
    milliseconds = round(said.timestamp() * 1000)
    message = {"id": f"m-{pi.id}", "timestamp": milliseconds, "content": {"text": "x"}}
    pi.client.write({"type": "send", "to": lines.id, "message": message})
    line = line_of(lines, f"m-{pi.id}")
    assert datetime.fromisoformat(line["timestamp"]) == said


def test_what_a_pi_intercom_client_says_beside_is_kept(hub: Hub) -> None:
    a, b, c = Intercom(hub), Lines(hub), Subagents(hub)
    assert a.send(b.id, "m0") == "delivered"
    more = {"senderSequence": 7, "supersedes": "m0", "retryOf": "mx", "unknown": {"kept": [1]}}
    assert a.client.send(b.id, "m1", **more)["type"] == "delivered"
    payload = line_of(b, "m1")["payload"]
    assert (payload["supersedes"], payload["retry_of"]) == ("m0", "mx")
    assert payload["pi"]["message"]["senderSequence"] == 7
    assert payload["pi"]["message"]["unknown"] == {"kept": [1]}
    said = {"text": "hi", "supersedes": "m0", "retry_of": "mx"}
    assert b.client.chat(c.id, "m2", said)["state"] == "stored"
    message = frame_of(c, "m2")["message"]
    assert (message["supersedes"], message["retryOf"]) == ("m0", "mx")


@pi_kinds
def test_nobody_speaks_for_another_by_a_forged_original(hub: Hub, other: str) -> None:
    liar, victim, pi = Lines(hub), Intercom(hub), member(hub, other)
    row = next(one for one in victim.client.list() if one["id"] == victim.id)
    original = {"id": "m1", "timestamp": 5, "content": {"text": "forged"}, "replyTo": "q"}
    payload = {"text": "plain", "pi": {"message": original, "from": row}}
    assert liar.client.chat(pi.id, "m1", payload)["state"] == "stored"
    frame = frame_of(pi, "m1")
    assert frame["from"]["id"] == liar.id
    assert frame["message"]["content"]["text"] == "plain"
    assert "replyTo" not in frame["message"]


@pi_kinds
def test_a_line_that_is_too_large_in_the_form_of_its_receiver_is_refused(
    hub: Hub, other: str
) -> None:
    """Keys without a counterpart become JSON text in JSON, where each quote takes four bytes."""
    lines, pi = Lines(hub), member(hub, other)
    word = lines.send(pi.id, "m1", "hi", others={"quotes": '"' * 400_000})
    assert word not in ("delivered", "waits")
    assert lines.send(pi.id, "m2", "x" * 1_000_000) == "delivered"
    assert pi.ids("m2") == ["m2"]
