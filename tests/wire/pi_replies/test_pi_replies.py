"""Frames of the hub, byte by byte as the clients' own brokers write them."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire.pi import replies
from intercom.wire.pi.frames import dump_frame

ROW = {"id": "i", "cwd": "/"}


def written(frame: dict[str, Any]) -> str:
    return dump_frame(frame)[4:].decode()


@pytest.mark.parametrize(
    ("frame", "text"),
    [
        (
            replies.registered("i", "intercom"),
            '{"type":"registered","sessionId":"i","features":["extension-bus-v1","exact-send-v1"]}',
        ),
        (replies.registered("i", "subagents"), '{"type":"registered","sessionId":"i"}'),
        (
            replies.registered("i", "subagents", topic_frames=True),
            '{"type":"registered","sessionId":"i","topicsSupported":true,"topicFrames":true}',
        ),
        (
            replies.health_ok("r"),
            '{"type":"health_ok","requestId":"r","protocol":"pi-intercom","version":1}',
        ),
        (
            replies.sessions("r", [ROW]),
            '{"type":"sessions","requestId":"r","sessions":[{"id":"i","cwd":"/"}]}',
        ),
        (
            replies.sessions_part("r", [], more=False),
            '{"type":"sessions","requestId":"r","sessions":[],"more":false}',
        ),
        (
            replies.sessions_receipt("r", replies.topic_receipt("i", "m", "queued", "Q")),
            '{"type":"sessions","requestId":"r","sessions":[],"receipts":[{"to":"i","id":"m",'
            '"accepted":true,"delivered":false,"queued":true,"reason":"Q"}],"more":true}',
        ),
        (
            replies.topic_receipt("i", "m", "delivered") | {"type": ""},
            '{"to":"i","id":"m","accepted":true,"delivered":true,"type":""}',
        ),
        (
            replies.topic_receipt("i", "m", "failed", "R") | {"type": ""},
            '{"to":"i","id":"m","accepted":false,"delivered":false,"reason":"R","type":""}',
        ),
        (
            replies.sessions_error("r", "no"),
            '{"type":"sessions","requestId":"r","sessions":[],"error":"no"}',
        ),
        (
            replies.session_joined(ROW),
            '{"type":"session_joined","session":{"id":"i","cwd":"/"}}',
        ),
        (replies.session_left("i"), '{"type":"session_left","sessionId":"i"}'),
        (
            replies.presence_update(ROW),
            '{"type":"presence_update","session":{"id":"i","cwd":"/"}}',
        ),
        (
            replies.message(ROW, {"id": "m"}),
            '{"type":"message","from":{"id":"i","cwd":"/"},"message":{"id":"m"}}',
        ),
        (replies.delivered("m"), '{"type":"delivered","messageId":"m"}'),
        (
            replies.delivery_accepted("m", "queued"),
            '{"type":"delivered","messageId":"m","delivery":"queued","retryable":false,'
            '"outcomeKnown":true}',
        ),
        (
            replies.delivery_queued("m", "Queued for replace-mode delivery"),
            '{"type":"delivery_queued","messageId":"m",'
            '"reason":"Queued for replace-mode delivery"}',
        ),
        (
            replies.delivery_failed("m", "Session not found"),
            '{"type":"delivery_failed","messageId":"m","reason":"Session not found"}',
        ),
        (
            replies.delivery_refused("m", "R", "E_TARGET_REBOUND", retryable=True),
            '{"type":"delivery_failed","messageId":"m","reason":"R","delivery":"failed",'
            '"code":"E_TARGET_REBOUND","retryable":true,"outcomeKnown":true}',
        ),
        (
            replies.superseded(ROW, "m", "n", 5),
            '{"type":"message_control","from":{"id":"i","cwd":"/"},"control":'
            '{"action":"supersede","messageId":"m","supersededBy":"n","timestamp":5}}',
        ),
        (
            replies.cancelled(ROW, "m", 5),
            '{"type":"message_control","from":{"id":"i","cwd":"/"},"control":'
            '{"action":"cancel","messageId":"m","timestamp":5}}',
        ),
        (
            replies.message_receipt(ROW, {"messageId": "m"}),
            '{"type":"message_receipt","from":{"id":"i","cwd":"/"},"receipt":{"messageId":"m"}}',
        ),
        (
            replies.extension_owner("n", ("i", "e")),
            '{"type":"extension_owner","namespace":"n","ownerId":"i","ownerEpoch":"e"}',
        ),
        (replies.extension_owner("n", None), '{"type":"extension_owner","namespace":"n"}'),
        (
            replies.extension_message("n", "i", None, None),
            '{"type":"extension_message","namespace":"n","fromSessionId":"i","payload":null}',
        ),
        (
            replies.extension_message("n", "i", ("o", "e"), [1.0]),
            '{"type":"extension_message","namespace":"n","fromSessionId":"i","ownerId":"o",'
            '"ownerEpoch":"e","payload":[1]}',
        ),
        (
            replies.extension_state("n", 3, {"b": 1, "a": 2}),
            '{"type":"extension_state","namespace":"n","revision":3,"payload":{"b":1,"a":2}}',
        ),
        (
            replies.extension_state_result("n", True, 4),
            '{"type":"extension_state_result","namespace":"n","committed":true,"revision":4}',
        ),
        (
            replies.extension_state_result("n", False, 4, "Revision mismatch"),
            '{"type":"extension_state_result","namespace":"n","committed":false,"revision":4,'
            '"reason":"Revision mismatch"}',
        ),
        (replies.error("no"), '{"type":"error","error":"no"}'),
    ],
)
def test_frames(frame: dict[str, Any], text: str) -> None:
    assert written(frame) == text


@pytest.mark.parametrize(
    ("frame", "to"),
    [
        (replies.registered("i", "intercom"), {None, "intercom", "subagents"}),
        (replies.health_ok("r"), {None}),
        (replies.error("no"), {None, "intercom"}),
        (replies.sessions("r", []), {"intercom", "subagents"}),
        (replies.sessions_part("r", [], more=True), {"subagents"}),
        (replies.session_joined(ROW), {"intercom"}),
        (replies.session_left("i"), {"intercom", "subagents"}),
        (replies.presence_update(ROW), {"intercom"}),
        (replies.message(ROW, {}), {"intercom", "subagents"}),
        (replies.delivered("m"), {"intercom", "subagents"}),
        (replies.delivery_failed("m", "R"), {"intercom", "subagents"}),
        (replies.delivery_queued("m", "R"), {"subagents"}),
        (replies.cancelled(ROW, "m", 5), {"intercom"}),
        (replies.message_receipt(ROW, {}), {"intercom"}),
        (replies.extension_owner("n", None), {"intercom"}),
        (replies.extension_message("n", "i", None, 1), {"intercom"}),
        (replies.extension_state("n", 1, 1), {"intercom"}),
        (replies.extension_state_result("n", True, 1), {"intercom"}),
    ],
)
def test_no_client_is_sent_what_it_does_not_know(frame: dict[str, Any], to: set[Any]) -> None:
    variants: tuple[Any, ...] = (None, "intercom", "subagents")
    assert {variant for variant in variants if replies.may_be_sent(frame, variant)} == to
