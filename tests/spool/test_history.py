"""What became of the last messages: written by the hub, read by its successor and by commands."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Entry, Moved, Position, Refused, Written
from intercom.spool import history as module
from intercom.spool.history import lookup, newest, pushes
from intercom.spool.past import read_past
from intercom.spool.recent import RecentIds
from intercom.spool.store import Store
from intercom.spool.work import Push

MakeEntry = Callable[..., Entry]
NOW = 1_800_000_000.0


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def store(paths: ChannelPaths, calls: Any, clock: Clock) -> Store:
    made = Store(paths, calls, clock)
    made.start()
    return made


def test_a_message_is_one_line_with_all_its_places(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    hub.append_batch([entry(1, message_id="m"), entry(2, message_id="m", inbox="cy")])
    size = os.path.getsize(paths.inbox("bob"))
    other = os.path.getsize(paths.inbox("cy"))
    assert lookup(paths, "m") == [
        {
            "at": NOW,
            "id": "m",
            "from": "ann",
            "digest": entry(1, message_id="m").digest.hex(),
            "level": "disk",
            "to": [["bob", 1, 0, size], ["cy", 1, 0, other]],
        }
    ]


def test_a_refusal_is_told_with_its_reason(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    calls.write_limit = 0
    [refused] = hub.append_batch([entry(1)]).outcomes
    calls.write_limit = None
    hub.append_batch([])
    assert isinstance(refused, Refused)
    assert lookup(paths, "msg_1") == [
        {
            "at": NOW,
            "id": "msg_1",
            "from": "ann",
            "refused": [["bob", "DISK_FULL", refused.text]],
        }
    ]


def test_a_repetition_is_no_news_and_neither_is_a_spent_id(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    hub.append_batch([entry(1)])
    again, reused = hub.append_batch([entry(2, message_id="msg_1"),
                                      entry(3, "other", message_id="msg_1")]).outcomes  # fmt: skip
    assert isinstance(again, Written)
    assert again.duplicate
    assert isinstance(reused, Refused)
    assert len(lookup(paths, "msg_1")) == 1


def test_what_was_pushed_is_told_for_its_inbox(
    paths: ChannelPaths, calls: Any, clock: Clock
) -> None:
    hub = store(paths, calls, clock)
    odd = 'b"ob\u2028'
    hub.work((), (), [Push(odd, 1, 0, 90, NOW), Push("cy", 2, 5, 6, NOW + 1)])
    assert pushes(paths, odd) == [Moved(odd, "pushed", 1, 0, 90, NOW)]
    assert pushes(paths, "cy") == [Moved("cy", "pushed", 2, 5, 6, NOW + 1)]
    assert pushes(paths, "nobody") == []


def test_senders_with_the_same_id_are_told_apart(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    hub.append_batch([entry(1, message_id="m"), entry(2, message_id="m", sender="cy")])
    assert [line["from"] for line in lookup(paths, "m")] == ["ann", "cy"]
    assert [line["from"] for line in lookup(paths, "m", "cy")] == ["cy"]
    assert [line["id"] for line in newest(paths, "ann", 5)] == ["m"]


def test_a_successor_knows_the_ids_whatever_became_of_the_inbox(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    first = store(paths, calls, clock)
    first.append_batch([entry(n) for n in range(3)])
    first.close()
    os.truncate(paths.inbox("bob"), 0)
    second = Store(paths, calls, clock)
    remembered = list(second.start().remembered)
    assert [one.message_id for one in remembered] == ["msg_0", "msg_1", "msg_2"]
    assert remembered[0].inboxes == ("bob",)
    assert remembered[0].digest == entry(0).digest
    [again] = second.append_batch([entry(9, message_id="msg_1")]).outcomes
    assert isinstance(again, Written)
    assert again.duplicate
    assert os.path.getsize(paths.inbox("bob")) == 0


def test_what_a_dead_hub_wrote_without_telling_the_history_is_found_in_the_inbox(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry, message: Callable[..., bytes]
) -> None:
    """However far from the end: it is looked for from where the history ends."""
    first = store(paths, calls, clock)
    first.append_batch([entry(1)])
    first.close()
    big = "x" * 300_000
    with open(paths.inbox("bob"), "ab") as file:
        for number in range(2, 8):
            file.write(message(f"msg_{number}", big) + b"\n")
    second = store(paths, calls, clock)
    outcomes = second.append_batch([entry(n, big) for n in range(2, 9)]).outcomes
    told = [outcome for outcome in outcomes if isinstance(outcome, Written)]
    assert [outcome.duplicate for outcome in told] == [True] * 6 + [False]
    assert lookup(paths, "msg_3"), "and then it is known"


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_jump_of_the_clock_makes_no_repetition_new(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry, jump: float
) -> None:
    first = store(paths, calls, clock)
    first.append_batch([entry(1)])
    first.close()
    clock.now += jump
    second = store(paths, calls, clock)
    [again] = second.append_batch([entry(2, message_id="msg_1")]).outcomes
    assert isinstance(again, Written)
    assert again.duplicate


def test_the_next_file_is_begun_in_time_and_the_one_before_is_kept(
    paths: ChannelPaths,
    calls: Any,
    clock: Clock,
    entry: MakeEntry,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MESSAGES", 4)
    hub = store(paths, calls, clock)
    for number in range(10):
        hub.append_batch([entry(number)])
    known = [number for number in range(10) if lookup(paths, f"msg_{number}")]
    assert known == list(range(4, 10))
    hub.close()
    remembered = list(Store(paths, calls, clock).start().remembered)
    assert [one.message_id for one in remembered] == [f"msg_{n}" for n in range(4, 10)]


def test_a_full_disk_delays_the_history_and_loses_none_of_it(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    first = entry(1)
    calls.write_limit = len(first.line) + 1 + 20  # the line, and a part of what is told of it
    done = hub.append_batch([first])
    assert isinstance(done.outcomes[0], Written)
    assert "No space" in done.trouble
    assert Path(paths.file("history.ndjson")).read_bytes() == b""
    calls.write_limit = None
    assert hub.append_batch([entry(2)]).trouble == ""
    assert [line["id"] for line in newest(paths, "ann", 9)] == ["msg_1", "msg_2"]


def test_whatever_stands_in_the_file_is_passed_over(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    hub.append_batch([entry(1)])
    hub.close()
    path = Path(paths.file("history.ndjson"))
    good = path.read_bytes()
    bad = b'{"at":1,"id":"msg_1","to":[["bob",1,0,5]]\n[]\n\n\xff\xfe\n{"at":"x","to":[["\n'
    worse = b'{"at":1.0,"id":"z","from":"a","digest":"zz","level":"disk","to":[["b",1,0,5]]}\n'
    path.write_bytes(bad + good + worse + b'{"at":5,"id":"msg_7","fr')
    past = read_past(paths, calls, NOW, "", RecentIds())
    assert [one.message_id for one in past.remembered] == ["msg_1"]
    assert past.ends == {"bob": Position(1, os.path.getsize(paths.inbox("bob")))}
    assert [line["id"] for line in lookup(paths, "msg_1")] == ["msg_1"]
    again = store(paths, calls, clock)
    again.append_batch([entry(8)])
    assert [line["id"] for line in lookup(paths, "msg_8")] == ["msg_8"]
    for line in path.read_bytes().splitlines()[-1:]:
        assert json.loads(line)["id"] == "msg_8"


def test_what_lies_in_the_hubs_own_inbox_was_sent_to_nobody(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry, message: Callable[..., bytes]
) -> None:
    hub = store(paths, calls, clock)
    Path(paths.inbox("hub")).write_bytes(message("m1", to="*") + b"\n")
    Path(paths.inbox("hub")).chmod(0o600)
    hub.work(["hub"], [entry(2, inbox="hub")])
    assert lookup(paths, "m1") == []
    assert lookup(paths, "msg_2") == []


def test_a_successor_knows_of_an_inbox_that_a_broadcast_had_still_to_reach(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    hub = store(paths, calls, clock)
    with open(paths.inbox("eve"), "w") as holder:
        os.chmod(paths.inbox("eve"), 0o600)
        fcntl.flock(holder, fcntl.LOCK_EX)
        hub.append_batch([entry(n, inbox=name, message_id="m") for n, name in
                          enumerate(("bob", "eve", "cy"))])  # fmt: skip
    [one] = read_past(paths, calls, NOW, "", RecentIds()).remembered
    assert sorted(one.inboxes) == ["bob", "cy", "eve"]
    assert lookup(paths, "m")[0]["waiting"] == ["eve"]


def test_after_a_power_cut_only_what_the_inboxes_bear_out_is_believed(
    paths: ChannelPaths, calls: Any, clock: Clock, entry: MakeEntry
) -> None:
    """The history may have come through what the inbox has not."""
    first = Store(paths, calls, clock)
    first.start("boot-1")
    first.append_batch([entry(1), entry(2), entry(3, inbox="eve"), entry(4, inbox="gone")])
    first.close()
    os.truncate(paths.inbox("bob"), len(entry(1).line) + 1)
    os.unlink(paths.inbox("gone"))
    for boot, expected in (("boot-1", [True] * 4), ("boot-2", [True, False, True, False])):
        kept = {name: Path(paths.inbox(name)).read_bytes() for name in ("bob", "eve")}
        again = Store(paths, calls, clock)
        again.start(boot)
        outcomes = again.append_batch(
            [entry(1), entry(2), entry(3, inbox="eve"), entry(4, inbox="gone")]
        ).outcomes
        told = {o.ticket: o.duplicate for o in outcomes if isinstance(o, Written)}
        assert [told[ticket] for ticket in (1, 2, 3, 4)] == expected
        again.close()
        for name, data in kept.items():
            Path(paths.inbox(name)).write_bytes(data)
