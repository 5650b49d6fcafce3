"""The parts of the bus one by one, where a conversation does not reach."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bus_scene import SESSION, Scene

from intercom.core.bus.asks import Ask, ask_of, record_of
from intercom.core.bus.directory import Absent, Directory, Identity
from intercom.core.bus.keys import Key, inbox_of, scope_hash, state_namespace
from intercom.core.bus.letters import Content, read, write
from intercom.core.bus.limits import Limits, Lobby
from intercom.core.bus.mailbox import Letter, Mailbox, Place
from intercom.core.bus.outcomes import Outcome, Outcomes
from intercom.core.bus.routes import Route, Routes
from intercom.core.bus.turns import Turns, Work
from intercom.records import Position, Shifted
from intercom.wire.envelope import identify, make, parse

A, B = Key(None, "a"), Key(None, "b")


def frames(scene: Scene, name: str) -> list[Any]:
    return [what for who, what in scene.said if who == name and isinstance(what, dict)]


def letter(message_id: str, start: int, **fields: Any) -> Letter:
    place = Place(1, start, start + 10)
    return Letter("b", place, B, Identity(), A, Identity(), message_id, False, 0, **fields)


# -- mailbox


def test_a_position_moves_over_what_is_settled_from_the_beginning_only() -> None:
    mailbox = Mailbox()
    box = mailbox.box("b")
    letters = [letter(f"m{number}", number * 10) for number in range(3)]
    for one in letters:
        mailbox.keep(one)
    mailbox.settle(letters[0])
    assert box.trim() is None  # nobody has looked at the inbox yet
    box.known = Position(1, 20)
    assert box.trim() == Position(1, 10)
    assert box.trim() is None
    mailbox.settle(letters[1])
    mailbox.settle(letters[2])
    assert box.trim() == Position(1, 20)  # behind that others may have written
    box.known = Position(1, 30)
    assert box.trim() == Position(1, 30)
    assert not box.letters


def test_a_line_that_is_read_late_comes_before_those_behind_it() -> None:
    mailbox = Mailbox()
    mailbox.keep(letter("m2", 10))
    mailbox.keep(letter("m1", 0))
    box = mailbox.box("b")
    assert [one.message_id for one in box.letters.values()] == ["m1", "m2"]
    assert [one.message_id for one in box.waiting.values()] == ["m1", "m2"]


def test_letters_of_a_connection_that_ends_wait_in_their_order() -> None:
    mailbox = Mailbox()
    letters = [letter(f"m{number}", number * 10) for number in range(3)]
    for one in letters:
        mailbox.keep(one)
    mailbox.hold(letters[0], 7)
    mailbox.hold(letters[1], 7)
    assert mailbox.held(7, "m1") == [letters[1]]
    mailbox.settle(letters[1])
    assert mailbox.held(7, "m1") == []
    assert mailbox.left(7) == [letters[0]]
    assert list(mailbox.box("b").waiting.values()) == [letters[0], letters[2]]
    assert mailbox.left(7) == []


def test_letters_move_with_a_compaction() -> None:
    mailbox = Mailbox()
    letters = [letter(f"m{number}", number * 10) for number in range(3)]
    for one in letters:
        mailbox.keep(one)
    box = mailbox.box("b")
    box.known = Position(1, 30)
    mailbox.hold(letters[2], 7)
    mailbox.settle(letters[0])
    box.trim()
    mailbox.shifted(Shifted("b", 1, 2, ((10, 30),)))
    assert letters[2].place == Place(2, 10, 20)
    assert list(box.letters) == [Position(2, 0), Position(2, 10)]
    assert list(box.waiting) == [Position(2, 0)]
    assert (box.known, box.stored) == (Position(2, 20), Position(2, 0))
    mailbox.shifted(Shifted("b", 2, 3, ()))
    assert not box.letters
    assert not mailbox.held(7, "m2")
    assert box.known == Position(3, 0)


# -- letters


def test_a_line_says_who_sent_it_and_whom_it_is_for() -> None:
    message = {"id": "m1", "timestamp": 5, "content": {"text": "t"}, "replyTo": "q", "odd": [1]}
    info = {"id": "a", "name": "Ann", **SESSION}
    for scope in (None, "s"):
        sender, target = Key(scope_hash(scope), "a"), Key(scope_hash(scope), "b\ud800")
        content = Content(
            message, info, sender, scope, Identity("ann", "/w"), target, Identity("bob", "/b"), 77
        )
        line = write(content, "c", bytes(range(16)))
        assert identify(line) == (inbox_of(sender), "m1", bytes(range(16)))
        inbox = parse(line)["to_session"]
        assert read(line, inbox, None, str, 5) == content
        # in another's inbox it is that one's
        other = read(line, "z", None, str, 5)
        assert other is not None
        assert (other.target, other.addressed) == (Key(None, "z"), Identity())


def line_of(**fields: Any) -> bytes:
    base = {"type": "chat", "message_id": "m1", "from_session": "n", "to_session": "b"}
    base |= {"channel": "c", "payload": {"text": "t"}, "timestamp": "2026-01-01T00:00:00Z"}
    return make(**{**base, **fields})


def test_a_line_of_another_dialect_is_a_message_of_its_sender() -> None:
    content = read(line_of(), "b", None, str, 5)
    assert content is not None
    assert content.message["content"] == {"text": "t"}
    assert (content.sender, content.info, content.received) == (Key(None, "n"), {"id": "n"}, 5)


def test_nobody_can_write_in_anothers_name() -> None:
    content = Content(
        {"id": "m1", "timestamp": 5, "content": {"text": "t"}},
        {"id": "a", **SESSION},
        A,
        None,
        Identity("", "/w"),
        B,
        Identity(),
        77,
    )
    forged = json.loads(write(content, "c", bytes(16)))
    forged["from_session"] = "mallory"
    read_again = read(json.dumps(forged).encode(), "b", None, str, 5)
    assert read_again is not None
    assert read_again.sender == Key(None, "mallory")
    assert read_again.info == {"id": "mallory"}


@pytest.mark.parametrize("to", ["{", "[]", '{"id":5}', '{"id":"z"}', '{"id":"b","scope":1}', 7])
def test_a_damaged_address_is_none(to: Any) -> None:
    line = line_of(payload={"text": "t", "pi": {"to": to, "receivedAt": "x"}})
    content = read(line, "b", Key(None, "b"), str, 5)
    assert content is not None
    assert (content.target, content.addressed, content.received) == (B, Identity(), 5)


@pytest.mark.parametrize("line", [b"{", b'{"type":"chat"}', line_of(type="presence")])
def test_what_is_no_message_is_passed_over(line: bytes) -> None:
    assert read(line, "b", None, str, 5) is None


def test_a_hashed_inbox_does_not_say_whose_it_is() -> None:
    assert read(line_of(), "pi.0123", None, str, 5) is None
    content = read(line_of(), "pi.0123", Key("s", "x"), str, 5)
    assert content is not None
    assert content.target == Key("s", "x")


def test_lines_of_others_are_brought_and_passed_over() -> None:
    """What other programs appended comes to the session that is here; what is no message not."""
    scene = Scene()
    scene.join("b")
    scene.files.append("b", b"no json")
    scene.files.append("b", line_of())
    scene.files.append("b", line_of(message_id="m2"))
    scene.run(scene.broker.written([appeared("b")], scene.now))
    got = [what for who, what in scene.said if who == "b"]
    assert [one["message"]["id"] for one in got] == ["m1", "m2"]
    assert got[0]["from"]["cwd"] == "unknown"
    for message_id in ("m1", "m2"):
        receipt = {"messageId": message_id, "status": "queued", "timestamp": 1}
        scene.say("b", {"type": "message_receipt", "receipt": receipt})
    assert scene.files.positions["b"] == scene.files.inboxes["b"][-1].end


def appeared(inbox: str) -> Any:
    from intercom.records import Appeared

    return Appeared(inbox, 1, [])


# -- asks, routes, outcomes, names


def test_the_file_of_an_ask() -> None:
    ask = Ask("m1", Key("s", "a"), Key("s", "b"), 5, 15)
    record = record_of(ask, "Ann", None, "why?")
    assert json.dumps(record, indent=2) == (
        '{\n  "askId": "m1",\n  "messageId": "m1",\n  "asker": {\n    "sessionId": "a",\n'
        '    "name": "Ann"\n  },\n  "target": {\n    "sessionId": "b",\n    "name": null\n  },\n'
        '  "question": "why?",\n  "createdAt": 5,\n  "expiresAt": 15\n}'
    )
    assert ask_of("s", record) == ask


def test_scoped_asks_survive_without_their_scopes_name() -> None:
    scene = Scene()
    scene.join("a", scopeId="s")
    scene.join("b", scopeId="s")
    question = {"id": "q", "timestamp": 5, "content": {"text": "?"}, "expectsReply": True}
    scene.say("a", {"type": "send", "to": "b", "message": question})
    assert list(scene.files.asks) == [(scope_hash("s"), "q")]
    scene.restart()
    scene.join("b", scopeId="s")
    scene.join("x")
    answer = {"id": "r", "timestamp": 5, "content": {"text": "!"}, "replyTo": "q"}
    scene.say("x", {"type": "send", "to": "a", "message": answer})
    assert frames(scene, "x")[-1]["reason"] == "Session not found"
    scene.say("b", {"type": "send", "to": "a", "message": answer})
    assert frames(scene, "b")[-1]["delivery"] == "queued"
    assert not scene.files.asks
    scene.connect("a")
    register = {"type": "register", "session": SESSION, "sessionId": "a", "scopeId": "s"}
    scene.say("a", register)
    assert [one["message"]["id"] for one in frames(scene, "a") if one["type"] == "message"] == ["r"]


def test_an_ask_that_is_over_at_the_start_is_removed() -> None:
    scene = Scene()
    record = record_of(Ask("q", A, B, 0, scene.now - 1), None, None, "")
    scene.files.asks[None, "q"] = record
    scene.restart()
    assert not scene.files.asks


def test_two_senders_may_use_one_id() -> None:
    """A receipt of it goes to both, and neither takes the other's."""
    routes = Routes()
    routes.add(Route(A, B, "m", 0))
    routes.add(Route(Key(None, "c"), B, "m", 1))
    assert {route.sender.id for route in routes.got(B, "m", 5)} == {"a", "c"}
    assert routes.sent(A, "m", 5) == Route(A, B, "m", 0)
    routes.clear(A)
    assert [route.sender.id for route in routes.got(B, "m", 5)] == ["c"]
    routes.prune(3_600_002)
    assert len(routes) == 0


def test_routes_of_one_sender_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.core.bus.routes.MAX_OF_A_SENDER", 3)
    routes = Routes()
    for number in range(10):
        routes.add(Route(A, B, f"m{number}", number))
    assert len(routes) == 3
    assert routes.sent(A, "m9", 10)
    assert routes.sent(A, "m6", 10) is None


def test_a_route_is_kept_for_an_hour() -> None:
    routes = Routes()
    routes.add(Route(A, B, "m", 0))
    assert routes.sent(A, "m", 3_600_000)
    assert routes.sent(A, "m", 3_600_001) is None
    assert routes.got(B, "m", 3_600_001) == []


def test_outcomes_keep_no_text() -> None:
    outcomes = Outcomes()
    outcomes.record(A, "m", Outcome(b"hash", "failed", 0, "why", "E_X"))
    assert outcomes.recall(A, "m", 3_600_000)
    assert outcomes.recall(A, "m", 3_600_001) is None
    assert len(outcomes) == 0


def test_absent_sessions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("intercom.core.bus.directory.MAX_ABSENT", 3)
    directory = Directory()
    for number in range(5):
        directory.remember(Absent(Key(None, f"s{number}"), "", Identity(), number))
    assert directory.prune(10) == []
    assert directory.find_absent("s1", None) == []
    assert len(directory.find_absent("s", None)) == 3


def test_state_is_filed_under_the_scopes_hash() -> None:
    assert state_namespace(None, "x") == "x"
    assert state_namespace(scope_hash("s"), "x") == (
        '["scope","043a718774c572bd8a25adbeb1bfcd5c0256ae11cecf9f9c3f925d0e52beaf89","x"]'
    )


def test_the_lobby_looks_twice() -> None:
    lobby = Lobby(Limits())
    assert lobby.enter(1, 0) == 1000
    assert lobby.overdue(999) == ([], False)
    assert lobby.overdue(5000) == ([], True)
    lobby.enter(1, 5000)  # it registered and left again
    assert lobby.overdue(5500) == ([], False)
    assert lobby.overdue(6000) == ([], True)
    assert lobby.overdue(6001) == ([1], False)


# -- turns


def test_answers_may_come_before_they_are_waited_for() -> None:
    turns, got, ended = Turns(), [], []

    def work() -> Work:
        turns.expect("second")
        got.append((yield "first"))
        got.append((yield "second"))

    assert not turns.start(work(), lambda: ended.append(1))
    turns.answer("second", 2)
    turns.answer("nobody", 3)
    assert turns.pending == 1
    turns.answer("first", 1)
    assert (got, ended, turns.pending) == ([1, 2], [1], 0)


def test_state_commits_that_meet_are_done_one_by_one() -> None:
    """The owner is replaced while its commit is under way: the next commit sees its outcome."""
    extension = {"extensions": [{"namespace": "x", "ownerEligible": True}]}
    scene = Scene()
    scene.join("a", extension)
    scene.held.add("state")
    commit = {"type": "extension_state_commit", "namespace": "x", "expectedRevision": 0}
    scene.say("a", {**commit, "ownerEpoch": "u2", "payload": 1})
    scene.numbers.pop("a")
    scene.join("a", extension)
    scene.say("a", {**commit, "ownerEpoch": "u4", "payload": 2})
    assert scene.said == []
    scene.let_go("state")
    results = [what for who, what in scene.said if who == "a" and "committed" in what]
    assert [(one["committed"], one["revision"]) for one in results] == [(False, 1)]
    assert scene.files.states == {"x": (1, 1)}


NOT_FOUND = "Session not found"
MESSAGE = {"id": "m1", "timestamp": 1, "content": {"text": "t"}}
RESULT = {"type": "extension_state_result", "namespace": "x", "committed": False, "revision": 0}
FAILED = {"type": "delivery_failed", "messageId": "m1"}
NO_SENDER = {"delivery": "failed", "code": "E_SENDER_NOT_FOUND", "retryable": False}
NO_SENDER |= {"reason": "Sender session not found", "outcomeKnown": True}
BAD = {"delivery": "failed", "code": "E_INVALID_MESSAGE", "retryable": False}
BAD |= {"reason": "Invalid message format", "outcomeKnown": True}


@pytest.mark.parametrize(
    ("frame", "answer"),
    [
        ({"type": "send", "to": "b", "message": MESSAGE}, {**FAILED, **NO_SENDER}),
        ({"type": "send", "to": "b", "message": MESSAGE, "targetId": "b"}, {**FAILED, **NO_SENDER}),
        ({"type": "send", "to": 5, "message": MESSAGE}, {**FAILED, **BAD}),
        ({"type": "extension_publish"}, {"type": "error", "error": NOT_FOUND}),
        (
            {"type": "extension_state_commit", "namespace": "x"},
            {**RESULT, "reason": NOT_FOUND},
        ),
        (
            {"type": "cancel_message", "messageId": "m1"},
            {**FAILED, "reason": "Message cannot be cancelled by this session"},
        ),
        ({"type": "cancel_ask", "messageId": "m1"}, None),
        ({"type": "presence", "status": "s"}, None),
        ({"type": "list", "requestId": "r"}, "ends"),
        ({"type": "extension_capabilities_update", "extensions": []}, "ends"),
        ({"type": "presence", "status": 5}, "ends"),
    ],
)
def test_who_was_replaced_has_no_session(frame: dict[str, Any], answer: Any) -> None:
    """Said while its connection still ends; most of it is never read there."""
    scene = Scene()
    scene.join("b", {"extensions": [{"namespace": "x", "ownerEligible": True}]})
    scene.join("n", sessionId="b")
    scene.closed.clear()
    scene.say("b", frame)
    assert [what for who, what in scene.said if who != "!"] == ([answer] if answer else [])
