"""Sessions that speak lines, where two of the bus's parts meet: restarts, inboxes, odd ids."""

from __future__ import annotations

from typing import Any

import pytest
from bus_scene import Scene

from intercom.core.bus.directory import Known
from intercom.core.bus.keys import Key

ASK = {"id": "q", "timestamp": 1, "content": {"text": "t"}, "expectsReply": True}


def send(scene: Scene, sender: str, to: str, **fields: Any) -> Any:
    """Send, and what the sender is told in the end."""
    scene.said.clear()
    message = {"id": "m", "timestamp": 1, "content": {"text": "t"}, **fields}
    scene.say(sender, {"type": "send", "to": to, "message": message})
    return [what for who, what in scene.said if who == sender][-1]


def frames(scene: Scene, name: str, kind: str) -> list[Any]:
    heard = [what for who, what in scene.said if who == name and isinstance(what, dict)]
    return [one for one in heard if one["type"] == kind]


@pytest.fixture
def scene() -> Scene:
    scene = Scene()
    scene.join("a", {"name": "Ann"})
    scene.elsewhere("nd", {})
    scene.said.clear()
    return scene


def test_an_answer_that_was_stored_before_a_restart_ends_its_ask(scene: Scene) -> None:
    send(scene, "a", "nd", **ASK)
    scene.held.add("read")
    scene.write("nd", "a", "r", {"text": "t", "reply_to": "q"})
    assert scene.files.asks
    scene.restart()
    assert not scene.files.asks
    scene.held.clear()
    scene.join("a")
    assert [line.line for line in scene.files.inboxes["a"]]


def test_a_question_that_was_stored_before_a_restart_is_pending_and_can_be_answered(
    scene: Scene,
) -> None:
    scene.held.add("read")
    scene.write("nd", "a", "q", {"text": "t", "expects_reply": True})
    assert not scene.files.asks
    scene.restart()
    assert list(scene.files.asks) == [(None, "q")]
    scene.held.clear()
    scene.join("a")
    scene.elsewhere("nd", {})
    assert send(scene, "a", "nd", replyTo="q")["type"] == "delivered"
    assert not scene.files.asks


def test_a_question_counts_from_when_it_was_asked(scene: Scene) -> None:
    scene.do("gone", "a")
    scene.write("nd", "a", "q", {"text": "t", "expects_reply": True})
    scene.tick(scene.broker._world.limits.ask_ms + 1)
    scene.join("a")
    assert not scene.files.asks


def test_an_id_that_no_line_could_have_is_answered_by_what_stands_for_it(scene: Scene) -> None:
    odd = "q" * 1000
    send(scene, "a", "nd", **{**ASK, "id": odd})
    stands = scene.files.inboxes["nd"][0].line.split(b'"')[3].decode()
    scene.said.clear()
    scene.write("nd", "a", "r", {"text": "t", "reply_to": stands})
    assert frames(scene, "a", "message")[0]["message"]["replyTo"] == odd
    assert not scene.files.asks


def test_whom_one_may_ask(scene: Scene) -> None:
    broker = scene.broker
    assert broker.holds("a")
    assert not broker.holds("nd")
    assert broker.ask_refusal("nd", "a", "q2") is None
    assert broker.ask_refusal("nd", "b", "q2") == "TARGET_DISCONNECTED"
    send(scene, "a", "nd", **ASK)
    assert broker.ask_refusal("nd", "a", "q2") == "MUTUAL_ASK"
    scene.elsewhere("other", {})
    assert broker.ask_refusal("other", "a", "q") == "MESSAGE_ID_REUSE"
    assert broker.ask_refusal("other", "a", "q2") is None


def test_the_pi_sessions_are_shown_to_the_hub_core(scene: Scene) -> None:
    scene.join_plain("w")
    scene.join("s", scopeId="s")
    assert [inbox for inbox, _ in scene.broker.members] == ["a", "w-session"]


def test_an_inbox_that_changes_hands_is_left_to_the_other(scene: Scene) -> None:
    scene.join("b")
    scene.do("gone", "b")
    assert send(scene, "a", "b")["delivery"] == "queued"
    scene.held.add("read")
    scene.write("nd", "b", "m2", {"text": "t"})
    scene.elsewhere("b", {})
    scene.let_go("read")
    scene.tick(25 * 60 * 60 * 1000)
    assert "b" not in scene.files.positions
    assert not scene.files.skipped
    assert "b" not in scene.broker.inboxes
    assert not any(box.letters for box in scene.broker._world.mailbox.boxes())


def test_an_inbox_that_changes_hands_is_not_discarded(scene: Scene) -> None:
    scene.connect("x")
    plain = {"type": "register", "session": {"cwd": "/w", "model": "m"}}
    scene.say("x", plain)
    drawn = scene.rows["x"]["id"]
    scene.do("gone", "x")
    scene.elsewhere(drawn, {})
    scene.elsewhere(drawn, None)
    scene.tick(25 * 60 * 60 * 1000)
    assert ("!", ("discard", drawn)) not in scene.said


def test_what_waits_for_one_that_leaves_is_put_into_its_inbox(scene: Scene) -> None:
    scene.join_plain("w")
    scene.elsewhere("nd", {"status": "idle"})
    replace = {"delivery": "queue", "queueMode": "replace", "threadId": "t"}
    assert send(scene, "w", "nd", **replace)["type"] == "delivery_queued"
    scene.elsewhere("nd", None)
    assert len(scene.files.inboxes["nd"]) == 1
    assert not frames(scene, "w", "delivery_failed")


def test_a_session_in_another_inbox_than_its_name_says_is_no_member(scene: Scene) -> None:
    for session_id in ("pi.b", "hub", ""):
        scene.run(scene.broker.joined_elsewhere(session_id, {}, scene.now))
    assert not scene.said
    assert scene.broker.sessions == 2


def test_the_hub_stays_while_one_of_them_is_here(scene: Scene) -> None:
    scene.do("gone", "a")
    scene.tick(10_000)
    assert ("!", ("leave",)) not in scene.said
    scene.elsewhere("nd", None)
    scene.tick(10_000)
    assert ("!", ("leave",)) in scene.said


def test_a_later_hub_knows_whose_inbox_is_not_its_own(scene: Scene) -> None:
    scene.elsewhere("nd", None)
    known = {one.id: one for one in scene.broker.roll}
    assert known["nd"] == Known("nd", left=scene.now, elsewhere=True)
    scene.restart()
    assert set(scene.broker.inboxes) == {"a"}
    scene.join("a")
    assert send(scene, "a", "nd")["delivery"] == "queued"
    scene.join("nd")
    absent = scene.broker._world.directory.absent(Key(None, "nd"))
    assert absent is None


def test_a_roll_that_is_taken_in_later_changes_nothing_for_who_is_here(scene: Scene) -> None:
    roll = [Known("a", left=5, elsewhere=True), Known("nd", left=5)]
    scene.run(scene.broker.restored_roll(roll, scene.now))
    assert set(scene.broker.inboxes) == {"a"}
    scene.write("nd", "a", "m", {"text": "t"})
    assert len(frames(scene, "a", "message")) == 1


def test_mail_for_one_that_left_goes_to_its_heir_whatever_that_speaks(scene: Scene) -> None:
    scene.join("b", {"name": "Bob"})
    scene.do("gone", "b")
    scene.elsewhere("nd2", {"name": "bob", "cwd": "/w"})
    assert send(scene, "a", "b")["delivery"] == "socket_delivered"
    assert len(scene.files.inboxes["nd2"]) == 1
