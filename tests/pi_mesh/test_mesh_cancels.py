"""What is taken back: by whoever may, whatever the receiver speaks, and whether it is here."""

from __future__ import annotations

from typing import Any

import pytest
from mesh_hub import Hub
from mesh_members import KINDS, Member, member
from pi_broker_process import until

#: pi-subagents clients have no word for it.
CANCELLERS = ("intercom", "lines")
pairs = pytest.mark.parametrize(
    ("one", "other"), [(a, b) for a in CANCELLERS for b in KINDS], ids=lambda kind: kind
)


def take_back(who: Member, to: str, message_id: str) -> bool:
    """Whether the hub says that it is done."""
    if who.kind == "intercom":
        who.client.write({"type": "cancel_message", "messageId": message_id})
        return bool(who.client.outcome(message_id)["type"] == "delivered")
    mark = f"back-{to}-{message_id}"
    said = {"type": "cancel", "id": mark, "payload": {"message_id": message_id, "to": to}}
    who.client.write(said)
    while True:
        for at, line in enumerate(who.client.arrived):
            if line["type"] == "error" and line["reply_to"] == mark:
                who.client.arrived.pop(at)
                return False
            if line["payload"].get("state") == "cancelled" and line["reply_to"] == message_id:
                who.client.arrived.pop(at)
                return True
        who.client._receive()


def notices(who: Member, message_id: str) -> list[Any]:
    """What a receiver is told of a message that was taken back."""
    if who.kind == "intercom":
        return [who.client.take("message_control")["control"]["action"]]
    if who.kind == "lines":
        line = who.client.take("chat", reply_to=message_id)
        return [line["from_session"], line["payload"]["notice"]["code"]]
    return [who.client.mail()]


@pairs
def test_what_waits_is_not_brought(hub: Hub, one: str, other: str) -> None:
    """An NDJSON reader may find it with the notice that it was taken back behind it."""
    a, b = member(hub, one), member(hub, other)
    b.leave()
    for name in ("m1", "m2", "m3"):
        assert a.send(b.id, name) == "waits"
    assert take_back(a, b.id, "m2")
    b.come()
    heard = b.hears("m1", "m3")
    if other == "lines" and "m2" in [one.id for one in heard]:
        assert ("hub", "m2") in [(one.sender, one.reply_to) for one in heard]
        heard = [one for one in heard if "m2" not in (one.id, one.reply_to)]
    assert [one.id for one in heard] == ["m1", "m3"]


@pairs
def test_who_has_it_is_told_if_there_is_a_word_for_it(hub: Hub, one: str, other: str) -> None:
    a, b = member(hub, one), member(hub, other)
    assert a.send(b.id, "m1") == "delivered"
    b.hears("m1")
    assert take_back(a, b.id, "m1")
    told = notices(b, "m1")
    assert told == {"intercom": ["cancel"], "lines": ["hub", "CANCELLED"], "subagents": [[]]}[other]


@pairs
def test_a_question_that_is_taken_back_is_not_pending(hub: Hub, one: str, other: str) -> None:
    """And the one who was asked may ask then."""
    a, b = member(hub, one), member(hub, other)
    name = f"q-{a.id}"
    assert a.ask(b.id, name) == "delivered"
    b.hears(name)
    until(lambda: hub.pending() == {name}, "it is not pending")
    assert take_back(a, b.id, name)
    until(lambda: hub.pending() == set(), "it stays pending")
    assert b.ask(a.id, f"q-{b.id}") == "delivered"
    until(lambda: hub.pending() == {f"q-{b.id}"}, "it is not pending")
    assert a.hears(f"q-{b.id}")[-1].asks
    assert a.send(b.id, "r1", reply_to=f"q-{b.id}") == "delivered"
    until(lambda: hub.pending() == set(), "it stays pending")


@pairs
def test_nobody_takes_back_what_another_said(hub: Hub, one: str, other: str) -> None:
    a, b, c = member(hub, one), member(hub, other), member(hub, one)
    assert a.ask(b.id, f"q-{a.id}") == "delivered"
    b.hears(f"q-{a.id}")
    until(lambda: hub.pending() == {f"q-{a.id}"}, "it is not pending")
    if one == "intercom":
        assert not take_back(c, b.id, f"q-{a.id}")
    else:
        c.client.write({"type": "cancel", "payload": {"message_id": f"q-{a.id}"}})
        c.client.beat()
    assert b.send(a.id, "r1", reply_to=f"q-{a.id}") == "delivered"
    assert a.hears("r1")[-1].reply_to == f"q-{a.id}"
    until(lambda: hub.pending() == set(), "it stays pending")
