"""What a poll or a listener says of a backlog: ages, the rest, mail elsewhere, other places."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.wire.envelope import format_timestamp

Agent = Any  # see conftest.py


@pytest.fixture
def bob(agent: Callable[[str], Agent]) -> Agent:
    """One who has read before, and has no hub."""
    bob = agent("bob")
    bob.environ["INTERCOM_TRANSPORT"] = "spool"
    bob.run("poll").ok()
    return bob


def put(paths: ChannelPaths, *names: str, ages: float = 0.0, **fields: Any) -> None:
    """Leave messages for bob that were sent so many seconds ago."""
    sent = format_timestamp(time.time() - ages)
    with open(paths.inbox("bob"), "ab") as file:
        for name in names:
            message = {"id": name, "type": "chat", "from_session": "ann", "to_session": "bob"}
            message |= {"payload": {"text": f"text of {name}"}, "timestamp": sent} | fields
            file.write(json.dumps(message).encode() + b"\n")


def ids(result: dict[str, Any]) -> list[str]:
    return [one["id"] for one in result["messages"]]


def lines(out: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


# -- ages -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [("poll", "--peek"), ("poll",), ("listen", "--once", "--timeout", "30")]
)
def test_every_message_has_its_age(bob: Agent, words: tuple[str, ...]) -> None:
    put(bob.paths, "m1", ages=200.0)
    put(bob.paths, "m2", timestamp="yesterday")
    put(bob.paths, "m3", age="ours", ages=7300.0)
    out = bob.run(*words).out
    found = lines(out) if words[0] == "listen" else json.loads(out)["messages"]
    assert [one.get("age") for one in found] == ["3 min ago", None, "ours"]
    assert [one["id"] for one in found] == ["m1", "m2", "m3"]


@pytest.mark.parametrize("words", [("poll",), ("listen", "--once", "--timeout", "30")])
def test_every_message_has_its_age_as_text(bob: Agent, words: tuple[str, ...]) -> None:
    put(bob.paths, "m1", ages=200.0)
    put(bob.paths, "m2", timestamp="yesterday")
    text = bob.run(*words, "--format", "text").out.decode()
    assert "m1 from ann, 3 min ago, unverified]" in text
    assert "m2 from ann, unverified]" in text


# -- the rest ---------------------------------------------------------------------------------


def test_a_first_drain_shows_the_oldest_and_says_how_much_waits(bob: Agent) -> None:
    put(bob.paths, *(f"m{at}" for at in range(60)), ages=90_000.0)
    put(bob.paths, "last", ages=130.0)
    text = bob.run("poll", "--peek", "--format", "text").out.decode()
    assert "\n11 more, the newest 2 min ago\n" in text
    found = bob.run("poll").ok()
    assert ids(found) == [f"m{at}" for at in range(50)]
    assert (found["unread"], found["newest_age"]) == (11, "2 min ago")
    found = bob.run("poll").ok()
    assert ids(found) == [*(f"m{at}" for at in range(50, 60)), "last"]
    assert (found["unread"], "newest_age" in found) == (0, False)


def test_a_newest_message_without_a_time_is_counted_all_the_same(bob: Agent) -> None:
    put(bob.paths, "m1", "m2", timestamp="yesterday")
    text = bob.run("poll", "--limit", "1", "--format", "text").out.decode()
    assert "\n1 more\n" in text


def test_a_listener_says_how_much_it_will_show(bob: Agent) -> None:
    put(bob.paths, *(f"m{at}" for at in range(51)), ages=130.0)
    ended = bob.run("listen", "--once", "--timeout", "30")
    assert len(ended.out.splitlines()) == 51
    assert "51 messages lie unread, the newest 2 min ago" in ended.err
    put(bob.paths, "one")
    assert "lie unread" not in bob.run("listen", "--once", "--timeout", "30").err


# -- elsewhere --------------------------------------------------------------------------------


def test_a_poll_that_finds_nothing_tells_of_mail_in_another_channel(bob: Agent) -> None:
    other = ChannelPaths(str(bob.base), "other")
    other.prepare()
    put(other, "x1", "x2")
    found = bob.run("poll").ok()
    assert found["count"] == 0
    (there,) = found["elsewhere"]
    assert (there["channel"], there["unread"]) == ("other", 2)
    text = bob.run("poll", "--format", "text").out.decode()
    assert f"2 messages for bob in channel 'other': {there['command']}\n" in text
    words = there["command"].split()
    assert words[0] == "intercom"
    assert ids(bob.run(*words[1:]).ok()) == ["x1", "x2"]
    assert "elsewhere" not in bob.run("poll").ok()


def test_a_poll_that_finds_something_looks_nowhere_else(bob: Agent) -> None:
    other = ChannelPaths(str(bob.base), "other")
    other.prepare()
    put(other, "x1")
    put(bob.paths, "m1")
    assert "elsewhere" not in bob.run("poll").ok()


# -- from another place -----------------------------------------------------------------------


def test_from_now_passes_over_what_lies_unread(bob: Agent) -> None:
    put(bob.paths, "m1", "m2")
    found = bob.run("poll", "--from", "now").ok()
    assert (ids(found), found["skipped"], found["unread"]) == ([], 2, 0)
    put(bob.paths, "m3")
    assert ids(bob.run("poll").ok()) == ["m3"]
    dead = bob.run("dead").ok()
    assert json.dumps(dead).count('"skipped"') == 2


def test_from_now_and_waiting_shows_what_comes(bob: Agent) -> None:
    put(bob.paths, "m1")
    poll = bob.start("poll", "--from", "now", "--wait", "60")
    bob.wait_until(lambda: os.path.exists(bob.paths.file("dead.ndjson")), 60)
    put(bob.paths, "m2")
    found = json.loads(poll.communicate(timeout=60)[0])
    assert (ids(found), found["skipped"]) == (["m2"], 1)


def test_from_start_shows_again_what_was_read_and_goes_on(bob: Agent) -> None:
    put(bob.paths, "m1", "m2", "m3")
    bob.run("poll", "--limit", "2").ok()
    found = bob.run("poll", "--from", "start", "--limit", "1").ok()
    assert (ids(found), found["unread"], found["next"]) == (["m1"], 2, "m2")
    text = bob.run("poll", "--from", "start", "--limit", "1", "--format", "text").out.decode()
    assert "go on from there: intercom poll --from m2\n" in text
    assert ids(bob.run("poll").ok()) == ["m3"]  # the position has stayed
    assert ids(bob.run("poll", "--from", "start").ok()) == ["m1", "m2", "m3"]
    assert ids(bob.run("poll").ok()) == []


def test_from_a_message_on(bob: Agent) -> None:
    put(bob.paths, "m1", "m2", "m3", "m4")
    bob.run("poll", "--limit", "2").ok()
    assert ids(bob.run("poll", "--peek", "--from", "m4").ok()) == ["m4"]
    assert ids(bob.run("poll", "--peek", "--from", "m2").ok()) == ["m2", "m3", "m4"]
    found = bob.run("poll", "--from", "m4").ok()
    assert (ids(found), found["skipped"]) == (["m4"], 1)
    ended = bob.run("poll", "--from", "m9")
    assert (ended.status, ended.result["code"]) == (66, "UNKNOWN_MESSAGE")


def test_a_look_passes_nothing_over(bob: Agent) -> None:
    put(bob.paths, "m1")
    ended = bob.run("poll", "--peek", "--from", "now")
    assert (ended.status, ended.result["code"]) == (2, "USAGE")
    assert ids(bob.run("poll").ok()) == ["m1"]


def test_after_damage_a_reader_chooses(bob: Agent) -> None:
    """An offset file that says nothing means the beginning; who knows better may say so."""
    put(bob.paths, "m1", "m2", "m3")
    bob.run("poll", "--limit", "2").ok()
    with open(bob.paths.offset("bob"), "wb") as file:
        file.write(b"\0\0\0\0")
    assert ids(bob.run("poll", "--peek").ok()) == ["m1", "m2", "m3"]
    assert ids(bob.run("poll", "--from", "m3").ok()) == ["m3"]
    assert ids(bob.run("poll").ok()) == []


def test_a_listener_begins_where_it_is_told_to(bob: Agent) -> None:
    put(bob.paths, "m1", "m2", "m3")
    bob.run("poll", "--limit", "2").ok()
    again = bob.run("listen", "--from", "m2", "--once", "--timeout", "30")
    assert [one["id"] for one in lines(again.out)] == ["m2"]
    rest = bob.run("listen", "--from", "start", "--timeout", "1")
    assert [one["id"] for one in lines(rest.out)] == ["m1", "m2", "m3"]
    put(bob.paths, "m4", "m5")
    fresh = bob.run("listen", "--from", "now", "--timeout", "0.5")
    assert (fresh.out, "2 older messages skipped" in fresh.err) == (b"", True)
    assert bob.run("listen", "--fresh", "--from", "start").status == 2
    assert ids(bob.run("poll").ok()) == []


def test_whoever_may_not_read_passes_nothing_over(bob: Agent) -> None:
    """The turn is another's."""
    put(bob.paths, "m1")
    ear = bob.start("listen")
    try:
        bob.wait_until(lambda: bob.run("poll", "--peek").ok().get("reading"), 60)
        ended = bob.run("listen", "--from", "now", "--timeout", "1")
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        ear.kill()
    finally:
        ear.kill()
        ear.communicate()
    assert not os.path.exists(bob.paths.file("dead.ndjson"))
