"""What is read is taken out of an inbox; what is unread stays, whatever dies on the way."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import SpoolError
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.recovery import recover
from intercom.spool.store import Store

Message = Callable[..., bytes]

#: What happens to an inbox of ten messages of which four were read.
READ, ALL = 4, 10
#: Every write, sync, rename, truncation and unlinking of one compaction.
STEPS = [
    *("sync", "write", "sync", "sync_directory"),  # the inbox, and what stays, lie safe
    *("write", "sync", "rename", "sync_directory"),  # the mark
    *("ftruncate", "write", "sync"),  # the inbox
    *("write", "rename"),  # the position
    *("write", "sync", "rename", "sync_directory"),  # the new generation
    "unlink",
    "write",  # the trail
]
#: The first step behind which the inbox has lost something.
EMPTY = STEPS.index("ftruncate") + 1


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of real syncs would take minutes."""
    monkeypatch.setattr(FileCalls, "sync", lambda _self, _fd: None)
    monkeypatch.setattr(FileCalls, "sync_directory", lambda _self, _fd: None)


class Scene:
    """Bob's inbox with messages 0 to 9, of which 0 to 3 were read."""

    def __init__(self, paths: ChannelPaths, message: Message, calls: Any, crash: Any) -> None:
        self.paths, self.calls, self.crash = paths, calls, crash
        self.path = Path(paths.inbox("bob"))
        self.aside = Path(paths.file(".keep_bob"))
        self.lines = [message(f"msg_{n:03}", f"text {n} {{" + "ü" * n) for n in range(ALL)]
        self.new = message("new_1")
        self.begin()

    def begin(self) -> None:
        for name in os.listdir(self.paths.directory):
            os.unlink(self.paths.file(name))
        self.path.write_bytes(b"".join(line + b"\n" for line in self.lines))
        self.path.chmod(0o600)
        self.end = sum(len(line) + 1 for line in self.lines[:READ])
        Inbox(self.paths, "bob").enrol()
        Inbox(self.paths, "bob").commit(Position(1, self.end))
        self.calls.log, self.calls.die_at = [], None

    def compact(self, die_at: int | None, torn: int | None = None) -> bool:
        """Compact, and die at a step, perhaps in the midst of its write; whether it died."""
        return self.dies(die_at, torn, lambda: Inbox(self.paths, "bob", calls=self.calls).compact())

    def dies(self, step: int | None, torn: int | None, work: Callable[[], object]) -> bool:
        calls = self.calls
        calls.log, calls.die_at = [], step

        def write(fd: int, data: bytes | memoryview) -> int:
            if calls.die_at == len(calls.log) and torn is not None:
                FileCalls.write(calls, fd, memoryview(data)[:torn])
            return int(type(calls).write(calls, fd, data))

        calls.write = write
        try:
            work()
        except self.crash:
            return True
        finally:
            del calls.write
            calls.die_at = None
        return False

    def others_append(self, *lines: bytes) -> None:
        """As the original programs do, which look at nothing."""
        with self.path.open("ab") as file:
            file.write(b"".join(line + b"\n" for line in lines))

    def unread(self) -> list[bytes]:
        return [record.line for record in Inbox(self.paths, "bob").read().records]

    def check(self, *new: bytes) -> None:
        """Every unread message is there once, in order, and nothing is left lying about."""
        inbox = Inbox(self.paths, "bob")
        batch = inbox.read()
        assert [record.line for record in batch.records] == [*self.lines[READ:], *new]
        assert batch.warning == ""
        inbox.enrol()  # whoever has the exclusive lock puts everything in order
        self.check_litter()
        assert inbox.commit(batch.next) == batch.next
        assert inbox.read().records == []
        assert inbox.compact()
        assert inbox.size() == 0
        self.check_litter()

    def check_litter(self) -> None:
        litter = [name for name in os.listdir(self.paths.directory) if name.startswith(".keep")]
        assert litter == []
        assert "emptying" not in json.loads(Path(self.paths.meta("bob")).read_text())


@pytest.fixture
def scene(paths: ChannelPaths, message: Message, calls: Any, crash: Any) -> Scene:
    return Scene(paths, message, calls, crash)


def test_the_unread_begins_the_next_generation_in_the_same_file(scene: Scene) -> None:
    before = os.stat(scene.path)
    inbox = Inbox(scene.paths, "bob")
    assert inbox.compact()
    after = os.stat(scene.path)
    assert (after.st_ino, after.st_size) == (before.st_ino, before.st_size - scene.end)
    for start in (None, Position(1, scene.end), Position(1, 0), Position(2, 0)):
        batch = inbox.read(start)
        assert batch.start == Position(2, 0)
        assert [record.line for record in batch.records] == scene.lines[READ:]
    assert not inbox.compact()  # nothing of it is read
    assert inbox.commit(Position(1, scene.end)) == Position(2, 0)  # that is where it is now
    scene.check()


def test_the_steps_are_all_there_are(scene: Scene) -> None:
    assert not scene.compact(None)
    assert scene.calls.log == STEPS


THEN = ["read", "commit", "append", "find", "hub", "original", "original, much", "compact"]


@pytest.mark.parametrize("then", THEN)
def test_a_crash_at_any_step_is_finished_or_undone(
    scene: Scene, then: str, entry: Any, message: Message
) -> None:
    for step in range(len(STEPS)):
        scene.begin()
        assert scene.compact(step), step
        inbox = Inbox(scene.paths, "bob")
        new: list[bytes] = []
        if then == "commit":
            position = inbox.read().start
            assert inbox.commit(position) == position
        elif then == "append":
            new = [scene.new]
            assert inbox.append(scene.new, sender="ann", message_id="new_1", after=10**6)
            assert not inbox.append(scene.lines[9], sender="ann", message_id="msg_009", after=10**6)
        elif then == "find":
            assert inbox.find("ann", "msg_009") == scene.lines[9]
        elif then == "hub":
            new = [entry(1).line]
            store = Store(scene.paths)
            store.start()
            work = store.append_batch([entry(1)])
            while work.busy:
                work = store.append_batch(work.busy)
            store.close()
        elif then == "original":
            new = [scene.new]
            scene.others_append(*new)
        elif then == "original, much":
            new = [message(f"new_{n}") for n in range(40)]
            scene.others_append(*new)
        elif then == "compact":
            inbox.compact()
            assert inbox.read().start == Position(2, 0)
        scene.check(*new)


@pytest.mark.parametrize("appending", [False, True])
def test_an_inbox_half_refilled_is_refilled_and_keeps_what_others_appended(
    scene: Scene, appending: bool
) -> None:
    refill = STEPS.index("ftruncate") + 1
    whole = sum(len(line) + 1 for line in scene.lines[READ:])
    for torn in range(0, whole + 1, 3 if appending else 11):
        scene.begin()
        assert scene.compact(refill, torn)
        assert scene.path.stat().st_size == torn
        if appending:
            scene.others_append(scene.new)
        scene.check(*[scene.new] * appending)


@pytest.mark.parametrize("torn", [0, 1, 100, 237, 238, 239, 700])
def test_a_crash_at_any_step_of_putting_it_in_order_loses_nothing_either(
    scene: Scene, torn: int
) -> None:
    """After others have appended to what was half refilled, so that both must be kept."""
    step = most = 0
    while True:
        scene.begin()
        assert scene.compact(EMPTY, torn)
        scene.others_append(scene.new)
        died = scene.dies(step, 5, lambda: Inbox(scene.paths, "bob", calls=scene.calls).read())
        if not died:
            break
        if step % 2:  # and once more
            scene.others_append(b'{"id":"late","type":"chat","from_session":"ann"}')
        late = [b'{"id":"late","type":"chat","from_session":"ann"}'] * (step % 2)
        assert sorted(scene.unread()) == sorted([*scene.lines[READ:], scene.new, *late]), step
        assert scene.unread()[: ALL - READ] == scene.lines[READ:], step
        Inbox(scene.paths, "bob").enrol()
        scene.check_litter()
        step += 1
        most = max(most, step)
    assert most > 15


def test_a_torn_position_or_a_lost_one_shows_what_stays(scene: Scene) -> None:
    for content in (b"", b"[]", None):
        for step in range(EMPTY, len(STEPS)):
            scene.begin()
            assert scene.compact(step)
            offset = Path(scene.paths.offset("bob"))
            if content is None:
                offset.unlink()
            else:
                offset.write_bytes(content)
            lines = scene.unread()
            assert lines == scene.lines[READ:], (content, step)
            Inbox(scene.paths, "bob").enrol()
            scene.check_litter()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"[]",
        b'{"generation": 1, "emptying": {"to": 2, "size": 5, "head": "", "keep": 5}}',
        b'{"generation": 1, "emptying": {"to": 2, "size": 5, "head": "", "keep": {"size": -1}}}',
        b'{"generation": 1, "emptying": {"to": 2, "size": 5, "head": "", "keep": {"digest": ""}}}',
    ],
)
@pytest.mark.parametrize("torn", [None, 0, 300])
def test_without_its_mark_what_lies_aside_is_still_brought_back(
    scene: Scene, content: bytes | None, torn: int | None
) -> None:
    for step in range(4, len(STEPS)):
        if torn is not None and step != EMPTY:
            continue
        scene.begin()
        assert scene.compact(step, torn)
        meta = Path(scene.paths.meta("bob"))
        if content is not None:
            meta.write_bytes(content)
        elif meta.exists():
            meta.unlink()
        lines = scene.unread()
        assert lines == scene.lines[READ:], step
        Inbox(scene.paths, "bob").enrol()
        scene.check_litter()


@pytest.mark.parametrize("damage", ["gone", "short", "other", "long"])
def test_a_damaged_file_aside_costs_nothing_that_is_anywhere(scene: Scene, damage: str) -> None:
    for step in range(len(STEPS)):
        scene.begin()
        assert scene.compact(step)
        before = scene.path.read_bytes()
        if not scene.aside.exists():
            continue
        kept = scene.aside.read_bytes()
        cut = kept.find(b"\n") + 30
        if damage == "gone":
            scene.aside.unlink()
        elif damage == "short":
            scene.aside.write_bytes(kept[:cut])
        elif damage == "other":
            scene.aside.write_bytes(kept[: cut - 20] + b"XYZ" + kept[cut - 17 :])
        else:
            scene.aside.write_bytes(kept + b"more")
        still = before.split(b"\n")
        if damage != "gone":
            still += scene.aside.read_bytes().split(b"\n")
        lines = scene.unread()
        expected = [line for line in scene.lines[READ:] if line in still]
        found = [line for line in lines if line in scene.lines]
        # What changed within lies behind what the inbox has, so the order may suffer.
        assert (sorted(found) if damage == "other" else found) == expected, step
        if step < EMPTY - 1 or damage == "long":
            assert lines == scene.lines[READ:], (step, damage)
        Inbox(scene.paths, "bob").enrol()
        scene.check_litter()


def test_a_full_disk_leaves_the_inbox_as_it_was(scene: Scene) -> None:
    before = scene.path.read_bytes()
    for room in (0, 100):
        scene.calls.write_limit = room
        with pytest.raises(SpoolError) as refusal:
            scene.compact(None)
        assert refusal.value.code == "DISK_FULL"
        assert scene.path.read_bytes() == before
        assert not scene.aside.exists()
        assert not [n for n in os.listdir(scene.paths.directory) if n.startswith(".")]


def test_a_disk_that_fills_up_in_between_is_said_and_loses_nothing(scene: Scene) -> None:
    kept = sum(len(line) + 1 for line in scene.lines[READ:])
    scene.calls.write_limit = kept + 400  # the mark, too, and a part of what comes back
    with pytest.raises(SpoolError):
        scene.compact(None)
    scene.calls.write_limit = 0
    for act in ("read", "compact", "enrol"):
        with pytest.raises(SpoolError) as refusal:
            getattr(Inbox(scene.paths, "bob", calls=scene.calls), act)()
        assert refusal.value.code == "DISK_FULL"
    scene.calls.write_limit = None
    scene.check()


@pytest.mark.parametrize("name", ["sync", "rename", "ftruncate", "sync_directory", "unlink"])
def test_a_call_that_fails_is_said_and_loses_nothing(scene: Scene, name: str) -> None:
    scene.calls.failing[name] = errno.EIO
    with pytest.raises(SpoolError):
        scene.compact(None)
    scene.calls.failing.clear()
    scene.check()


def test_a_power_cut_before_the_inbox_was_cut_shows_nothing_twice(scene: Scene) -> None:
    """The inbox is synced before the mark says how long it is."""
    assert STEPS[0] == "sync"
    assert scene.compact(EMPTY - 1)
    scene.check()


def test_after_a_power_cut_the_journals_hub_puts_it_in_order(
    scene: Scene, entry: Any, calls: Any
) -> None:
    from intercom.spool.journal import Journal, dump

    for step in range(len(STEPS)):
        scene.begin()
        journal = Journal(scene.paths, FileCalls(), "boot-1")
        journal.turn(full=False)
        journal.write([dump(entry(1, line=scene.lines[9], message_id="msg_009"), 1, 10)])
        journal.close()
        assert scene.compact(step, 40)
        recover(scene.paths, FileCalls(), "boot-2")
        assert scene.unread() == scene.lines[READ:], step
        Inbox(scene.paths, "bob").enrol()
        scene.check_litter()


def test_what_was_left_before_anything_happened_is_removed_by_the_next(scene: Scene) -> None:
    scene.aside.write_bytes(b"half of a li")
    Inbox(scene.paths, "bob").commit(Position(1, scene.end))
    assert not scene.aside.exists()
    scene.check()
