"""There and back between all pairs of forms: who gets a message gets all of it, now or later."""

from __future__ import annotations

from typing import Any

import pytest
from bus_scene import Scene
from hypothesis import given
from hypothesis import strategies as st

from intercom.core.bus.keys import Key
from intercom.core.bus.letters import read
from intercom.wire.envelope import parse
from intercom.wire.pi.crossing import original_of
from intercom.wire.pi.mapping import composed, shown
from intercom.wire.pi.messages import is_intercom_message, is_subagents_message
from intercom.wire.pi.topics import restored

LABELS = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=5)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
CLEAN = st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.sampled_from("\t\n\r"))
UPDATE = {"topic": "t", "text": "x", "event": "update", "revision": 3, "updatedAt": 7}
HUMAN = {"ownerSessionId": "o", "runId": "r-1", "index": 0}
#: What the two clients add, as far as it goes together.
MODES = st.sampled_from(
    [
        {},
        {"delivery": "steer"},
        {"delivery": "passive", "passive": True},
        {"delivery": "queue", "queueMode": "stack", "human": HUMAN},
        {"delivery": "queue", "queueMode": "replace", "threadId": " t "},
        {"delivery": "queue", "queueMode": "replace", "threadId": "topic:t", "topic": UPDATE},
        {"delivery": "queue", "queueMode": "replace", "threadId": "other", "topic": UPDATE},
        {"delivery": "steer", "topic": {**UPDATE, "text": "its own"}},
        {"senderSequence": 4, "retryOf": "r", "own": [1, {"text": None}]},
    ]
)


def messages(texts: st.SearchStrategy[str], names: st.SearchStrategy[str]) -> Any:
    attachment = st.fixed_dictionaries(
        {"type": st.sampled_from(["file", "snippet", "context"]), "name": names, "content": texts},
        optional={"language": names, "own": st.integers(0, 3)},
    )
    content = st.fixed_dictionaries(
        {"text": texts | st.just("x")}, optional={"attachments": st.lists(attachment, max_size=2)}
    )
    head = st.fixed_dictionaries({"id": LABELS, "timestamp": st.integers(0, 2**53)})
    return st.builds(
        lambda *parts: {**parts[0], **parts[1], "content": parts[2]}, head, MODES, content
    )


def scene_of(*receivers: str) -> Scene:
    """A client of each kind, and these to receive; none of them idle."""
    scene = Scene()
    scene.join("ann")
    scene.join_plain("ben")
    for name in receivers:
        join(scene, name)
    scene.said.clear()
    return scene


def join(scene: Scene, name: str) -> None:
    match name:
        case "intercom":
            scene.connect(name)
            session = {"cwd": "/x", "model": "m", "pid": 1, "startedAt": 2, "lastActivity": 3}
            scene.say(name, {"type": "register", "sessionId": name, "session": session})
        case "lines":
            scene.elsewhere(name, {})
        case _:
            scene.connect(name)
            frame = {
                "type": "register",
                "requestedId": name,
                "session": {"cwd": "/x", "model": "m"},
            }
            if name == "short-form":
                frame["topicFrames"] = True
            scene.say(name, frame)


def came(scene: Scene, name: str) -> list[dict[str, Any]]:
    """The messages that came, as they were before they were written for this client."""
    found = []
    for who, what in scene.said:
        if who == name and isinstance(what, dict) and what["type"] == "message":
            message = dict(what["message"])
            if name == "intercom":
                assert is_intercom_message(message)
                del message["brokerReceivedAt"], message["brokerDeliveredAt"]
            elif not is_subagents_message(message):
                message = restored(message) or {}
                assert is_subagents_message(message)
            found.append(message)
    return found


def send(scene: Scene, sender: str, to: str, message: dict[str, Any]) -> None:
    scene.say(sender, {"type": "send", "to": to, "message": message})


RECEIVERS = st.sampled_from(["intercom", "long-form", "short-form"])


@given(st.sampled_from(["ann", "ben"]), RECEIVERS, messages(CLEAN, LABELS))
def test_what_both_may_say_arrives_as_it_was_said(
    sender: str, name: str, message: dict[str, Any]
) -> None:
    scene = scene_of(name)
    send(scene, sender, name, message)
    assert came(scene, name) == [message]
    scene.restart()
    join(scene, name)
    assert came(scene, name) == [message]  # nobody has said that it has it


@given(RECEIVERS, messages(TEXTS, TEXTS))
def test_what_one_may_not_say_is_mended_for_it_and_kept_for_the_other(
    name: str, message: dict[str, Any]
) -> None:
    scene = scene_of(name)
    send(scene, "ann", name, message)
    (got,) = came(scene, name)
    assert got["id"] == message["id"]
    if name == "intercom" or is_subagents_message(message):
        assert got == message
    original = original_of(parse(scene.files.inboxes[name][0].line))
    assert original is not None
    assert original.message == message


@given(st.sampled_from(["ann", "ben"]), messages(CLEAN, LABELS))
def test_who_reads_lines_finds_all_of_it_and_so_does_who_reads_them_for_a_pi_client(
    sender: str, message: dict[str, Any]
) -> None:
    scene = scene_of("lines")
    send(scene, sender, "lines", message)
    (record,) = scene.files.inboxes["lines"]
    fields = parse(record.line)
    payload = dict(fields["payload"])
    assert payload.pop("pi")
    assert payload == shown(message)
    content = read(record.line, "lines", None, str, 0)
    assert content is not None
    assert (content.message, content.foreign) == (message, False)
    assert content.sender == Key(None, "ann" if sender == "ann" else "ben-session")


PAYLOADS = st.fixed_dictionaries(
    {"text": CLEAN},
    optional={
        "diff": st.dictionaries(LABELS, TEXTS, max_size=2),
        "supersedes": LABELS,
        "delivery": st.sampled_from(["queue", "steer", "passive"]),
        "attachments": st.just([{"type": "file", "name": "n", "content": "c"}]),
    },
)


@given(RECEIVERS, PAYLOADS)
def test_a_line_arrives_with_all_that_its_payload_says(name: str, payload: dict[str, Any]) -> None:
    scene = scene_of(name)
    scene.write("nd", name, "m1", payload)
    (got,) = came(scene, name)
    assert got == composed({"id": "m1", "timestamp": scene.now}, payload)
    assert shown(got) == payload


@pytest.mark.parametrize("name", ["intercom", "long-form", "short-form"])
def test_the_sender_of_a_line_is_shown_to_either(name: str) -> None:
    scene = scene_of(name)
    scene.write("nd", name, "m1", {"text": "t"})
    ((_, what),) = [said for said in scene.said if said[0] == name]
    assert what["from"]["id"] == "nd"
    assert (what["from"]["cwd"], what["from"]["model"]) == ("unknown", "unknown")
