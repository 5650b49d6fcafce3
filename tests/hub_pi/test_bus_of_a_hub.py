"""The bus in its shell: mail in inboxes, asks and states in files, all in memory."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.hub.outflow import PUSH_LIMIT
from intercom.hub.pi.protocol import MOST_UNSENT
from intercom.records import Position
from intercom.testing import MemoryHub, MemoryPiClient


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


@pytest.fixture
def ann(hub: MemoryHub) -> MemoryPiClient:
    return joined(hub, "ann")


@pytest.fixture
def bob(hub: MemoryHub, ann: MemoryPiClient) -> MemoryPiClient:
    return joined(hub, "bob")


def joined(hub: MemoryHub, name: str, **session: Any) -> MemoryPiClient:
    client = hub.connect_pi()
    client.register(name, name=name.title(), **session)
    return client


def received(client: MemoryPiClient) -> list[str]:
    return [frame["message"]["id"] for frame in client.heard("message")]


def receipt(client: MemoryPiClient, message_id: str) -> None:
    said = {"messageId": message_id, "status": "injected", "timestamp": 1}
    client.say({"type": "message_receipt", "receipt": said})


def place(hub: MemoryHub, session: str) -> int:
    """How many lines of an inbox are read."""
    inbox = hub.spool.inbox(session)
    return inbox.data.count(b"\n", 0, inbox.position.offset)


def test_a_message_lies_in_the_inbox_before_it_is_called_delivered(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    assert ann.send("bob", "m1", "hi")["delivery"] == "socket_delivered"
    (line,) = hub.spool.lines("bob")
    assert json.loads(line)["payload"]["text"] == "hi"
    assert received(bob) == ["m1"]
    assert place(hub, "bob") == 0
    receipt(bob, "m1")
    assert place(hub, "bob") == 1
    assert [frame["receipt"]["messageId"] for frame in ann.heard("message_receipt")] == ["m1"]


def test_mail_waits_in_the_inbox(hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient) -> None:
    bob.hang_up()
    assert [ann.send("bob", f"m{n}")["delivery"] for n in range(3)] == ["queued"] * 3
    again = joined(hub, "bob")
    assert received(again) == ["m0", "m1", "m2"]


def test_a_letter_that_is_taken_back_is_passed_as_skipped(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    bob.hang_up()
    for n in range(3):
        ann.send("bob", f"m{n}")
    ann.say({"type": "cancel_message", "messageId": "m1"})
    inbox = hub.spool.inbox("bob")
    size = len(hub.spool.lines("bob")[0]) + 1
    assert inbox.skipped() == {Position(1, size): 2 * size}
    again = joined(hub, "bob")
    assert received(again) == ["m0", "m2"]
    receipt(again, "m0")
    assert place(hub, "bob") == 2
    receipt(again, "m2")
    assert place(hub, "bob") == 3


def test_what_cannot_be_stored_is_refused_and_may_be_sent_again(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    hub.spool.refusals["bob"] = ("DISK_FULL", "there is no room")
    outcome = ann.send("bob", "m1")
    assert (outcome["type"], outcome["reason"]) == ("delivery_failed", "there is no room")
    assert outcome["retryable"]
    assert received(bob) == []
    hub.spool.refusals.clear()
    assert ann.send("bob", "m1")["type"] == "delivered"
    assert received(bob) == ["m1"]


def test_an_ask_whose_file_cannot_be_written_is_refused(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    hub.files.failing = "there is no room"
    assert ann.send("bob", "m1", expectsReply=True)["retryable"]
    assert (received(bob), hub.files.asks) == ([], {})
    hub.files.failing = ""
    assert ann.send("bob", "m1", expectsReply=True)["type"] == "delivered"
    assert list(hub.files.asks) == [(None, "m1")]
    assert bob.send("ann", "r1", replyTo="m1")["type"] == "delivered"
    assert hub.files.asks == {}


def test_a_state_is_in_its_file_before_anybody_hears_of_it(hub: MemoryHub) -> None:
    client = hub.connect_pi()
    client.register("ann", extensions=[{"namespace": "todo", "ownerEligible": True}])
    epoch = client.heard("extension_owner")[-1]["ownerEpoch"]
    commit = {"namespace": "todo", "ownerEpoch": epoch, "expectedRevision": 0, "payload": [1]}
    client.say({"type": "extension_state_commit", **commit})
    assert client.heard("extension_state_result")[-1]["committed"] is True
    assert hub.files.states == {"todo": (1, [1])}
    hub.files.failing = "there is no room"
    client.say({"type": "extension_state_commit", **commit, "expectedRevision": 1})
    result = client.heard("extension_state_result")[-1]
    assert (result["committed"], result["reason"]) == (False, "Failed to persist extension state")


def test_who_was_known_is_on_the_roll(hub: MemoryHub, bob: MemoryPiClient) -> None:
    bob.hang_up()
    assert [(one.id, one.name, one.left is None) for one in hub.files.roll] == [
        ("bob", "bob", False),
        ("ann", "ann", True),
    ]


def test_a_receiver_that_does_not_read_costs_little_and_loses_nothing(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    bob.transport.stalled = True
    text = "x" * 100_000
    outcomes = [ann.send("bob", f"m{n}", text)["delivery"] for n in range(60)]
    assert outcomes[0] == "socket_delivered"
    assert outcomes[-1] == "queued"
    unsent = bob.transport._protocol._speaker._outflow.unsent
    assert unsent < PUSH_LIMIT + 2 * len(text)
    bob.transport.stalled = False
    assert received(bob) == [f"m{n}" for n in range(60)]


def test_one_that_never_reads_what_others_cause_is_given_up(
    hub: MemoryHub, ann: MemoryPiClient, bob: MemoryPiClient
) -> None:
    """Its mail is not lost by it."""
    ann.send("bob", "m1")
    bob.transport.stalled = True
    for n in range(MOST_UNSENT // 90_000 + 5):
        ann.say({"type": "presence", "status": f"{n}" + "x" * 90_000})
        hub.advance(0.1)  # no faster than it may
    assert not bob.transport.connected
    assert ann.heard("session_left")
    assert received(joined(hub, "bob")) == ["m1"]


def test_a_line_that_somebody_appends_is_brought_to_its_session(
    hub: MemoryHub, bob: MemoryPiClient
) -> None:
    line = b'{"id":"m9","type":"chat","from_session":"boxed","to_session":"bob","channel":"test",'
    line += (
        b'"reply_to":null,"payload":{"text":"from a sandbox"},"timestamp":"2026-01-01T00:00:00Z"}'
    )
    hub.spool.others_append("bob", line + b"\n")
    hub.pump()
    (heard,) = bob.heard("message")
    assert heard["message"]["content"] == {"text": "from a sandbox"}


def test_the_hub_says_goodbye_by_closing(hub: MemoryHub, bob: MemoryPiClient) -> None:
    stopped = hub.hub.shut_down()
    hub.advance(0.5)
    bob.hang_up()
    hub.advance(3)
    assert stopped.called
    assert not bob.transport.connected


def test_when_nobody_is_left_it_is_said_after_a_while(hub: MemoryHub, ann: MemoryPiClient) -> None:
    lines = hub.client("zoe")
    ann.hang_up()
    hub.advance(4.5)
    assert hub.left == []
    hub.advance(1)
    assert hub.left == []
    lines.hang_up()
    hub.advance(4.5)
    assert hub.left == []
    hub.advance(1)
    assert hub.left == ["no pi client was here for a while"]
