"""What is said of a message later, to everybody at once, and who may have an id."""

from __future__ import annotations

from typing import Any

import pytest
from mesh_hub import Hub
from mesh_lines_client import LinesClient
from mesh_members import KINDS, PAIRS, Intercom, Lines, Subagents, member
from mesh_subagents_client import SubagentsClient
from pi_broker_process import until
from pi_frames_client import register_frame

receivers = pytest.mark.parametrize("other", KINDS)


def states(client: LinesClient, message_id: str, *expected: str) -> list[str]:
    """What an NDJSON sender is told of a message, until all of this was told."""
    found: list[dict[str, Any]] = []
    while not set(expected) <= {one["payload"]["state"] for one in found}:
        found.append(client.take("receipt", reply_to=message_id))
    return [one["payload"]["state"] for one in found]


@receivers
def test_a_sender_of_lines_hears_how_far_its_message_is(hub: Hub, other: str) -> None:
    """``read`` comes when the receiver has it, and not before."""
    b = member(hub, other)
    with LinesClient(hub.hub_socket) as a:
        a.register(f"asks-{b.id}", "receipts", "progress")
        a.write({"type": "chat", "id": "m1", "to_session": b.id, "payload": {"text": "x"}})
        assert sorted(states(a, "m1", "stored", "pushed")) == ["pushed", "stored"]
        if other == "intercom":
            assert b.client.take("message")["message"]["id"] == "m1"
        a.beat()
        assert a.arrived == []
        if other == "intercom":
            b.client.receipt("m1")
        else:
            b.hears("m1")
        assert states(a, "m1", "read") == ["read"]


def test_a_pi_intercom_sender_hears_what_its_receiver_says(hub: Hub) -> None:
    a, b, c = Intercom(hub), Intercom(hub), Lines(hub)
    assert a.send(b.id, "m1") == a.send(c.id, "m2") == "delivered"
    assert b.ids("m1") == ["m1"]
    assert a.client.take("message_receipt")["receipt"]["status"] == "injected"
    assert c.ids("m2") == ["m2"]
    said = a.client.take("message_receipt")
    assert (said["from"]["id"], said["receipt"]["messageId"]) == (c.id, "m2")
    assert said["receipt"]["status"] == "acknowledged"


def test_a_pi_intercom_sender_names_an_endpoint_of_any_kind(hub: Hub) -> None:
    """It lists, and sends to exactly what it found; who came again is another."""
    a = Intercom(hub)
    for b in (Intercom(hub), Subagents(hub), Lines(hub)):
        row = next(one for one in a.client.list() if one["id"] == b.id)
        exact = {"targetId": b.id, "targetEpoch": row["endpointEpoch"]}
        assert a.client.send(b.id, f"m1-{b.id}", **exact)["delivery"] == "socket_delivered"
        assert b.ids(f"m1-{b.id}") == [f"m1-{b.id}"]
        b.leave()
        b.come()
        assert a.client.send(b.id, f"m2-{b.id}", **exact)["code"] == "E_TARGET_REBOUND"
        assert b.hears() == []


@receivers
def test_who_is_here_is_written_to_whoever_else_writes(hub: Hub, other: str) -> None:
    """A pi-intercom sender hears ``queued`` of who is not here only, even right behind a line."""
    a, b, c = Intercom(hub), member(hub, other), Lines(hub)
    words = []
    for number in range(20):
        line = {"type": "chat", "id": f"l{number}", "to_session": b.id, "payload": {"text": "x"}}
        c.client.write(line)
        words.append(a.send(b.id, f"m{number}"))
        c.client.take("receipt", reply_to=f"l{number}")
        assert set(b.ids(f"l{number}", f"m{number}")) == {f"l{number}", f"m{number}"}
    assert words == ["delivered"] * 20


@receivers
def test_sending_again_is_safe(hub: Hub, other: str) -> None:
    """But for pi-subagents clients, whose own broker delivers what comes again."""
    for a in (Intercom(hub), Lines(hub), Subagents(hub)):
        b = member(hub, other)
        assert a.send(b.id, "m1", "text") == a.send(b.id, "m1", "text") == "delivered"
        reused = a.send(b.id, "m1", "other text")
        assert a.send(b.id, "m2") == "delivered"
        if a.kind == "subagents":
            assert reused == "delivered"
            assert [one.text for one in b.hears("m2")][:-1] == ["text", "text", "other text"]
        else:
            assert reused == "MESSAGE_ID_REUSE"
            assert b.ids("m2") == ["m1", "m2"]


def test_a_line_to_everybody_reaches_all_in_the_unnamed_scope(hub: Hub) -> None:
    a = Lines(hub)
    crowd = [member(hub, kind) for kind in KINDS for _ in range(2)]
    apart = hub.join("elsewhere", scopeId="other")
    said = a.client.chat("*", f"m-{a.id}", {"text": "to all", "more": 1})
    assert (said["state"], said["live"]) == ("stored", len(crowd))
    for one in crowd:
        (heard,) = one.hears(f"m-{a.id}")
        assert (heard.sender, heard.text, heard.others) == (a.id, "to all", {"more": 1})
    assert apart.mail() == []
    assert a.hears() == []


def test_a_scope_is_closed_to_all_kinds(hub: Hub) -> None:
    a, b = Subagents(hub), Lines(hub)
    inside = hub.join("insider", scopeId="other", session={"name": "Insider"})
    assert inside.ids() == ["insider"]
    assert "insider" not in a.sees() | b.sees() | set(hub.peers())
    for to in ("insider", "Insider"):
        assert a.send(to, f"m-{to}") == "Session not found"
        b.send(to, f"m-{to}")
    for other in (a, b):
        assert inside.send(other.id, f"m-{other.id}")["code"] == "E_TARGET_NOT_FOUND"
        assert other.hears() == []
    assert inside.mail() == []


# -- ids


def wish(hub: Hub, kind: str, session_id: str) -> str:
    """The id with which a second session of this id is let in, or why it is not."""
    if kind == "intercom":
        client = hub.connect()
        client.write(register_frame(session_id))
        first = client.read()
        return str(first["sessionId"] if first["type"] == "registered" else first["error"])
    if kind == "subagents":
        with SubagentsClient(hub.subagents_socket) as other:
            return other.register(session_id)
    with LinesClient(hub.hub_socket) as lines:
        lines.write({"type": "register", "from_session": session_id, "payload": {}})
        (line,) = lines.ended()
        return str(line["payload"]["code"])


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: kind)
def test_an_id_belongs_to_one_session(hub: Hub, one: str, other: str) -> None:
    a, witness = member(hub, one), Subagents(hub)
    answer = wish(hub, other, a.id)
    if other == "lines":
        assert answer == "SESSION_COLLISION"
    elif other == "subagents":
        assert answer not in (a.id, witness.id)
    elif one == "intercom":
        assert answer == a.id
        return
    else:
        assert answer == "Session id is in use by another kind of client"
    until(lambda: witness.sees() == {a.id, witness.id}, "somebody else is here")
    assert witness.send(a.id, "m1") == "delivered"
    assert a.ids("m1") == ["m1"]


@pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: kind)
def test_who_comes_under_an_id_gets_what_lies_there(hub: Hub, one: str, other: str) -> None:
    """Whatever it speaks, and whatever the one before spoke."""
    sender, a = Lines(hub), member(hub, one)
    assert sender.send(a.id, "m1") == "delivered"
    assert a.ids("m1") == ["m1"]
    a.leave()
    assert sender.send(a.id, "m2") == "waits"
    heir = member(hub, other, a.id)
    assert sender.send(a.id, "m3") == "delivered"
    assert heir.ids("m2", "m3") == ["m2", "m3"]
    heir.leave()
    a.come()
    assert a.hears() == []


# -- what has been confirmed


@receivers
def test_what_was_confirmed_never_comes_again(hub: Hub, other: str) -> None:
    """However soon a session comes back."""
    a, b = Lines(hub), member(hub, other)
    if isinstance(b, Lines):
        b.waits_for_position = False
    for number in range(10):
        assert a.send(b.id, f"m{number}") == "delivered"
        assert b.ids(f"m{number}") == [f"m{number}"]
        b.leave()
        b.come()
