"""An inbox for programs outside of the hub."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from intercom.errors import InboxLocked, SpoolError, StalePosition, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Batch, Position
from intercom.spool.files import Inbox
from intercom.wire.envelope import MAX_LINE

Message = Callable[..., bytes]


@contextmanager
def locked_by_another(path: str, how: int) -> Iterator[None]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(fd, how)
    try:
        yield
    finally:
        os.close(fd)


def put(paths: ChannelPaths, data: bytes, session: str = "bob") -> None:
    with open(paths.inbox(session), "ab") as file:
        file.write(data)


def put_offset(paths: ChannelPaths, content: bytes | dict[str, Any]) -> None:
    with open(paths.offset("bob"), "wb") as file:
        file.write(content if isinstance(content, bytes) else json.dumps(content).encode())


def put_meta(paths: ChannelPaths, content: bytes | dict[str, Any]) -> None:
    with open(paths.meta("bob"), "wb") as file:
        file.write(content if isinstance(content, bytes) else json.dumps(content).encode())


def texts(batch: Batch) -> list[str]:
    return [json.loads(record.line)["payload"]["text"] for record in batch.records]


def test_an_inbox_that_was_never_written_to_is_empty_and_not_made(paths: ChannelPaths) -> None:
    with Inbox(paths, "bob") as inbox:
        assert inbox.size() == 0
        assert inbox.read() == Batch(Position(1, 0), [], Position(1, 0), True, [])
        assert inbox.unread() == 0
    assert os.listdir(paths.directory) == []


def test_messages_are_read_in_order_until_they_are_committed(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, b"".join(message(f"m{n}", f"text {n}") + b"\n" for n in range(3)))
    inbox = Inbox(paths, "bob")
    batch = inbox.read()
    assert texts(batch) == ["text 0", "text 1", "text 2"]
    assert batch.at_end
    assert texts(inbox.read()) == texts(batch)
    middle = Position(1, batch.records[0].end)
    assert inbox.commit(middle) == middle
    assert texts(inbox.read()) == ["text 1", "text 2"]
    assert texts(inbox.read(Position(1, 0))) == texts(batch)
    assert inbox.unread() == 2


def test_a_limit_gives_the_lines_that_fit_and_at_least_one(
    paths: ChannelPaths, message: Message
) -> None:
    lines = [message(f"m{n}", "x" * 300) + b"\n" for n in range(5)]
    put(paths, b"".join(lines))
    inbox = Inbox(paths, "bob")
    for limit in (-1, 0, 1, len(lines[0]) - 1, len(lines[0]), 2 * len(lines[0]) - 1):
        batch = inbox.read(limit=limit)
        assert [record.line + b"\n" for record in batch.records] == lines[:1], limit
        assert not batch.at_end
    assert len(inbox.read(limit=2 * len(lines[0])).records) == 2
    assert inbox.read(limit=5 * len(lines[0])).at_end


def test_a_line_of_a_mebibyte_is_read_whole(paths: ChannelPaths, message: Message) -> None:
    line = message("m1", "x" * (MAX_LINE - len(message("m1", ""))))
    assert len(line) == MAX_LINE
    put(paths, b"{}\n" + line + b"\n{}\n")
    batch = Inbox(paths, "bob").read(Position(1, 3), limit=1)
    assert [record.line for record in batch.records] == [line]


def test_bad_lines_are_told_and_passed_over(paths: ChannelPaths, message: Message) -> None:
    good = message("m1")
    put(paths, b"nonsense\n\n" + good + b"\n" + b"\xff\n")
    batch = Inbox(paths, "bob").read()
    assert [record.line for record in batch.records] == [good]
    assert [span.reason for span in batch.damaged] == [
        "not a JSON object",
        "blank",
        "not valid UTF-8",
    ]
    assert batch.next.offset == Inbox(paths, "bob").size()
    assert batch.at_end


def test_a_commit_is_one_small_file_that_others_can_read(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m1") + b"\n")
    before = time.time()
    end = Inbox(paths, "bob").commit(Position(1, len(message("m1")) + 1))
    with open(paths.offset("bob")) as file:
        content = json.load(file)
    assert before <= content.pop("updated_at") <= time.time()
    assert content == {"offset": end.offset, "generation": 1, "session": "bob"}
    assert stat.S_IMODE(os.stat(paths.offset("bob")).st_mode) == 0o600
    assert [name for name in os.listdir(paths.directory) if name.startswith(".tmp")] == []


@pytest.mark.parametrize(
    "position", [Position(1, 5), Position(1, 999), Position(2, 0), Position(0, 0), Position(1, -1)]
)
def test_a_commit_of_a_place_that_does_not_exist_is_refused(
    paths: ChannelPaths, message: Message, position: Position
) -> None:
    put(paths, message("m1") + b"\n")
    with pytest.raises(StalePosition):
        Inbox(paths, "bob").commit(position)
    assert not os.path.exists(paths.offset("bob"))


def test_a_late_commit_changes_nothing(paths: ChannelPaths) -> None:
    put(paths, b"{}\n{}\n")
    inbox = Inbox(paths, "bob")
    assert inbox.commit(Position(1, 6)) == Position(1, 6)
    assert inbox.commit(Position(1, 3)) == Position(1, 6)
    assert inbox.read().records == []


DAMAGED = [b"", b"[]", b'{"offset": -5}', b'"7"', b'{"offset": 1e400}', b'{"offset": true}']
DAMAGED += [b'{"offset": 3.0}', b'{"offset": [3]}', b'{"offset": ' + b"9" * 5000 + b"}", b"\xff"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_position_shows_everything_again_with_a_warning(
    paths: ChannelPaths, content: bytes
) -> None:
    put(paths, b'{"a":1}\n{"b":2}\n')
    put_meta(paths, {"generation": 4})
    put_offset(paths, content)
    pauses: list[float] = []
    inbox = Inbox(paths, "bob", sleep=pauses.append)
    batch = inbox.read()
    assert batch.start == Position(4, 0)
    assert len(batch.records) == 2
    assert "damaged" in batch.warning
    assert pauses == [0.02, 0.02]  # three looks: somebody might have been writing it
    assert inbox.commit(batch.next) == Position(4, 16)
    assert inbox.read() == Batch(Position(4, 16), [], Position(4, 16), True, [])


def test_a_position_that_is_just_being_rewritten_is_waited_for(paths: ChannelPaths) -> None:
    put(paths, b'{"a":1}\n{"b":2}\n')
    put_offset(paths, b"")
    inbox = Inbox(paths, "bob", sleep=lambda _: put_offset(paths, {"offset": 8}))
    batch = inbox.read()
    assert (batch.start, batch.warning) == (Position(1, 8), "")


def test_a_commit_waits_for_a_position_that_is_being_rewritten(paths: ChannelPaths) -> None:
    put(paths, b'{"a":1}\n{"b":2}\n')
    put_offset(paths, b"")
    inbox = Inbox(paths, "bob", sleep=lambda _: put_offset(paths, {"offset": 16}))
    assert inbox.commit(Position(1, 8)) == Position(1, 16)


@pytest.mark.parametrize("content", [b"", b"[]", b'{"generation": 0}', b'{"generation": 1e9}'])
def test_a_damaged_meta_file_is_mended_from_the_offset_file(
    paths: ChannelPaths, content: bytes
) -> None:
    put(paths, b'{"a":1}\n{"b":2}\n')
    put_meta(paths, content)
    put_offset(paths, {"offset": 8, "generation": 6})
    inbox = Inbox(paths, "bob")
    assert inbox.read().start == Position(6, 8)
    inbox.commit(Position(6, 16))
    with open(paths.meta("bob")) as file:
        assert json.load(file) == {"format": 1, "session": "bob", "generation": 6}


def test_the_original_programs_commit_counts_and_its_torn_one_loses_nothing(
    paths: ChannelPaths,
) -> None:
    put(paths, b'{"a":1}\n{"b":2}\n')
    put_offset(paths, {"offset": 8, "updated_at": 1.0})
    assert Inbox(paths, "bob").read().start == Position(1, 8)
    put_offset(paths, {"offset": 11, "updated_at": 1.0})
    batch = Inbox(paths, "bob").read()
    assert batch.start == Position(1, 8)
    assert batch.warning


def test_an_inbox_reset_by_others_begins_a_new_generation(paths: ChannelPaths) -> None:
    put(paths, b'{"old":1}\n' * 10)
    inbox = Inbox(paths, "bob")
    inbox.commit(Position(1, 100))
    os.truncate(paths.inbox("bob"), 0)
    put(paths, b'{"new":1}\n')
    batch = inbox.read()
    assert batch.start == Position(2, 0)
    assert len(batch.records) == 1
    with pytest.raises(StalePosition):
        inbox.commit(Position(1, 10))
    put(paths, b'{"new":1}\n' * 20)  # grown past the old position: the reset is not forgotten
    assert inbox.read().start == Position(2, 0)
    assert inbox.commit(batch.next) == Position(2, 10)


def test_an_unlinked_inbox_is_a_reset_too(paths: ChannelPaths) -> None:
    put(paths, b'{"old":1}\n' * 10)
    inbox = Inbox(paths, "bob")
    inbox.commit(Position(1, 100))
    os.unlink(paths.inbox("bob"))
    assert inbox.read().start == Position(2, 0)
    assert inbox.append(b'{"new":1}', sender="ann", message_id="m1")
    put(paths, b'{"new":1}\n' * 20)
    assert inbox.read().start == Position(2, 0)


def test_skipping_to_the_end_tells_how_many_were_passed_over(
    paths: ChannelPaths, message: Message
) -> None:
    for n in range(30):
        put(paths, message(f"m{n}", "x" * 70_000) + b"\n")  # more than one read
    put(paths, b'{"torn')
    inbox = Inbox(paths, "bob")
    count, position = inbox.skip_to_end()
    assert count == 30
    assert position == Position(1, inbox.size() - len(b'{"torn'))
    assert inbox.read().records == []
    assert inbox.skip_to_end() == (0, position)
    put(paths, b"oops\n")
    assert inbox.unread() == 0  # no JSON after all
    put(paths, b"{}\n")
    assert inbox.unread() == 1


def test_a_renewed_position_tells_when_its_session_last_read(paths: ChannelPaths) -> None:
    put(paths, b"{}\n")
    inbox = Inbox(paths, "bob")
    inbox.commit(Position(1, 3))
    os.utime(paths.offset("bob"), (1000.0, 1000.0))
    inbox.commit(Position(1, 3))
    assert os.stat(paths.offset("bob")).st_mtime > 1000.0
    identity = os.stat(paths.offset("bob")).st_ino
    inbox.commit(Position(1, 3))
    assert os.stat(paths.offset("bob")).st_ino == identity  # young enough


# -- falling back to the file -----------------------------------------------------------------


def test_an_append_without_the_hub_is_a_private_line_of_the_inbox(
    paths: ChannelPaths, message: Message
) -> None:
    line = message("m1", "grüße 💥")
    inbox = Inbox(paths, "bob")
    assert inbox.append(line, sender="ann", message_id="m1")
    with open(paths.inbox("bob"), "rb") as file:
        assert file.read() == line + b"\n"
    assert stat.S_IMODE(os.stat(paths.inbox("bob")).st_mode) == 0o600
    assert sorted(os.listdir(paths.directory)) == ["inbox_bob.ndjson"]  # nobody became known


def test_what_arrived_after_all_is_not_appended_again(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m0") + b"\n")
    inbox = Inbox(paths, "bob")
    noted = inbox.size()
    put(paths, message("m1") + b"\n" + message("m2") + b"\n")  # the hub did it, then died
    size = inbox.size()
    assert not inbox.append(message("m1"), sender="ann", message_id="m1", after=noted)
    assert inbox.size() == size
    # Only what stands behind the noted size counts: an older message may have that id.
    assert inbox.append(message("m0"), sender="ann", message_id="m0", after=noted)
    assert inbox.append(message("m1"), sender="eve", message_id="m1", after=noted)


def test_an_id_with_escapes_is_recognised_as_well(paths: ChannelPaths) -> None:
    line = b'{"id":"\\u00e9\\"","type":"chat","from_session":"ann","to_session":"bob","payload":{}}'
    put(paths, line + b"\n")
    assert not Inbox(paths, "bob").append(line, sender="ann", message_id='é"')


def test_in_a_file_that_became_smaller_all_of_it_is_looked_at(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m1") + b"\n")
    inbox = Inbox(paths, "bob")
    assert not inbox.append(message("m1"), sender="ann", message_id="m1", after=100_000)
    assert inbox.append(message("m2"), sender="ann", message_id="m2", after=100_000)


def test_a_message_is_found_where_it_may_stand(paths: ChannelPaths, message: Message) -> None:
    ids = ["m0", "m1", "m2"]
    lines = [message(one) for one in ids]
    with Inbox(paths, "bob") as inbox:
        assert inbox.find("ann", "m0") is None
        put(paths, b"no json\n" + b"\n".join(lines) + b"\n" + lines[0][:-9])
        assert [inbox.find("ann", one) for one in ids] == lines
        assert inbox.find("eve", ids[0]) is None
        behind = 8 + len(lines[0]) + 1
        assert inbox.find("ann", ids[0], behind) is None
        assert inbox.find("ann", ids[1], behind) == lines[1]
        assert inbox.find("ann", ids[0], 1 << 30) == lines[0]  # it was emptied since


def test_an_append_ends_the_torn_line_of_a_dead_writer(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m1") + b"\n" + message("m2")[:40])
    assert Inbox(paths, "bob").append(message("m3"), sender="ann", message_id="m3")
    batch = Inbox(paths, "bob").read()
    assert [record.line for record in batch.records] == [message("m1"), message("m3")]
    assert len(batch.damaged) == 1


def test_a_line_that_lacks_only_its_end_counts_as_arrived_and_can_be_read(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m1"))
    inbox = Inbox(paths, "bob")
    assert not inbox.append(message("m1"), sender="ann", message_id="m1")
    assert [record.line for record in inbox.read().records] == [message("m1")]


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_full_disk_leaves_nothing_behind(
    paths: ChannelPaths, message: Message, calls: Any, room: int
) -> None:
    put(paths, message("m1") + b"\n")
    calls.write_limit = room
    inbox = Inbox(paths, "bob", calls=calls)
    with pytest.raises(SpoolError) as refusal:
        inbox.append(message("m2"), sender="ann", message_id="m2")
    assert (refusal.value.code, refusal.value.exit_code) == ("DISK_FULL", 73)
    assert inbox.size() == len(message("m1")) + 1
    calls.write_limit = None
    assert inbox.append(message("m2"), sender="ann", message_id="m2")
    assert len(inbox.read().records) == 2


def test_a_part_that_cannot_be_cut_off_again_is_told(
    paths: ChannelPaths, message: Message, calls: Any
) -> None:
    calls.write_limit = 10
    calls.failing["ftruncate"] = errno.EIO
    with pytest.raises(SpoolError, match="part of the message"):
        Inbox(paths, "bob", calls=calls).append(message("m2"), sender="ann", message_id="m2")


def test_a_sync_that_fails_is_told(paths: ChannelPaths, message: Message, calls: Any) -> None:
    calls.failing["sync"] = errno.EIO
    with pytest.raises(SpoolError, match="power cut"):
        Inbox(paths, "bob", calls=calls).append(message("m1"), sender="ann", message_id="m1")


@pytest.mark.parametrize("line", [b"{}\n{}", b"{" + b" " * MAX_LINE + b"}"])
def test_what_no_reader_could_see_is_not_appended(paths: ChannelPaths, line: bytes) -> None:
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        Inbox(paths, "bob").append(line, sender="ann", message_id="m1")
    assert Inbox(paths, "bob").size() == 0


# -- locks ------------------------------------------------------------------------------------


def test_readers_share_and_appenders_wait_in_vain_for_a_stopped_one(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("m1") + b"\n")
    inbox = Inbox(paths, "bob")
    with locked_by_another(paths.inbox("bob"), fcntl.LOCK_SH):
        assert len(inbox.read().records) == 1
        began = time.monotonic()
        with pytest.raises(InboxLocked) as refusal:
            inbox.append(message("m2"), sender="ann", message_id="m2", timeout=0.1)
        assert 0.1 <= time.monotonic() - began < 20.0
        with pytest.raises(InboxLocked):
            inbox.commit(Position(1, 0), timeout=0.0)
    assert (refusal.value.code, refusal.value.exit_code) == ("INBOX_LOCKED", 75)
    assert inbox.append(message("m2"), sender="ann", message_id="m2")


def test_whoever_waited_for_the_lock_of_a_replaced_file_uses_the_new_one(
    paths: ChannelPaths, message: Message
) -> None:
    put(paths, message("old") + b"\n")
    old = os.open(paths.inbox("bob"), os.O_RDONLY)
    fcntl.flock(old, fcntl.LOCK_EX)

    def replace(_seconds: float) -> None:
        os.unlink(paths.inbox("bob"))
        put(paths, message("new") + b"\n")

    try:
        inbox = Inbox(paths, "bob", sleep=replace)
        assert inbox.append(message("m1"), sender="ann", message_id="m1")
    finally:
        os.close(old)
    assert [r.line for r in inbox.read().records] == [message("new"), message("m1")]


@pytest.mark.parametrize("gone", [False, True], ids=["replaced", "removed"])
def test_a_file_replaced_between_opening_and_locking_is_not_written_to(
    paths: ChannelPaths, message: Message, calls: Any, gone: bool
) -> None:
    put(paths, message("old") + b"\n")
    lock, tries = calls.lock, []

    def replace_then_lock(fd: int, exclusive: bool) -> bool:
        tries.append(fd)
        if len(tries) == 1:
            os.unlink(paths.inbox("bob"))
            if not gone:
                put(paths, message("new") + b"\n")
        return bool(lock(fd, exclusive))

    calls.lock = replace_then_lock
    inbox = Inbox(paths, "bob", calls=calls)
    assert inbox.append(message("m1"), sender="ann", message_id="m1")
    assert len(tries) == 2
    lines = [record.line for record in Inbox(paths, "bob").read().records]
    assert lines == ([] if gone else [message("new")]) + [message("m1")]


def test_an_inbox_that_is_a_link_is_refused(paths: ChannelPaths, message: Message) -> None:
    target = paths.file("elsewhere")
    with open(target, "wb"):
        pass
    os.symlink(target, paths.inbox("bob"))
    for act in (
        lambda inbox: inbox.read(),
        lambda inbox: inbox.append(b"{}", sender="ann", message_id="m1"),
        lambda inbox: inbox.enrol(),
    ):
        with pytest.raises(UnsafePlace):
            act(Inbox(paths, "bob"))
    assert os.path.getsize(target) == 0


def test_a_channel_that_does_not_exist_is_a_refusal(paths: ChannelPaths) -> None:
    nowhere = ChannelPaths(paths.base, "nowhere")
    assert Inbox(nowhere, "bob").read().records == []
    with pytest.raises(SpoolError):
        Inbox(nowhere, "bob").append(b"{}", sender="ann", message_id="m1")


# -- being known ------------------------------------------------------------------------------


def test_enrolling_leaves_a_sign_and_keeps_the_generation(paths: ChannelPaths) -> None:
    inbox = Inbox(paths, "bob")
    inbox.enrol()
    with open(paths.meta("bob")) as file:
        assert json.load(file) == {"format": 1, "session": "bob", "generation": 1}
    put_meta(paths, {"format": 1, "session": "bob", "generation": 5})
    inbox.enrol()
    assert inbox.read().start == Position(5, 0)


def test_names_of_any_kind_have_inboxes_of_their_own(paths: ChannelPaths, message: Message) -> None:
    names = ["a/b", "a%2Fb", "..", "é", "x" * 128, "x" * 127 + "y", "a b"]
    for name in names:
        Inbox(paths, name).append(message("m1", name), sender="ann", message_id="m1")
    assert [texts(Inbox(paths, name).read()) for name in names] == [[name] for name in names]
    assert len(os.listdir(paths.directory)) == len(names)
