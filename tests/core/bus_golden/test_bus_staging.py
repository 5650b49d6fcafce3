"""Replace mode: how much may wait, who pays when it is too much, and what is measured first."""

from __future__ import annotations

from typing import Any

import pytest
from bus_scene import Scene

from intercom.core.bus import staging
from intercom.core.bus.limits import Limits
from intercom.wire.pi.frames import MAX_FRAME

REPLACE = {"delivery": "queue", "queueMode": "replace"}


def send(
    scene: Scene, sender: str, to: str, message_id: str, thread: str, text: str = "t", **fields: Any
) -> dict[str, Any]:
    """Stage a message, and what the sender is told at once."""
    stage(scene, sender, to, message_id, thread, text, **fields)
    answer = [what for who, what in scene.said if who == sender][-1]
    assert isinstance(answer, dict)
    return answer


def stage(
    scene: Scene, sender: str, to: str, message_id: str, thread: str, text: str = "t", **fields: Any
) -> None:
    """Send a message in replace mode."""
    scene.said.clear()
    message = {"id": message_id, "timestamp": 5, "content": {"text": text}, **REPLACE}
    message |= {"threadId": thread, **fields}
    scene.say(sender, {"type": "send", "to": f"{to}-session", "message": message})


def heard(scene: Scene, sender: str) -> list[str]:
    """What a sender was told of deliveries."""
    return [
        what["type"]
        for who, what in scene.said
        if who == sender and isinstance(what, dict) and what["type"].startswith("deliver")
    ]


def got(scene: Scene, name: str) -> list[str]:
    """The messages that came."""
    return [
        what["message"]["id"]
        for who, what in scene.said
        if who == name and isinstance(what, dict) and what["type"] == "message"
    ]


def plain_scene(*names: str) -> Scene:
    scene = Scene()
    for name in names:
        scene.join_plain(name, {"status": "idle"})
    return scene


def test_nothing_is_written_while_a_message_waits() -> None:
    scene = plain_scene("w", "v")
    scene.held |= {"keep", "ask"}
    for number in range(101):
        answer = send(scene, "w", "v", f"m{number}", "t", expectsReply=True)
        assert answer["type"] == "delivery_queued"
    assert not scene.kept_back
    scene.tick(staging.DELAY_MS)
    assert len(scene.kept_back) == 1


def test_a_sender_may_stage_a_hundred_threads_and_replace_each() -> None:
    scene = plain_scene("w", "v", "u")
    for number in range(staging.MAX_OF_A_SENDER):
        assert send(scene, "w", "v", f"m{number}", f"t{number}")["type"] == "delivery_queued"
    refused = send(scene, "w", "u", "more", "t")
    assert refused == {"type": "delivery_failed", "messageId": "more", "reason": staging.FULL}
    assert send(scene, "w", "v", "m", "t50")["type"] == "delivery_queued"
    assert send(scene, "u", "v", "other", "t50")["type"] == "delivery_queued"
    scene.said.clear()
    scene.tick(staging.DELAY_MS)
    assert sorted(got(scene, "v")) == sorted(
        {f"m{number}" for number in range(100)} - {"m50"} | {"m", "other"}
    )
    assert send(scene, "w", "u", "more", "t")["type"] == "delivery_queued"


def test_all_together_may_stage_a_thousand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "MAX_STAGED", 3)
    scene = plain_scene("w", "v")
    for number in range(3):
        assert send(scene, "w", "v", f"m{number}", f"t{number}")["type"] == "delivery_queued"
    assert send(scene, "v", "w", "x", "t")["reason"] == staging.FULL
    assert send(scene, "w", "v", "m3", "t0")["type"] == "delivery_queued"


def test_an_endless_stream_of_replacements_is_heard() -> None:
    scene = plain_scene("w", "v")
    came: list[str] = []
    for number in range(30):
        send(scene, "w", "v", f"m{number}", "t")
        scene.said.clear()
        scene.tick(500)
        came += got(scene, "v")
    assert came == [f"m{number}" for number in range(3, 30, 4)]


def test_what_is_too_large_for_its_receiver_is_refused_before_it_waits() -> None:
    scene = plain_scene("w", "v")
    answer = send(scene, "w", "v", "m", "t", "x" * (MAX_FRAME - 150))
    assert answer["type"] == "delivery_failed"
    assert answer["reason"].startswith("Intercom message too large (10")
    assert answer["reason"].endswith(f"bytes; max {MAX_FRAME})")
    scene.said.clear()
    scene.tick(staging.DELAY_MS)
    assert not got(scene, "v")


def test_a_question_that_was_taken_back_meanwhile_is_not_pending_again() -> None:
    scene = plain_scene("w")
    scene.join("a", {"status": "idle"})
    ask = {"id": "q", "timestamp": 1, "content": {"text": "t"}, "expectsReply": True}
    scene.say("a", {"type": "send", "to": "w-session", "message": ask})
    scene.say(
        "w",
        {
            "type": "send",
            "to": "a",
            "message": {**ask, "id": "r", "replyTo": "q", **REPLACE, "threadId": "t"},
        },
    )
    scene.say("a", {"type": "cancel_ask", "messageId": "q"})
    scene.failing.add("keep")
    scene.tick(staging.DELAY_MS)
    assert not scene.files.asks
    assert not len(scene.broker._world.asks)


def test_pi_intercom_receivers_that_are_idle_are_waited_for_too() -> None:
    scene = Scene(limits=Limits(burst=10**6))
    scene.join_plain("w")
    scene.join("a", {"status": "idle"})
    message = {"id": "m", "timestamp": 1, "content": {"text": "t"}, **REPLACE, "threadId": "t"}
    scene.say("w", {"type": "send", "to": "a", "message": message})
    scene.said.clear()
    scene.tick(staging.DELAY_MS)
    assert got(scene, "a") == ["m"]


def test_what_waits_survives_a_crash_of_the_hub() -> None:
    scene = plain_scene("w", "v")
    send(scene, "w", "v", "m1", "t")
    send(scene, "w", "v", "m2", "t")
    assert [entry.message_id for entry in scene.files.staged.values()] == ["m2"]
    scene.restart()
    assert not scene.files.staged
    scene.connect("v")
    plain = {"cwd": "/w", "model": "m"}
    scene.say("v", {"type": "register", "requestedId": "v-session", "session": plain})
    assert got(scene, "v") == ["m2"]


def test_what_had_reached_its_inbox_before_the_crash_is_there_once() -> None:
    scene = plain_scene("w", "v")
    send(scene, "w", "v", "m1", "t")
    before = dict(scene.files.staged)
    scene.tick(staging.DELAY_MS)
    assert got(scene, "v") == ["m1"]
    scene.files.staged = before  # it was written, and the hub died before it could say so
    scene.restart()
    assert len(scene.files.inboxes["v-session"]) == 1
    assert not scene.files.staged


def test_a_question_that_waits_is_over_with_its_sender() -> None:
    scene = plain_scene("w", "v")
    send(scene, "w", "v", "m1", "t", expectsReply=True)
    assert not scene.files.staged


@pytest.mark.parametrize("fails", [False, True])
def test_that_a_message_waits_is_said_when_it_is_remembered(fails: bool) -> None:
    """Where it cannot be, the message waits all the same, and only a crash would lose it."""
    scene = plain_scene("w", "v")
    if fails:
        scene.failing.add("staged")
    scene.held.add("staged")
    stage(scene, "w", "v", "m1", "t")
    assert heard(scene, "w") == []
    scene.let_go("staged")
    assert heard(scene, "w") == ["delivery_queued"]
    scene.tick(staging.DELAY_MS)
    assert got(scene, "v") == ["m1"]


def test_what_fails_before_it_is_remembered_is_said_to_have_failed_only() -> None:
    scene = plain_scene("w", "v")
    scene.held.add("staged")
    stage(scene, "w", "v", "m1", "t")
    scene.do("gone", "v")
    scene.let_go("staged")
    assert heard(scene, "w") == ["delivery_failed"]
    assert not scene.files.staged


def test_what_is_delivered_before_it_is_remembered_is_not_remembered_for_good() -> None:
    scene = plain_scene("w", "v")
    scene.held.add("staged")
    stage(scene, "w", "v", "m1", "t")
    scene.tick(staging.DELAY_MS)
    scene.let_go("staged")
    assert got(scene, "v") == ["m1"]
    assert heard(scene, "w") == ["delivery_queued"]
    assert not scene.files.staged
