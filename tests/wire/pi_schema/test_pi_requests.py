"""Every frame of both clients: what is taken, what is dropped, answered, or ends it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire.pi.frames import dump_frame
from intercom.wire.pi.requests import (
    CancelAsk,
    CancelMessage,
    CapabilitiesUpdate,
    Capability,
    Health,
    Listing,
    MessageReceipt,
    Peer,
    Presence,
    Refusal,
    Register,
    Unregister,
)
from intercom.wire.pi.schema import parse
from intercom.wire.pi.sessions import (
    apply_presence,
    intercom_info,
    subagents_info,
)

STRANGER = Peer()
INTERCOM = Peer("intercom", registered=True)
SUBAGENTS = Peer("subagents", registered=True)
NUMBERS = {"pid": 7, "startedAt": 1.5, "lastActivity": 2}
IN_SESSION = {"cwd": "/a", "model": "m", **NUMBERS}
SUB_SESSION = {"cwd": "/a", "model": "m"}
ABSENT = object()


def with_(base: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A frame with fields changed, or left out where they are ABSENT."""
    return {key: value for key, value in {**base, **changes}.items() if value is not ABSENT}


def register(session: Any = ABSENT, **fields: Any) -> dict[str, Any]:
    return with_({"type": "register"}, session=session, **fields)


def registered(frame: dict[str, Any]) -> Register:
    request = parse(frame, STRANGER)
    assert isinstance(request, Register), request
    return request


def closes(frame: dict[str, Any], peer: Peer = STRANGER) -> str:
    refusal = parse(frame, peer)
    assert isinstance(refusal, Refusal), refusal
    assert refusal.closes
    return refusal.reason


# -- register ---------------------------------------------------------------------------------


def test_the_three_numbers_make_an_intercom_client() -> None:
    frame = register(with_(IN_SESSION, extra=1), sessionId=" a:b ", scopeId=" s ", stateId="u")
    request = registered(frame)
    assert request == Register(
        variant="intercom",
        session=IN_SESSION,
        wished_id=" a:b ",
        scope="s",
        state_id="u",
    )
    # order of the broker's own rows, whatever the order on the wire
    info = intercom_info(
        registered(
            register({"tmuxPane": "%1", "status": "idle", **IN_SESSION, "name": "n"}, sessionId="i")
        ),
        "i",
        "epoch",
        trusted=True,
    )
    assert " ".join(info) == (
        "id endpointEpoch name cwd model pid startedAt lastActivity status tmuxPane trustedLocal"
    )


def test_none_of_the_three_makes_a_subagents_client() -> None:
    session = {"model": "m", "cwd": "/a", "own": {"x": 1}, "pendingAsks": 0}
    request = registered(register(session, requestedId="abc-DEF_12", topicFrames=True))
    assert request == Register(
        variant="subagents", session=session, wished_id="abc-DEF_12", topic_frames=True
    )
    info = subagents_info(request, "i", 9)
    assert info == {**session, "id": "i", "lastSeen": 9}
    seen = subagents_info(registered(register(with_(session, lastSeen=3))), "i", 9)
    assert list(seen) == [*session, "lastSeen", "id"]
    assert seen["lastSeen"] == 3


@pytest.mark.parametrize("wished", [ABSENT, None, 5, "short", "x" * 81, "with space", "abcdefgh\n"])
def test_a_wished_id_of_subagents_that_does_not_match_is_ignored(wished: Any) -> None:
    assert registered(register(SUB_SESSION, requestedId=wished)).wished_id is None


@pytest.mark.parametrize("asked", [ABSENT, False, 1, "true", None])
def test_topic_frames_are_asked_for_by_true_alone(asked: Any) -> None:
    assert not registered(register(SUB_SESSION, topicFrames=asked)).topic_frames


@pytest.mark.parametrize(("scope", "kept"), [(ABSENT, None), ("", None), (" \ufeff", None)])
def test_a_blank_scope_is_none(scope: Any, kept: Any) -> None:
    assert registered(register(IN_SESSION, scopeId=scope)).scope is kept


@pytest.mark.parametrize(
    "frame",
    [
        register(),
        register(None),
        register([]),
        register({}),
        *(register(with_(IN_SESSION, **{name: ABSENT})) for name in NUMBERS),
        *(register(with_(IN_SESSION, **{name: "1"})) for name in NUMBERS),
        *(register(with_(IN_SESSION, **{name: True})) for name in NUMBERS),
        *(register(with_(IN_SESSION, **{name: None})) for name in NUMBERS),
        *(register(with_(SUB_SESSION, **{name: None})) for name in NUMBERS),
        *(
            register(with_(IN_SESSION, **{name: bad}))
            for name in ("cwd", "model", "name", "tmuxPane", "status")
            for bad in (None, 1)
        ),
        register(with_(IN_SESSION, cwd=ABSENT)),
        register(with_(IN_SESSION, runtimeFallbackAlias="yes")),
        register(with_(IN_SESSION, extensions={})),
        register(with_(IN_SESSION, extensions=None)),
        register(IN_SESSION, sessionId=None),
        register(IN_SESSION, sessionId=""),
        register(IN_SESSION, sessionId=" \t\ufeff"),
        register(IN_SESSION, sessionId=5),
        register(IN_SESSION, scopeId=None),
        register(IN_SESSION, scopeId=5),
        *(
            register(with_(SUB_SESSION, **{name: bad}))
            for name in ("cwd", "model", "name", "status")
            for bad in (None, "", "a\tb", "a\x7f", "\x85", 5)
        ),
        *(
            register(with_(SUB_SESSION, projectId=bad))
            for bad in ("a" * 63, "A" * 64, "a" * 65, None)
        ),
        *(register(with_(SUB_SESSION, pendingAsks=bad)) for bad in (-1, 0.5, "1", True, None)),
        register(with_(SUB_SESSION, lastSeen="1")),
        register(with_(SUB_SESSION, lastIntercomActivity=None)),
        register(with_(SUB_SESSION, acceptsAsks=1)),
        register(with_(SUB_SESSION, subscriptions={})),
        register(with_(SUB_SESSION, subscriptions=[{"topic": " "}])),
        register(with_(SUB_SESSION, topics=[{"topic": "t"}])),
    ],
)
def test_an_invalid_register_closes(frame: dict[str, Any]) -> None:
    assert closes(frame).startswith("Invalid register")


def test_which_client_it_is_is_decided_once() -> None:
    left = Peer("subagents")
    assert isinstance(parse(register(SUB_SESSION), left), Register)
    assert closes(register(IN_SESSION), left) == "Invalid register message"
    for peer in (INTERCOM, SUBAGENTS):
        assert closes(register(IN_SESSION), peer) == "Received duplicate register message"


def capability(namespace: Any = "a/b", eligible: Any = True) -> dict[str, Any]:
    return {"namespace": namespace, "ownerEligible": eligible, "more": 1}


@pytest.mark.parametrize("namespace", ["a", "0", "a" * 64, "a._/-9", "0/"])
def test_extensions_are_read(namespace: str) -> None:
    extensions = [capability(namespace, False)] * 32
    expected = (Capability(namespace, False),) * 32
    frame = register(with_(IN_SESSION, extensions=extensions))
    assert registered(frame).extensions == expected
    assert "extensions" not in registered(frame).session
    update = {"type": "extension_capabilities_update", "extensions": extensions}
    assert parse(update, INTERCOM) == CapabilitiesUpdate(expected)


@pytest.mark.parametrize(
    "extensions",
    [
        [capability()] * 33,
        [None],
        [[]],
        [{}],
        [capability(eligible=1)],
        *([capability(bad)] for bad in ("", "A", "_a", "a" * 65, "a b", "é", "a\n", None, 5)),
    ],
)
def test_bad_extensions_close(extensions: Any) -> None:
    assert closes(register(with_(IN_SESSION, extensions=extensions)))
    assert closes({"type": "extension_capabilities_update", "extensions": extensions}, INTERCOM)


def test_an_update_of_capabilities_names_them() -> None:
    assert closes({"type": "extension_capabilities_update"}, INTERCOM)


# -- the order of things ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "send", "presence", "unregister", "", "Register"])
@pytest.mark.parametrize("peer", [STRANGER, Peer("intercom"), Peer("subagents")])
def test_nothing_but_register_and_health_comes_first(kind: str, peer: Peer) -> None:
    assert closes({"type": kind, "requestId": "r"}, peer) == f"Received {kind} before register"


def test_health_needs_no_session_and_no_session_gets_it() -> None:
    health = {"type": "health", "requestId": "r"}
    assert parse(health, STRANGER) == Health("r")
    assert parse({**health, "stateId": "u"}, STRANGER) == Health("r", "u")
    assert closes({"type": "health"}) == "Invalid health message"
    for peer in (INTERCOM, SUBAGENTS):
        assert closes(health, peer) == "Unknown client message type: health"


@pytest.mark.parametrize(
    "kind",
    [
        "health",
        "message_receipt",
        "cancel_message",
        "cancel_ask",
        "extension_capabilities_update",
        "extension_publish",
        "extension_state_commit",
        "publish",
        "topic",
    ],
)
def test_what_is_unknown_to_subagents_closes(kind: str) -> None:
    assert closes({"type": kind}, SUBAGENTS) == f"Unknown client message type: {kind}"


def test_unknown_types_of_intercom_close() -> None:
    assert closes({"type": "delivered"}, INTERCOM) == "Unknown client message type: delivered"


@pytest.mark.parametrize("peer", [INTERCOM, SUBAGENTS])
def test_unregister_says_nothing_more(peer: Peer) -> None:
    assert parse({"type": "unregister", "x": 1}, peer) == Unregister()


def test_listings() -> None:
    frame = {"type": "list", "requestId": "", "stream": True, "change": None}
    assert parse(frame, INTERCOM) == Listing("")
    assert parse(with_(frame, change=ABSENT), SUBAGENTS) == Listing("", stream=True)
    assert parse({"type": "list", "requestId": "r", "stream": 1}, SUBAGENTS) == Listing("r")
    for peer in (INTERCOM, SUBAGENTS):
        assert closes({"type": "list", "requestId": 5}, peer) == "Invalid list message"


@pytest.mark.parametrize(
    ("kind", "request_type"), [("cancel_message", CancelMessage), ("cancel_ask", CancelAsk)]
)
def test_cancelling(kind: str, request_type: type) -> None:
    assert parse({"type": kind, "messageId": "m"}, INTERCOM) == request_type("m")
    assert closes({"type": kind, "messageId": None}, INTERCOM) == f"Invalid {kind} message"


RECEIPT = {"messageId": "m", "status": "injected", "timestamp": 1, "own": []}


def test_receipts_pass_as_they_are() -> None:
    for status in [
        "receiver_received",
        "queued",
        "injected",
        "acknowledged",
        "expired",
        "cancelled",
        "superseded",
        "cancellation_requested",
    ]:
        receipt = {**RECEIPT, "status": status, "detail": ""}
        assert parse({"type": "message_receipt", "receipt": receipt}, INTERCOM) == MessageReceipt(
            receipt
        )


@pytest.mark.parametrize(
    "receipt",
    [
        ABSENT,
        [],
        *(with_(RECEIPT, **{name: ABSENT}) for name in ("messageId", "status", "timestamp")),
        with_(RECEIPT, status="delivered"),
        with_(RECEIPT, status=["queued"]),
        with_(RECEIPT, timestamp="1"),
        with_(RECEIPT, detail=None),
    ],
)
def test_a_bad_receipt_closes(receipt: Any) -> None:
    assert closes(with_({"type": "message_receipt"}, receipt=receipt), INTERCOM)


# -- presence ---------------------------------------------------------------------------------

INFO = {"id": "i", "cwd": "/a", "model": "m", "contextPct": 5, "lastActivity": 1}


def changed(
    info: dict[str, Any], peer: Peer, now: int = 9, **fields: Any
) -> tuple[dict[str, Any], bool]:
    request = parse({"type": "presence", **fields}, peer)
    assert isinstance(request, Presence)
    assert peer.variant
    return apply_presence(info, request, peer.variant, now)


def test_presence_of_intercom_changes_and_clears() -> None:
    before = dict(INFO)
    after, shows = changed(INFO, INTERCOM, name="", contextPct=None, contextWindow=200000.0, cwd=5)
    assert shows
    assert list(after.items()) == [
        ("id", "i"),
        ("cwd", "/a"),
        ("model", "m"),
        ("lastActivity", 9),
        ("name", ""),
        ("contextWindow", 200000.0),
    ]
    assert before == INFO
    assert changed(after, INTERCOM, now=10, name="", contextPct=None, contextWindow=200000) == (
        {**after, "lastActivity": 10},
        False,
    )


def test_presence_of_subagents_merges_into_the_session() -> None:
    info = {"id": "i", "cwd": "/a", "model": "m", "lastSeen": 1}
    after, shows = changed(
        info, SUBAGENTS, status="idle", pendingAsks=2.0, acceptsAsks=False, projectId="bad", cwd=""
    )
    assert shows
    assert after == {
        **info,
        "status": "idle",
        "pendingAsks": 2,
        "acceptsAsks": False,
        "lastSeen": 9,
    }
    assert changed(info, SUBAGENTS) == ({**info, "lastSeen": 9}, False)


@pytest.mark.parametrize(
    ("peer", "name", "value"),
    [
        *((INTERCOM, name, None) for name in ("name", "status", "model", "runtimeFallbackAlias")),
        *((INTERCOM, name, 5) for name in ("name", "status", "model", "runtimeFallbackAlias")),
        *(
            (INTERCOM, name, bad)
            for name in ("contextPct", "contextTokens", "contextWindow")
            for bad in ("5", True, [])
        ),
        *(
            (SUBAGENTS, name, bad)
            for name in ("name", "status", "model")
            for bad in (None, "", "a\nb", 5)
        ),
        (SUBAGENTS, "pendingAsks", -1),
        (SUBAGENTS, "acceptsAsks", None),
        (SUBAGENTS, "lastIntercomActivity", "1"),
        (SUBAGENTS, "subscriptions", [{"topic": "\n"}]),
        (SUBAGENTS, "topics", {}),
    ],
)
def test_one_bad_field_of_presence_closes(peer: Peer, name: str, value: Any) -> None:
    assert closes({"type": "presence", "lastSeen": 1, name: value}, peer)


# -- whatever comes ---------------------------------------------------------------------------

KINDS = [
    "register",
    "unregister",
    "list",
    "send",
    "message_receipt",
    "cancel_message",
    "cancel_ask",
    "presence",
    "health",
    "extension_capabilities_update",
    "extension_publish",
    "extension_state_commit",
    "other",
]
KEYS = [
    "session",
    "requestId",
    "message",
    "receipt",
    "messageId",
    "name",
    "status",
    "contextPct",
    "extensions",
    "namespace",
    "ownerEpoch",
    "expectedRevision",
    "payload",
    "audience",
    "ownerOnly",
    "to",
    "targetId",
    "targetEpoch",
    "change",
    "action",
    "topic",
    "subscription",
    "id",
    "timestamp",
    "content",
    "text",
    "attachments",
    "pid",
    "startedAt",
    "lastActivity",
    "cwd",
    "model",
    "sessionId",
    "scopeId",
    "stateId",
    "topics",
    "subscriptions",
    "topicFrames",
    "stream",
    "type",
    "replyTo",
    "queueMode",
]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "a", "a/b", "publish", "restore", "\ud800", "\x01", "queue", "replace"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=12,
)
PEERS = st.sampled_from(
    [
        STRANGER,
        Peer("intercom"),
        INTERCOM,
        Peer("intercom", registered=True, namespaces=frozenset({"a/b"})),
        SUBAGENTS,
        Peer("subagents", registered=True, topic_frames=True),
    ]
)


@given(st.sampled_from(KINDS), st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8), PEERS)
def test_any_frame_is_a_request_or_a_refusal_that_the_client_understands(
    kind: str, fields: dict[str, Any], peer: Peer
) -> None:
    outcome = parse({**fields, "type": kind}, peer)
    if isinstance(outcome, Refusal) and outcome.answer is not None:
        assert peer.registered
        assert dump_frame(outcome.answer)
        allowed = {
            "intercom": ("delivery_failed", "error"),
            "subagents": ("delivery_failed", "sessions"),
        }
        assert peer.variant
        assert outcome.answer["type"] in allowed[peer.variant]
