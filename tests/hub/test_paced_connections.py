"""Limits of connections as their clients meet them: slowed down, turned away, never robbed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.hub.connection import LINGER_S
from intercom.settings.limits import DEFAULTS, Limits
from intercom.testing import MemoryClient, MemoryHub

SLOW = DEFAULTS._replace(message_rate=10, byte_rate=65536)


def texts(client: MemoryClient) -> list[str]:
    return [line["payload"]["text"] for line in client.heard("chat")]


def codes(client: MemoryClient) -> list[str]:
    return [line["payload"]["code"] for line in client.heard("error")]


def chats(first: int, last: int, size: int = 0) -> bytes:
    """Messages to bob with these numbers."""
    lines: list[dict[str, Any]] = [
        {"type": "chat", "to_session": "bob", "payload": {"text": f"{n}" + " " * size}}
        for n in range(first, last)
    ]
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def numbers(client: MemoryClient) -> list[int]:
    return [int(text) for text in texts(client)]


@pytest.mark.parametrize(("said", "at_once"), [(18, 18), (19, 19), (20, 19), (60, 19)])
def test_who_says_too_much_is_heard_more_slowly_and_in_order(said: int, at_once: int) -> None:
    """Its registration was a line, too. Nothing is lost, nobody is cut off, others go on."""
    hub = MemoryHub(limits=SLOW)
    bob, ann, eve = hub.client("bob"), hub.client("ann", features=["receipts"]), hub.client("eve")
    ann.say(chats(0, said))
    assert numbers(bob) == list(range(at_once))
    eve.say(chats(1000, 1003))
    assert numbers(bob)[at_once:] == [1000, 1001, 1002]
    hub.advance(said / 10)
    heard = [number for number in numbers(bob) if number < 1000]
    assert heard == list(range(said))
    assert len(ann.heard("receipt")) == said
    assert ann.transport.connected


def test_what_waits_keeps_the_rate_and_the_door_shut() -> None:
    hub = MemoryHub(limits=SLOW)
    bob, ann = hub.client("bob"), hub.client("ann")
    ann.say(chats(0, 100))
    ann.say(chats(100, 120))  # stays in the kernel meanwhile
    for second in range(1, 5):
        hub.advance(1.0)
        assert abs(len(numbers(bob)) - (19 + 10 * second)) <= 1
    hub.advance(10)
    assert numbers(bob) == list(range(120))


def test_too_many_bytes_are_paid_for_too() -> None:
    hub = MemoryHub(limits=SLOW._replace(message_rate=1000))
    bob, ann = hub.client("bob"), hub.client("ann")
    ann.say(chats(0, 12, size=30_000))
    before = len(numbers(bob))
    assert before < 12
    hub.advance(1.0)
    assert before < len(numbers(bob)) < 12
    hub.advance(5.0)
    assert numbers(bob) == list(range(12))


def test_what_a_client_said_before_it_hung_up_is_handled() -> None:
    """The original client sends, and closes behind."""
    hub = MemoryHub(limits=SLOW)
    bob, ann = hub.client("bob"), hub.client("ann")
    ann.say(chats(0, 50))
    ann.hang_up()
    assert numbers(bob) == list(range(50))


def test_a_hub_that_leaves_hears_out_who_was_slowed_down() -> None:
    """And what comes behind does not overtake."""
    hub = MemoryHub(limits=SLOW)
    bob, ann = hub.client("bob"), hub.client("ann")
    ann.say(chats(0, 50))
    assert len(numbers(bob)) < 50
    hub.hub.shut_down()
    ann.say(chats(50, 60))
    hub.advance(0.4)
    ann.say(chats(60, 61))
    hub.advance(LINGER_S + 2)
    assert hub.spool.inbox("bob").data.count(b"\n") == 61
    lines = [json.loads(line) for line in hub.spool.lines("bob")]
    assert [int(line["payload"]["text"]) for line in lines] == list(range(61))


def test_one_that_waits_long_is_not_taken_for_dead() -> None:
    """It promised to answer pings; and cannot, since it is not read from."""
    hub = MemoryHub(limits=DEFAULTS._replace(message_rate=1))
    bob, ann = hub.client("bob"), hub.client("ann", features=["heartbeat"])
    ann.say(chats(0, 200))
    hub.advance(150)
    assert ann.transport.connected
    assert len(numbers(bob)) > 140


def test_a_refused_connection_that_was_slowed_down_hears_the_same_whatever_it_says() -> None:
    hub = MemoryHub(limits=SLOW)
    hub.client("ann")
    twin = hub.connect()
    twin.say(b'{"type":"register","from_session":"ann"}\n' + chats(0, 40))
    hub.advance(0.05)
    assert set(codes(twin)) == {"SESSION_COLLISION"}
    assert len(codes(twin)) == 41
    assert hub.spool.lines("bob") == []


# -- how many ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("already", "served"), [(1, True), (2, True), (3, False), (4, False)])
def test_so_many_are_served_and_one_more_is_told_so(already: int, served: bool) -> None:
    hub = MemoryHub(limits=Limits(connections=3))
    clients = [hub.client(f"s{number}") for number in range(min(already, 3))]
    last = hub.connect()
    last.register("last")
    if served:
        assert last.heard("welcome")
        return
    assert codes(last) == ["TOO_MANY_SESSIONS"]
    assert not last.transport.connected  # at once, and without a word of its own being handled
    assert hub.hub.peer_count == 3
    assert hub.hub.room() == 0
    clients[0].hang_up()
    assert hub.client("last").heard("welcome")


def test_a_half_line_is_waited_for_longer() -> None:
    hub = MemoryHub()
    silent, slow = hub.connect(), hub.connect()
    slow.say(b'{"type":"reg')
    hub.advance(8)
    assert (codes(silent), codes(slow)) == (["TOO_MANY_SESSIONS"], [])
    assert not silent.transport.connected
    slow.say(b'ister","from_session":"ann"}\n')
    assert slow.heard("welcome")
    hub.advance(60)
    assert slow.transport.connected
