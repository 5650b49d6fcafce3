"""A whole hub, real but for sockets, files and time: what its clients see."""

from __future__ import annotations

import doctest
import json
import random
from typing import Any

import pytest
from twisted.internet.defer import fail

import intercom.testing
from intercom.hub.outflow import ANSWER_LIMIT, PUSH_LIMIT
from intercom.records import Position
from intercom.testing import MemoryClient, MemoryHub

KIB = 1024


def texts(client: MemoryClient) -> list[str]:
    return [line["payload"]["text"] for line in client.heard("chat")]


def codes(client: MemoryClient) -> list[str]:
    return [line["payload"]["code"] for line in client.heard("error")]


def test_the_example_in_the_documentation_is_true() -> None:
    assert doctest.testmod(intercom.testing).failed == 0
    assert doctest.testmod(intercom.testing).attempted > 0


def test_a_direct_message_arrives_once_and_the_sender_is_told_the_truth() -> None:
    hub = MemoryHub()
    ada, bob, eve = hub.client("ada", features=["receipts"]), hub.client("bob"), hub.client("eve")
    message_id = ada.chat("bob", text="hello")
    assert texts(bob) == ["hello"]
    assert texts(eve) == texts(ada) == []
    (receipt,) = ada.heard("receipt")
    assert receipt["reply_to"] == message_id
    assert receipt["payload"] == {
        "state": "stored",
        "level": "disk",
        "recipients": 1,
        "live": 1,
    }


def test_a_client_that_asks_for_nothing_sees_the_original_protocol_only() -> None:
    hub = MemoryHub()
    plain = hub.client("plain")
    hub.client("bob").chat("plain", text="x")
    plain.chat("bob", text="y")
    hub.advance(31)
    assert {line["type"] for line in plain.lines} == {"welcome", "chat", "heartbeat"}
    for line in plain.lines:
        assert set(line) == {
            "id",
            "type",
            "from_session",
            "to_session",
            "channel",
            "reply_to",
            "payload",
            "timestamp",
        }


def test_bytes_are_forwarded_as_the_sender_wrote_them() -> None:
    hub = MemoryHub()
    hub.client("ada")
    bob = hub.client("bob", features=["receipts"])
    plain = hub.client("plain")
    raw = (
        b'{"type":"chat","id":"m","from_session":"eve","to_session":"*","channel":"test",'
        b'"reply_to":null,"payload":{"text":"\\u00e9 \xc3\xa9","n":1e2},  "timestamp":"t", "x":[1]}'
    )
    eve = hub.connect()
    bob.transport.take(), plain.transport.take()
    eve.say(b"  " + raw + b" \r\n")
    assert bob.transport.take() == raw + b"\n"
    # Who asked for nothing may decode in pieces, as the original does: it gets ASCII.
    assert plain.transport.take() == raw.replace("é".encode(), b"\\u00e9") + b"\n"


def test_a_backlog_comes_first_then_live_messages_and_acks_move_the_position() -> None:
    hub = MemoryHub()
    ada = hub.client("ada")
    ada.chat("bob", text="1")
    ada.chat("bob", text="2")
    bob = hub.client("bob", features=["cursor"])
    ada.chat("bob", text="3")
    assert texts(bob) == ["1", "2", "3"]
    cursor = bob.heard("cursor")[-1]["payload"]
    bob.say({"type": "ack", "payload": {**cursor, "state": "read"}})
    bob.hang_up()
    ada.chat("bob", text="4")
    again = hub.client("bob", features=["cursor"])
    assert texts(again) == ["4"]


def test_what_was_not_acknowledged_is_seen_again() -> None:
    hub = MemoryHub()
    ada = hub.client("ada")
    ada.chat("bob", text="1")
    hub.client("bob", features=["cursor"]).hang_up()
    assert texts(hub.client("bob", features=["cursor"])) == ["1"]


def test_a_receiver_that_does_not_keep_up_costs_bounded_memory_and_loses_nothing() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada", features=["receipts"]), hub.client("bob", features=["cursor"])
    bob.transport.stalled = True
    sent = [f"{n} " + "x" * 100 * KIB for n in range(60)]
    for text in sent:
        ada.chat("bob", text=text)
    assert len(ada.heard("receipt")) == len(sent)
    assert ada.heard("receipt")[0]["payload"]["live"] == 1
    assert ada.heard("receipt")[-1]["payload"]["live"] == 0
    kept = len(bob.transport.unread) + hub_unsent(bob)
    assert PUSH_LIMIT <= kept <= PUSH_LIMIT + 512 * KIB
    bob.transport.stalled = False
    assert texts(bob) == sent


def hub_unsent(client: MemoryClient) -> int:
    """Bytes that the hub keeps for a connection beyond its transport."""
    return int(client.transport._protocol._speaker._outflow.unsent)


def test_a_receiver_without_a_cursor_that_does_not_keep_up_is_told_where_it_lagged() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada"), hub.client("bob", features=["receipts"])
    bob.transport.stalled = True
    for n in range(30):
        ada.chat("bob", text=f"{n} " + "x" * 100 * KIB)
    bob.transport.stalled = False
    seen = len(texts(bob))
    assert 10 <= seen < 30
    (lagged,) = (e for e in bob.heard("error") if e["payload"]["code"] == "LAGGED")
    end = sum(len(line) + 1 for line in hub.spool.lines("bob")[:seen])
    assert lagged["payload"]["offset"] == end
    ada.chat("bob", text="next")
    assert texts(bob)[-1] == "next"


def test_a_peer_that_floods_and_never_reads_its_errors_is_no_longer_read_from() -> None:
    hub = MemoryHub()
    flood = hub.client("flood")
    flood.transport.stalled = True
    for _ in range(30):
        flood.say(b"nonsense\n" * 1000)
    assert hub_unsent(flood) <= ANSWER_LIMIT + 512 * KIB
    ada, bob = hub.client("ada"), hub.client("bob")
    ada.chat("bob", text="meanwhile")
    assert texts(bob) == ["meanwhile"]
    flood.transport.stalled = False
    assert codes(flood).count("BAD_JSON") == 30 * 1000  # each line got its answer after all


def test_an_overlong_line_is_an_error_and_the_next_line_is_read_as_if_nothing_happened() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada"), hub.client("bob")
    chat = {"type": "chat", "to_session": "bob", "payload": {"text": "after"}}
    ada.say(b'{"type":"chat","x":"' + b"y" * 2 * KIB * KIB + b'"}\n' + json.dumps(chat).encode())
    ada.say(b"\n")
    assert codes(ada) == ["LINE_TOO_LONG"]
    assert texts(bob) == ["after"]


def broken_lines(count: int, seed: int) -> list[bytes]:
    """Lines that cannot be right: garbage, and good lines with one thing spoilt."""
    rng = random.Random(seed)
    good = json.dumps(
        {"type": "chat", "id": "m", "from_session": "ada", "to_session": "bob", "payload": {}}
    ).encode()
    lines = []
    for number in range(count):
        kind = number % 6
        if kind == 0:
            line = bytes(rng.choice(b'abc{}[]",:01 \\u') for _ in range(rng.randint(1, 60))) + b"}"
            line = b"\x01" + line
        elif kind == 1:
            line = good[: rng.randrange(1, len(good) - 1)]
        elif kind == 2:
            line = good.replace(b'"chat"', rng.choice([b"null", b"7", b"[]", b"{}", b"true"]))
        elif kind == 3:
            line = good.replace(b'"bob"', rng.choice([b"null", b"5", b'""', b'["x"]', b'"hub"']))
        elif kind == 4:
            line = rng.choice([b"[1]", b"5", b"null", b"NaN", b"[" * 5000, b'{"a":1}{"b":2}'])
        else:
            line = good.replace(b"{}", rng.choice([b"[]", b"NaN", b"1", b'"t"', b"{" * 99]))
        lines.append(line)
    return lines


def test_ten_thousand_broken_lines_each_get_their_error_and_the_hub_serves_others() -> None:
    hub = MemoryHub()
    bad = hub.client("ada")
    bob, eve = hub.client("bob"), hub.client("eve")
    lines = broken_lines(10_000, seed=7)
    for start in range(0, len(lines), 500):
        bad.say(b"\n".join(lines[start : start + 500]) + b"\n")
        eve.chat("bob", text=str(start))
    assert len(codes(bad)) == len(lines)
    assert set(codes(bad)) <= {"BAD_JSON", "BAD_ENVELOPE", "BAD_SESSION_ID"}
    assert texts(bob) == [str(start) for start in range(0, len(lines), 500)]
    bad.chat("bob", text="and still")
    assert texts(bob)[-1] == "and still"


def test_a_collision_closes_after_the_rest_of_the_input_was_answered() -> None:
    hub = MemoryHub()
    hub.client("ada")
    second = hub.connect()
    second.say(
        b'{"type":"register","from_session":"ada"}\n'
        b'{"type":"chat","id":"m2","from_session":"ada","to_session":"bob","payload":{}}\n'
    )
    errors = second.heard("error")
    assert [e["payload"]["code"] for e in errors] == ["SESSION_COLLISION"] * 2
    assert errors[1]["reply_to"] == "m2"
    hub.advance(0.2)
    assert second.transport.write_closed
    assert second.transport.connected  # what it may still have to say is listened to ...
    hub.advance(1.1)
    assert not second.transport.connected  # ... for a second
    assert hub.spool.lines("bob") == []


def test_over_tcp_the_key_comes_first_and_a_web_page_executes_nothing() -> None:
    hub = MemoryHub(key="sesame")
    page = hub.connect(local=False)
    page.say(
        b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        b'{"type":"chat","from_session":"ada","to_session":"bob","payload":{"text":"evil"}}\n'
    )
    assert codes(page) == ["UNAUTHORIZED"]
    assert not page.transport.connected
    assert hub.spool.lines("bob") == []
    friend = hub.connect(local=False)
    friend.say({"type": "auth", "payload": {"key": "sesame"}})
    friend.say(b'{"type":"chat","from_session":"ada","payload":{"text":"' + b"x" * 9000 + b'"}}\n')
    assert friend.heard("welcome")


def test_a_key_line_without_an_end_is_cut_off_at_four_kib() -> None:
    hub = MemoryHub(key="sesame")
    stranger = hub.connect(local=False)
    stranger.say(b"x" * 4096)
    assert stranger.transport.connected
    stranger.say(b"x")
    assert codes(stranger) == ["UNAUTHORIZED"]
    assert not stranger.transport.connected


def test_a_silent_tcp_connection_is_closed_after_five_seconds() -> None:
    hub = MemoryHub(key="sesame")
    stranger = hub.connect(local=False)
    hub.advance(7)
    assert codes(stranger) == ["UNAUTHORIZED"]
    assert not stranger.transport.connected


def test_half_open_connections_go_if_they_promised_heartbeats() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada", features=["heartbeat"]), hub.client("bob")
    hub.advance(95)
    assert not ada.transport.connected
    assert bob.transport.connected
    assert hub.client("ada")  # the id is free again


@pytest.mark.parametrize("features", [[], ["receipts", "cursor", "heartbeat"]])
def test_shutting_down_says_receipts_first_then_goodbye_and_ends_in_time(
    features: list[str],
) -> None:
    hub = MemoryHub()
    ada = hub.client("ada", features=features)
    stuck = hub.client("stuck")
    stuck.transport.stalled = True
    ada.chat("bob", text="x")
    ended: list[Any] = []
    hub.hub.shut_down().addCallback(ended.append)
    hub.advance(1.2)
    assert codes(ada) == (["SHUTTING_DOWN"] if features else [])
    hub.advance(0.8)
    assert ended == [None]
    assert not ada.transport.connected
    assert hub.hub.peer_count == 0
    assert len(hub.spool.lines("bob")) == 1


def test_the_published_list_follows_who_is_here() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada"), hub.client("bob")
    assert hub.registry.sessions == ("ada", "bob")
    bob.hang_up()
    assert hub.registry.sessions == ("ada",)
    ada.say({"type": "unregister"})
    assert hub.registry.sessions == ()


def test_idle_time_counts_from_the_last_departure() -> None:
    hub = MemoryHub()
    hub.advance(3)
    assert hub.hub.idle_for(hub.clock.seconds()) == pytest.approx(3)
    ada = hub.client("ada")
    hub.advance(3)
    assert hub.hub.idle_for(hub.clock.seconds()) == 0.0
    ada.hang_up()
    hub.advance(2)
    assert hub.hub.idle_for(hub.clock.seconds()) == pytest.approx(2)


def test_a_failed_sync_gives_no_receipt_and_the_hub_leaves() -> None:
    hub = MemoryHub()
    hub.hub.unsynced([1], "EIO")
    assert len(hub.left) == 1
    assert "EIO" in hub.left[0]


def test_a_bug_in_the_core_ends_neither_the_connection_nor_the_hub(
    logged_failures: list[Any],
) -> None:
    hub = MemoryHub()
    ada = hub.client("ada")
    submit = hub.core.submit

    def broken(*_args: object) -> list[Any]:
        raise ZeroDivisionError("bug")

    hub.core.submit = broken  # type: ignore[method-assign]
    ada.chat("bob", text="x")
    hub.core.submit = submit  # type: ignore[method-assign]
    assert codes(ada) == ["INTERNAL"]
    assert logged_failures.pop().check(ZeroDivisionError)
    ada.chat("ada", text="y")
    assert texts(ada) == ["y"]


def test_the_position_of_a_batch_is_told_once() -> None:
    hub = MemoryHub()
    ada, bob = hub.client("ada"), hub.client("bob", features=["cursor"])
    lines = b"".join(
        json.dumps({"type": "chat", "to_session": "bob", "payload": {"text": str(n)}}).encode()
        + b"\n"
        for n in range(50)
    )
    before = len(bob.heard("cursor"))
    ada.say(lines)
    assert texts(bob) == [str(n) for n in range(50)]
    assert len(bob.heard("cursor")) == before + 1
    end = sum(len(line) + 1 for line in hub.spool.lines("bob"))
    last = bob.heard("cursor")[-1]["payload"]
    assert Position(last["generation"], last["offset"]) == Position(1, end)


def test_whoever_receives_without_locks_is_guarded_until_it_leaves() -> None:
    hub = MemoryHub()
    ada = hub.client("ada")
    assert hub.registry.guarded == ()
    hub.advance(5)
    assert [one.session for one in hub.registry.guarded] == ["ada"]
    ada.hang_up()
    hub.advance(0.5)
    assert hub.registry.guarded == ()


def test_locks_that_cannot_be_held_are_logged_and_stop_nothing(monkeypatch: Any) -> None:
    hub = MemoryHub()
    monkeypatch.setattr(hub.registry, "guard", lambda _receivers: fail(OSError(5, "I/O error")))
    ada, bob = hub.client("ada"), hub.client("bob")
    hub.advance(5)
    bob.chat("ada", text="still here")
    assert texts(ada) == ["still here"]
