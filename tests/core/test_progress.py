"""Who hears how far a message has come: each state when it is true, once, and bounded."""

from __future__ import annotations

import random
from typing import Any

import pytest
from core_scene import Scene, answers, batch, chat, kinds, one, pushes

from intercom.core import effects as fx
from intercom.core.progress import WATCH_MAX, Watch, Watchers
from intercom.messages import Ack, Cursor, Progress, Receipt, Register, Unregister, Welcome
from intercom.records import Appeared, Batch, Moved, Position, Record, Shifted, Written


def steps(effects: Any, connection: int) -> list[tuple[str, str, str, float | None]]:
    """What a connection hears of its messages: id, recipient, state, time."""
    return [
        (reply.message_id, reply.recipient, reply.state, reply.at)
        for reply in answers(effects, connection, Progress)
    ]


def move(
    scene: Scene, state: str, start: int, end: int, inbox: str = "bob", at: float = 7.5
) -> Any:
    return scene.core.moved([Moved(inbox, state, 1, start, end, at)], scene.now)


def send(scene: Scene, sender: int, *ids: str, to: str = "bob") -> list[fx.Effect]:
    """Send messages in one turn; returns what follows from their being written."""
    effects = []
    for message_id in ids:
        effects += scene.say(sender, chat(None, to, message_id))
    return scene.write(effects)


# -- a message's way


def test_the_feature_is_granted_by_itself() -> None:
    scene = Scene()
    number = scene.connect()
    effects = scene.admit(scene.say(number, Register("r", "ada", ("progress",))))
    assert one(effects, fx.Answer, number, Welcome).features == ("progress",)


def test_a_sender_hears_pushed_shown_and_read_each_once_and_with_its_time() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "progress"), scene.join("bob", "cursor")
    written = send(scene, ada, "m1")
    end = scene.sizes["bob"]
    assert len(pushes(written, bob)) == 1
    assert steps(written, ada) == [("m1", "bob", "pushed", None)]
    assert steps(move(scene, "shown", 0, end), ada) == [("m1", "bob", "shown", 7.5)]
    assert move(scene, "shown", 0, end) == []
    assert steps(move(scene, "read", 0, end, at=8.0), ada) == [("m1", "bob", "read", 8.0)]
    assert move(scene, "read", 0, end) == []


def test_it_needs_no_receipts_and_receipts_bring_none_of_it() -> None:
    scene = Scene()
    ada, eve = scene.join("ada", "progress"), scene.join("eve", "receipts")
    scene.join("bob", "cursor")
    effects = scene.say(ada, chat("ada", "bob")) + scene.say(eve, chat("eve", "bob"))
    told = scene.write(effects) + scene.store(effects) + move(scene, "read", 0, scene.sizes["bob"])
    assert [reply.state for reply in answers(told, ada)] == ["pushed", "read"]
    assert [type(reply) for reply in answers(told, eve)] == [Receipt]


def test_read_without_shown_is_told_as_read_alone() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    assert steps(send(scene, ada, "m1"), ada) == []  # nobody live got it
    assert [s[2] for s in steps(move(scene, "read", 0, scene.sizes["bob"]), ada)] == ["read"]


def test_what_was_passed_over_is_called_skipped_and_never_read() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    send(scene, ada, "m1", "m2")
    middle = scene.sizes["bob"] // 2
    told = move(scene, "skipped", 0, middle) + move(scene, "read", middle, scene.sizes["bob"])
    assert [(s[0], s[2]) for s in steps(told, ada)] == [("m1", "skipped"), ("m2", "read")]


def test_what_an_original_program_passed_is_read_at_a_time_that_nobody_noted() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    send(scene, ada, "m1", "m2")
    told = move(scene, "skipped", scene.sizes["bob"] // 2, scene.sizes["bob"])
    assert steps(told, ada) == [("m1", "bob", "read", None), ("m2", "bob", "skipped", 7.5)]


def test_a_broadcast_watches_each_recipient() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    scene.join("bob", "cursor")
    scene.core.seen({"polls": 5.0}, scene.now)
    written = send(scene, ada, "m1", to="*")
    assert steps(written, ada) == [("m1", "bob", "pushed", None)]
    told = move(scene, "read", 0, scene.sizes["polls"], "polls")
    told += move(scene, "read", 0, scene.sizes["bob"])
    assert [s[1] for s in steps(told, ada)] == ["polls", "bob"]


def test_a_backlog_that_is_pushed_when_its_reader_connects_counts_as_pushed() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    effects = scene.say(ada, chat("ada", "bob"))
    assert steps(scene.write(effects), ada) == []
    line = kinds(effects, fx.AppendEntry)[0].entry.line
    for number, expected in enumerate([[("m1", "bob", "pushed", None)], []]):
        bob = scene.connect()
        scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
        records = [Record(0, scene.sizes["bob"], line)]
        found = Batch(Position(1, 0), records, Position(1, scene.sizes["bob"]), True, [])
        told = scene.core.inbox_read(bob, found, scene.now)
        assert len(pushes(told, bob)) == 1, number  # pushed again, for it was not acknowledged
        assert steps(told, ada) == expected
        scene.core.disconnected(bob, scene.now)


def test_a_receiver_that_does_not_drain_was_not_pushed_to() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "progress"), scene.join("bob", "cursor")
    scene.core.paused(bob, scene.now)
    assert steps(send(scene, ada, "m1"), ada) == []


def test_a_reader_who_is_faster_than_the_writers_report_is_told_nevertheless() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    effects = scene.say(ada, chat("ada", "bob"))
    entry = kinds(effects, fx.AppendEntry)[0].entry
    assert move(scene, "read", 0, len(entry.line) + 1) == []
    assert steps(scene.write(effects), ada) == [("m1", "bob", "read", 7.5)]


def test_a_retry_arms_nothing_anew() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress", "receipts")
    effects = scene.say(ada, chat("ada", "bob"))
    scene.write(effects)
    scene.store(effects)
    end = scene.sizes["bob"]
    move(scene, "read", 0, end)
    assert one(scene.say(ada, chat("ada", "bob")), fx.Answer, ada, Receipt).duplicate
    assert move(scene, "read", 0, end) == []


def test_what_stood_there_already_is_not_watched() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    scene.write(scene.say(ada, chat("ada", "bob")), duplicate=True)
    assert move(scene, "read", 0, scene.sizes["bob"]) == []


# -- who stops to listen


@pytest.mark.parametrize("how", ["hangs up", "unregisters", "asks for less"])
def test_who_is_gone_or_wants_no_more_hears_no_more(how: str) -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    send(scene, ada, "m1")
    late = scene.say(ada, chat("ada", "bob", "m2"))  # written only later
    if how == "hangs up":
        scene.core.disconnected(ada, scene.now)
    elif how == "unregisters":
        scene.say(ada, Unregister("u"))
    else:
        scene.say(ada, Register("r2", "ada", ("receipts",)))
    assert steps(scene.write(late), ada) == []
    assert steps(move(scene, "read", 0, scene.sizes["bob"]), ada) == []
    assert len(scene.core._routing.watchers) == 0


def test_two_connections_of_one_session_hear_of_their_own_messages() -> None:
    scene = Scene()
    scene.tokens["ada"] = "t"
    first = scene.join("ada", "progress", token="t", role="sender")
    second = scene.join("ada", "progress", token="t", role="sender")
    send(scene, first, "m1")
    send(scene, second, "m2")
    told = move(scene, "read", 0, scene.sizes["bob"])
    assert [s[0] for s in steps(told, first)] == ["m1"]
    assert [s[0] for s in steps(told, second)] == ["m2"]


def test_who_reads_does_not_become_present_by_what_is_told_of_it() -> None:
    """A move may be a skip, or old news: who gets broadcasts is decided by ``seen``."""
    scene = Scene()
    ada = scene.join("ada", "progress")
    move(scene, "read", 0, 10, "stranger")
    assert kinds(scene.say(ada, chat("ada", "*")), fx.AppendEntry) == []


# -- pushes are noted


def test_a_batch_of_pushes_is_noted_as_one_stretch_with_or_without_a_cursor() -> None:
    scene = Scene()
    ada = scene.join("ada")
    for name, features in (("bob", ("cursor",)), ("plain", ())):
        scene.join(name, *features)
        noted = kinds(send(scene, ada, *(f"{name}{n}" for n in range(50)), to=name), fx.NotePushed)
        assert noted == [fx.NotePushed(name, 1, 0, scene.sizes[name])]


def test_stretches_with_something_between_them_are_noted_one_by_one() -> None:
    scene = Scene()
    scene.join("plain")
    records = []
    for message_id in ("m1", "m2", "m3"):
        records.append(scene.grow("plain", chat("ada", "plain", message_id).line))
        if message_id == "m1":
            scene.sizes["plain"] += 7  # the wreck of a writer that died
    told = scene.core.written([Appeared("plain", 1, records)], scene.now)
    assert kinds(told, fx.NotePushed) == [
        fx.NotePushed("plain", 1, 0, records[0].end),
        fx.NotePushed("plain", 1, records[1].start, records[2].end),
    ]


def test_a_backlog_is_noted_and_its_gaps_are_not() -> None:
    scene = Scene()
    bob = scene.connect()
    scene.admit(scene.say(bob, Register("r", "bob", ("cursor",))))
    records = [Record(0, 4, b"{1}"), Record(4, 8, b"{2}"), Record(9, 13, b"{3}")]
    found = Batch(Position(3, 0), records, Position(3, 13), True, [])
    noted = kinds(scene.core.inbox_read(bob, found, scene.now), fx.NotePushed)
    assert noted == [fx.NotePushed("bob", 3, 0, 8), fx.NotePushed("bob", 3, 9, 13)]


def test_what_is_not_pushed_is_not_noted() -> None:
    scene = Scene()
    ada, bob = scene.join("ada"), scene.join("bob", "cursor")
    message = chat("ada", "bob")
    effects = scene.say(ada, message)
    assert len(kinds(scene.write(effects), fx.NotePushed)) == 1
    again = Appeared("bob", 1, [scene.grow("bob", message.line)])  # by an original client
    told = scene.core.written([again], scene.now)
    assert pushes(told, bob) == []
    assert kinds(told, fx.NotePushed) == []
    scene.core.disconnected(bob, scene.now)
    assert kinds(send(scene, ada, "m2"), fx.NotePushed) == []


def test_the_hubs_own_inbox_is_not_noted() -> None:
    scene = Scene()
    desk = scene.connect()
    scene.core.open_desk(desk, scene.now)
    told = scene.core.inbox_read(desk, batch(scene, "hub", [chat("ada", "*").line]), scene.now)
    assert len(pushes(told, desk)) == 1
    assert kinds(told, fx.NotePushed) == []


# -- compaction, resets, and bounds


def test_unread_lines_that_a_compaction_moved_are_watched_where_they_are() -> None:
    scene = Scene()
    ada, bob = scene.join("ada", "progress"), scene.join("bob", "cursor")
    effects = []
    for message_id in ("m1", "m2", "m3"):
        effects += scene.say(ada, chat("ada", "bob", message_id))
    scene.write(effects)
    size = scene.sizes["bob"] // 3
    move(scene, "read", 0, size)
    # The unread tail begins the next generation.
    new = scene.say(ada, chat("ada", "bob", "m4"))
    entry = kinds(new, fx.AppendEntry)[0].entry
    shifted = Shifted("bob", 1, 2, ((size, 3 * size),))
    written = Written(entry.ticket, "bob", Record(2 * size, 3 * size, entry.line), 2)
    told = scene.core.written([shifted, written], scene.now)
    assert pushes(told, bob) == [entry.line], "what was pushed before is not pushed again"
    assert [answer.position for answer in answers(told, bob, Cursor)] == [Position(2, 3 * size)]
    told = scene.core.moved([Moved("bob", "read", 2, 0, 3 * size, 9.0)], scene.now)
    assert [s[0] for s in steps(told, ada)] == ["m2", "m3", "m4"]


def test_an_acknowledgement_from_before_a_compaction_is_understood() -> None:
    scene = Scene()
    ada, bob = scene.join("ada"), scene.join("bob", "cursor")
    effects = [e for name in ("m1", "m2") for e in scene.say(ada, chat("ada", "bob", name))]
    scene.write(effects)
    size = scene.sizes["bob"] // 2
    scene.core.written([Shifted("bob", 1, 2, ((size, 2 * size),))], scene.now)
    told = scene.say(bob, Ack(Position(1, 2 * size)))
    assert [e.position for e in kinds(told, fx.CommitPosition)] == [Position(2, size)]


def test_what_a_reset_has_taken_is_watched_no_more() -> None:
    scene = Scene()
    ada = scene.join("ada", "progress")
    scene.join("bob", "cursor")
    send(scene, ada, "m1")
    end = scene.sizes["bob"]
    told = scene.core.moved([Moved("bob", "read", 2, 0, end, 9.0)], scene.now)
    assert told == []
    scene.core.written([Shifted("bob", 1, 2, ())], scene.now)
    assert len(scene.core._routing.watchers) == 0


def watch(number: int, inbox: str = "bob", generation: int = 1, link: int = 1) -> Watch:
    return Watch(link, "ada", f"m{number}", inbox, (generation, number * 10), number * 10 + 10)


def test_the_oldest_of_a_connection_is_forgotten_first_and_others_are_not_touched() -> None:
    watchers = Watchers()
    watchers.watch(watch(0, "eve", link=2), False)
    for number in range(WATCH_MAX + 5):
        watchers.watch(watch(number, f"inbox-{number % 3}"), False)
    assert len(watchers) == WATCH_MAX + 1
    told = [
        answer.reply.message_id
        for name in ("inbox-0", "inbox-1", "inbox-2", "eve")
        for answer in watchers.moved(Moved(name, "read", 1, 0, 10**9, 1.0))
    ]
    assert sorted(told) == sorted([f"m{n}" for n in range(5, WATCH_MAX + 5)] + ["m0"])
    assert len(watchers) == 0


def test_nothing_is_left_of_a_connection_that_is_gone() -> None:
    watchers = Watchers()
    for number in range(100):
        watchers.watch(watch(number, f"inbox-{number % 7}"), True)
    watchers.moved(Moved("elsewhere", "read", 1, 0, 10, 1.0))
    watchers.forget(1)
    watchers.forget(1)
    assert len(watchers) == 0
    assert not watchers._watched
    assert not watchers._inboxes
    assert not watchers._passed


def test_an_inbox_whose_generations_begin_anew_is_watched_from_there() -> None:
    watchers = Watchers()
    watchers.watch(watch(3, generation=5), False)
    watchers.watch(watch(0), False)
    told = watchers.moved(Moved("bob", "read", 1, 0, 10, 1.0))
    assert [answer.reply.message_id for answer in told] == ["m0"]
    assert len(watchers) == 0


@pytest.mark.parametrize("seed", range(20))
def test_ranges_tell_what_a_plain_search_would(seed: int) -> None:
    """Against a list of all messages, gone through for each event."""
    rng = random.Random(seed)
    watchers, sent, heard, expected = Watchers(), 0, [], []
    told: dict[tuple[int, int], set[str]] = {}
    read = {"a": 0, "b": 0}
    for _step in range(300):
        inbox = rng.choice("ab")
        kind = rng.choice(["send", "send", "pushed", "shown", "read", "skipped"])
        start = rng.randint(read[inbox] // 10, sent) * 10
        end = rng.randint(start // 10, sent) * 10
        if kind == "send":
            link = rng.randint(1, 3)
            answers_ = watchers.watch(watch(sent, inbox, link=link), False)
            told[link, sent] = {inbox}
            sent += 1
        elif kind == "pushed":
            answers_ = watchers.pushed(inbox, 1, start, end)
        else:
            if kind != "shown":
                start = read[inbox]
                read[inbox] = max(end, start)
            answers_ = watchers.moved(Moved(inbox, kind, 1, start, end, 1.0))
        heard += [(a.connection, a.reply.message_id, a.reply.state) for a in answers_]
        if kind == "send":
            continue
        for (link, number), states in told.items():
            over = states & {"read", "skipped"}
            if inbox in states and start <= number * 10 < end and not over and kind not in states:
                states.add(kind)
                expected.append((link, f"m{number}", kind))
    assert heard == expected
    assert len(heard) > 50


def test_a_shown_ack_reaches_the_sender_through_the_spool() -> None:
    """The core takes nobody's word for it: what the spool reports is what is told."""
    scene = Scene()
    ada, bob = scene.join("ada", "progress"), scene.join("bob", "cursor")
    send(scene, ada, "m1")
    told = scene.say(bob, Ack(Position(1, scene.sizes["bob"]), "shown"))
    assert steps(told, ada) == []
    assert [e.state for e in kinds(told, fx.CommitPosition)] == ["shown"]
