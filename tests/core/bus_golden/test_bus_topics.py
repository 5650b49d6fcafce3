"""Topics and registering where they come to a limit: too large, too late, too slow."""

from __future__ import annotations

from typing import Any

from bus_scene import PLAIN, SESSION, Scene

from intercom.core.bus.keys import Key
from intercom.core.bus.limits import Limits
from intercom.wire.pi.frames import MAX_FRAME

TOPICS = {"topicFrames": True}


def update(topic: str = "t", text: str = "x", **fields: Any) -> dict[str, Any]:
    return {
        "topic": topic,
        "text": text,
        "event": "update",
        "revision": 1,
        "updatedAt": 9,
        **fields,
    }


def publish(scene: Scene, name: str, topic: dict[str, Any]) -> list[Any]:
    """Publish, and what the publisher is told."""
    scene.said.clear()
    change = {"action": "publish", "topic": topic}
    scene.say(name, {"type": "list", "requestId": "r", "stream": True, "change": change})
    return [what for who, what in scene.said if who == name]


def topics_of(scene: Scene, name: str) -> Any:
    session = scene.broker._world.directory.get(Key(None, f"{name}-session"))
    assert session is not None
    return session.info.get("topics", [])


def large(size: int) -> dict[str, Any]:
    return update(text="x" * size)


def test_a_publication_that_a_subscriber_could_not_be_shown_changes_nothing() -> None:
    scene = Scene()
    scene.join_plain("w", **TOPICS)
    scene.join_plain("v", {"subscriptions": [{"topic": "t"}]})  # the long form: the text twice
    (answer,) = publish(scene, "w", large(MAX_FRAME // 2))
    assert answer["error"].startswith("Intercom message too large (1048")
    assert (answer["sessions"], topics_of(scene, "w")) == ([], [])
    assert not [who for who, what in scene.said if who == "v"]


def test_in_the_short_form_it_is_half_as_large() -> None:
    scene = Scene()
    scene.join_plain("w", **TOPICS)
    scene.join_plain("v", {"subscriptions": [{"topic": "t"}]}, **TOPICS)
    answers = publish(scene, "w", large(MAX_FRAME // 2))
    assert [one["receipts"][0]["delivered"] for one in answers if "receipts" in one] == [True]
    assert len(topics_of(scene, "w")) == 1


def test_a_topic_that_no_listing_could_show_changes_nothing() -> None:
    scene = Scene()
    scene.join_plain("w", **TOPICS)
    (answer,) = publish(scene, "w", large(MAX_FRAME - 150))
    assert answer["error"].startswith("Intercom message too large (1048")
    assert topics_of(scene, "w") == []


def test_a_listing_that_is_too_large_says_so_at_once_and_is_streamed_well() -> None:
    scene = Scene()
    for name in ("w", "v"):
        scene.join_plain(name, {"name": name * (MAX_FRAME // 2)})
    scene.say("w", {"type": "list", "requestId": "r"})
    ((_, answer),) = scene.said
    assert (answer["sessions"], answer["error"][:26]) == ([], "Intercom message too large")
    scene.said.clear()
    scene.say("w", {"type": "list", "requestId": "r", "stream": True})
    assert len(scene.said) == 3


def test_a_session_that_no_listing_could_show_is_not_let_in_nor_becomes_one() -> None:
    scene = Scene()
    scene.connect("w")
    session = {**PLAIN, "name": "n" * MAX_FRAME}
    scene.say("w", {"type": "register", "session": session})
    assert scene.said[-1] == ("w", "ends")
    assert scene.broker.sessions == 0
    scene.join_plain("v")
    scene.say("v", {"type": "presence", "name": "n" * MAX_FRAME})
    assert scene.said[-1] == ("v", "ends")
    assert scene.broker.sessions == 0


def test_subscribers_are_told_side_by_side_and_the_answer_waits_for_all() -> None:
    scene = Scene()
    scene.join_plain("w", **TOPICS)
    for name in ("v", "u"):
        scene.join_plain(name, {"subscriptions": [{"topic": "t"}]})
    scene.held.add("keep")
    assert [what for what in publish(scene, "w", update()) if isinstance(what, dict)] == []
    assert len(scene.kept_back) == 2
    scene.say("w", {"type": "presence", "status": "busy"})
    scene.do("gone", "u")
    scene.let_go("keep")
    receipts = [
        what["receipts"][0]
        for who, what in scene.said
        if who == "w" and isinstance(what, dict) and "receipts" in what
    ]
    assert [(one["to"], one["delivered"]) for one in receipts] == [
        ("v-session", True),
        ("u-session", False),
    ]
    assert receipts[1]["reason"] == "Recipient disconnected before delivery"
    assert scene.broker.pending == 0
    assert not scene.broker._world.turns._early


def test_no_crowd_of_subagents_sessions_keeps_anybody_out_and_none_is_slowed() -> None:
    scene = Scene(limits=Limits(sessions=2))
    for number in range(5):
        scene.join_plain(f"w{number}")
    scene.join("a")
    scene.join("b")
    scene.connect("c")
    scene.say("c", {"type": "register", "sessionId": "c", "session": SESSION})
    assert ("c", "ends") in scene.said
    scene.said.clear()
    for number in range(1000):
        scene.say("w0", {"type": "list", "requestId": f"r{number}"})
    assert len(scene.said) == 1000


def test_before_it_registers_it_waits_in_the_lobby_like_any_other() -> None:
    scene = Scene(limits=Limits(unregistered=1))
    scene.join_plain("w")
    scene.say("w", {"type": "unregister"})
    scene.connect("v")
    assert scene.said[-1] == ("w", "closes")
    scene.tick(1000)
    scene.tick(20)
    assert scene.said[-1] == ("v", "closes")


def test_what_it_says_of_itself_is_not_taken_for_the_hubs_word() -> None:
    scene = Scene()
    scene.join("a")
    scene.connect("w")
    session = {**PLAIN, "endpointEpoch": "e", "trustedLocal": True, "odd": 1}
    scene.say("w", {"type": "register", "requestedId": "w-session", "session": session})
    row = next(what["session"] for who, what in scene.said if who == "a")
    assert not {"endpointEpoch", "trustedLocal", "odd"} & row.keys()
    scene.said.clear()
    scene.say("w", {"type": "list", "requestId": "r"})
    assert scene.said[-1][1]["sessions"][1]["odd"] == 1


def test_bytes_that_the_peer_has_read_are_received_and_no_others() -> None:
    scene = Scene()
    scene.join_plain("w")
    scene.join_plain("v")
    message = {"id": "m1", "timestamp": 1, "content": {"text": "t"}}
    scene.do("paused", "v")
    scene.say("w", {"type": "send", "to": "v-session", "message": message})
    scene.do("taken", "v")
    assert "v-session" not in scene.files.positions
    scene.do("drained", "v")
    scene.do("paused", "v")
    scene.say("v", {"type": "presence"})  # it may have said that before
    assert "v-session" not in scene.files.positions
    scene.do("taken", "v")
    scene.do("taken", "v")
    assert scene.files.positions["v-session"] == scene.files.inboxes["v-session"][0].end
    scene.do("gone", "v")
    scene.do("taken", "v")


def test_a_hub_that_goes_takes_no_word_for_what_was_not_written_any_more() -> None:
    scene = Scene()
    scene.join_plain("w")
    scene.join_plain("v", {"status": "idle"})
    message = {"id": "m1", "timestamp": 1, "content": {"text": "t"}, "delivery": "queue"}
    message |= {"queueMode": "replace", "threadId": "t"}
    scene.say("w", {"type": "send", "to": "v-session", "message": message})
    scene.closing()
    scene.do("taken", "v")
    scene.say("v", {"type": "presence"})
    assert "v-session" not in scene.files.positions
    assert scene.broker.pending == 0
