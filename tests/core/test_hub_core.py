"""The hub's state machine: what each input makes happen, with no I/O anywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from core_scene import Scene, answers, batch, chat, kinds, one, pushes

from intercom.core import effects as fx
from intercom.errors import ProtocolError, SpoolError
from intercom.messages import (
    Ack,
    Auth,
    Beat,
    Cursor,
    Fault,
    Heartbeat,
    ListSessions,
    Receipt,
    Register,
    Sessions,
    Unknown,
    Unregister,
    Welcome,
)
from intercom.records import Appeared, Batch, Position, Receiver, Record, Refused, Written

# -- registering


def test_welcome_names_the_others_and_what_was_granted() -> None:
    scene = Scene()
    scene.join("ada")
    number = scene.connect()
    effects = scene.admit(scene.say(number, Register("r", "bob", ("cursor", "telepathy"))))
    welcome = one(effects, fx.Answer, number, Welcome)
    assert welcome == Welcome("bob", ("ada",), ("cursor",), "r")


def test_the_published_list_holds_the_newcomer_before_it_is_welcomed() -> None:
    scene = Scene()
    scene.join("ada")
    number = scene.connect()
    effects = scene.say(number, Register("r", "bob"))
    assert effects == [fx.Admit(number, None, ("ada", "bob"))]


def test_any_first_line_registers_and_is_then_handled() -> None:
    scene = Scene()
    number = scene.connect()
    effects = scene.admit(scene.say(number, chat("ada", "bob")))
    assert [type(e) for e in effects][:1] == [fx.Answer]
    assert one(effects, fx.Answer, number, Welcome).session == "ada"
    assert kinds(effects, fx.AppendEntry)[0].entry.inbox == "bob"


def test_a_first_line_from_nobody_is_from_unknown() -> None:
    scene = Scene()
    number = scene.connect()
    effects = scene.admit(scene.say(number, Heartbeat("h")))
    assert one(effects, fx.Answer, number, Welcome).session == "unknown"
    assert one(effects, fx.Answer, number, Beat)


def test_registering_again_is_welcomed_and_another_id_is_not() -> None:
    scene = Scene()
    ada = scene.join("ada")
    assert one(scene.say(ada, Register("r2", "ada")), fx.Answer, ada, Welcome).reply_to == "r2"
    fault = one(scene.say(ada, Register("r3", "eve")), fx.Answer, ada, Fault)
    assert (fault.code, fault.reply_to) == ("ALREADY_REGISTERED", "r3")


def test_a_second_connection_of_a_live_id_collides_and_is_closed() -> None:
    scene = Scene()
    scene.join("ada")
    second = scene.connect()
    effects = scene.say(second, Register("r", "ada"))
    assert one(effects, fx.Answer, second, Fault).code == "SESSION_COLLISION"
    assert fx.Close(second) in effects


def test_what_a_refused_registrant_had_sent_is_answered_alike_and_never_stored() -> None:
    scene = Scene()
    scene.join("ada")
    second = scene.connect()
    scene.say(second, Register("r", "ada"))
    effects = scene.say(second, chat("ada", "bob", "m9"))
    fault = one(effects, fx.Answer, second, Fault)
    assert (fault.code, fault.reply_to) == ("SESSION_COLLISION", "m9")
    assert not kinds(effects, fx.AppendEntry)


def test_two_claims_of_one_id_at_the_same_time_let_in_one() -> None:
    scene = Scene()
    first, second = scene.connect(), scene.connect()
    admit = scene.say(first, Register("r", "ada"))
    effects = scene.say(second, Register("r", "ada"))
    assert one(effects, fx.Answer, second, Fault).code == "SESSION_COLLISION"
    assert one(scene.admit(admit), fx.Answer, first, Welcome)


def test_the_id_is_free_again_once_its_connection_left() -> None:
    scene = Scene()
    ada = scene.join("ada")
    assert kinds(scene.core.disconnected(ada, scene.now), fx.PublishPeers) == [fx.PublishPeers(())]
    assert scene.core.disconnected(ada, scene.now) == []
    scene.join("ada")


def test_what_was_sent_before_hanging_up_during_admission_is_still_delivered() -> None:
    """The original client registers, sends, and closes without reading."""
    scene = Scene()
    number = scene.connect()
    admit = scene.say(number, Register("r", "ada"))
    assert scene.say(number, chat("ada", "bob")) == []
    assert scene.core.disconnected(number, scene.now) == []
    effects = scene.admit(admit)
    assert [e.entry.inbox for e in kinds(effects, fx.AppendEntry)] == ["bob"]
    scene.join("ada")  # and its id is free


def test_unregister_frees_the_id_and_the_connection_may_register_again() -> None:
    scene = Scene()
    ada = scene.join("ada")
    scene.say(ada, Unregister("u"))
    fault = one(scene.say(ada, chat("ada", "bob")), fx.Answer, ada, Fault)
    assert (fault.code, fault.reply_to) == ("NOT_REGISTERED", "m1")
    scene.join("ada")
    assert one(scene.admit(scene.say(ada, Register("r", "ada2"))), fx.Answer, ada, Welcome)


# -- tokens


def test_a_sender_with_the_token_joins_its_listening_session_without_counting() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    scene.join("ada", "cursor", token="t")
    sender = scene.join("ada", "receipts", token="t", role="sender")
    listing = one(scene.say(sender, ListSessions("l")), fx.Answer, sender, Sessions)
    assert [row.session for row in listing.live] == ["ada"]
    effects = scene.say(sender, chat("ada", "ada"))
    assert len(pushes(scene.write(effects), 1)) == 1
    assert pushes(scene.write(effects), sender) == []


def test_who_only_looks_in_claims_no_session() -> None:
    """A ``list`` that names nobody is answered as often as it is asked, and is no presence."""
    scene = Scene()
    ada = scene.join("ada", "cursor")
    looker = scene.connect()
    for number in range(2):
        effects = scene.say(looker, ListSessions(f"l{number}"))
        listing = one(effects, fx.Answer, looker, Sessions)
        assert (listing.session, listing.reply_to) == ("unknown", f"l{number}")
        assert [row.session for row in listing.live] == ["ada"]
        assert len(effects) == 1
    assert scene.core.claim_of(looker) is None
    one(scene.admit(scene.say(looker, Register("r", "bob"))), fx.Answer, looker, Welcome)
    listing = one(scene.say(ada, ListSessions("l")), fx.Answer, ada, Sessions)
    assert [row.session for row in listing.live] == ["ada", "bob"]


@pytest.mark.parametrize("shown", [None, "wrong"])
def test_a_sender_without_the_token_is_refused(shown: str | None) -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    scene.join("ada", token="t")
    number = scene.connect()
    register = Register("r", "ada", (), "sender", shown)
    effects = scene.admit(scene.say(number, register))
    fault = one(effects, fx.Answer, number, Fault)
    assert fault.code == ("SESSION_COLLISION" if shown is None else "UNAUTHORIZED")
    assert fx.Close(number) in effects


def test_a_session_held_without_a_token_is_neither_joined_nor_taken() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    scene.join("ada")  # an original client: it shows none
    for options in ({"role": "sender"}, {"takeover": True}):
        number = scene.connect()
        register = Register("r", "ada", (), token="t", **options)
        effects = scene.admit(scene.say(number, register))
        assert one(effects, fx.Answer, number, Fault).code == "SESSION_COLLISION"


def test_takeover_with_the_token_tells_and_closes_the_holder() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    first = scene.join("ada", "cursor", token="t")
    second = scene.connect()
    register = Register("r", "ada", ("cursor",), token="t", takeover=True)
    effects = scene.admit(scene.say(second, register))
    assert one(effects, fx.Answer, first, Fault).code == "TAKEN_OVER"
    assert fx.Close(first) in effects
    assert one(effects, fx.Answer, second, Welcome)
    late = scene.say(first, chat("ada", "bob"))
    assert one(late, fx.Answer, first, Fault).code == "TAKEN_OVER"
    assert scene.core.disconnected(first, scene.now) == []  # the id stays with the second
    assert scene.core.claim_of(second) == "ada"


def test_takeover_of_a_free_id_is_an_ordinary_claim() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    scene.join("ada", token="t", takeover=True)


def test_takeover_of_an_id_whose_holder_leaves_meanwhile_still_holds_it() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    first = scene.join("ada", token="t")
    second = scene.connect()
    admit = scene.say(second, Register("r", "ada", (), token="t", takeover=True))
    scene.core.disconnected(first, scene.now)
    effects = scene.admit(admit)
    assert one(effects, fx.Answer, second, Welcome)
    assert fx.PublishPeers(("ada",)) in effects


# -- the key


def test_over_tcp_only_the_key_opens_the_door() -> None:
    scene = Scene(key="sesame")
    number = scene.connect(needs_key=True)
    assert scene.say(number, Auth("sesame")) == []
    assert one(scene.admit(scene.say(number, Register("r", "ada"))), fx.Answer, number, Welcome)


@pytest.mark.parametrize(
    "first", [Auth("wrong"), Register("r", "ada"), chat("ada", "bob")], ids=["key", "reg", "chat"]
)
def test_anything_else_first_over_tcp_closes_at_once_and_executes_nothing(first: Any) -> None:
    scene = Scene(key="sesame")
    number = scene.connect(needs_key=True)
    effects = scene.say(number, first)
    assert one(effects, fx.Answer, number, Fault).code == "UNAUTHORIZED"
    assert kinds(effects, fx.Drop)
    assert not kinds(effects, fx.AppendEntry)


def test_a_garbled_first_line_and_silence_close_a_tcp_connection_too() -> None:
    scene = Scene(key="sesame")
    number = scene.connect(needs_key=True)
    assert kinds(scene.core.garbled(number, ProtocolError("POST /"), scene.now), fx.Drop)
    silent = scene.connect(needs_key=True)
    assert kinds(scene.core.tick(scene.now + 4.9), fx.Drop) == []
    assert [e.connection for e in kinds(scene.core.tick(scene.now + 5), fx.Drop)] == [silent]


def test_a_hub_without_a_key_lets_no_tcp_connection_in() -> None:
    scene = Scene()
    number = scene.connect(needs_key=True)
    assert kinds(scene.say(number, Auth("")), fx.Drop)


# -- messages


def test_a_message_is_stored_then_pushed_then_told() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "receipts"), scene.join("bob", "cursor")
    effects = scene.say(ada, chat("ada", "bob"))
    entry = kinds(effects, fx.AppendEntry)[0].entry
    assert (entry.inbox, entry.level, entry.ask_known) == ("bob", "disk", False)
    written = scene.write(effects)
    assert pushes(written, bob) == [entry.line]
    assert answers(written, bob, Cursor) == [Cursor("bob", Position(1, len(entry.line) + 1))]
    assert answers(written, ada) == []  # not safe yet, so nothing is said
    receipt = one(scene.store(effects), fx.Answer, ada, Receipt)
    assert receipt == Receipt("ada", "m1", "stored", "disk", recipients=1, live=1)


def test_a_receipt_names_the_level_really_reached() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    assert one(scene.store(effects, "process"), fx.Answer, ada, Receipt).level == "process"


def test_at_level_memory_the_sender_is_told_at_once_and_only_once() -> None:
    scene = Scene("memory")
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    effects = scene.say(ada, chat("ada", "bob"))
    receipt = one(effects, fx.Answer, ada, Receipt)
    assert (receipt.level, receipt.live) == ("memory", 1)
    scene.write(effects)
    assert answers(scene.store(effects, "memory"), ada) == []


def test_who_asked_for_no_receipts_gets_none() -> None:
    scene = Scene()
    ada = scene.join("ada")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    assert scene.store(effects) == []


def test_a_broadcast_goes_to_the_present_and_the_recently_reading_but_its_sender() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    scene.core.seen({"polls": 1799.0, "gone": 1801.0, "never": None}, scene.now)
    effects = scene.say(ada, chat("ada", "*"))
    inboxes = [e.entry.inbox for e in kinds(effects, fx.AppendEntry)]
    assert inboxes == ["bob", "polls"]
    scene.write(effects)
    receipt = one(scene.store(effects), fx.Answer, ada, Receipt)
    assert (receipt.recipients, receipt.live) == (2, 1)


def test_a_listener_that_left_still_gets_broadcasts_for_half_an_hour() -> None:
    scene = Scene()
    ada, bob = scene.join("ada"), scene.join("bob", "cursor")
    scene.core.disconnected(bob, scene.now)
    assert len(kinds(scene.say(ada, chat("ada", "*")), fx.AppendEntry)) == 1
    scene.now += 1801
    assert kinds(scene.say(ada, chat("ada", "*", "m2")), fx.AppendEntry) == []


def test_a_broadcast_to_nobody_is_told_at_once() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    receipt = one(scene.say(ada, chat("ada", "all")), fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.recipients) == ("stored", 0)


def test_one_locked_inbox_does_not_hold_up_a_broadcast_and_is_named() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    scene.join("eve")
    effects = scene.say(ada, chat("ada", "*"))
    to_bob, to_eve = [e.entry for e in kinds(effects, fx.AppendEntry)]
    scene.core.written(
        [
            Written(to_bob.ticket, "bob", scene.grow("bob", to_bob.line), 1),
            Refused(to_eve.ticket, "eve", "INBOX_LOCKED", "locked"),
        ],
        scene.now,
    )
    receipt = one(scene.core.stored([to_bob.ticket], "disk", scene.now), fx.Answer, ada, Receipt)
    assert receipt.recipients == 1
    assert receipt.failed == ({"session": "eve", "code": "INBOX_LOCKED", "message": "locked"},)


def test_a_message_that_cannot_be_kept_is_refused_and_may_be_sent_again() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    ticket = kinds(effects, fx.AppendEntry)[0].entry.ticket
    told = scene.core.written([Refused(ticket, "bob", "DISK_FULL", "no space")], scene.now)
    receipt = one(told, fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.code, receipt.retryable) == ("refused", "DISK_FULL", True)
    assert kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)


def test_a_refusal_reaches_even_who_asked_for_no_receipts() -> None:
    scene = Scene()
    ada = scene.join("ada")
    effects = scene.say(ada, chat("ada", "bob"))
    ticket = kinds(effects, fx.AppendEntry)[0].entry.ticket
    told = scene.core.written([Refused(ticket, "bob", "DISK_FULL", "no space")], scene.now)
    fault = one(told, fx.Answer, ada, Fault)
    assert (fault.code, fault.reply_to) == ("DISK_FULL", "m1")


def test_nobody_speaks_for_another() -> None:
    scene = Scene()
    ada = scene.join("ada")
    effects = scene.say(ada, chat("ceo", "bob"))
    assert one(effects, fx.Answer, ada, Fault).code == "FROM_MISMATCH"
    assert not kinds(effects, fx.AppendEntry)


def test_an_unknown_type_is_an_error_and_the_connection_goes_on() -> None:
    scene = Scene()
    ada = scene.join("ada")
    fault = one(scene.say(ada, Unknown("telepathy", "u")), fx.Answer, ada, Fault)
    assert (fault.code, fault.reply_to) == ("UNKNOWN_TYPE", "u")
    assert kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)


# -- known and unknown names


def test_a_name_that_nobody_ever_used_is_stored_with_a_warning_and_the_nearest() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    scene.core.seen({"engineer": None}, scene.now)
    effects = scene.say(ada, chat("ada", "enginer"))
    assert kinds(effects, fx.AppendEntry)[0].entry.ask_known
    scene.write(effects, known=False)
    receipt = one(scene.store(effects), fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.known, receipt.nearest) == ("stored", False, ("engineer",))


def test_a_name_that_was_forgotten_is_unknown_again() -> None:
    scene = Scene()
    scene.core.seen({"engineer": 5.0}, scene.now)
    ada = scene.join("ada", "receipts")
    scene.core.forgotten(["engineer", "ada"], scene.now)
    listed = one(scene.say(ada, ListSessions("l")), fx.Answer, ada, Sessions)
    assert listed.absent == ()
    assert [row.session for row in listed.live] == ["ada"]
    assert kinds(scene.say(ada, chat("ada", "*")), fx.AppendEntry) == []


def test_a_name_that_the_files_do_not_know_is_forgotten_at_once() -> None:
    """Before anybody else has told: the next listing and the next sender hear the same."""
    scene = Scene()
    scene.core.seen({"engineer": 5.0}, scene.now)
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "engineer"))
    assert kinds(effects, fx.AppendEntry)[0].entry.ask_known
    scene.write(effects, known=False)
    assert one(scene.store(effects), fx.Answer, ada, Receipt).known is False
    assert one(scene.say(ada, ListSessions("l")), fx.Answer, ada, Sessions).absent == ()


def test_strict_refuses_an_unknown_name() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "enginer", strict=True))
    entry = kinds(effects, fx.AppendEntry)[0].entry
    assert entry.only_known
    refused = Refused(entry.ticket, "enginer", "TARGET_NOT_FOUND", "nobody", ("engineer",))
    receipt = one(scene.core.written([refused], scene.now), fx.Answer, ada, Receipt)
    assert (receipt.code, receipt.nearest, receipt.retryable) == (
        "TARGET_NOT_FOUND",
        ("engineer",),
        False,
    )


# -- once


def test_a_retry_is_not_stored_twice_and_gets_the_first_answer() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    first = one(scene.store(effects), fx.Answer, ada, Receipt)
    again = scene.say(ada, chat("ada", "bob"))
    assert not kinds(again, fx.AppendEntry)
    receipt = one(again, fx.Answer, ada, Receipt)
    assert receipt.duplicate
    assert (receipt.state, receipt.recipients) == (first.state, first.recipients)


def test_a_retry_before_the_first_answer_is_told_with_it() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    ada = scene.join("ada", "receipts", token="t", role="sender")
    effects = scene.say(ada, chat("ada", "bob"))
    other = scene.join("ada", "receipts", token="t", role="sender")
    assert scene.say(other, chat("ada", "bob")) == []
    scene.write(effects)
    told = scene.store(effects)
    assert not one(told, fx.Answer, ada, Receipt).duplicate
    assert one(told, fx.Answer, other, Receipt).duplicate


def test_the_same_id_with_other_content_is_refused() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    scene.say(ada, chat("ada", "bob"))
    receipt = one(scene.say(ada, chat("ada", "bob", text="other")), fx.Answer, ada, Receipt)
    assert (receipt.state, receipt.code) == ("refused", "MESSAGE_ID_REUSE")


def test_two_senders_may_use_the_same_id() -> None:
    scene = Scene()
    ada, eve = scene.join("ada"), scene.join("eve")
    assert kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)
    assert kinds(scene.say(eve, chat("eve", "bob")), fx.AppendEntry)


def test_outcomes_are_forgotten_after_ten_minutes_and_not_before() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    scene.store(effects)
    scene.core.tick(scene.now + 599)
    assert not kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)
    scene.core.tick(scene.now + 600)
    assert kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)


def test_a_line_that_others_appended_is_pushed_once_even_if_it_came_by_socket_too() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "receipts"), scene.join("bob", "cursor")
    message = chat("ada", "bob")
    effects = scene.say(ada, message)
    scene.write(effects)
    appeared = Appeared("bob", 1, [scene.grow("bob", message.line)])
    told = scene.core.written([appeared], scene.now)
    assert pushes(told, bob) == []
    assert answers(told, bob, Cursor)  # yet the cursor passes it


def test_a_line_that_others_appended_is_pushed_and_its_retry_is_a_duplicate() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "receipts"), scene.join("bob", "cursor")
    message = chat("ada", "bob")
    told = scene.core.written([Appeared("bob", 1, [scene.grow("bob", message.line)])], scene.now)
    assert pushes(told, bob) == [message.line]
    assert one(scene.say(ada, message), fx.Answer, ada, Receipt).duplicate


# -- backlog, cursors, slow readers


def test_a_receiver_with_a_cursor_gets_its_backlog_first() -> None:
    scene = Scene()
    bob = scene.connect()
    effects = scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    read = kinds(effects, fx.ReadInbox)[0]
    assert (read.inbox, read.start) == ("bob", None)
    told = scene.core.inbox_read(bob, batch(scene, "bob", [b"{1}", b"{2}"]), scene.now)
    assert pushes(told, bob) == [b"{1}", b"{2}"]
    assert answers(told, bob, Cursor) == [Cursor("bob", Position(1, 8))]
    assert not kinds(told, fx.ReadInbox)


def test_a_message_written_while_the_backlog_is_read_is_neither_lost_nor_pushed_twice() -> None:
    scene = Scene()
    ada = scene.join("ada")
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    backlog = batch(scene, "bob", [b"{1}"])  # read before the message below was written
    live = scene.write(scene.say(ada, chat("ada", "bob")))
    assert pushes(live, bob) == []
    told = scene.core.inbox_read(bob, backlog, scene.now)
    read = kinds(told, fx.ReadInbox)[0]
    assert (pushes(told, bob), read.start) == ([b"{1}"], backlog.next)
    line = chat("ada", "bob").line
    rest = Batch(read.start, [Record(4, 5 + len(line), line)], Position(1, 5 + len(line)), True, [])
    assert pushes(scene.core.inbox_read(bob, rest, scene.now), bob) == [line]
    assert len(pushes(scene.write(scene.say(ada, chat("ada", "bob", "m2"))), bob)) == 1


def test_a_message_that_the_backlog_read_showed_already_is_not_pushed_again() -> None:
    scene = Scene()
    ada = scene.join("ada")
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    effects = scene.say(ada, chat("ada", "bob"))
    line = kinds(effects, fx.AppendEntry)[0].entry.line
    shown = batch(scene, "bob", [line])
    scene.core.inbox_read(bob, shown, scene.now)
    entry = kinds(effects, fx.AppendEntry)[0].entry
    late = Written(entry.ticket, "bob", shown.records[0], 1)
    assert pushes(scene.core.written([late], scene.now), bob) == []


def test_a_slow_receiver_gets_no_more_pushes_and_goes_on_from_the_spool() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "receipts"), scene.join("bob", "cursor")
    scene.core.paused(bob, scene.now)
    effects = scene.say(ada, chat("ada", "bob"))
    assert pushes(scene.write(effects), bob) == []
    assert one(scene.store(effects), fx.Answer, ada, Receipt).live == 0
    read = kinds(scene.core.drained(bob, scene.now), fx.ReadInbox)[0]
    assert read.start == Position(1, 0)


def test_a_read_that_ends_after_the_receiver_fell_behind_pushes_nothing() -> None:
    scene = Scene()
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    scene.core.paused(bob, scene.now)
    late = scene.core.inbox_read(bob, batch(scene, "bob", [b"{1}"]), scene.now)
    assert pushes(late, bob) == []
    assert kinds(scene.core.drained(bob, scene.now), fx.ReadInbox)[0].start == Position(1, 0)


def test_a_slow_receiver_without_a_cursor_is_told_where_it_lagged_if_it_knows_the_word() -> None:
    scene = Scene()
    ada = scene.join("ada")
    plain, asking = scene.join("plain"), scene.join("asking", "receipts")
    for number, name in ((plain, "plain"), (asking, "asking")):
        scene.core.paused(number, scene.now)
        assert pushes(scene.write(scene.say(ada, chat("ada", name, name))), number) == []
    assert scene.core.drained(plain, scene.now) == []
    fault = one(scene.core.drained(asking, scene.now), fx.Answer, asking, Fault)
    assert (fault.code, fault.details) == ("LAGGED", {"offset": 0})
    assert len(pushes(scene.write(scene.say(ada, chat("ada", "plain", "m2"))), plain)) == 1


def test_a_gap_in_the_file_is_read_and_not_skipped() -> None:
    """A damaged line, or a new generation, lies between what was pushed and what was written."""
    scene = Scene()
    bob = scene.join("bob", "cursor")
    record = Record(7, 12, b'{"a"')
    told = scene.core.written([Appeared("bob", 1, [record])], scene.now)
    assert pushes(told, bob) == []
    assert kinds(told, fx.ReadInbox)[0].start == Position(1, 0)
    rest = Batch(Position(1, 0), [record], Position(1, 12), True, [])
    assert pushes(scene.core.inbox_read(bob, rest, scene.now), bob) == [record.line]


def test_a_receiver_that_drains_while_a_read_is_under_way_gets_nothing_twice() -> None:
    scene = Scene()
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    scene.core.paused(bob, scene.now)
    assert not kinds(scene.core.drained(bob, scene.now), fx.ReadInbox)  # one is under way
    told = scene.core.inbox_read(bob, batch(scene, "bob", [b"{1}"]), scene.now)
    assert pushes(told, bob) == [b"{1}"]
    assert not kinds(told, fx.ReadInbox)


def test_an_unreadable_inbox_is_tried_again() -> None:
    scene = Scene()
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    scene.core.inbox_unreadable(bob, SpoolError("EIO"), scene.now)
    assert len(kinds(scene.core.tick(scene.now + 1), fx.ReadInbox)) == 1
    assert kinds(scene.core.tick(scene.now + 2), fx.ReadInbox) == []  # one is under way


@pytest.mark.parametrize("state", ["shown", "read"])
def test_an_ack_tells_the_spool_what_became_of_the_lines(state: Any) -> None:
    scene = Scene()
    ada, bob = scene.join("ada"), scene.join("bob", "cursor")
    scene.write(scene.say(ada, chat("ada", "bob")))
    position = Position(1, scene.sizes["bob"])
    assert scene.say(bob, Ack(position, state, "a")) == [
        fx.CommitPosition(bob, "bob", position, "a", state)
    ]


def test_an_ack_of_what_was_never_sent_is_refused() -> None:
    scene = Scene()
    bob = scene.join("bob", "cursor")
    fault = one(scene.say(bob, Ack(Position(1, 99), "read", "a")), fx.Answer, bob, Fault)
    assert (fault.code, fault.reply_to) == ("STALE_POSITION", "a")
    plain = scene.join("plain")
    fault = one(scene.say(plain, Ack(Position(1, 0))), fx.Answer, plain, Fault)
    assert fault.code == "BAD_ENVELOPE"


def test_a_commit_that_the_spool_refuses_is_told() -> None:
    scene = Scene()
    bob = scene.join("bob", "cursor")
    error = SpoolError("old generation", code="STALE_POSITION")
    fault = one(scene.core.commit_refused(bob, error, "a", scene.now), fx.Answer, bob, Fault)
    assert (fault.code, fault.reply_to) == ("STALE_POSITION", "a")


def test_who_acknowledges_in_an_older_generation_is_sent_again_what_is_unread() -> None:
    """Its inbox was compacted: the unread tail has other positions now."""
    scene = Scene()
    ada, bob = scene.join("ada"), scene.join("bob", "cursor")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    line, end = kinds(effects, fx.AppendEntry)[0].entry.line, scene.sizes["bob"]
    where = {"generation": 2, "offset": 0}
    stale = SpoolError("generation 2, not 1", code="STALE_POSITION", details=where)
    told = scene.core.commit_refused(bob, stale, "a", scene.now)
    assert one(told, fx.Answer, bob, Fault).code == "STALE_POSITION"
    (read,) = kinds(told, fx.ReadInbox)
    assert read.start == Position(1, end)
    tail = Batch(Position(2, 0), [Record(0, end, line)], Position(2, end), True, [])
    again = scene.core.inbox_read(bob, tail, scene.now)
    assert pushes(again, bob) == [line]
    assert answers(again, bob, Cursor) == [Cursor("bob", Position(2, end))]
    late = scene.core.commit_refused(bob, stale, "b", scene.now)  # it had not heard yet
    assert not kinds(late, fx.ReadInbox)


# -- the hub's own inbox


def open_desk(scene: Scene, lines: list[bytes]) -> int:
    """Open the hub's inbox with some lines in it; returns the desk's connection."""
    desk = scene.connect()
    read = kinds(scene.core.open_desk(desk, scene.now), fx.ReadInbox)[0]
    assert (read.inbox, read.start) == ("hub", None)
    told = scene.core.inbox_read(desk, batch(scene, "hub", lines), scene.now)
    assert pushes(told, desk) == lines
    return desk


def test_a_broadcast_left_in_the_hubs_inbox_goes_to_everybody_and_then_counts_as_read() -> None:
    scene = Scene()
    bob = scene.join("bob")
    left = chat("ada", "*")
    desk = open_desk(scene, [left.line])
    effects = scene.core.filed(left, scene.now)
    entries = [e.entry for e in kinds(effects, fx.AppendEntry)]
    assert [(one.inbox, one.left) for one in entries] == [("bob", True)]
    end = Position(1, scene.sizes["hub"])
    assert scene.core.desk_read(end, scene.now) == []  # not safe yet
    assert len(pushes(scene.write(effects), bob)) == 1
    assert scene.store(effects) == [fx.CommitPosition(desk, "hub", end, None)]


def test_what_is_left_in_the_hubs_inbox_later_is_read_at_once() -> None:
    scene = Scene()
    desk = open_desk(scene, [])
    left = chat("ada", "*")
    told = scene.core.written([Appeared("hub", 1, [scene.grow("hub", left.line)])], scene.now)
    assert pushes(told, desk) == [left.line]
    scene.core.filed(left, scene.now)
    end = Position(1, scene.sizes["hub"])
    assert kinds(scene.core.desk_read(end, scene.now), fx.CommitPosition)  # to nobody: done


def test_a_refusal_of_what_was_left_there_is_a_notice_in_its_senders_inbox() -> None:
    scene = Scene()
    left = chat("ada", "nobody", "m7", strict=True)
    open_desk(scene, [left.line])
    entry = kinds(scene.core.filed(left, scene.now), fx.AppendEntry)[0].entry
    refused = Refused(entry.ticket, "nobody", "TARGET_NOT_FOUND", "no such name")
    (notice,) = kinds(scene.core.written([refused], scene.now), fx.AppendEntry)
    line = json.loads(notice.entry.line)
    assert (notice.entry.inbox, line["from_session"], line["type"]) == ("ada", "hub", "chat")
    assert (line["reply_to"], line["payload"]["notice"]) == ("m7", {"code": "TARGET_NOT_FOUND"})


def test_what_cannot_be_understood_there_is_answered_with_a_notice_too() -> None:
    scene = Scene()
    open_desk(scene, [])
    error = ProtocolError("wrong channel", code="CHANNEL_MISMATCH")
    (notice,) = kinds(scene.core.misfiled("ada", "m", error, scene.now), fx.AppendEntry)
    assert "wrong channel" in json.loads(notice.entry.line)["payload"]["text"]
    (notice,) = kinds(scene.core.filed(ListSessions("l", "ada"), scene.now), fx.AppendEntry)
    assert json.loads(notice.entry.line)["payload"]["notice"]["code"] == "UNKNOWN_TYPE"


def test_the_same_message_by_file_and_by_socket_is_sent_once() -> None:
    scene = Scene()
    ada = scene.join("ada", "receipts")
    scene.join("bob")
    left = chat("ada", "*")
    effects = scene.say(ada, left)
    scene.write(effects)
    scene.store(effects)
    desk = open_desk(scene, [left.line])
    assert kinds(scene.core.filed(left, scene.now), fx.AppendEntry) == []
    done = scene.core.desk_read(Position(1, scene.sizes["hub"]), scene.now)
    assert [e.connection for e in kinds(done, fx.CommitPosition)] == [desk]


def test_the_hub_itself_is_no_session() -> None:
    scene = Scene()
    open_desk(scene, [])
    ada = scene.join("ada")
    scene.core.seen({"hub": 1.0}, scene.now)
    listing = one(scene.say(ada, ListSessions("l")), fx.Answer, ada, Sessions)
    assert ([row.session for row in listing.live], listing.absent) == (["ada"], ())
    assert kinds(scene.say(ada, chat("ada", "*")), fx.AppendEntry) == []
    assert answers(scene.core.tick(scene.now + 31), 1, Beat) == []


# -- time


def test_a_silent_connection_is_pinged_and_one_that_promised_to_answer_is_dropped() -> None:
    scene = Scene()
    plain, asking = scene.join("plain"), scene.join("asking", "heartbeat")
    assert scene.core.tick(scene.now + 29) == []
    pinged = scene.core.tick(scene.now + 30)
    assert len(answers(pinged, plain, Beat)) == len(answers(pinged, asking, Beat)) == 1
    assert scene.core.tick(scene.now + 31) == []
    dropped = kinds(scene.core.tick(scene.now + 90), fx.Drop)
    assert [e.connection for e in dropped] == [asking]


def test_a_heartbeat_is_answered_but_an_answer_to_ours_is_not() -> None:
    scene = Scene()
    ada = scene.join("ada")
    assert one(scene.say(ada, Heartbeat("h")), fx.Answer, ada, Beat).reply_to == "h"
    scene.core.tick(scene.now + 30)
    assert scene.say(ada, Heartbeat("h2")) == []
    assert one(scene.say(ada, Heartbeat("h3")), fx.Answer, ada, Beat)


# -- leaving


def test_at_shutdown_those_who_know_the_word_are_told_and_the_others_still_heard() -> None:
    scene = Scene()
    plain, asking = scene.join("plain"), scene.join("asking", "receipts")
    effects = scene.core.closing(scene.now)
    assert answers(effects, plain) == []
    assert one(effects, fx.Answer, asking, Fault).code == "SHUTTING_DOWN"
    assert {e.connection for e in kinds(effects, fx.Close)} == {plain, asking}
    assert kinds(scene.say(plain, chat("plain", "bob")), fx.AppendEntry)
    late = scene.say(asking, chat("asking", "bob"))
    assert one(late, fx.Answer, asking, Fault).reply_to == "m1"
    assert not kinds(late, fx.AppendEntry)


def test_input_from_connections_that_are_gone_is_ignored() -> None:
    scene = Scene()
    error = SpoolError("x")
    empty = Batch(Position(1, 0), [], Position(1, 0), True, [])
    assert scene.say(7, chat("a", "b")) == []
    assert scene.core.admitted(7, None, 0) == []
    assert scene.core.garbled(7, error, 0) == []
    assert scene.core.inbox_read(7, empty, 0) == []
    assert scene.core.inbox_unreadable(7, error, 0) == []
    assert scene.core.commit_refused(7, error, None, 0) == []
    assert scene.core.paused(7, 0) == scene.core.drained(7, 0) == []
    assert scene.core.stored([99], "disk", 0) == []
    assert scene.core.written([Refused(99, "b", "DISK_FULL", "")], 0) == []


def test_a_garbled_line_is_answered_with_its_code_and_the_connection_goes_on() -> None:
    scene = Scene()
    ada = scene.join("ada")
    error = ProtocolError("no object", code="BAD_JSON")
    assert one(scene.core.garbled(ada, error, scene.now), fx.Answer, ada, Fault).code == "BAD_JSON"
    assert kinds(scene.say(ada, chat("ada", "bob")), fx.AppendEntry)


def test_a_garbled_first_line_registers_nobody() -> None:
    scene = Scene()
    number = scene.connect()
    fault = one(scene.core.garbled(number, ProtocolError("?"), 0), fx.Answer, number, Fault)
    assert fault.code == "BAD_ENVELOPE"
    assert scene.core.claim_of(number) is None


# -- who reads ----------------------------------------------------------------------------------


def test_a_receiver_is_named_with_its_process_once_it_has_stayed() -> None:
    scene = Scene()
    scene.join("ada", "cursor")
    assert scene.core.receivers(scene.now) == []
    scene.join("bob")
    sender = scene.connect()
    scene.say(sender, Register("r", "cem", (), role="sender"))
    assert scene.core.receivers(scene.now + 1.0) == [Receiver("ada", 2), Receiver("bob", 2)]


def test_a_claim_that_is_not_decided_yet_receives_nothing() -> None:
    scene = Scene()
    number = scene.connect()
    scene.say(number, Register("r", "ada", ()))
    assert scene.core.receivers(scene.now + 100.0) == []


def test_after_a_take_over_the_new_process_is_the_receiver() -> None:
    scene = Scene()
    scene.tokens["ada"] = "secret"
    scene.join("ada", token="secret")
    scene.now += 50
    number = scene.connect()
    register = Register("r", "ada", (), token="secret", takeover=True)
    scene.admit(scene.say(number, register))
    assert scene.core.receivers(scene.now) == []
    assert scene.core.receivers(scene.now + 1.0) == [Receiver("ada", 2)]
