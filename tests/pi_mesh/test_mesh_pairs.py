"""Every ordered pair of the three dialects: who sees whom, and what becomes of what is said."""

from __future__ import annotations

import json

import pytest
from mesh_hub import Hub
from mesh_members import PAIRS, Heard, Lines, Member, member
from pi_broker_process import until

ATTACHED = {"type": "file", "name": "a b.py", "content": "x = 'ü'\n\t# 😀", "language": "python"}
OTHERS = {"diff": "- a\n+ b", "count": 12345678901, "deep": {"list": [None, 1.5, "ü", {}]}}
TEXT = 'one\n\ttwo: ü 😀 \u2028 \\ " </script>'

pairs = pytest.mark.parametrize(("one", "other"), PAIRS, ids=lambda kind: kind)


def two(hub: Hub, one: str, other: str) -> tuple[Member, Member]:
    return member(hub, one), member(hub, other)


def news(who: Member, kind: str, about: str) -> None:
    """A pi client hears of this session; an NDJSON client would have to ask for it."""
    if who.kind == "intercom" and kind == "joined":
        assert who.client.take("session_joined")["session"]["id"] == about
    elif who.kind != "lines" and kind == "left":
        assert who.client.take("session_left")["sessionId"] == about


@pairs
def test_each_sees_the_other(hub: Hub, one: str, other: str) -> None:
    a = member(hub, one)
    assert a.sees() == {a.id}
    b = member(hub, other)
    news(a, "joined", b.id)
    assert a.sees() == b.sees() == {a.id, b.id}
    until(lambda: sorted(hub.peers()) == sorted([a.id, b.id]), f"peers.json says {hub.peers()}")
    if isinstance(b, Lines):
        assert b.client.welcome["peers"] == [a.id]
    if isinstance(a, Lines):
        a.client.write({"type": "register", "payload": {"features": ["receipts", "cursor"]}})
        assert set(a.client.take("welcome")["payload"]["peers"]) - {a.id} == {b.id}
    b.leave()
    news(a, "left", b.id)
    assert a.sees() == {a.id}
    until(lambda: hub.peers() == [a.id], f"peers.json says {hub.peers()}")
    b.come()
    news(a, "joined", b.id)
    assert a.sees() == b.sees() == {a.id, b.id}


@pairs
def test_a_message_arrives_whole(hub: Hub, one: str, other: str) -> None:
    """Text, attachments and what only one of the dialects has a place for; and one of each."""
    a, b = two(hub, one, other)
    assert a.send(b.id, "m1", TEXT, attachments=[ATTACHED], others=OTHERS) == "delivered"
    assert a.send(b.id, "m2", TEXT, attachments=[ATTACHED, ATTACHED]) == "delivered"
    assert a.send(b.id, "m3", TEXT, others=OTHERS) == "delivered"
    assert a.send(b.id, "m4", TEXT) == "delivered"
    assert b.hears("m1", "m2", "m3", "m4") == [
        Heard(a.id, "m1", TEXT, [ATTACHED], OTHERS, None, False),
        Heard(a.id, "m2", TEXT, [ATTACHED, ATTACHED], {}, None, False),
        Heard(a.id, "m3", TEXT, [], OTHERS, None, False),
        Heard(a.id, "m4", TEXT, [], {}, None, False),
    ]
    assert a.hears() == []


@pairs
def test_a_name_in_any_case_is_an_address(hub: Hub, one: str, other: str) -> None:
    """The name of a session that speaks lines is its id."""
    a, b = two(hub, one, other)
    name = b.id if other == "lines" else f"Name of {b.id}"
    called = name if (one, other) == ("lines", "lines") else name.upper()
    assert a.send(called, "m1") == "delivered"
    assert b.ids("m1") == ["m1"]


@pairs
def test_a_question_is_pending_until_it_is_answered(hub: Hub, one: str, other: str) -> None:
    a, b = two(hub, one, other)
    assert a.ask(b.id, f"q-{a.id}") == "delivered"
    until(lambda: hub.pending() == {f"q-{a.id}"}, "it is not pending")
    (file,) = hub.asks.glob("*.json")
    record = json.loads(file.read_bytes())
    assert (record["asker"]["sessionId"], record["target"]["sessionId"]) == (a.id, b.id)
    assert record["question"] == f"text of q-{a.id}"
    assert record["expiresAt"] - record["createdAt"] == 600_000
    assert b.hears(f"q-{a.id}") == [
        Heard(a.id, f"q-{a.id}", f"text of q-{a.id}", [], {}, None, True)
    ]
    assert b.send(a.id, "r1", reply_to=f"q-{a.id}") == "delivered"
    assert a.hears("r1") == [Heard(b.id, "r1", "text of r1", [], {}, f"q-{a.id}", False)]
    until(lambda: hub.pending() == set(), "it stays pending")
    # it is answered: only who is told so hears it
    again = b.send(a.id, "r2", reply_to=f"q-{a.id}")
    assert again == ("REPLY_TARGET" if other == "intercom" else "delivered")
    # and the other way round
    assert b.ask(a.id, f"q-{b.id}") == "delivered"
    until(lambda: hub.pending() == {f"q-{b.id}"}, "it is not pending")
    a.hears(f"q-{b.id}")
    assert a.send(b.id, "r3", reply_to=f"q-{b.id}") == "delivered"
    assert b.hears("r3")[-1].reply_to == f"q-{b.id}"
    until(lambda: hub.pending() == set(), "it stays pending")


@pairs
def test_files_of_asks_are_there_before_a_pi_client_is_told(hub: Hub, one: str, other: str) -> None:
    a, b = two(hub, one, other)
    for number in range(5):
        name = f"q-{a.id}-{number}"
        assert a.ask(b.id, name) == "delivered"
        if one == "lines":
            until(lambda name=name: name in hub.pending(), "it is not pending")
        assert name in hub.pending()
        b.hears(name)
        assert b.send(a.id, f"r{number}", reply_to=name) == "delivered"
        if other == "lines":
            until(lambda name=name: name not in hub.pending(), "it stays pending")
        assert name not in hub.pending()


@pairs
def test_who_is_asked_may_not_ask_back(hub: Hub, one: str, other: str) -> None:
    """But for pi-subagents clients, which know no such rule."""
    a, b = two(hub, one, other)
    assert a.ask(b.id, f"q-{a.id}") == "delivered"
    b.hears(f"q-{a.id}")
    until(lambda: hub.pending() == {f"q-{a.id}"}, "it is not pending")
    back = b.ask(a.id, f"q-{b.id}")
    if other == "subagents":
        assert back == "delivered"
        assert a.ids(f"q-{b.id}") == [f"q-{b.id}"]
        until(lambda: hub.pending() == {f"q-{a.id}", f"q-{b.id}"}, "both are pending")
        assert a.send(b.id, "r0", reply_to=f"q-{b.id}") == "delivered"
    else:
        assert back == "MUTUAL_ASK"
        assert a.hears() == []
    assert b.send(a.id, "r1", reply_to=f"q-{a.id}") == "delivered"
    until(lambda: hub.pending() == set(), "it stays pending")
    # nothing is in the way now
    assert b.ask(a.id, f"q2-{b.id}") == "delivered"
    a.hears(f"q2-{b.id}")
    assert a.send(b.id, "r2", reply_to=f"q2-{b.id}") == "delivered"
    until(lambda: hub.pending() == set(), "it stays pending")


@pairs
def test_a_question_to_nobody_is_refused(hub: Hub, one: str, other: str) -> None:
    a, b = two(hub, one, other)
    b.leave()
    gone, never = a.ask(b.id, f"q-{b.id}"), a.ask("nobody-of-this-name", f"q2-{b.id}")
    expected = {
        "intercom": ("TARGET_DISCONNECTED", {"TARGET_NOT_FOUND"}),
        "subagents": ("Session not found", {"Session not found"}),
        # either says that there is nobody
        "lines": ("TARGET_DISCONNECTED", {"TARGET_NOT_FOUND", "TARGET_DISCONNECTED"}),
    }[one]
    assert gone == expected[0]
    assert never in expected[1]
    assert hub.pending() == set()
    b.come()
    assert b.hears() == []


@pairs
def test_mail_waits_for_who_is_absent(hub: Hub, one: str, other: str) -> None:
    """But for what pi-subagents clients send, who hear that nobody is there."""
    a, b = two(hub, one, other)
    b.leave()
    words = [a.send(b.id, name) for name in ("m1", "m2")]
    assert words == ["Session not found" if one == "subagents" else "waits"] * 2
    b.come()
    expected = [] if one == "subagents" else ["m1", "m2"]
    assert b.ids(*expected) == expected
    assert a.send(b.id, "m3") == "delivered"
    assert b.ids("m3") == ["m3"]
    b.leave()
    b.come()
    assert b.hears() == []


@pairs
def test_what_was_not_read_comes_again(hub: Hub, one: str, other: str) -> None:
    """Whoever is here and does not say, or show, that it has it, has it not."""
    a, b = two(hub, one, other)
    assert a.send(b.id, "m1") == "delivered"
    if other == "intercom":
        assert b.client.take("message")["message"]["id"] == "m1"
    b.vanish(a)
    b.come()
    assert b.ids("m1") == ["m1"]
    b.leave()
    b.come()
    assert b.hears() == []
