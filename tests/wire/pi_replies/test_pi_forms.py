"""Whoever a session or message comes from, the client that gets it takes it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire.pi.fields import holds
from intercom.wire.pi.forms import (
    Unfit,
    intercom_message,
    intercom_row,
    message_frame,
    stamped,
    subagents_message,
    subagents_row,
)
from intercom.wire.pi.messages import is_intercom_message, is_subagents_message
from intercom.wire.pi.sessions import INTERCOM_REQUIRED, INTERCOM_SHOWN, is_subagents_session

UPDATE = {"topic": "t", "text": "hi", "event": "update", "revision": 1, "updatedAt": 2}
NATIVE = {
    "id": "i",
    "endpointEpoch": "e",
    "name": "",
    "cwd": "",
    "model": "m\x00",
    "pid": 5,
    "startedAt": 1,
    "lastActivity": 2,
    "status": "\x1b",
    "tmuxPane": "%1",
    "trustedLocal": True,
    "contextPct": 7.5,
}
GUEST = {
    "cwd": "/a",
    "model": "m",
    "runtimeFallbackAlias": "odd",
    "own": 1,
    "id": "g",
    "name": "n",
    "lastSeen": 8,
    "topics": [UPDATE],
    "subscriptions": [{"topic": "t"}],
}


def test_sessions_of_intercom_are_shown_to_their_own_as_they_are() -> None:
    assert list(intercom_row(NATIVE, 99).items()) == list(NATIVE.items())


def test_sessions_of_others_get_what_intercom_needs() -> None:
    assert intercom_row(GUEST, 99) == {
        "id": "g",
        "cwd": "/a",
        "model": "m",
        "name": "n",
        "pid": 0,
        "startedAt": 99,
        "lastActivity": 8,
    }
    bare = {"id": "x", "peerUid": 5, "contextPct": None, "pid": "5"}
    assert intercom_row(bare, 99) == {
        "id": "x",
        "cwd": "unknown",
        "model": "unknown",
        "pid": 0,
        "startedAt": 99,
        "lastActivity": 99,
    }


def test_sessions_of_subagents_are_shown_to_their_own_as_they_are() -> None:
    assert subagents_row(GUEST) is GUEST


def test_sessions_of_others_are_mended_for_subagents() -> None:
    row = subagents_row(NATIVE)
    assert (row["cwd"], row["model"]) == ("unknown", "m\ufffd")
    assert not {"name", "status"} & row.keys()
    odd = {"id": "x", "cwd": 5, "projectId": "p", "pendingAsks": -1, "topics": [{}], "name": None}
    assert subagents_row(odd) == {"id": "x", "cwd": "unknown", "model": "unknown"}


MESSAGE: dict[str, Any] = {"id": "m", "timestamp": 1, "content": {"text": "hi"}}


def test_messages_of_their_own_kind_are_passed_on_unchanged() -> None:
    whole = {**MESSAGE, "supersedes": "", "own": {"x": 1}, "senderSequence": 3}
    assert list(intercom_message(whole).items()) == list(whole.items())
    quiet = {**MESSAGE, "supersedes": 5, "delivery": "queue"}
    assert subagents_message(quiet) is quiet
    assert list(stamped({**MESSAGE, "brokerReceivedAt": 0, "z": 1}, 5, 6).items()) == [
        *MESSAGE.items(),
        ("brokerReceivedAt", 5),
        ("z", 1),
        ("brokerDeliveredAt", 6),
    ]


def test_what_would_make_intercom_leave_is_left_out() -> None:
    sent = {**MESSAGE, "supersedes": 5, "senderSequence": "x", "provenance": {}, "own": 1}
    assert intercom_message(sent) == {**MESSAGE, "own": 1}


@pytest.mark.parametrize(
    ("changes", "taken"),
    [({}, True), ({"own": 1}, True), ({"type": "other"}, False), ({"requestId": None}, False)],
)
def test_provenance_is_passed_on_where_intercom_takes_it(changes: Any, taken: bool) -> None:
    origin = dict.fromkeys(("extensionId", "extensionName", "requestId"), "x")
    sent = {**MESSAGE, "provenance": {"type": "extension_outbox", **origin, **changes}}
    assert intercom_message(sent) == (sent if taken else MESSAGE)


def test_control_characters_become_replacements_for_subagents() -> None:
    content = {
        "text": "a\x00b\tc\x9f\n",
        "own": 1,
        "attachments": [
            {"type": "file", "name": "a\nb", "content": "\x1b[1m", "language": "\x7f", "own": 2},
            {"type": "file", "name": "", "content": "", "language": ""},
        ],
    }
    sent = {**MESSAGE, "content": content}
    assert subagents_message(sent)["content"] == {
        "text": "a\ufffdb\tc\ufffd\n",
        "own": 1,
        "attachments": [
            {
                "type": "file",
                "name": "a\ufffdb",
                "content": "\ufffd[1m",
                "language": "\ufffd",
                "own": 2,
            },
            {"type": "file", "name": "unknown", "content": ""},
        ],
    }
    assert sent["content"] is content
    assert content["text"] == "a\x00b\tc\x9f\n"


@pytest.mark.parametrize(
    ("odd", "kept"),
    [
        ({"delivery": "later"}, {}),
        ({"passive": 1, "human": [], "topic": "t"}, {}),
        ({"queueMode": "stack"}, {}),
        (
            {"delivery": "queue", "queueMode": "replace", "threadId": "a\x00"},
            {"delivery": "queue", "queueMode": "replace", "threadId": "a\ufffd"},
        ),
        ({"delivery": "passive", "expectsReply": True}, {"expectsReply": True}),
        ({"topic": UPDATE, "replyTo": "r"}, {"replyTo": "r"}),
    ],
)
def test_delivery_that_makes_no_sense_is_left_out(odd: Any, kept: Any) -> None:
    assert subagents_message({**MESSAGE, **odd}) == {**MESSAGE, **kept}


@pytest.mark.parametrize("fields", [{"id": ""}, {"id": "\0"}, {"replyTo": ""}, {"replyTo": "\n"}])
def test_ids_are_never_mended(fields: dict[str, Any]) -> None:
    with pytest.raises(Unfit):
        message_frame(GUEST, {**MESSAGE, **fields}, "subagents")
    assert message_frame(GUEST, {**MESSAGE, **fields}, "intercom")


def test_a_message_frame_for_each_kind_of_receiver() -> None:
    told = {**MESSAGE, "topic": UPDATE}
    compact = {**MESSAGE, "topic": {key: UPDATE[key] for key in UPDATE if key != "text"}}
    sender = {key: GUEST[key] for key in GUEST if key not in ("topics", "subscriptions")}
    assert message_frame(GUEST, told, "subagents") == {
        "type": "message",
        "from": sender,
        "message": told,
    }
    assert message_frame(GUEST, told, "subagents", topic_frames=True)["message"] == compact
    shown = message_frame(GUEST, told, "intercom", registered_at=99)
    assert shown == {"type": "message", "from": intercom_row(GUEST, 99), "message": told}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["", "a", "a\x00", "queue", "replace", "passive", "\x1b\t"]),
    lambda inner: st.lists(inner, max_size=2) | st.just(UPDATE),
    max_leaves=3,
)
INFOS = st.dictionaries(
    st.sampled_from([*INTERCOM_REQUIRED, *INTERCOM_SHOWN, "topics", "lastSeen", "projectId"]),
    VALUES,
    max_size=8,
).map(lambda info: {**info, "id": "i"})
EXTRAS = st.dictionaries(
    st.sampled_from(
        [
            "delivery",
            "queueMode",
            "threadId",
            "passive",
            "topic",
            "human",
            "supersedes",
            "senderSequence",
            "provenance",
            "expectsReply",
            "own",
        ]
    ),
    VALUES,
    max_size=6,
)
TEXTS = st.sampled_from(["", "a", "a\x00", "\x1b\t", "\ud800"])
ATTACHMENTS = st.lists(
    st.fixed_dictionaries(
        {"type": st.just("file"), "name": TEXTS, "content": TEXTS}, optional={"language": TEXTS}
    ),
    max_size=2,
)


@given(INFOS)
def test_every_row_is_good_for_either(info: dict[str, Any]) -> None:
    row = intercom_row(info, 9)
    assert holds(row, INTERCOM_REQUIRED, INTERCOM_SHOWN)
    assert row.keys() <= {"id", *INTERCOM_REQUIRED, *INTERCOM_SHOWN}
    assert is_subagents_session(subagents_row(info))


@given(EXTRAS, TEXTS, ATTACHMENTS)
def test_every_message_is_good_for_the_other(
    extras: dict[str, Any], text: str, attachments: list[dict[str, Any]]
) -> None:
    message = {**extras, **MESSAGE, "content": {"text": text, "attachments": attachments}}
    if is_intercom_message(message):
        assert is_subagents_message(subagents_message(message))
    if is_subagents_message(message):
        assert is_intercom_message(intercom_message(message))
