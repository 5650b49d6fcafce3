"""What a sender is told and when: levels by message, and outcomes that outlive a hub."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from core_scene import Scene, answers, chat, kinds, one

from intercom.core import effects as fx
from intercom.core.deliveries import REMEMBER_MAX, REMEMBER_S, Deliveries
from intercom.messages import Envelope, Fault, Receipt
from intercom.records import Appeared, Refused, Remembered
from intercom.wire import envelope as wire


def entries(effects: Any) -> list[Any]:
    return [effect.entry for effect in kinds(effects, fx.AppendEntry)]


# -- the level of one message


@pytest.mark.parametrize("channel", ["memory", "process", "disk"])
@pytest.mark.parametrize("asked", ["memory", "process", "disk", None])
def test_a_message_may_ask_for_its_own_level(channel: str, asked: str | None) -> None:
    scene = Scene(channel)
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    level = asked or channel
    effects = scene.say(ada, chat("ada", "bob", durability=asked))
    assert [entry.level for entry in entries(effects)] == [level]
    early = answers(effects, ada, Receipt)
    assert [receipt.level for receipt in early] == (["memory"] if level == "memory" else [])
    scene.write(effects)
    late = answers(scene.store(effects, level), ada, Receipt)
    assert [receipt.level for receipt in early + late] == [level]


def test_a_broadcast_to_nobody_is_as_safe_as_it_asked_to_be() -> None:
    scene = Scene("process")
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "*", durability="disk"))
    assert one(effects, fx.Answer, ada, Receipt).level == "disk"


# -- told at once at level memory, and refused afterwards


def test_what_was_called_stored_and_could_not_be_kept_is_said_in_a_notice() -> None:
    scene = Scene("memory")
    ada = scene.join("ada", "receipts", "cursor")
    scene.join("bob")
    effects = scene.say(ada, chat("ada", "bob"))
    assert one(effects, fx.Answer, ada, Receipt).state == "stored"
    refused = Refused(entries(effects)[0].ticket, "bob", "DISK_FULL", "no space left")
    told = scene.core.written([refused], scene.now)
    assert answers(told, ada) == []  # the receipt was said; a second one would contradict it
    (notice,) = entries(told)
    line = json.loads(notice.line)
    assert (notice.inbox, line["from_session"], line["type"]) == ("ada", "hub", "chat")
    assert line["reply_to"] == "m1"
    for word in ("m1", "bob", "DISK_FULL", "no space left", "send it again"):
        assert word in line["payload"]["text"]
    assert line["payload"]["notice"] == {
        "code": "DISK_FULL",
        "failed": [{"session": "bob", "code": "DISK_FULL", "message": "no space left"}],
    }
    (note,) = kinds(told, fx.Note)
    assert (note.event, note.fields["id"], note.fields["code"]) == ("not_kept", "m1", "DISK_FULL")
    assert entries(scene.say(ada, chat("ada", "bob")))  # and it may be sent again


def test_a_broadcast_that_was_kept_in_part_brings_one_notice_when_all_is_known() -> None:
    scene = Scene("memory")
    ada = scene.join("ada", "receipts")
    names = [f"s{number:02}" for number in range(30)]
    for name in names:
        scene.join(name)
    effects = scene.say(ada, chat("ada", "*"))
    tickets = {entry.inbox: entry.ticket for entry in entries(effects)}
    told = []
    for name in names[1:]:
        refused = Refused(tickets[name], name, "INBOX_LOCKED", "locked")
        told += scene.core.written([refused], scene.now)
    assert told == []
    told = scene.core.stored([tickets["s00"]], "memory", scene.now)
    (notice,) = entries(told)
    payload = json.loads(notice.line)["payload"]
    assert "s01 and 28 more" in payload["text"]
    assert "as a new message" in payload["text"]
    assert [one["session"] for one in payload["notice"]["failed"]] == names[1:21]
    assert answers(told, ada) == []
    assert one(scene.say(ada, chat("ada", "*")), fx.Answer, ada, Receipt).recipients == 1


def test_a_notice_that_cannot_be_kept_brings_no_other_and_is_logged() -> None:
    scene = Scene("memory")
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "ada"))
    refused = Refused(entries(effects)[0].ticket, "ada", "DISK_FULL", "no space left")
    (notice,) = entries(scene.core.written([refused], scene.now))
    again = scene.core.written([Refused(notice.ticket, "ada", "DISK_FULL", "full")], scene.now)
    assert entries(again) == []
    assert [note.event for note in kinds(again, fx.Note)] == ["not_kept"]
    assert scene.core.pending == 0


def test_a_sentence_that_is_no_text_makes_a_notice_nevertheless() -> None:
    """A path need not be UTF-8, and an error may name one."""
    scene = Scene("memory")
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    effects = scene.say(ada, chat("ada", "bob"))
    text = "cannot write /tmp/caf\udce9/" + "x" * 5000
    refused = Refused(entries(effects)[0].ticket, "bob", "SPOOL_FAILED", text)
    (notice,) = entries(scene.core.written([refused], scene.now))
    assert "/tmp/caf?/" in json.loads(notice.line)["payload"]["text"]
    assert len(notice.line) < 8000


def test_a_notice_is_known_by_what_stands_in_its_line() -> None:
    """Its hash is that of the stored bytes, or a later hub would take it for another message."""
    scene = Scene()
    written: Envelope = scene.core._routing._notice("ada", "Grüße", "m1", {"code": "X"})
    digest = wire.digest("chat", "ada", "m1", written.payload)
    assert wire.identify(written.line) == ("hub", written.id, digest)


# -- what earlier hubs stored


def digest_of(message: Envelope) -> bytes:
    return wire.digest("chat", message.to_session, message.reply_to, message.payload)


def remember(scene: Scene, message: Envelope, *inboxes: str, age: float = 5.0) -> None:
    memory = Remembered(str(message.speaker), message.id, digest_of(message), inboxes, age)
    assert scene.core.remembered([memory], scene.now) == []


def test_a_retry_after_a_restart_asks_the_inboxes_of_the_first_time() -> None:
    scene = Scene()
    broadcast = chat("ada", "*")
    remember(scene, broadcast, "bob", "eve")
    ada = scene.join("ada", "receipts")
    scene.join("newcomer")
    scene.join("bob", "cursor")
    effects = scene.say(ada, broadcast)
    assert [entry.inbox for entry in entries(effects)] == ["bob", "eve"]
    assert answers(effects, ada) == []  # no level is claimed from memory alone
    written = scene.write(effects, duplicate=True)
    assert kinds(written, fx.Push) == []
    receipt = one(scene.store(effects, "process"), fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.duplicate, receipt.recipients) == ("stored", True, 2)
    assert receipt.level == "process"
    again = one(scene.say(ada, broadcast), fx.Answer, ada, Receipt)
    assert (again.duplicate, again.recipients, again.level) == (True, 2, "process")


@pytest.mark.parametrize("to", ["bob", "*"])
def test_other_content_under_an_id_of_an_earlier_hub_is_refused(to: str) -> None:
    scene = Scene()
    remember(scene, chat("ada", to), "bob")
    ada = scene.join("ada", "receipts")
    receipt = one(scene.say(ada, chat("ada", to, text="other")), fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.code) == ("refused", "MESSAGE_ID_REUSE")
    eve = scene.join("eve")
    assert entries(scene.say(eve, chat("eve", to)))  # an id belongs to its sender
    assert answers(scene.say(ada, chat("ada", to)), ada, Fault) == []


def test_not_even_level_memory_answers_from_memory() -> None:
    scene = Scene("memory")
    remember(scene, chat("ada", "bob"), "bob")
    scene.join("bob")
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    assert answers(effects, ada) == []
    scene.write(effects, duplicate=True)
    assert one(scene.store(effects, "memory"), fx.Answer, ada, Receipt).duplicate


def test_what_was_stored_is_not_refused_because_its_reader_is_unknown_by_now() -> None:
    scene = Scene()
    strict = chat("ada", "bob", strict=True)
    remember(scene, strict, "bob")
    ada = scene.join("ada", "receipts")
    (entry,) = entries(scene.say(ada, strict))
    assert (entry.ask_known, entry.only_known) == (True, False)


def test_a_retry_whose_inbox_is_locked_finds_the_same_inboxes_the_next_time() -> None:
    scene = Scene()
    broadcast = chat("ada", "*")
    remember(scene, broadcast, "bob")
    ada = scene.join("ada", "receipts")
    scene.join("newcomer")
    (entry,) = entries(scene.say(ada, broadcast))
    refused = Refused(entry.ticket, "bob", "INBOX_LOCKED", "locked")
    told = one(scene.core.written([refused], scene.now), fx.Answer, ada, Receipt)
    assert (told.state, told.retryable) == ("refused", True)
    assert [entry.inbox for entry in entries(scene.say(ada, broadcast))] == ["bob"]


def test_a_second_retry_before_the_answer_to_the_first_is_told_with_it() -> None:
    scene = Scene()
    message = chat("ada", "bob")
    remember(scene, message, "bob")
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, message)
    assert scene.say(ada, message) == []
    scene.write(effects, duplicate=True)
    receipts = answers(scene.store(effects), ada, Receipt)
    assert [receipt.duplicate for receipt in receipts] == [True, True]


def test_a_line_that_an_original_client_appends_again_after_a_restart_is_not_pushed() -> None:

    scene = Scene()
    message = chat("ada", "bob")
    remember(scene, message, "bob")
    scene.join("bob", "cursor")
    told = scene.core.written([Appeared("bob", 1, [scene.grow("bob", message.line)])], scene.now)
    assert kinds(told, fx.Push) == []


def test_an_earlier_hubs_outcome_grows_old_from_when_it_was_stored() -> None:
    scene = Scene()
    remember(scene, chat("ada", "bob", "m1"), "bob", age=REMEMBER_S - 10)
    remember(scene, chat("ada", "bob", "m2"), "bob", age=REMEMBER_S)
    ada = scene.join("ada", "receipts")
    other = chat("ada", "bob", "m1", text="other")
    scene.core.tick(scene.now + 9)
    assert one(scene.say(ada, other), fx.Answer, ada, Receipt).code == "MESSAGE_ID_REUSE"
    scene.core.tick(scene.now + 10)
    assert entries(scene.say(ada, other))
    assert entries(scene.say(ada, chat("ada", "bob", "m2", text="other")))


def test_lines_of_one_message_that_came_one_by_one_are_one_outcome() -> None:
    """An inbox whose lock was busy got it later than the others."""
    scene = Scene()
    broadcast = chat("ada", "*")
    remember(scene, broadcast, "bob", "eve")
    remember(scene, broadcast, "eve", "kes")
    ada = scene.join("ada", "receipts")
    assert [e.inbox for e in entries(scene.say(ada, broadcast))] == ["bob", "eve", "kes"]


def test_the_latest_hundred_thousand_outcomes_are_kept() -> None:
    deliveries = Deliveries()
    many = [
        Remembered("ada", f"m{n}", hashlib.md5(b"%d" % n).digest(), ("bob",), 1.0)
        for n in range(REMEMBER_MAX + 10)
    ]
    deliveries.remember(many, 1000.0)
    kept = [n for n in (0, 9, 10, REMEMBER_MAX + 9) if deliveries.recall(f"ada\0m{n}")]
    assert kept == [10, REMEMBER_MAX + 9]
