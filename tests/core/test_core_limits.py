"""The bounds that the core itself keeps: pace, strangers at the door, sessions, dropped mail."""

from __future__ import annotations

import json

import pytest
from core_scene import Scene, answers, chat, kinds, one
from hypothesis import given
from hypothesis import strategies as st

from intercom.core import effects as fx
from intercom.core.limits import BURST_S, KEY_WITHIN_S, ROUNDS, Pace
from intercom.errors import ProtocolError
from intercom.messages import Auth, Fault, ListSessions, Receipt, Register, Unregister, Welcome
from intercom.records import Record, Refused
from intercom.settings.limits import Limits

# -- how fast one may speak -------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "admitted"), [(19, 19), (20, 20), (21, 20)])
def test_so_many_lines_and_no_more_may_be_said_at_once(asked: int, admitted: int) -> None:
    pace = Pace(10, 1000, now=5.0)
    assert pace.admit(asked, 0, 5.0) == admitted
    assert pace.admit(1, 0, 5.0) == (1 if asked < 20 else 0)


@pytest.mark.parametrize(("octets", "owes"), [(1999, False), (2000, False), (2001, True)])
def test_more_bytes_than_may_be_said_are_paid_for_by_waiting(octets: int, owes: bool) -> None:
    """They were read already, so nothing of them is dropped."""
    pace = Pace(10, 1000, now=5.0)
    assert pace.admit(1, octets, 5.0) == 1
    assert pace.owes == owes
    if owes:
        assert pace.pause(0) == pytest.approx(0.001)
        pace.admit(0, 0, 5.0 + pace.pause(0))
        assert not pace.owes


def test_what_fits_anyway_needs_no_clock() -> None:
    """All of it or nothing is counted, and what is refused so may fit by now."""
    pace = Pace(10, 1000, now=0.0)
    assert pace.take(15, 1000)
    assert not pace.take(6, 0)
    assert not pace.take(1, 1001)
    assert pace.take(5, 1000)
    assert not pace.take(1, 0)
    assert pace.admit(6, 0, 0.5) == 5


def test_the_buckets_fill_with_time_and_do_not_run_over() -> None:
    pace = Pace(10, 1000, now=0.0)
    assert pace.admit(20, 2000, 0.0) == 20
    assert pace.admit(5, 0, 0.1) == 1
    assert pace.admit(5, 0, 0.4) == 3
    assert pace.admit(100, 0, 1000.0) == 20


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.floats(0, 10**9),
    st.lists(st.integers(1, 10**4), min_size=1, max_size=20),
)
def test_whoever_waits_as_told_says_everything_at_the_rate(
    lines: int, octets: int, start: float, portions: list[int]
) -> None:
    """No pause is useless, none is for ever, and the rate is kept whatever numbers are added."""
    pace = Pace(lines, octets, start)
    now, said, turns = start, 0, 0
    for portion in portions:
        waiting = portion - pace.admit(portion, portion, now)
        said += portion - waiting
        while waiting or pace.owes:
            turns += 1
            assert turns < 100_000
            pause = pace.pause(waiting)
            assert pause >= 0.001
            now += pause
            admitted = pace.admit(waiting, 0, now)
            assert admitted <= waiting
            waiting -= admitted
            said += admitted
        assert said <= lines * (now - start + BURST_S) * 1.001 + 1
    assert said == sum(portions)


# -- who has not said who it is ---------------------------------------------------------------


def rounds(scene: Scene, seconds: float = 1.0) -> list[fx.Effect]:
    """Let the clock tick once a second."""
    effects: list[fx.Effect] = []
    for _ in range(round(seconds)):
        scene.now += 1.0
        effects += scene.core.tick(scene.now)
    return effects


def turned_away(effects: list[fx.Effect]) -> list[int]:
    """Who was told that there are too many, and closed."""
    told = [
        effect.connection
        for effect in effects
        if isinstance(effect, fx.Answer)
        and isinstance(effect.reply, Fault)
        and effect.reply.code == "TOO_MANY_SESSIONS"
    ]
    assert told == [effect.connection for effect in kinds(effects, fx.Close)]
    return told


def arrive(scene: Scene, needs_key: bool = False) -> list[fx.Effect]:
    """One more connection."""
    scene.numbers += 1
    nobody = scene.credentials
    return scene.core.connected(scene.numbers, nobody, needs_key, scene.now)


@pytest.mark.parametrize(("already", "leave"), [(2, []), (3, []), (4, [1])])
def test_over_the_limit_the_one_that_was_silent_for_longest_makes_room(
    already: int, leave: list[int]
) -> None:
    scene = Scene(limits=Limits(unregistered=4))
    for _ in range(already):
        assert turned_away(arrive(scene)) == []
    rounds(scene, ROUNDS)
    assert turned_away(arrive(scene)) == leave
    newcomer = scene.numbers
    effects = scene.admit(scene.say(newcomer, Register("r", "bob")))
    assert one(effects, fx.Answer, newcomer, Welcome).session == "bob"


def test_a_storm_of_newcomers_is_not_turned_away() -> None:
    """What they say at once lies in the kernel while the hub still accepts their like."""
    scene = Scene(limits=Limits(unregistered=4))
    for _ in range(50):
        assert turned_away(arrive(scene)) == []
    scene.now += 1000.0  # the hub was stopped meanwhile, with its timers
    assert turned_away(scene.core.tick(scene.now)) == []
    for number in range(1, 51):
        assert scene.admit(scene.say(number, Register("r", f"s{number}")))
    assert turned_away(rounds(scene, 20)) == []


def test_those_who_have_a_session_are_not_counted_and_those_who_gave_it_back_are() -> None:
    scene = Scene(limits=Limits(unregistered=1))
    one_, other = scene.join("ann"), scene.join("bob")
    rounds(scene, ROUNDS)
    assert turned_away(arrive(scene)) == []
    scene.say(one_, Unregister("u", "ann"))
    rounds(scene, ROUNDS)
    assert turned_away(arrive(scene)) == [3, one_]  # the stranger of before is older there
    assert scene.say(other, ListSessions("l"))


@pytest.mark.parametrize(("seconds", "leave"), [(4, []), (5, [1]), (6, [1])])
def test_whoever_says_nothing_is_sent_away_in_time(seconds: int, leave: list[int]) -> None:
    scene = Scene(limits=Limits(register_within=5.0, line_within=30.0))
    arrive(scene)
    assert turned_away(rounds(scene, seconds)) == leave
    later = scene.say(1, chat("ann", "bob"))
    assert bool(answers(later, 1, Fault)) == bool(leave)  # and hears so whatever it says now
    assert not kinds(later, fx.AppendEntry)


@pytest.mark.parametrize(("seconds", "leave"), [(29, []), (30, [1]), (31, [1])])
def test_a_first_line_that_does_not_end_has_longer(seconds: int, leave: list[int]) -> None:
    scene = Scene(limits=Limits(register_within=5.0, line_within=30.0))
    arrive(scene)
    assert scene.core.begun(1, scene.now) == []
    assert turned_away(rounds(scene, seconds)) == leave


def test_whoever_looks_in_or_says_nonsense_has_said_something() -> None:
    scene = Scene()
    arrive(scene)
    arrive(scene)
    scene.say(1, ListSessions("l"))
    scene.core.garbled(2, ProtocolError("what?"), scene.now)
    assert turned_away(rounds(scene, 100)) == []


def test_over_tcp_the_key_has_five_seconds_whatever_else_may_wait() -> None:
    scene = Scene(key="sesame", limits=Limits(register_within=50.0, line_within=50.0))
    for _ in range(2):
        arrive(scene, needs_key=True)
    scene.core.begun(1, scene.now)
    assert scene.say(2, Auth("sesame")) == []
    scene.now += KEY_WITHIN_S - 0.1
    assert scene.core.tick(scene.now) == []
    scene.now += 0.1
    effects = scene.core.tick(scene.now)
    assert one(effects, fx.Answer, 1, Fault).code == "UNAUTHORIZED"
    assert kinds(effects, fx.Drop) == [fx.Drop(1, "no key")]


def test_whoever_left_is_not_sent_away() -> None:
    scene = Scene(limits=Limits(unregistered=1))
    arrive(scene)
    scene.core.disconnected(1, scene.now)
    assert rounds(scene, 100) == []
    assert turned_away(arrive(scene)) == []


# -- how many sessions ------------------------------------------------------------------------


@pytest.mark.parametrize(("known", "admitted"), [(1, True), (2, True), (3, False)])
def test_a_channel_knows_so_many_sessions(known: int, admitted: bool) -> None:
    scene = Scene(limits=Limits(session_limit=3))
    scene.core.seen({f"s{number}": None for number in range(known)}, scene.now)
    number = scene.connect()
    effects = scene.admit(scene.say(number, Register("r", "bob")))
    if admitted:
        assert one(effects, fx.Answer, number, Welcome)
    else:
        assert one(effects, fx.Answer, number, Fault).code == "TOO_MANY_SESSIONS"
        assert kinds(effects, fx.Close)
    old = scene.connect()
    effects = scene.admit(scene.say(old, Register("r", "s0")))
    assert one(effects, fx.Answer, old, Welcome)  # who is known may always come


def test_a_claim_that_is_being_looked_into_counts_already() -> None:
    scene = Scene(limits=Limits(session_limit=1))
    first, second = scene.connect(), scene.connect()
    admit = scene.say(first, Register("r", "ann"))
    assert turned_away(scene.say(second, Register("r", "bob"))) == [second]
    assert one(scene.admit(admit), fx.Answer, first, Welcome)


# -- mail that is not kept --------------------------------------------------------------------


def records(*messages: tuple[str, str]) -> list[Record]:
    """Lines of an inbox, by sender and id."""
    return [Record(0, 1, chat(sender, "bob", message_id).line) for sender, message_id in messages]


def notices(effects: list[fx.Effect]) -> dict[str, dict[str, object]]:
    """What senders are told, by recipient."""
    entries = [effect.entry for effect in kinds(effects, fx.AppendEntry)]
    return {entry.inbox: json.loads(entry.line)["payload"] for entry in entries}


def test_each_known_sender_hears_once_of_what_was_dropped() -> None:
    scene = Scene()
    scene.join("ann")
    scene.core.seen({"eve": 5.0}, scene.now)
    lost = records(("ann", "a1"), ("eve", "e1"), ("ann", "a2"), ("stranger", "s1"))
    effects = scene.core.expired("bob", [*lost, Record(0, 1, b"damage")], scene.now)
    told = notices(effects)
    assert sorted(told) == ["ann", "eve"]
    notice = told["ann"]["notice"]
    assert notice == {"code": "EXPIRED", "session": "bob", "count": 2, "ids": ["a1", "a2"]}
    assert "2 of your messages to bob" in str(told["ann"]["text"])
    assert "your message to bob was not read in time" in str(told["eve"]["text"])


@pytest.mark.parametrize(
    ("count", "named", "more"), [(19, 19, False), (20, 20, False), (21, 20, True)]
)
def test_a_notice_names_the_first_twenty(count: int, named: int, more: bool) -> None:
    scene = Scene()
    scene.join("ann")
    lost = records(*[("ann", f"m{number}") for number in range(count)])
    payload = notices(scene.core.expired("bob", lost, scene.now))["ann"]
    notice = payload["notice"]
    assert isinstance(notice, dict)
    assert notice["count"] == count
    assert notice["ids"] == [f"m{number}" for number in range(named)]
    assert ("m19 and 1 more;" in str(payload["text"])) == more


def test_a_notice_of_ours_that_expires_brings_forth_no_other() -> None:
    scene = Scene()
    assert notices(scene.core.expired("bob", records(("hub", "n1")), scene.now)) == {}
    assert scene.core.expired("bob", [], scene.now) == []


def test_room_is_asked_for_where_an_inbox_is_full_and_nowhere_else() -> None:
    scene = Scene()
    ann = scene.join("ann", "receipts")
    for code, asked in (("INBOX_FULL", [fx.MakeRoom("bob")]), ("DISK_FULL", [])):
        (append,) = kinds(scene.say(ann, chat("ann", "bob", code)), fx.AppendEntry)
        refused = Refused(append.entry.ticket, "bob", code, "full")
        effects = scene.core.written([refused], scene.now)
        assert kinds(effects, fx.MakeRoom) == asked
        receipt = one(effects, fx.Answer, ann, Receipt)
        assert (receipt.state, receipt.code, receipt.retryable) == ("refused", code, True)


# -- peers that take nothing ------------------------------------------------------------------


def test_one_that_takes_nothing_is_not_asked_again_and_again_whether_it_is_there() -> None:
    """The questions would heap up; one that promised to answer is dropped all the same."""
    scene = Scene()
    plain, sender = scene.join("plain"), scene.join("plain2", "receipts")
    promised = scene.join("promised", "heartbeat")
    for number in (plain, sender, promised):
        scene.core.paused(number, scene.now)
    effects = rounds(scene, 3600)
    assert not kinds(effects, fx.Answer)
    assert {effect.connection for effect in kinds(effects, fx.Drop)} == {promised}
    scene.core.drained(plain, scene.now)
    assert answers(rounds(scene, 1), plain)
