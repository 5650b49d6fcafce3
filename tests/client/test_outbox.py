"""Sending a message once, whatever becomes of the hub."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client import offline
from intercom.client.dial import connect
from intercom.client.offline import look_up
from intercom.client.outbox import Letter, Outcome, compose, deliver
from intercom.errors import CannotCreate, HubUnavailable, IntercomError, ProtocolError
from intercom.paths import ChannelPaths, file_level
from intercom.spool.files import Inbox

Start = Callable[..., Any]


def letter_to(paths: ChannelPaths, to: str = "bob", **more: Any) -> Letter:
    """A short message."""
    return compose(paths, "me", to, {"text": "hello"}, **more)


def send(paths: ChannelPaths, letter: Letter, **more: Any) -> Outcome:
    """Deliver it to whatever listens, starting nothing."""
    return deliver(paths, letter, "token", connect=connect, **more)


def inbox_of(paths: ChannelPaths, session: str) -> list[dict[str, Any]]:
    """The messages in an inbox file."""
    with Inbox(paths, session) as inbox:
        return [json.loads(record.line) for record in inbox.read().records]


def stored(side: Any, **more: Any) -> dict[str, Any]:
    """Welcome a sender, take a message and give its receipt."""
    side.welcome("receipts")
    message = side.read()
    payload = {"state": "stored", "level": "disk", "recipients": 1, "live": 1} | more
    side.say("receipt", payload, message["id"])
    return dict(message)


def test_a_receipt_says_what_became_of_it(paths: ChannelPaths, hub: Start) -> None:
    """State, level and who listens are the hub's words."""
    seen = []
    fake = hub(lambda side: seen.append(stored(side, known=False, nearest=["bobby"])))
    outcome = send(paths, letter_to(paths, reply_to="msg_1"))
    fake.finish()
    assert outcome.fields() == {
        "status": "sent",
        "state": "stored",
        "level": "disk",
        "live": 1,
        "known": False,
        "nearest": ["bobby"],
        "recipients": 1,
    }
    assert seen[0]["payload"] == {"text": "hello"}
    assert seen[0]["reply_to"] == "msg_1"


def test_a_hub_that_dies_before_its_receipt_is_followed_by_the_next(
    paths: ChannelPaths, hub: Start
) -> None:
    """Which gets the very same bytes, so that it can tell that they are the same message."""
    seen = []

    def dies(side: Any) -> None:
        side.welcome("receipts")
        seen.append(side.read())

    def leaves(side: Any) -> None:
        side.welcome("receipts")
        seen.append(side.read())
        side.say("error", {"code": "SHUTTING_DOWN", "message": "going"}, seen[-1]["id"])

    fake = hub(dies, leaves, lambda side: seen.append(stored(side, duplicate=True)))
    outcome = send(paths, letter_to(paths))
    fake.finish()
    assert outcome.status == "sent"
    assert outcome.duplicate
    assert seen[0] == seen[1] == seen[2]
    assert inbox_of(paths, "bob") == []


def test_a_refusal_is_final(paths: ChannelPaths, hub: Start) -> None:
    """It keeps its code, and nothing goes to the file behind the hub's back."""

    def refuse(side: Any) -> None:
        side.welcome("receipts")
        message = side.read()
        payload = {"state": "refused", "code": "TARGET_NOT_FOUND", "message": "who?"}
        side.say("receipt", payload | {"nearest": ["bob"], "known": False}, message["id"])

    hub(refuse)
    with pytest.raises(IntercomError, match="who") as caught:
        send(paths, letter_to(paths, "bbo", strict=True))
    assert caught.value.exit_code == 68
    assert caught.value.details["nearest"] == ["bob"]
    assert inbox_of(paths, "bbo") == []


def test_without_a_hub_a_direct_message_is_in_the_inbox_file(paths: ChannelPaths) -> None:
    """Once, however often it is sent; and the reason is told."""
    letter = letter_to(paths)
    first = send(paths, letter)
    assert first.status == "spooled_offline"
    assert first.state == "stored"
    assert first.level in ("disk", "process")
    assert first.live is None
    assert first.cause == "absent"
    assert "no hub runs" in first.reason
    again = send(paths, letter)
    assert again.duplicate
    assert [one["id"] for one in inbox_of(paths, "bob")] == [letter.message_id]


def test_without_a_hub_a_broadcast_fails_and_says_why(paths: ChannelPaths) -> None:
    """Only a hub knows who everybody is."""
    with pytest.raises(HubUnavailable) as caught:
        send(paths, letter_to(paths, "*"))
    assert caught.value.exit_code == 69


def test_a_hub_that_cannot_be_started_costs_a_broadcast_but_no_direct_message(
    paths: ChannelPaths,
) -> None:
    """Its last words are the reason."""

    def fail(_paths: ChannelPaths) -> socket.socket:
        raise CannotCreate("last words", details={"cause": "failed"})

    outcome = deliver(paths, letter_to(paths), "token", connect=fail)
    assert (outcome.status, outcome.cause, outcome.reason) == (
        "spooled_offline",
        "failed",
        "last words",
    )
    with pytest.raises(CannotCreate):
        deliver(paths, letter_to(paths, "all"), "token", connect=fail)


def test_a_stopped_hub_is_not_waited_for(paths: ChannelPaths) -> None:
    """Two seconds, then the file; when it wakes up, it finds the message stored already."""
    with socket.socket(socket.AF_UNIX) as stopped:
        stopped.bind(paths.socket)
        stopped.listen()
        begun = time.monotonic()
        outcome = send(paths, letter_to(paths))
        assert time.monotonic() - begun < 20
    assert outcome.cause == "silent"
    assert str(os.getpid()) in outcome.reason
    assert len(inbox_of(paths, "bob")) == 1


def test_a_message_that_a_lost_hub_stored_is_not_stored_again(
    paths: ChannelPaths, hub: Start
) -> None:
    """The file is looked at behind its size before the first try."""
    old = letter_to(paths, message_id="msg_old")
    send(paths, old)
    letter = letter_to(paths)

    def stores_and_dies(side: Any) -> None:
        side.welcome("receipts")
        side.read()
        with Inbox(paths, "bob") as inbox:
            inbox.append(letter.line, sender="me", message_id=letter.message_id)
        os.unlink(paths.socket)

    hub(stores_and_dies)
    outcome = send(paths, letter)
    assert (outcome.status, outcome.state, outcome.duplicate) == ("sent", "stored", True)
    assert [one["id"] for one in inbox_of(paths, "bob")] == ["msg_old", letter.message_id]


def test_a_session_held_by_a_program_without_tokens_sends_through_the_file(
    paths: ChannelPaths, hub: Start
) -> None:
    """The original client's connection cannot be joined; the message arrives anyway."""

    def collide(side: Any) -> None:
        register = side.read()
        side.say("error", {"code": "SESSION_COLLISION", "message": "held"}, register["id"])

    hub(collide, collide)
    outcome = send(paths, letter_to(paths))
    assert (outcome.status, outcome.cause) == ("spooled_offline", "session_collision")
    with pytest.raises(IntercomError, match="held") as caught:
        send(paths, letter_to(paths, "*"))
    assert caught.value.exit_code == 77


def test_a_strict_message_to_a_stranger_is_refused_without_a_hub_too(paths: ChannelPaths) -> None:
    """And no inbox is made for a typing error."""
    with Inbox(paths, "seven-of-nine") as inbox:
        inbox.enrol()
    with pytest.raises(IntercomError) as caught:
        send(paths, letter_to(paths, "seven-of-nein", strict=True))
    assert caught.value.exit_code == 68
    assert caught.value.details["nearest"] == ["seven-of-nine"]
    assert not os.path.exists(paths.inbox("seven-of-nein"))
    assert send(paths, letter_to(paths, "seven-of-nine", strict=True)).known


def test_a_message_that_was_given_its_id_is_stored_once_without_a_hub_too(
    paths: ChannelPaths,
) -> None:
    """By two commands, and with the same refusal of other content under a used id."""
    assert send(paths, letter_to(paths, message_id="x1")).status == "spooled_offline"
    assert send(paths, letter_to(paths, message_id="x1")).duplicate
    with pytest.raises(IntercomError) as caught:
        send(paths, compose(paths, "me", "bob", {"text": "other"}, message_id="x1"))
    assert (caught.value.code, caught.value.exit_code) == ("MESSAGE_ID_REUSE", 65)
    assert [one["id"] for one in inbox_of(paths, "bob")] == ["x1"]


def test_names_are_known_by_the_files_of_whoever_used_them(paths: ChannelPaths) -> None:
    """A message alone does not make its recipient known."""
    assert look_up(paths, "bob") == (False, [])
    send(paths, letter_to(paths))
    assert look_up(paths, "bob") == (False, [])
    Path(paths.token("Jürgen/1")).touch()
    assert look_up(paths, "Jürgen/1") == (True, [])
    assert look_up(paths, "Jürgen/2") == (False, ["Jürgen/1"])


# -- towards the original hub -----------------------------------------------------------------


def test_what_an_original_hub_stored_is_seen_in_the_inbox(paths: ChannelPaths, hub: Start) -> None:
    """It gives no receipts, yet a message that stands in the file is stored."""

    def original(side: Any) -> None:
        side.welcome_as_original()
        message = side.read()
        side.chat("msg_9", "a push that nobody asked for")
        with open(paths.inbox("bob"), "ab", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(json.dumps(message).encode() + b"\n")

    hub(original)
    outcome = send(paths, letter_to(paths))
    assert (outcome.status, outcome.state, outcome.level) == ("sent", "stored", "process")
    assert len(inbox_of(paths, "bob")) == 1


def test_of_a_broadcast_through_an_original_hub_nothing_more_is_known(
    paths: ChannelPaths, hub: Start
) -> None:
    """So nothing more is said."""

    def original(side: Any) -> None:
        side.welcome_as_original()
        assert side.read()["to_session"] == "*"

    hub(original)
    outcome = send(paths, letter_to(paths, "*"))
    assert (outcome.status, outcome.state, outcome.level) == ("sent", None, None)


def test_an_original_hub_that_dies_with_the_message_is_followed_by_the_file(
    paths: ChannelPaths, hub: Start
) -> None:
    """What it did not store is not lost."""

    def dies(side: Any) -> None:
        side.welcome_as_original()
        side.read()
        os.unlink(paths.socket)

    hub(dies)
    outcome = send(paths, letter_to(paths))
    assert outcome.status == "spooled_offline"
    assert len(inbox_of(paths, "bob")) == 1


def await_hangup(side: Any) -> None:
    """Wait until the client has closed its end altogether."""
    poller = select.poll()
    poller.register(side.socket, 0)
    assert poller.poll(10_000)


def test_what_an_original_hub_does_not_do_is_done_here(paths: ChannelPaths, hub: Start) -> None:
    """It knows neither strict nor repetitions, and would put some names where nobody looks."""

    def asked(side: Any) -> None:
        side.welcome_as_original()
        assert side.read() == {}

    letter = letter_to(paths)
    with Inbox(paths, "bob") as inbox:
        inbox.append(letter.line, sender="me", message_id=letter.message_id)
    hub(*[asked] * 5)
    assert send(paths, letter).duplicate
    with pytest.raises(IntercomError) as caught:
        send(paths, letter_to(paths, "nobody", strict=True))
    assert caught.value.code == "TARGET_NOT_FOUND"
    outcome = send(paths, letter_to(paths, "../Jürgen"))
    assert (outcome.status, outcome.cause) == ("spooled_offline", "original")
    large = compose(paths, "me", "bob", {"text": "👋" * 150_000})  # as ASCII over the limit
    assert send(paths, large).cause == "original"
    with pytest.raises(HubUnavailable, match="too long"):
        send(paths, compose(paths, "me", "*", {"text": "👋" * 150_000}))


def test_an_original_hub_that_says_nothing_leaves_the_state_open(
    paths: ChannelPaths, hub: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that was written to it and not seen in the file is only 'sent'."""
    monkeypatch.setattr(offline, "SIGHT_TIMEOUT", 0.1)

    def slow(side: Any) -> None:
        side.welcome_as_original()
        side.read()
        assert side.read() == {}  # nothing more will come ...
        await_hangup(side)  # ... and yet it hangs up last

    hub(slow)
    outcome = send(paths, letter_to(paths))
    assert (outcome.status, outcome.state) == ("sent", None)


# -- composing --------------------------------------------------------------------------------


def test_a_message_over_the_limit_is_refused_with_the_limit_named(paths: ChannelPaths) -> None:
    """Before anything is sent, with a way out."""
    with pytest.raises(ProtocolError, match="1048576") as caught:
        compose(paths, "me", "bob", {"text": "x" * (1 << 20)})
    assert caught.value.exit_code == 65
    assert "path" in caught.value.remedy


@pytest.mark.parametrize(
    ("to", "message_id"),
    [("hub", None), ("", None), ("a\nb", None), ("bob", ""), ("bob", "x" * 129)],
)
def test_names_and_ids_are_checked_before_anything_is_sent(
    paths: ChannelPaths, to: str, message_id: str | None
) -> None:
    """Status 65: it is the data that is bad."""
    with pytest.raises(ProtocolError) as caught:
        letter_to(paths, to, message_id=message_id)
    assert caught.value.exit_code == 65


# -- durability -------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["memory", "process", "disk"])
def test_a_message_asks_for_its_own_level(paths: ChannelPaths, hub: Start, level: str) -> None:
    """In its payload; the receipt names what was reached, and offline the append is synced."""

    def serve(side: Any) -> None:
        side.welcome("receipts")
        chat = side.read()
        assert chat["payload"] == {"text": "hello", "durability": level}
        side.say("receipt", {"state": "stored", "level": level}, chat["id"])

    letter = compose(paths, "me", "bob", {"text": "hello", "durability": level})
    assert letter.durability == level
    hub(serve)
    assert send(paths, letter).level == level
    letter = compose(paths, "me", "bob", {"text": "hello", "durability": level})
    alone = offline.store_offline(paths, letter, HubUnavailable("none"))
    assert alone.level == file_level(paths.directory)


@pytest.mark.parametrize("level", ["", "DISK", 1, True, ["disk"], {}])
def test_a_level_that_there_is_not_is_refused(paths: ChannelPaths, level: object) -> None:
    """Before anything is sent, naming the field, as a hub does."""
    with pytest.raises(ProtocolError) as caught:
        compose(paths, "me", "bob", {"durability": level})
    assert caught.value.code == "BAD_ENVELOPE"
    assert caught.value.details == {"field": "payload.durability"}


def test_an_original_hub_cannot_keep_a_level_and_that_is_said(
    paths: ChannelPaths, hub: Start
) -> None:
    """Only where one was asked for."""

    def original(side: Any) -> None:
        side.welcome_as_original()
        chat = side.read()
        with Inbox(paths, "bob") as inbox:
            inbox.append(json.dumps(chat).encode(), sender="me", message_id=chat["id"])
        side.read()

    hub(original, original)
    asked = send(paths, compose(paths, "me", "bob", {"text": "a", "durability": "disk"}))
    assert "knows no levels" in asked.outdated
    assert send(paths, compose(paths, "me", "bob", {"text": "b"})).outdated == ""
