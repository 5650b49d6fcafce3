"""Progress, levels and remembered outcomes, as the clients of a whole hub see them."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.records import Position
from intercom.testing import MemoryClient, MemoryHub
from intercom.wire.envelope import format_timestamp

PROGRESS = ["receipts", "progress"]


def states(client: MemoryClient, message_id: str) -> list[tuple[str, str | None]]:
    """What a sender heard of one message: states, with the recipient where one is named."""
    return [
        (line["payload"]["state"], line["payload"].get("session"))
        for line in client.heard("receipt")
        if line["reply_to"] == message_id
    ]


def acknowledge(client: MemoryClient, state: str) -> None:
    """Acknowledge everything that was pushed so far."""
    client.say(
        {"type": "ack", "payload": {**client.heard("cursor")[-1]["payload"], "state": state}}
    )


def test_a_sender_follows_its_message_to_the_reader_who_acknowledges_it() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada", features=PROGRESS), hub.client("bob", features=["cursor"])
    sent = ada.chat("bob", text="hello")
    assert sorted(states(ada, sent)) == [("pushed", "bob"), ("stored", None)]
    hub.advance(1)
    acknowledge(bob, "shown")
    assert states(ada, sent)[2:] == [("shown", "bob")]
    assert hub.spool.inbox("bob").offset == 0
    hub.advance(1)
    acknowledge(bob, "read")
    assert states(ada, sent)[3:] == [("read", "bob")]
    assert hub.spool.inbox("bob").offset > 0
    times = [line["payload"].get("at") for line in ada.heard("receipt")]
    assert times[:2] == [None, None]
    now = hub.clock.seconds()
    assert times[2:] == [format_timestamp(now - 1), format_timestamp(now)]


def test_a_reader_without_a_connection_is_followed_too() -> None:
    hub = MemoryHub()
    ada = hub.client("ada", features=PROGRESS)
    sent = ada.chat("bob", text="hello")
    assert states(ada, sent) == [("stored", None)]
    hub.spool.others_commit("bob", Position(1, len(hub.spool.inbox("bob").data)))
    hub.pump()
    assert states(ada, sent)[1:] == [("read", "bob")]


def test_a_backlog_is_pushed_when_its_reader_comes() -> None:
    hub = MemoryHub()
    ada = hub.client("ada", features=PROGRESS)
    sent = [ada.chat("bob", text=str(number)) for number in range(3)]
    hub.client("bob", features=["cursor"])
    assert [states(ada, one)[1:] for one in sent] == [[("pushed", "bob")]] * 3


def test_pushes_are_noted_in_the_spool_as_stretches() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada"), hub.client("bob", features=["cursor"])
    plain = hub.client("plain")
    for name in ("bob", "plain"):
        for number in range(3):
            ada.chat(name, text=str(number))
    assert len(bob.heard("chat")) == len(plain.heard("chat")) == 3
    for name in ("bob", "plain"):
        noted = [push[1:] for push in hub.spool.pushes if push[0] == name]
        assert noted[0][:2] == (1, 0)
        assert [before[2] for before in noted[:-1]] == [after[1] for after in noted[1:]]
        assert noted[-1][2] == len(hub.spool.inbox(name).data)


def test_who_asked_for_receipts_only_hears_what_it_always_heard() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada", features=["receipts"]), hub.client("bob", features=["cursor"])
    sent = ada.chat("bob", text="hello")
    acknowledge(bob, "read")
    assert states(ada, sent) == [("stored", None)]


@pytest.mark.parametrize("level", ["memory", "process", "disk"])
def test_a_message_is_as_safe_as_it_asks(level: str) -> None:
    hub = MemoryHub(durability="process")
    ada = hub.client("ada", features=["receipts"])
    hub.client("bob")
    ada.chat("bob", text="x", durability=level)
    assert [line["payload"]["level"] for line in ada.heard("receipt")] == [level]
    assert len(hub.spool.lines("bob")) == 1


def test_a_level_that_is_none_is_refused_and_nothing_is_stored() -> None:
    hub = MemoryHub()
    ada = hub.client("ada", features=["receipts"])
    sent = ada.chat("bob", text="x", durability="tape")
    (error,) = ada.heard("error")
    assert (error["reply_to"], error["payload"]["code"]) == (sent, "BAD_ENVELOPE")
    assert error["payload"]["field"] == "payload.durability"
    assert hub.spool.lines("bob") == []


def test_what_level_memory_promised_too_early_comes_back_as_a_notice() -> None:
    hub = MemoryHub()
    ada = hub.client("ada", features=["receipts", "cursor"])
    hub.client("bob")
    hub.spool.refusals["bob"] = ("DISK_FULL", "no space left")
    sent = ada.chat("bob", text="x", durability="memory")
    assert [line["payload"]["state"] for line in ada.heard("receipt")] == ["stored"]
    (notice,) = ada.heard("chat")
    assert (notice["from_session"], notice["reply_to"]) == ("hub", sent)
    assert notice["payload"]["notice"]["code"] == "DISK_FULL"
    assert "'" not in notice["payload"]["text"]
    assert "bob" in notice["payload"]["text"]


def restarted(before: MemoryHub) -> MemoryHub:
    """The hub that follows, with the inboxes of the one before and what it remembers."""
    hub = MemoryHub()
    hub.spool.inboxes = before.spool.inboxes
    hub.spool.known = dict(before.spool.known)
    hub.hub.remembered(before.spool.remembered())
    return hub


def test_a_broadcast_repeated_after_a_restart_reaches_those_of_the_first_time() -> None:
    first = MemoryHub()
    ada = first.client("ada", features=["receipts"])
    first.client("bob")
    said: dict[str, Any] = {"text": "to all"}
    sent = ada.chat("*", "m1", **said)
    second = restarted(first)
    ada = second.client("ada", features=PROGRESS)
    bob, new = second.client("bob"), second.client("newcomer")
    ada.chat("*", sent, **said)
    (receipt,) = ada.heard("receipt")
    assert receipt["payload"] == {
        "state": "stored",
        "level": "disk",
        "recipients": 1,
        "live": 1,
        "duplicate": True,
    }
    assert bob.heard("chat") == new.heard("chat") == []
    assert len(second.spool.lines("bob")) == 1
    ada.chat("*", sent, text="something else")
    assert ada.heard("receipt")[-1]["payload"]["code"] == "MESSAGE_ID_REUSE"
