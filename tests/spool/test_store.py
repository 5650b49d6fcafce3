"""The hub's appends: in batches, under locks, with what others do in between."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from intercom.errors import StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Position, Refused, Shifted, Written
from intercom.spool import tracked
from intercom.spool.files import Inbox
from intercom.spool.store import Store, Work
from intercom.spool.synced import sync_files
from intercom.wire.envelope import MAX_LINE

MakeEntry = Callable[..., Entry]
Message = Callable[..., bytes]


@pytest.fixture
def store(paths: ChannelPaths, calls: Any) -> Any:
    store = Store(paths, calls)
    store.start()
    yield store
    calls.failing.clear()
    store.close()


def content(paths: ChannelPaths, session: str = "bob") -> bytes:
    with open(paths.inbox(session), "rb") as file:
        return file.read()


def others_append(paths: ChannelPaths, data: bytes, session: str = "bob") -> None:
    with open(paths.inbox(session), "ab") as file:
        file.write(data)


def told(work: Work) -> list[tuple[Any, ...]]:
    """What came of it, short: tickets and codes, or others' lines."""
    short: list[tuple[Any, ...]] = []
    for outcome in work.outcomes:
        if isinstance(outcome, Written):
            short.append(("written", outcome.ticket, "again" if outcome.duplicate else "new"))
        elif isinstance(outcome, Refused):
            short.append(("refused", outcome.ticket, outcome.code))
        elif isinstance(outcome, Appeared):
            short.append(("appeared", outcome.inbox, [r.line for r in outcome.records]))
    return short


# -- the ordinary way -------------------------------------------------------------------------


def test_a_batch_is_written_with_one_call_for_each_inbox(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any
) -> None:
    batch = [entry(n, inbox="bob" if n % 2 else "eve") for n in range(40)]
    work = store.append_batch(batch)
    assert calls.log.count("write") == 3  # and the history
    assert [o.ticket for o in work.outcomes if o.inbox == "bob"] == list(range(1, 40, 2))
    assert content(paths) == b"".join(e.line + b"\n" for e in batch if e.inbox == "bob")
    for outcome in work.outcomes:
        assert isinstance(outcome, Written)
        start, end, line = outcome.record
        assert content(paths, outcome.inbox)[start:end] == line + b"\n"
        assert outcome.generation == 1
        assert outcome.known
    assert stat.S_IMODE(os.stat(paths.inbox("bob")).st_mode) == 0o600


def test_levels_are_claimed_for_the_file_that_was_written(store: Store, entry: MakeEntry) -> None:
    levels = ["disk", "process", "memory", "disk"]
    work = store.append_batch([entry(n, level=level) for n, level in enumerate(levels)])
    [(file, tickets, _)] = work.claims
    assert tickets == {"disk": [0, 3], "process": [1], "memory": [2]}
    assert file.dirty


def test_an_unfit_line_is_refused_and_the_others_are_written(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    batch = [entry(1), entry(2, line=b"x" * (MAX_LINE + 1)), entry(3, line=b"{}\n{}"), entry(4)]
    assert told(store.append_batch(batch)) == [
        ("refused", 2, "LINE_TOO_LONG"),
        ("refused", 3, "LINE_TOO_LONG"),
        ("written", 1, "new"),
        ("written", 4, "new"),
    ]


def test_a_stranger_is_told_of_and_refused_where_that_was_asked(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    Inbox(paths, "anna").enrol()
    Inbox(paths, "bert").commit(Position(1, 0))
    with open(paths.token("carl"), "w"):
        pass
    [refused] = store.append_batch([entry(1, only_known=True)]).outcomes
    assert isinstance(refused, Refused)
    assert (refused.code, refused.known) == ("TARGET_NOT_FOUND", ("anna", "bert", "carl"))
    assert not os.path.exists(paths.inbox("bob"))
    [first, second] = store.append_batch([entry(2, ask_known=True), entry(3)]).outcomes
    assert isinstance(first, Written)
    assert isinstance(second, Written)
    assert (first.known, second.known) == (False, True)
    assert not os.path.exists(paths.meta("bob"))  # an inbox alone makes nobody known
    for ticket, name in enumerate(["anna", "bert", "carl"], 10):
        work = store.append_batch([entry(ticket, inbox=name, only_known=True, ask_known=True)])
        assert told(work) == [("written", ticket, "new")]
        assert work.outcomes[0].known is True  # type: ignore[union-attr]


# -- once only --------------------------------------------------------------------------------


def test_the_same_message_again_leads_to_the_earlier_place(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    [first] = store.append_batch([entry(1, message_id="m")]).outcomes
    [again] = store.append_batch([entry(2, message_id="m")]).outcomes
    assert isinstance(first, Written)
    assert again == first._replace(ticket=2, duplicate=True)
    assert content(paths).count(b"\n") == 1


def test_the_same_message_twice_in_a_batch_is_written_once(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    batch = [entry(1, message_id="m"), entry(2, message_id="m"), entry(3, "no", message_id="m")]
    assert told(store.append_batch(batch)) == [
        ("written", 1, "new"),
        ("written", 2, "again"),
        ("refused", 3, "MESSAGE_ID_REUSE"),
    ]
    assert content(paths).count(b"\n") == 1


def test_the_same_id_of_another_sender_is_another_message(store: Store, entry: MakeEntry) -> None:
    batch = [entry(1, message_id="m"), entry(2, message_id="m", sender="eve")]
    assert told(store.append_batch(batch)) == [("written", 1, "new"), ("written", 2, "new")]


def test_a_retry_after_the_hubs_death_is_recognised_by_its_successor(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(n) for n in range(5)])
    store.close()
    successor = Store(paths)
    successor.start()
    assert told(successor.append_batch([entry(3), entry(3, "other"), entry(9)])) == [
        ("written", 3, "again"),
        ("refused", 3, "MESSAGE_ID_REUSE"),
        ("written", 9, "new"),
    ]
    successor.close()


def test_without_a_history_the_end_of_an_inbox_tells_its_ids(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(1)])
    os.unlink(paths.file("history.ndjson"))
    later = Store(paths)
    assert list(later.start().remembered) == []
    assert told(later.append_batch([entry(1)])) == [("written", 1, "again")]
    later.close()


def test_what_others_hold_already_is_dropped_from_the_batch(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(1)])
    others_append(paths, entry(2).line + b"\n" + entry(3, "other").line + b"\n")
    assert told(store.append_batch([entry(2), entry(3), entry(4)])) == [
        ("appeared", "bob", [entry(2).line, entry(3, "other").line]),
        ("written", 2, "again"),
        ("refused", 3, "MESSAGE_ID_REUSE"),
        ("written", 4, "new"),
    ]
    assert content(paths).count(b"\n") == 4


# -- others' lines ----------------------------------------------------------------------------


def test_others_lines_are_told_once_and_before_ours(
    store: Store, paths: ChannelPaths, entry: MakeEntry, message: Message
) -> None:
    store.append_batch([entry(1)])
    others_append(paths, message("o1") + b"\n" + b"garbage\n" + message("o2") + b"\n")
    work = store.append_batch([entry(2)])
    assert told(work) == [
        ("appeared", "bob", [message("o1"), message("o2")]),
        ("written", 2, "new"),
    ]
    assert [(inbox, span.reason) for inbox, span in work.damaged] == [("bob", "not a JSON object")]
    assert told(store.append_batch([entry(3)])) == [("written", 3, "new")]
    assert told(store.work(["bob"], [])) == []


def test_what_stood_there_when_the_hub_began_is_no_news(
    paths: ChannelPaths, entry: MakeEntry, message: Message
) -> None:
    others_append(paths, message("old") + b"\n" + message("being written")[:30])
    store = Store(paths)
    store.start()
    others_append(paths, message("being written")[30:] + b"\n" + message("new") + b"\n")
    # ... but a line that was finished since then is.
    assert told(store.work(["bob"], [])) == [
        ("appeared", "bob", [message("being written"), message("new")])
    ]
    store.close()


@pytest.mark.parametrize("first", ["look", "append"])
def test_an_inbox_that_others_made_since_is_all_news(
    store: Store, paths: ChannelPaths, entry: MakeEntry, message: Message, first: str
) -> None:
    others_append(paths, message("o1") + b"\n")
    if first == "look":
        assert told(store.work(["bob"], [])) == [("appeared", "bob", [message("o1")])]
        assert told(store.append_batch([entry(1)])) == [("written", 1, "new")]
    else:
        assert told(store.append_batch([entry(1)])) == [
            ("appeared", "bob", [message("o1")]),
            ("written", 1, "new"),
        ]
        assert told(store.work(["bob"], [])) == []


def test_an_unfinished_line_of_others_is_told_when_it_is_finished(
    store: Store, paths: ChannelPaths, message: Message
) -> None:
    line = message("o1", "grüße")
    for at in range(len(line)):
        others_append(paths, line[at : at + 1])
        assert told(store.work(["bob"], [])) == []
    others_append(paths, b"\n")
    assert told(store.work(["bob"], [])) == [("appeared", "bob", [line])]


def test_a_torn_line_is_ended_and_cannot_swallow_ours(
    store: Store, paths: ChannelPaths, entry: MakeEntry, message: Message
) -> None:
    others_append(paths, message("o1")[:50])
    work = store.append_batch([entry(1)])
    assert told(work) == [("written", 1, "new")]
    assert work.torn == ["bob"]
    assert content(paths) == message("o1")[:50] + b"\n" + entry(1).line + b"\n"


def test_looking_makes_no_file_and_looks_at_no_unknown_hash(
    store: Store, paths: ChannelPaths
) -> None:
    assert told(store.work(["bob", "x~0123", "%zz"], [])) == []
    assert os.listdir(paths.directory) == []


def test_a_long_name_is_found_by_what_its_files_say(
    store: Store, paths: ChannelPaths, message: Message
) -> None:
    name = "long " * 25
    encoded = os.path.basename(paths.inbox(name))[len("inbox_") : -len(".ndjson")]
    others_append(paths, message("o1") + b"\n", name)
    assert told(store.work([encoded], [])) == []  # nobody ever used this name
    Inbox(paths, name).enrol()
    assert told(store.work([encoded], [])) == [("appeared", name, [message("o1")])]
    assert list(Store(paths).start().sessions) == [name]


def test_a_link_in_place_of_a_small_file_stops_no_look(
    paths: ChannelPaths, message: Message
) -> None:
    name = "long " * 25
    os.symlink("/etc/hostname", paths.meta(name))
    others_append(paths, message("o0") + b"\n")
    store = Store(paths)
    assert store.start().sessions == {}
    encoded = os.path.basename(paths.inbox(name))[len("inbox_") : -len(".ndjson")]
    others_append(paths, message("o1") + b"\n", name)
    others_append(paths, message("o1") + b"\n")
    assert told(store.work([encoded, "bob"], [])) == [("appeared", "bob", [message("o1")])]
    store.close()


def test_news_of_any_size_comes_in_bounded_pieces(
    store: Store, paths: ChannelPaths, entry: MakeEntry, message: Message
) -> None:
    lines = [message(f"o{n}", "x" * 500_000) for n in range(25)]
    others_append(paths, b"".join(line + b"\n" for line in lines))
    seen: list[bytes] = []
    entries, pieces = [entry(1)], 0
    while entries:
        work = store.append_batch(entries)
        entries = work.busy
        for outcome in work.outcomes:
            if isinstance(outcome, Appeared):
                pieces += 1
                assert sum(len(r.line) for r in outcome.records) <= tracked.LOOK + MAX_LINE
                seen += [record.line for record in outcome.records]
    assert seen == lines
    assert pieces > 2
    assert told(work)[-1] == ("written", 1, "new")


# -- resets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["truncate", "truncate and grow", "unlink", "replace"])
def test_a_reset_by_others_raises_the_generation(
    store: Store, paths: ChannelPaths, entry: MakeEntry, message: Message, how: str
) -> None:
    """Of a session that is known; see below for one that was forgotten."""
    Inbox(paths, "bob").enrol()
    store.append_batch([entry(n) for n in range(3)])
    grown = b"".join(message(f"o{n}", "12345678") + b"\n" for n in range(9))
    path = paths.inbox("bob")
    if how.startswith("truncate"):
        os.truncate(path, 0)
    else:
        os.unlink(path)
    if how in ("truncate and grow", "replace"):
        others_append(paths, grown)
    shifted, *outcomes = store.append_batch([entry(6), entry(1), entry(7)]).outcomes
    assert shifted == Shifted("bob", 1, 2, ())
    if how in ("truncate and grow", "replace"):
        appeared = outcomes.pop(0)
        assert isinstance(appeared, Appeared)
        assert (appeared.generation, len(appeared.records)) == (2, 9)
    # What was in the old generation was stored once, and is not stored again.
    places = [(o.duplicate, o.generation) for o in outcomes]  # type: ignore[union-attr]
    assert places == [(False, 2), (True, 1), (False, 2)]
    batch = Inbox(paths, "bob").read()
    assert batch.start == Position(2, 0)
    assert batch.records[-1].line == entry(7).line


def test_a_reset_between_the_hubs_start_and_its_first_look_begins_a_generation(
    paths: ChannelPaths, entry: MakeEntry
) -> None:
    """Or what was read before it would count for what came after it, in the same place."""
    first = Store(paths)
    first.start()
    first.append_batch([entry(1)])
    first.close()
    inbox = Inbox(paths, "bob")
    inbox.enrol()
    end = inbox.read().next
    inbox.commit(end)
    successor = Store(paths)
    successor.start()
    with open(paths.inbox("bob"), "wb"), open(paths.offset("bob"), "w") as offset:
        offset.write('{"offset": 0, "updated_at": 1.0}')
    again, new = successor.append_batch([entry(1), entry(2)]).outcomes
    assert isinstance(again, Written)
    assert isinstance(new, Written)
    assert (again.duplicate, again.record.line) == (True, entry(1).line)
    assert (new.generation, new.record.start) == (2, 0)
    with pytest.raises(StalePosition):
        inbox.commit(end)
    assert [record.line for record in inbox.read().records] == [entry(2).line]


def test_a_compaction_between_the_hubs_start_and_its_first_look_is_no_reset(
    paths: ChannelPaths, entry: MakeEntry
) -> None:
    first = Store(paths)
    first.start()
    first.append_batch([entry(1), entry(2)])
    first.close()
    successor = Store(paths)
    successor.start()
    inbox = Inbox(paths, "bob")
    inbox.commit(Position(1, len(entry(1).line) + 1))
    assert inbox.compact()
    shifted, new = successor.append_batch([entry(3)]).outcomes
    assert shifted == Shifted("bob", 1, 2, ((len(entry(1).line) + 1, 2 * len(entry(1).line) + 2),))
    assert isinstance(new, Written)
    assert new.generation == 2
    assert [r.line for r in inbox.read().records] == [entry(2).line, entry(3).line]


def test_a_forgotten_session_begins_anew_and_is_known_to_nobody(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    """Whoever writes to it afterwards is told; what it had held is no duplicate any more."""
    Inbox(paths, "bob").enrol()
    assert [o.known for o in store.append_batch([entry(1, ask_known=True)]).outcomes] == [True]  # type: ignore[union-attr]
    os.unlink(paths.meta("bob"))
    os.unlink(paths.inbox("bob"))
    for _ in range(2):
        *_, outcome = store.append_batch([entry(1, ask_known=True)]).outcomes
        assert isinstance(outcome, Written)
        assert not outcome.known
        assert (outcome.generation, outcome.record.start) == (1, 0)
        assert content(paths) == entry(1).line + b"\n"
    assert not os.path.exists(paths.meta("bob"))
    (strict,) = store.append_batch([entry(2, ask_known=True, only_known=True)]).outcomes
    assert isinstance(strict, Refused)
    assert strict.code == "TARGET_NOT_FOUND"


def test_a_session_forgotten_between_the_question_and_the_lock_is_not_called_known(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any
) -> None:
    """The answer is that of the file into which the message goes."""
    Inbox(paths, "bob").enrol()
    store.append_batch([entry(1)])
    lock = calls.lock

    def forget_first(fd: int, exclusive: bool) -> bool:
        calls.lock = lock
        os.unlink(paths.meta("bob"))
        os.unlink(paths.inbox("bob"))
        return bool(lock(fd, exclusive))

    calls.lock = forget_first
    *_, outcome = store.append_batch([entry(2, ask_known=True)]).outcomes
    assert isinstance(outcome, Written)
    assert not outcome.known


def test_an_emptying_by_another_process_is_noticed_even_if_the_file_grew_again(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(1)])
    inbox = Inbox(paths, "bob")
    inbox.skip_to_end()
    assert inbox.compact()
    others_append(paths, entry(5).line + b"\n" + entry(6).line + b"\n")
    work = store.append_batch([entry(2)])
    assert told(work) == [
        ("appeared", "bob", [entry(5).line, entry(6).line]),
        ("written", 2, "new"),
    ]
    assert work.outcomes[0] == Shifted("bob", 1, 2, ())
    assert {o.generation for o in work.outcomes[1:]} == {2}  # type: ignore[union-attr]


def test_what_a_compaction_has_kept_is_not_told_again(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(1), entry(2), entry(3)])
    size = len(entry(1).line) + 1
    inbox = Inbox(paths, "bob")
    inbox.commit(Position(1, size))
    others_append(paths, entry(8).line + b"\n")
    assert inbox.compact()
    others_append(paths, entry(9).line + b"\n")
    work = store.append_batch([entry(4)])
    assert work.outcomes[0] == Shifted("bob", 1, 2, ((size, 4 * size),))
    assert told(work) == [
        ("appeared", "bob", [entry(8).line, entry(9).line]),
        ("written", 4, "new"),
    ]


def test_a_line_that_stands_there_twice_is_told_as_a_repetition(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    store.append_batch([entry(1)])
    others_append(paths, entry(1).line + b"\n" + entry(2).line + b"\n")
    [appeared] = store.work(["bob"], []).outcomes
    assert isinstance(appeared, Appeared)
    assert appeared.repeated == {len(entry(1).line) + 1}


def test_an_append_after_a_reset_by_the_original_loses_nothing_to_its_old_position(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    with open(paths.offset("bob"), "w") as file:
        json.dump({"offset": len(entry(1).line) + 1}, file)  # of a file that is gone
    store.append_batch([entry(1)])
    assert [r.line for r in Inbox(paths, "bob").read().records] == [entry(1).line]


# -- locks ------------------------------------------------------------------------------------


def test_a_held_lock_delays_its_own_inbox_only(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    others_append(paths, b"")
    fd = os.open(paths.inbox("bob"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_SH)
    batch = [entry(1), entry(2, inbox="eve"), entry(3)]
    work = store.append_batch(batch)
    assert told(work) == [("written", 2, "new")]
    assert work.busy == [entry(1), entry(3)]
    others_append(paths, b"{}\n")
    assert store.work(["bob"], []).busy_looks == ["bob"]
    os.close(fd)
    assert told(store.append_batch(work.busy)) == [
        ("appeared", "bob", [b"{}"]),
        ("written", 1, "new"),
        ("written", 3, "new"),
    ]


def test_no_lock_is_kept_between_batches(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any
) -> None:
    store.append_batch([entry(1)])
    calls.write_limit = 5
    store.append_batch([entry(2)])
    calls.write_limit = None
    calls.failing["write"] = errno.EIO
    store.append_batch([entry(3)])
    fd = os.open(paths.inbox("bob"), os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)


# -- failures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [0, 1, 200, 300])
def test_a_short_write_is_taken_back_and_the_other_inboxes_go_on(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any, room: int
) -> None:
    store.append_batch([entry(1), entry(2, inbox="eve")])
    before = content(paths)
    calls.write_limit = room
    assert told(store.append_batch([entry(3), entry(4)])) == [
        ("refused", 3, "DISK_FULL"),
        ("refused", 4, "DISK_FULL"),
    ]
    assert content(paths) == before
    calls.write_limit = None
    assert told(store.append_batch([entry(3), entry(5, inbox="eve")])) == [
        ("written", 3, "new"),
        ("written", 5, "new"),
    ]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "DISK_FULL"),
        (errno.EDQUOT, "DISK_FULL"),
        (errno.EFBIG, "DISK_FULL"),
        (errno.EIO, "SPOOL_FAILED"),
    ],
)
@pytest.mark.parametrize("call", ["write", "open"])
def test_an_error_of_the_system_is_a_refusal_with_its_reason(
    store: Store, entry: MakeEntry, calls: Any, number: int, code: str, call: str
) -> None:
    calls.failing[call] = number
    [refused] = store.append_batch([entry(1)]).outcomes
    assert isinstance(refused, Refused)
    assert refused.code == code
    assert os.strerror(number) in refused.text


def test_what_cannot_be_taken_back_is_told_as_it_is(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any
) -> None:
    calls.write_limit = len(entry(1).line) + 30
    calls.failing["ftruncate"] = errno.EIO
    batch = [entry(1), entry(2), entry(3, message_id="msg_2")]
    assert told(store.append_batch(batch)) == [
        ("written", 1, "new"),
        ("refused", 2, "DISK_FULL"),
        ("refused", 3, "DISK_FULL"),
    ]
    calls.write_limit = None
    work = store.append_batch([entry(2)])
    assert told(work) == [("written", 2, "new")]
    assert work.torn == ["bob"]
    lines = [record.line for record in Inbox(paths, "bob").read().records]
    assert lines == [entry(1).line, entry(2).line]


def test_an_inbox_that_is_a_link_is_refused(
    store: Store, paths: ChannelPaths, entry: MakeEntry
) -> None:
    with open(paths.file("elsewhere"), "wb"):
        pass
    os.symlink(paths.file("elsewhere"), paths.inbox("bob"))
    work = store.append_batch([entry(1), entry(2, inbox="eve")])
    assert told(work) == [("refused", 1, "SPOOL_FAILED"), ("written", 2, "new")]
    assert os.path.getsize(paths.file("elsewhere")) == 0


def test_a_file_size_limit_of_the_system_tears_no_line(paths: ChannelPaths) -> None:
    """In a process of its own, whose files cannot grow past 4,000 bytes."""
    script = textwrap.dedent(
        """
        import resource, sys
        from intercom.paths import ChannelPaths
        from intercom.records import Entry
        from intercom.spool.store import Store
        resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
        store = Store(ChannelPaths(sys.argv[1], "room"))
        store.start()
        line = b'{"x":"' + b"y" * 291 + b'"}'  # 300 with its line feed
        for n in range(20):
            batch = [Entry(2 * n + k, "bob", line, "ann", f"m{n}-{k}", b"", "disk") for k in (0, 1)]
            for outcome in store.append_batch(batch).outcomes:
                print(getattr(outcome, "code", "written"))
        """
    )
    told = subprocess.run(
        [sys.executable, "-c", script, paths.base],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    ).stdout.split()
    assert told == ["written"] * 12 + ["DISK_FULL"] * 28  # in pairs: 6 x 600 bytes fit
    assert len(content(paths)) == 3600


# -- descriptors ------------------------------------------------------------------------------


def test_few_files_are_kept_open_and_none_unsynced_is_lost(
    paths: ChannelPaths, entry: MakeEntry, calls: Any, message: Message
) -> None:
    before = len(os.listdir("/proc/self/fd"))
    store = Store(paths, calls, open_files=4)
    store.start()
    batch = [entry(n, inbox=f"s{n}") for n in range(30)]
    work = store.append_batch(batch)
    assert len(told(work)) == 30
    assert len(os.listdir("/proc/self/fd")) - before <= 6  # and the directory, the history
    assert sum(file.dirty for file, _, _ in work.claims) == 4  # the others were synced
    assert calls.log.count("sync") == 26
    # What others did to a file that was closed meanwhile is noticed all the same.
    others_append(paths, message("o1") + b"\n", "s0")
    assert told(store.append_batch([entry(50, inbox="s0")])) == [
        ("appeared", "s0", [message("o1")]),
        ("written", 50, "new"),
    ]
    store.close()
    assert not any(file.dirty for file, _, _ in work.claims)
    assert len(os.listdir("/proc/self/fd")) == before


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """Let this process open so many more files, whatever gaps there are in what it holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))
    fillers = [os.open(os.devnull, os.O_RDONLY)]
    while fillers[-1] < highest:
        fillers.append(os.open(os.devnull, os.O_RDONLY))
    top = max(highest, fillers[-1])
    resource.setrlimit(resource.RLIMIT_NOFILE, (top + 1 + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in fillers:
            os.close(fd)


@pytest.mark.parametrize("left", [2, 3, 4, 5, 12])
def test_running_out_of_descriptors_closes_some_and_fails_nothing(
    paths: ChannelPaths, entry: MakeEntry, message: Message, left: int
) -> None:
    store = Store(paths, open_files=200)
    store.start()
    store.append_batch([entry(99, inbox="s0")])  # the history is open
    others_append(paths, message("o1") + b"\n", "s7")
    with descriptors_left(left):
        work = store.append_batch([entry(n, inbox=f"s{n}") for n in range(40)])
        kept = len(store._files)
        others_append(paths, message("o2") + b"\n", "s1")
        looked = store.work(["s1"], [])
    assert kept <= left  # the limit did bite: all forty would have been kept
    news = ("appeared", "s7", [message("o1")])
    expected: list[tuple[Any, ...]] = [("written", n, "new") for n in range(40)]
    assert told(work) == [*expected[:7], news, *expected[7:]]
    assert told(looked) == [("appeared", "s1", [message("o2")])]
    assert [file.failed for file, _, _ in work.claims if file.failed] == []
    store.close()
    assert not any(file.dirty for file, _, _ in work.claims)


def test_without_any_descriptor_an_entry_is_refused_once(
    paths: ChannelPaths, entry: MakeEntry
) -> None:
    store = Store(paths)
    store.start()
    batch = [entry(1), entry(2, only_known=True), entry(3, line=b"{}\n")]
    with descriptors_left(0):
        work = store.append_batch(batch)
    assert told(work) == [("refused", n, "SPOOL_FAILED") for n in (1, 2, 3)]
    store.close()


# -- syncs ------------------------------------------------------------------------------------


def test_the_directory_is_synced_once_for_all_new_files(
    store: Store, entry: MakeEntry, calls: Any
) -> None:
    work = store.append_batch([entry(n, inbox=f"s{n}") for n in range(5)])
    calls.log.clear()
    sync_files([file for file, _, _ in work.claims], calls)
    assert calls.log == ["sync"] * 5 + ["sync_directory"]
    work = store.append_batch([entry(n, inbox=f"s{n - 5}") for n in range(5, 10)])
    calls.log.clear()
    sync_files([file for file, _, _ in work.claims], calls)
    sync_files([file for file, _, _ in work.claims], calls)
    assert calls.log == ["sync"] * 5


@pytest.mark.parametrize("call", ["sync", "sync_directory"])
def test_after_a_failed_sync_nothing_is_claimed_of_that_descriptor(
    store: Store, entry: MakeEntry, calls: Any, call: str
) -> None:
    [(file, _, _)] = store.append_batch([entry(1)]).claims
    calls.failing[call] = errno.EIO
    sync_files([file], calls)
    assert "rror" in file.failed
    calls.failing.clear()
    sync_files([file], calls)
    assert file.failed
    # Later messages go through a new descriptor, of which a sync can be believed.
    [(newer, _, _)] = store.append_batch([entry(2)]).claims
    assert newer is not file
    sync_files([newer], calls)
    assert not newer.failed
    assert not newer.dirty


def test_a_duplicate_of_what_a_dead_hub_wrote_is_synced_before_it_is_called_safe(
    store: Store, paths: ChannelPaths, entry: MakeEntry, calls: Any
) -> None:
    store.append_batch([entry(1)])
    successor = Store(paths, calls)
    successor.start()
    [(file, tickets, _)] = successor.append_batch([entry(1)]).claims
    assert tickets == {"disk": [1]}
    calls.log.clear()
    sync_files([file], calls)
    assert calls.log == ["sync", "sync_directory"]
    successor.close()


# -- known sessions ---------------------------------------------------------------------------


def test_known_sessions_are_found_with_the_time_since_they_read(paths: ChannelPaths) -> None:
    Inbox(paths, "anna").enrol()
    Inbox(paths, "bert é").commit(Position(1, 0))
    with open(paths.token("carl"), "w"):
        pass
    others_append(paths, b"{}\n", "stranger")
    then = os.stat(paths.offset("bert é")).st_mtime
    found = Store(paths, clock=lambda: then + 90.0).start()
    assert found.sessions == {"anna": None, "bert é": 90.0, "carl": None}


def test_temporary_files_of_the_dead_are_swept(paths: ChannelPaths) -> None:
    for name, age in ((".tmp-old", 4000.0), (".tmp-new", 10.0)):
        with open(paths.file(name), "w"):
            pass
        then = os.stat(paths.file(name)).st_mtime - age
        os.utime(paths.file(name), (then, then))
    Store(paths).start()
    assert os.listdir(paths.directory) == [".tmp-new"]
