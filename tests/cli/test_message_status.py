"""What people and programs see of a message's way: status, dead, skips, and levels asked for."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.status import _fields, _text
from intercom.client.inquiry import Told
from intercom.client.standing import Standing
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.trail import Trail
from intercom.spool.turns import Holder, take
from intercom.wire.envelope import format_timestamp

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def bob(agent: Make) -> Agent:
    """An agent whose commands may not start a hub."""
    made = agent("bob")
    made.environ["INTERCOM_NO_SPAWN"] = "1"
    return made


def offer(to: Agent, *texts: str) -> list[str]:
    """Leave messages in an agent's inbox file; their ids."""
    ids = []
    for text in texts:
        sent = to.run("send", "--session", "ann", "--to", "bob", "--text", text).ok()
        ids.append(sent["envelope"]["id"])
    return ids


def state(of: Agent, message_id: str) -> dict[str, Any]:
    """How far a message has come with bob."""
    (message,) = of.run("status", message_id).ok()["messages"]
    (row,) = message["recipients"]
    assert row["session"] == "bob"
    return dict(row)


def moves(of: Agent) -> list[str]:
    """What the trail of an agent says, in its order."""
    return [move.state for move in Trail(of.paths, of.session, FileCalls()).events()]


# -- status -----------------------------------------------------------------------------------


def test_a_message_s_way_without_a_hub(bob: Agent) -> None:
    """Stored, shown by a look, read; each command knows what the one before did."""
    (message_id,) = offer(bob, "hello")
    row = state(bob, message_id)
    assert (row["state"], row["level"], row["stored_at"], row["shown_at"]) == (
        "stored",
        None,
        None,
        None,
    )
    assert bob.run("poll", "--peek").ok()["count"] == 1
    shown = state(bob, message_id)
    assert (shown["state"], shown["read_at"]) == ("shown", None)
    assert bob.run("poll").ok()["count"] == 1
    read = state(bob, message_id)
    assert read["state"] == "read"
    assert shown["shown_at"] == read["shown_at"] < read["read_at"]
    assert moves(bob) == ["shown", "read"]


def test_a_message_s_way_through_a_hub(agent: Make) -> None:
    """Pushed to a listener and read by it; asked when the hub is gone."""
    ann, bob = agent("ann"), agent("bob")
    listener = bob.start("listen", "--once")
    bob.wait_until(lambda: b'"bob"' in content(bob.paths.peers))
    message_id = ann.run("send", "--to", "bob", "--text", "hello").ok()["envelope"]["id"]
    out, err = listener.communicate(timeout=60)
    assert json.loads(out)["id"] == message_id, err
    ann.run("hub", "stop").ok()
    row = state(ann, message_id)
    assert (row["state"], row["level"]) == ("read", "disk")
    for name in ("stored_at", "pushed_at", "shown_at", "read_at"):
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT[\d:.]{15}\+00:00", row[name]), (name, row)
    assert not os.path.exists(ann.paths.socket)


def content(path: str) -> bytes:
    """What a file holds, nothing if there is none."""
    return Path(path).read_bytes() if os.path.exists(path) else b""


def test_what_nobody_knows_is_status_66(bob: Agent) -> None:
    """With how far back anything is known, and what to try."""
    ended = bob.run("status", "msg_nothing", "--from", "eve")
    assert (ended.status, ended.result["code"]) == (66, "UNKNOWN_MESSAGE")
    assert "'msg_nothing' of 'eve'" in ended.err
    assert "100,000" in ended.err
    assert "intercom status" in ended.result["remedy"]


def test_an_empty_id_is_nobodys(bob: Agent) -> None:
    """It stands in every line; the search for it once never ended."""
    offer(bob, "hi")
    assert bob.run("status", "").status == 66


def test_without_an_id_the_last_ten_of_oneself_are_shown(bob: Agent) -> None:
    """Or of somebody else; the newest last, and of none it is said."""
    assert bob.run("status", "--format", "text").out == b"no message is known\n"
    ids = offer(bob, *map(str, range(11)))
    assert bob.run("status").ok()["messages"] == []
    found = bob.run("status", "--from", "ann").ok()
    assert [one["id"] for one in found["messages"]] == ids[1:]
    mine = bob.run("status", INTERCOM_SESSION="ann").ok()
    for one in [*mine["messages"], *found["messages"]]:
        for row in one["recipients"]:
            assert row.pop("oldest_unread_age") >= 0.0  # which goes on
    assert mine == found


def test_asking_makes_no_name_known_and_starts_no_hub(bob: Agent) -> None:
    """Of a message by its id nothing is needed but files."""
    (message_id,) = offer(bob, "x")
    before = sorted(os.listdir(bob.paths.directory))
    del bob.environ["INTERCOM_NO_SPAWN"]
    state(bob, message_id)
    assert sorted(os.listdir(bob.paths.directory)) == before


def test_what_an_original_program_read_has_no_time(bob: Agent) -> None:
    """Only a moment before which it was: the one at which the offset was written."""
    (message_id,) = offer(bob, "hello")
    size = os.path.getsize(bob.paths.inbox("bob"))
    offset = Path(bob.paths.offset("bob"))
    offset.write_text(json.dumps({"offset": size}))
    os.utime(offset, (1e9, 1e9))
    row = state(bob, message_id)
    assert (row["state"], row["read_at"]) == ("read", None)
    assert row["read_before"] == "2001-09-09T01:46:40.000000+00:00"
    text = bob.run("status", message_id, "--format", "text", TZ="UTC").out.decode()
    assert "  bob  read before 2001-09-09 01:46:40" in text


def test_people_see_one_aligned_line_a_recipient() -> None:
    """The furthest state first, then the way there; names cannot break out of their line."""
    recipients = {
        "bob": Standing(
            "read", {"stored": 700.0, "pushed": 700.0, "shown": 820.0, "read": 820.0}, "disk"
        ),
        "kim": Standing("refused", {"refused": 700.0}, code="DISK_FULL", text="no\nroom"),
        "long\nname": Standing("skipped", {"stored": None, "skipped": 940.0}),
        "lee": Standing("stored", {"stored": 990.0}, "process", gone=True),
        "max": Standing("expired", {"stored": 700.0, "expired": 880.0}),
    }
    assert _text(Told("m1", "ada", 700.0, recipients), {}, 1000.0) == (
        "m1 from ada, sent 5 min ago\n"
        "  bob           read 3 min ago             stored 5 min ago (disk), pushed 5 min ago\n"
        "  kim           refused 5 min ago          DISK_FULL: no\\nroom\n"
        '  "long\\nname"  skipped 1 min ago          never read, stored\n'
        "  lee           stored 10 s ago (process)  not in the inbox any more\n"
        "  max           expired 2 min ago          never read, stored 5 min ago\n"
    )


def test_programs_see_what_is_known_and_null_for_the_rest() -> None:
    """The same members always, and more where there is more to say."""
    standing = Standing("skipped", {"stored": 1.5, "skipped": 2.5}, "disk")
    (row,) = _fields(Told("m1", "ada", None, {"bob": standing}), {}, 9.0)["recipients"]
    assert row == {
        "session": "bob",
        "state": "skipped",
        "level": "disk",
        "stored_at": "1970-01-01T00:00:01.500000+00:00",
        "pushed_at": None,
        "shown_at": None,
        "read_at": None,
        "skipped_at": "1970-01-01T00:00:02.500000+00:00",
    }
    refused = Standing("refused", {"refused": 1.5}, code="DISK_FULL", text="no room")
    (row,) = _fields(Told("m1", "ada", None, {"bob": refused}), {}, 9.0)["recipients"]
    assert (row["code"], row["message"], row["stored_at"]) == ("DISK_FULL", "no room", None)
    assert "gone" not in row


# -- skips ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["init"], ["listen", "--fresh", "--timeout", "0"], ["ack", "--all", "--skip"]]
)
def test_whatever_passes_messages_over_says_so_to_their_sender(
    bob: Agent, words: list[str]
) -> None:
    """Skipped, never read; listed; one notice."""
    ids = offer(bob, "old", "older")
    ended = bob.run(*words)
    assert ended.status == 0, ended.err
    assert [state(bob, one)["state"] for one in ids] == ["skipped", "skipped"]
    letters = bob.run("dead").ok()
    assert [(one["id"], one["why"], one["inbox"]) for one in letters["letters"]] == [
        (one, "skipped", "bob") for one in ids
    ]
    assert [one["message"]["payload"] for one in letters["letters"]] == [
        {"text": "old"},
        {"text": "older"},
    ]
    (notice,) = bob.run("poll", "--session", "ann").ok()["messages"]
    assert notice["from_session"] == "hub"
    assert notice["payload"]["notice"]["ids"] == ids


def test_acknowledging_is_reading(bob: Agent) -> None:
    """By a position, or of everything: nobody is told of anything skipped."""
    ids = offer(bob, "a", "b", "c")
    first = bob.run("poll", "--peek", "--limit", "1").ok()["position"]
    assert bob.run("ack", first).ok()["unread"] == 2
    assert bob.run("ack", "--all").ok()["unread"] == 0
    assert {state(bob, one)["state"] for one in ids} == {"read"}
    assert bob.run("dead").ok()["letters"] == []
    assert bob.run("poll", "--session", "ann").ok()["count"] == 0


def test_skipping_up_to_a_position_says_how_many(bob: Agent) -> None:
    """As text and as JSON; what lies behind stays unread."""
    offer(bob, "a", "b", "c")
    first = bob.run("poll", "--peek", "--limit", "1").ok()["position"]
    ended = bob.run("ack", "--skip", first).ok()
    assert (ended["skipped"], ended["position"], ended["unread"]) == (1, first, 2)
    text = bob.run("ack", "--all", "--skip", "--format", "text").out.decode()
    assert re.fullmatch(r"2 messages skipped, up to 1:\d+, 0 unread\n", text)
    assert bob.run("ack", "--skip").status == 2


def test_a_cut_message_is_skipped_as_the_hint_says(bob: Agent) -> None:
    """After a peek, those before it count as read: they were shown whole."""
    short, long = offer(bob, "short", "y" * 5000)
    text = bob.run("poll", "--peek", "--format", "text").out.decode()
    found = re.search(r"or skip it: intercom (.*) && intercom (.*)", text)
    assert found is not None
    for words in found.groups():
        bob.run(*words.split()).ok()
    assert state(bob, short)["state"] == "read"
    assert state(bob, long)["state"] == "skipped"
    assert state(bob, long)["shown_at"] is None


def test_a_peek_that_shows_nothing_notes_nothing(bob: Agent) -> None:
    """No trail comes into being by looking; nor does looking need one."""
    with Inbox(bob.paths, "bob") as inbox:
        bob.run("poll", "--peek").ok()
        assert moves(bob) == []
        offer(bob, "x")
        os.mkdir(bob.paths.trail("bob"))  # where the trail would be
        assert bob.run("poll", "--peek").ok()["count"] == 1
        assert inbox.unread() == 1


def test_what_could_not_be_written_out_was_not_shown(bob: Agent) -> None:
    """A peek into a closed pipe is none."""
    offer(bob, "x")
    reader, writer = os.pipe()
    os.close(reader)
    process = bob.start("poll", "--peek", stdout=writer)
    os.close(writer)
    process.communicate(timeout=60)
    assert process.returncode == 1
    assert moves(bob) == []


# -- dead letters -----------------------------------------------------------------------------


def test_no_dead_letters_are_no_failure(bob: Agent) -> None:
    """It is said."""
    ended = bob.run("dead", "--format", "text")
    assert (ended.status, ended.out) == (0, b"nothing was given up unread\n")
    assert bob.run("dead").ok() == {"channel": "default", "count": 0, "letters": []}
    assert bob.run("dead", "--limit", "0").status == 2


def test_dead_letters_are_shown_the_newest_last(bob: Agent) -> None:
    """A line each, whatever their lists hold; damaged lines are passed over."""
    bob.paths.prepare()
    now = time.time()
    rows: list[dict[str, Any]] = [
        {"at": now - 7300, "why": "expired", "inbox": "bob", "id": "m1", "from": "ann"},
        {"at": now - 70, "why": "refused", "code": "DISK_FULL", "inbox": "bob", "id": "m2"},
        {"at": None, "why": "skipped", "inbox": "b\nb", "id": None, "from": "x]"},
    ]
    with open(bob.paths.file("dead.ndjson"), "w", opener=private) as file:
        for row in rows:
            file.write(json.dumps(row) + "\n{half\n")
    text = bob.run("dead", "--format", "text").out.decode()
    assert text == (
        "2 h ago    expired            m1 from ann to bob\n"
        "1 min ago  refused DISK_FULL  m2 from unknown to bob\n"
        '-          skipped            a message without an id from "x\\x5d" to "b\\nb"\n'
    )
    assert bob.run("dead", "--limit", "2").ok()["letters"] == rows[1:]


def private(path: str, flags: int) -> int:
    """Open a file of our own."""
    return os.open(path, flags, 0o600)


# -- levels -----------------------------------------------------------------------------------


def test_a_level_is_asked_for_and_the_one_reached_is_shown(agent: Make) -> None:
    """The channel's own is another; what was asked stays with the message."""
    ann, bob = agent("ann"), agent("bob")
    ann.run("hub", "start", "--durability", "disk").ok()
    sent = ann.run("send", "--to", "bob", "--text", "x", "--durability", "process").ok()
    assert sent["level"] == "process"
    assert sent["envelope"]["payload"] == {"text": "x", "durability": "process"}
    assert state(ann, sent["envelope"]["id"])["level"] == "process"
    text = bob.run("poll", "--format", "text").out.decode()
    assert "]\nx\n[/" in text  # what was said to the hub is not shown to readers


def test_offline_a_message_is_as_safe_as_the_file(bob: Agent) -> None:
    """Whatever was asked for: the append is synced; where that is less, it is said."""
    asked = ["send", "--session", "ann", "--to", "bob", "--text", "x", "--durability"]
    for level in ("memory", "process", "disk"):
        ended = bob.run(*asked, level)
        reached = ended.ok()["level"]
        assert reached in ("process", "disk")
        assert ("was asked for" in ended.err) == (level == "disk" and reached == "process")


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["--durability", "safe"], 2),
        (["--durability", "disk", "--json-payload", '{"durability":"disk"}'], 2),
        (["--json-payload", '{"durability":"safe"}'], 65),
    ],
)
def test_a_level_that_makes_no_sense_is_refused(bob: Agent, words: list[str], status: int) -> None:
    """Before anything is sent."""
    ended = bob.run("send", "--to", "bob", "--text", "x", *words)
    assert ended.status == status
    assert not os.path.exists(bob.paths.inbox("bob"))


# -- whether anybody reads there ----------------------------------------------------------------


def test_of_a_message_that_waits_it_is_said_whether_anybody_reads(agent: Make) -> None:
    """Since when nobody has, and how much lies there; of one that was read nothing is."""
    ann, bob = agent("ann"), agent("bob")
    for one in (ann, bob):
        one.environ["INTERCOM_TRANSPORT"] = "spool"
    bob.run("poll").ok()
    last = time.time() - 31 * 60 - 5
    os.utime(bob.paths.offset("bob"), (last, last))
    for text in ("one", "two"):
        ann.run("send", "--to", "bob", "--text", text).ok()
    (row,) = ann.run("status").ok()["messages"][0]["recipients"]
    assert row["reader"]["state"] == "none"
    assert row["reader"]["last_read"][:19] == format_timestamp(last)[:19]
    assert row["unread"] == 2
    assert 0 <= row["oldest_unread_age"] < 600
    text = ann.run("status", "--format", "text").out.decode()
    assert text.count("no reader for 31 min, 2 unread") == 2
    turn = take(bob.paths, "bob", Holder(7, "a test", last))
    assert turn is not None
    assert "reading, 2 unread" in ann.run("status", "--format", "text").out.decode()
    turn.close()
    bob.run("poll").ok()
    (row,) = ann.run("status").ok()["messages"][0]["recipients"]
    assert "reader" not in row
