"""What a restart must not lose: mail, positions, asks, states; after SIGTERM and after SIGKILL."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable

import pytest
from pi_broker_process import BrokerProcess, until
from pi_frames_client import Ended, message

ENDS = [signal.SIGTERM, signal.SIGKILL]
OWN = {"extensions": [{"namespace": "x", "ownerEligible": True}]}


def channel_file(broker: BrokerProcess, name: str) -> str:
    return os.path.join(os.path.dirname(broker.hub_socket), name)


def position(broker: BrokerProcess, session: str) -> int:
    """Up to which byte of its inbox a session has received; a receipt is not answered."""
    try:
        with open(channel_file(broker, f"offset_{session}.json"), "rb") as file:
            return int(json.load(file)["offset"])
    except FileNotFoundError:
        return 0


@pytest.mark.parametrize("end", ENDS)
def test_mail_survives_in_its_order_and_positions_hold(
    broker: BrokerProcess, end: signal.Signals
) -> None:
    ada = broker.join("ada", session={"name": "Ada"})
    bob = broker.join("bob")
    ada.presence(status="before")
    for name in ("read", "held", "again"):
        assert ada.send("bob", name)["delivery"] == "socket_delivered"
    bob.receipt("read")
    bob.list()
    bob.unregister()
    bob.health()
    for name in ("q1", "q3", "q4"):
        assert ada.send("bob", name)["delivery"] == "queued"
    until(lambda: position(broker, "bob") > 0, "the receipt moves no position")
    broker.restart(end)
    ada = broker.join("ada", session={"name": "Other"})
    assert ada.send("bob", "q3")["type"] == "delivered", "it was sent before"
    assert ada.send("bob", "q5")["delivery"] == "queued"
    bob = broker.join("bob")
    bob.list()
    mail = [one for one in bob.arrived if one["type"] == "message"]
    assert bob.mail() == ["held", "again", "q1", "q3", "q4", "q5"]
    names = [(one["from"]["name"], one["from"].get("status")) for one in mail]
    assert names == [("Ada", "before")] * 5 + [("Other", None)]
    for name in ("held", "again", "q1", "q3", "q4", "q5"):
        bob.receipt(name)
    size = os.path.getsize(channel_file(broker, "inbox_bob.ndjson"))
    until(lambda: position(broker, "bob") == size, "the receipts move no position")
    broker.restart(end)
    assert broker.join("bob").mail() == []


@pytest.mark.parametrize("end", ENDS)
def test_what_was_taken_back_is_shown_to_nobody(broker: BrokerProcess, end: signal.Signals) -> None:
    """Its sender was told that it is."""
    ada, bob = broker.join("ada"), broker.join("bob")
    bob.unregister()
    bob.health()
    for name in ("q1", "q2", "q3"):
        ada.send("bob", name)
    ada.write({"type": "cancel_message", "messageId": "q2"})
    assert ada.outcome("q2")["type"] == "delivered"
    broker.restart(end)
    assert broker.join("bob").mail() == ["q1", "q3"]


@pytest.mark.parametrize("end", ENDS)
def test_asks_are_answered_after_a_restart(broker: BrokerProcess, end: signal.Signals) -> None:
    ada, bob = broker.join("ada", session={"name": "Ada"}), broker.join("bob")
    for name in ("here", "away", "taken", "back"):
        ada.ask("bob", name)
        bob.receipt(name)
    bob.list()
    files = {one.name: one.read_bytes() for one in broker.asks.iterdir()}
    broker.restart(end)
    assert {one.name: one.read_bytes() for one in broker.asks.iterdir()} == files
    bob = broker.join("bob")
    # the asker is not here, but known
    assert bob.reply("ada", "r1", "away")["delivery"] == "queued"
    assert bob.ask("ada", "q1")["code"] == "E_TARGET_DISCONNECTED"
    ada = broker.join("ada")
    assert ada.take("message")["message"]["replyTo"] == "away"
    assert bob.ask("ada", "q1")["code"] == "E_MUTUAL_ASK"
    eve = broker.join("eve")
    assert eve.reply("ada", "r2", "here")["code"] == "E_REPLY_TARGET"
    assert bob.reply("ada", "r2", "here")["delivery"] == "socket_delivered"
    assert not (broker.asks / "here.json").exists()
    assert ada.take("message")["message"]["replyTo"] == "here"
    ada.write({"type": "cancel_ask", "messageId": "back"})
    ada.list()
    assert bob.reply("ada", "r3", "back")["code"] == "E_REPLY_TARGET"
    assert [one.name for one in broker.asks.iterdir()] == ["taken.json"]


@pytest.mark.parametrize("end", ENDS)
def test_state_survives(broker: BrokerProcess, end: signal.Signals) -> None:
    ada = broker.join("ada", session=OWN)
    epoch = ada.take("extension_owner", ownerId="ada")["ownerEpoch"]
    for revision in range(3):
        ada.write(
            {
                "type": "extension_state_commit",
                "namespace": "x",
                "ownerEpoch": epoch,
                "expectedRevision": revision,
                "payload": {"round": revision},
            }
        )
        assert ada.take("extension_state_result")["committed"] is True
    broker.restart(end)
    ada = broker.join("ada", session=OWN)
    state = ada.take("extension_state")
    assert (state["revision"], state["payload"]) == (3, {"round": 2})
    assert ada.take("extension_owner")["ownerEpoch"] != epoch


def test_nothing_that_was_confirmed_is_lost_by_a_kill_in_mid_traffic(broker: BrokerProcess) -> None:
    """Three times: two senders talk as fast as they are answered, and the broker is killed."""
    confirmed: dict[str, list[str]] = {"ada": [], "eve": []}
    broker.join("bob").close()
    for round_ in range(3):
        senders = {name: broker.join(name) for name in confirmed}
        for number in range(20):
            for name, client in senders.items():
                said = message(f"{name}-{round_}-{number}")
                client.write({"type": "send", "to": "bob", "message": said})
            for name, client in senders.items():
                told = client.outcome(f"{name}-{round_}-{number}")
                assert told["type"] == "delivered", told
                confirmed[name].append(told["messageId"])
        for name, client in senders.items():
            client.write({"type": "send", "to": "bob", "message": message(f"{name}-{round_}-last")})
        broker.kill()
        for name, client in senders.items():
            with contextlib.suppress(Ended):
                confirmed[name].append(client.outcome(f"{name}-{round_}-last")["messageId"])
        broker.hang_up()
        broker.start()
    found = broker.join("bob").mail()
    assert len(set(found)) == len(found)
    for name, names in confirmed.items():
        mine = [one for one in found if one.startswith(name)]
        assert [one for one in mine if one in set(names)] == names, "all of them, in their order"


@pytest.mark.parametrize("end", ENDS)
def test_an_ask_in_a_scope_is_answered_after_a_restart(
    broker: BrokerProcess, end: signal.Signals
) -> None:
    ada, bob = broker.join("ada", scopeId="s"), broker.join("bob", scopeId="s")
    ada.ask("bob", "m1")
    bob.receipt("m1")
    bob.list()
    broker.restart(end)
    bob, other = broker.join("bob", scopeId="s"), broker.join("bob")
    assert other.reply("ada", "r1", "m1")["type"] == "delivery_failed"
    assert bob.reply("ada", "r1", "m1")["delivery"] == "queued"
    assert list(broker.asks.iterdir()) == []
    assert broker.join("ada", scopeId="s").take("message")["message"]["id"] == "r1"


def test_asks_that_timed_out_while_nobody_was_there_are_gone(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(PI_INTERCOM_ASK_TIMEOUT_MS="500").start()
    ada, bob = broker.join("ada"), broker.join("bob")
    ada.ask("bob", "m1")
    written = json.loads((broker.asks / "m1.json").read_bytes())
    assert written["expiresAt"] - written["createdAt"] == 500
    bob.receipt("m1")
    bob.list()
    assert broker.stop() == 0
    broker.hang_up()
    until(lambda: time.time() * 1000 > written["expiresAt"] + 100, "the time does not pass")
    (broker.asks / "damaged.json").write_text("{}")
    (broker.asks / "notes.txt").write_text("not ours")
    broker.start()
    bob = broker.join("bob")
    assert bob.reply("ada", "r1", "m1")["type"] == "delivery_failed"
    assert [one.name for one in broker.asks.iterdir()] == ["notes.txt"]
