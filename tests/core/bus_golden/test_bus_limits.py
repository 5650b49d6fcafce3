"""Bounds: floods, crowds, sizes, the mailbox; and who pays when one is reached."""

from __future__ import annotations

from typing import Any

import pytest
from bus_scene import SESSION, Scene

from intercom.core.bus.keys import Key, inbox_of
from intercom.core.bus.limits import Limits
from intercom.wire.pi.frames import MAX_FRAME


def message(message_id: str, text: str = "t", **fields: Any) -> dict[str, Any]:
    return {"id": message_id, "timestamp": 5, "content": {"text": text}, **fields}


def send(
    scene: Scene, sender: str, to: str, message_id: str, text: str = "t", **fields: Any
) -> Any:
    """Send, and what the sender is told in the end."""
    scene.said.clear()
    scene.say(sender, {"type": "send", "to": to, "message": message(message_id, text, **fields)})
    return heard(scene, sender)[-1]


def heard(scene: Scene, name: str) -> list[Any]:
    return [what for who, what in scene.said if who == name]


def frames(scene: Scene, name: str, kind: str) -> list[Any]:
    return [one for one in heard(scene, name) if isinstance(one, dict) and one["type"] == kind]


def listing(scene: Scene, name: str, times: int) -> None:
    for number in range(times):
        scene.say(name, {"type": "list", "requestId": f"r{number}"})


# -- floods


def test_a_burst_is_answered_and_a_little_more_only_slowed() -> None:
    scene = Scene()
    scene.join("a")
    listing(scene, "a", 265)  # and the register
    assert len(frames(scene, "a", "sessions")) == 239
    assert any(what[0] == "wake" for who, what in scene.said if who == "!")
    for _ in range(30):
        scene.tick(10)
    answers = frames(scene, "a", "sessions")
    assert [one["requestId"] for one in answers] == [f"r{number}" for number in range(265)]
    assert "ends" not in heard(scene, "a")


def test_a_flood_is_cut_off_and_the_session_leaves() -> None:
    scene = Scene()
    scene.join("b")
    scene.join("a")
    listing(scene, "a", 300)
    assert heard(scene, "a")[-2:] == [
        {"type": "error", "error": "Intercom broker rate limit exceeded"},
        "ends",
    ]
    assert len(frames(scene, "a", "sessions")) == 239
    assert frames(scene, "b", "session_left") == [{"type": "session_left", "sessionId": "a"}]
    scene.do("gone", "a")
    assert len(frames(scene, "b", "session_left")) == 1


def test_tokens_come_back_with_time() -> None:
    scene = Scene()
    scene.join("a")
    for _ in range(5):
        listing(scene, "a", 120)
        scene.tick(1000)
    assert len(frames(scene, "a", "sessions")) == 600


def test_a_clock_that_goes_back_takes_nothing_away() -> None:
    scene = Scene()
    scene.join("a")
    scene.now -= 3_600_000
    listing(scene, "a", 200)
    assert len(frames(scene, "a", "sessions")) == 200


def test_what_a_flood_had_been_confirmed_is_not_lost() -> None:
    scene = Scene()
    scene.join("b")
    scene.join("a")
    scene.do("paused", "b")
    confirmed = 0
    for number in range(300):
        if "a" not in scene.numbers or "ends" in heard(scene, "a"):
            break
        scene.say("a", {"type": "send", "to": "b", "message": message(f"m{number}")})
    confirmed = len(frames(scene, "a", "delivered"))
    assert confirmed == 239
    scene.do("drained", "b")
    assert len(frames(scene, "b", "message")) == confirmed


# -- crowds


def test_the_silent_make_room_for_others() -> None:
    scene = Scene()
    for number in range(140):
        scene.connect(f"s{number}")
    closed = [who for who, what in scene.said if what == "closes"]
    assert closed == [f"s{number}" for number in range(108)]
    scene.join("a")
    listing(scene, "a", 1)
    assert frames(scene, "a", "sessions")


def test_those_that_unregistered_are_no_more_than_the_silent() -> None:
    scene = Scene()
    for number in range(40):
        scene.join(f"s{number}")
        scene.say(f"s{number}", {"type": "unregister"})
    assert len(scene.closed) == 8
    scene.join("a")
    listing(scene, "a", 1)
    assert len(frames(scene, "a", "sessions")[0]["sessions"]) == 1


def test_there_are_so_many_sessions_and_a_replacement_is_none_more() -> None:
    scene = Scene(limits=Limits(sessions=3))
    for name in "abc":
        scene.join(name)
    scene.join("a")
    scene.connect("d")
    scene.say("d", {"type": "register", "sessionId": "d", "session": SESSION})
    assert heard(scene, "d") == [
        {"type": "error", "error": "Too many registered intercom sessions"},
        "ends",
    ]
    scene.do("gone", "b")
    scene.join("d")
    assert scene.broker.sessions == 3


# -- sizes


def test_the_limit_is_for_what_goes_out() -> None:
    scene = Scene()
    scene.join("a", {"status": "s" * 100_000})
    scene.join("b")
    refused = send(scene, "a", "b", "m1", "x" * (MAX_FRAME - 100_000))
    assert refused["reason"].startswith("Intercom message too large (")
    assert refused["reason"].endswith(f" bytes; max {MAX_FRAME})")
    assert not frames(scene, "b", "message")
    assert not scene.files.inboxes
    asked = send(scene, "a", "b", "m2", "x" * (MAX_FRAME - 100_000), expectsReply=True)
    assert asked["type"] == "delivery_failed"
    assert not scene.files.asks
    assert send(scene, "a", "b", "m3")["type"] == "delivered"


def test_what_no_line_can_hold_is_too_large_too() -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b")
    refused = send(scene, "a", "b", "m1", "x" * (MAX_FRAME - 420))
    assert "message too large" in refused["reason"]


def test_a_session_too_large_to_be_shown_is_shown_with_less() -> None:
    scene = Scene()
    scene.join("b")
    scene.connect("a")
    status = "s" * (MAX_FRAME - 150)
    scene.say("a", {"type": "register", "sessionId": "a", "session": {**SESSION, "status": status}})
    joined = frames(scene, "b", "session_joined")[0]["session"]
    assert "status" not in joined
    listing(scene, "b", 1)
    assert [one["id"] for one in frames(scene, "b", "sessions")[0]["sessions"]] == ["b", "a"]


@pytest.mark.parametrize(
    "session_id", ["x" * 5000, "a/b", "..", "hub", "*", "\x00", "\ud800", "\U0001f600" * 99, "pi.x"]
)
def test_any_id_is_an_id(session_id: str) -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b", sessionId=session_id)
    scene.do("gone", "b")
    assert send(scene, "a", session_id, "m1")["delivery"] == "queued"
    scene.restart()
    scene.join("a")
    scene.connect("b")
    scene.say("b", {"type": "register", "sessionId": session_id, "session": SESSION})
    assert [one["message"]["id"] for one in frames(scene, "b", "message")] == ["m1"]


def test_inboxes_of_different_sessions_are_different() -> None:
    keys = [Key(None, "a"), Key("a", "a"), Key(None, "hub"), Key(None, '["a","a"]'), Key("a", "b")]
    names = {inbox_of(key) for key in keys}
    assert len(names) == len(keys)
    for name in tuple(names):
        names.add(inbox_of(Key(None, name)))  # who is called like an inbox has another
    assert len(names) == 8
    assert "hub" not in names
    assert inbox_of(Key(None, "api-agent")) == "api-agent"


# -- the mailbox


def test_the_257th_letter_takes_the_place_of_its_senders_first() -> None:
    scene = Scene(limits=Limits(burst=10_000))
    for name in ("a", "c", "b"):
        scene.join(name)
    scene.do("gone", "b")
    assert send(scene, "c", "b", "other")["delivery"] == "queued"
    for number in range(257):
        assert send(scene, "a", "b", f"m{number}")["delivery"] == "queued"
    assert ("!", ("skip", "b", "E_DELIVERY_EVICTED")) in scene.said
    evicted = send(scene, "a", "b", "m0")
    assert evicted["code"] == "E_DELIVERY_EVICTED"
    assert evicted["reason"] == "Mailbox capacity evicted the delivery"
    assert send(scene, "c", "b", "other")["delivery"] == "queued"
    scene.said.clear()
    scene.connect("b")
    scene.say("b", {"type": "register", "sessionId": "b", "session": SESSION})
    got = [one["message"]["id"] for one in frames(scene, "b", "message")]
    assert got == ["other", *(f"m{number}" for number in range(1, 257))]


def test_a_letter_that_expired_is_told_to_who_asks() -> None:
    scene = Scene()
    scene.join("a")
    scene.join("b")
    scene.do("gone", "b")
    scene.join("b")
    scene.do("gone", "b")
    send(scene, "a", "b", "m1")
    scene.now += 24 * 3_600_000 - 1000
    send(scene, "a", "b", "m2")
    # the outcome of the first is an hour old and forgotten; that of the second is amended
    scene.now += 2000
    scene.tick()
    scene.join("b")
    assert scene.files.positions == {"b": scene.files.inboxes["b"][0].end}


def test_a_receiver_that_never_says_so_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.core.bus.mailbox.MAX_HELD", 10)
    scene = Scene()
    scene.join("a")
    scene.join("b")
    for number in range(30):
        send(scene, "a", "b", f"m{number}")
    assert scene.files.positions["b"] >= scene.files.inboxes["b"][18].end
    scene.said.clear()
    scene.connect("n")
    scene.say("n", {"type": "register", "sessionId": "b", "session": SESSION})
    assert len(frames(scene, "n", "message")) == 10


def test_outcomes_of_one_sender_make_no_others_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.core.bus.outcomes.MAX_OF_A_SENDER", 5)
    scene = Scene()
    for name in "abc":
        scene.join(name)
    send(scene, "c", "b", "mine")
    for number in range(20):
        send(scene, "a", "b", f"m{number}")
    assert send(scene, "c", "b", "mine", "other")["code"] == "E_MESSAGE_ID_REUSE"
    scene.files.keys.clear()
    assert send(scene, "a", "b", "m0", "other")["type"] == "delivered"
    assert send(scene, "a", "b", "m19", "other")["code"] == "E_MESSAGE_ID_REUSE"


def test_an_id_of_another_dialect_is_not_taken_over() -> None:
    scene = Scene()
    scene.join("a")
    scene.run(scene.broker.joined_elsewhere("n", {}, scene.now))
    scene.connect("n")
    scene.say("n", {"type": "register", "sessionId": "n", "session": SESSION})
    assert heard(scene, "n") == [
        {"type": "error", "error": "Session id is in use by another kind of client"},
        "ends",
    ]
    listing(scene, "a", 1)
    row = frames(scene, "a", "sessions")[0]["sessions"][1]
    assert row == {
        "id": "n",
        "cwd": "unknown",
        "model": "unknown",
        "pid": 0,
        "startedAt": scene.now,
        "lastActivity": scene.now,
    }
    # what is sent to it lies in its inbox, and others bring it from there
    assert send(scene, "a", "n", "m1")["delivery"] == "socket_delivered"
    assert len(scene.files.inboxes["n"]) == 1


def test_the_end_of_the_hub_ends_every_connection() -> None:
    scene = Scene()
    scene.join("a")
    scene.connect("b")
    scene.run(scene.broker.closing(scene.now))
    assert [what for what in scene.said if what[1] == "ends"] == [("a", "ends"), ("b", "ends")]
    scene.do("gone", "a")
    scene.tick(1000)
    scene.tick(1000)
    assert len(scene.said) == 3
