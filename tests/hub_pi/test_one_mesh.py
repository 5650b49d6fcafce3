"""Sessions that speak lines and those of pi clients, on one hub: one mesh."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.testing import MemoryClient, MemoryHub, MemoryPiClient


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def zoe(hub: MemoryHub) -> MemoryClient:
    """She speaks lines."""
    return hub.client("zoe", features=["receipts", "cursor", "progress"])


@pytest.fixture
def ann(hub: MemoryHub, zoe: MemoryClient) -> MemoryPiClient:
    client = hub.connect_pi()
    client.register("ann-1", name="Ann", cwd="/w", model="m")
    return client


def receipts(client: MemoryClient) -> list[dict[str, Any]]:
    return [one["payload"] for one in client.heard("receipt")]


def texts(client: MemoryClient) -> list[str]:
    return [one["payload"]["text"] for one in client.heard("chat")]


def test_each_sees_the_other_in_every_listing(
    hub: MemoryHub, zoe: MemoryClient, ann: MemoryPiClient
) -> None:
    ann.say({"type": "list", "requestId": "r"})
    rows = {row["id"]: row for row in ann.heard("sessions")[-1]["sessions"]}
    assert set(rows) == {"zoe", "ann-1"}
    assert (rows["zoe"]["name"], rows["zoe"]["cwd"]) == ("zoe", "unknown")
    assert rows["zoe"]["endpointEpoch"]
    zoe.say({"type": "list"})
    shown = {row["session"]: row for row in zoe.heard("sessions")[-1]["payload"]["sessions"]}
    assert shown["ann-1"]["name"] == "Ann"
    assert shown["ann-1"]["dialect"] == "pi-intercom"
    assert hub.client("max").heard("welcome")[0]["payload"]["peers"] == ["ann-1", "zoe"]
    hub.advance(0.1)
    assert hub.registry.sessions == ("ann-1", "max", "zoe")


def test_news_of_each_reach_the_other(hub: MemoryHub, ann: MemoryPiClient) -> None:
    max_ = hub.client("max")
    assert ann.heard("session_joined")[-1]["session"]["id"] == "max"
    max_.hang_up()
    assert ann.heard("session_left") == [{"type": "session_left", "sessionId": "max"}]
    ann.hang_up()
    hub.advance(0.1)
    assert hub.registry.sessions == ("zoe",)


def test_lines_reach_pi_clients_and_every_word_of_the_receipt_is_true(
    zoe: MemoryClient, ann: MemoryPiClient
) -> None:
    zoe.chat("ann-1", text="hello", diff="--- a")
    (heard,) = ann.heard("message")
    message = heard["message"]
    assert (heard["from"]["id"], message["content"]["text"]) == ("zoe", "hello")
    (attachment,) = message["content"]["attachments"]
    assert json.loads(attachment["content"]) == {"diff": "--- a"}
    stored, pushed = receipts(zoe)[-2:]
    if stored["state"] == "pushed":
        stored, pushed = pushed, stored
    assert (stored["state"], stored["recipients"], stored["live"]) == ("stored", 1, 1)
    assert (pushed["state"], pushed["session"]) == ("pushed", "ann-1")
    receipt = {"messageId": message["id"], "status": "injected", "timestamp": 1}
    ann.say({"type": "message_receipt", "receipt": receipt})
    assert receipts(zoe)[-1]["state"] == "read"


def test_a_name_that_only_one_has_is_an_address(zoe: MemoryClient, ann: MemoryPiClient) -> None:
    zoe.chat("ann", text="by name", strict=True)
    assert [one["message"]["content"]["text"] for one in ann.heard("message")] == ["by name"]
    assert receipts(zoe)[-1]["state"] in ("stored", "pushed")


def test_everybody_is_everybody(hub: MemoryHub, zoe: MemoryClient, ann: MemoryPiClient) -> None:
    zoe.chat("*", text="to all")
    assert [one["message"]["content"]["text"] for one in ann.heard("message")] == ["to all"]


def test_pi_clients_reach_lines_and_hear_how_far_it_came(
    zoe: MemoryClient, ann: MemoryPiClient
) -> None:
    assert ann.send("zoe", "m1", "from pi")["delivery"] == "socket_delivered"
    assert texts(zoe) == ["from pi"]
    position = zoe.heard("cursor")[-1]["payload"]
    zoe.say({"type": "ack", "payload": position})
    (told,) = ann.heard("message_receipt")
    assert (told["from"]["id"], told["receipt"]["status"]) == ("zoe", "acknowledged")


def test_lines_ask_and_pi_clients_answer(
    hub: MemoryHub, zoe: MemoryClient, ann: MemoryPiClient
) -> None:
    asked = zoe.chat("ann-1", text="shall I?", expects_reply=True)
    message = ann.heard("message")[-1]["message"]
    assert message["expectsReply"] is True
    assert [record["messageId"] for record in hub.files.asks.values()] == [asked]
    refused = ann.send("zoe", "m1", "and I?", expectsReply=True)
    assert refused["code"] == "E_MUTUAL_ASK"
    assert ann.send("zoe", "m2", "yes", replyTo=asked)["type"] == "delivered"
    assert zoe.heard("chat")[-1]["reply_to"] == asked
    assert hub.files.asks == {}


def test_pi_clients_ask_and_lines_answer(
    hub: MemoryHub, zoe: MemoryClient, ann: MemoryPiClient
) -> None:
    assert ann.send("zoe", "q1", "shall I?", expectsReply=True)["type"] == "delivered"
    assert zoe.heard("chat")[-1]["payload"]["expects_reply"] is True
    refused = zoe.chat("ann-1", text="and I?", expects_reply=True)
    assert receipts(zoe)[-1]["code"] == "MUTUAL_ASK"
    assert zoe.heard("receipt")[-1]["reply_to"] == refused
    zoe.say(
        {
            "type": "chat",
            "id": "a1",
            "to_session": "ann-1",
            "reply_to": "q1",
            "payload": {"text": "do"},
        }
    )
    assert ann.heard("message")[-1]["message"]["replyTo"] == "q1"
    assert hub.files.asks == {}


def test_lines_ask_lines(hub: MemoryHub, zoe: MemoryClient) -> None:
    max_ = hub.client("max", features=["receipts", "cursor"])
    asked = zoe.chat("max", text="shall I?", expects_reply=True)
    assert len(hub.files.asks) == 1
    max_.chat("zoe", text="and I?", expects_reply=True)
    assert receipts(max_)[-1]["code"] == "MUTUAL_ASK"
    answer = {"text": "do"}
    max_.say(
        {"type": "chat", "id": "a1", "to_session": "zoe", "reply_to": asked, "payload": answer}
    )
    assert hub.files.asks == {}
    max_.hang_up()
    zoe.chat("max", text="still there?", expects_reply=True)
    assert receipts(zoe)[-1]["code"] == "TARGET_DISCONNECTED"


def test_what_was_sent_is_taken_back(zoe: MemoryClient, ann: MemoryPiClient) -> None:
    sent = zoe.chat("ann-1", text="wait")
    zoe.say({"type": "cancel", "id": "c1", "payload": {"message_id": sent}})
    assert ann.heard("message_control")[-1]["control"]["messageId"] == sent
    assert {"state": "cancelled"} in receipts(zoe)
    assert receipts(zoe)[-1]["state"] == "skipped"
    zoe.say({"type": "cancel", "id": "c2", "payload": {"message_id": "nothing"}})
    assert zoe.heard("error")[-1]["payload"]["code"] == "TARGET_NOT_FOUND"


def test_an_id_is_one_sessions_whatever_it_speaks(hub: MemoryHub, ann: MemoryPiClient) -> None:
    client = hub.connect()
    assert client.register("ann-1")["payload"]["code"] == "SESSION_COLLISION"
    other = hub.connect_pi()
    assert "another kind" in other.register("zoe")["error"]


def test_mail_waits_across_dialects(hub: MemoryHub, zoe: MemoryClient, ann: MemoryPiClient) -> None:
    ann.hang_up()
    zoe.chat("ann-1", text="later")
    assert receipts(zoe)[-1]["live"] == 0
    again = hub.connect_pi()
    again.register("ann-1", name="Ann")
    assert [one["message"]["content"]["text"] for one in again.heard("message")] == ["later"]
    zoe.hang_up()
    assert again.send("zoe", "m1", "for later")["delivery"] == "queued"
    back = hub.client("zoe", features=["cursor"])
    assert texts(back) == ["for later"]
