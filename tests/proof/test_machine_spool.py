"""Both spools against one simple model, whatever is done to them in whatever order."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))

from disk_channel import entry_of, line_of, real_disk
from disk_spools import Face, InMemory, OnFiles

from intercom.errors import StalePosition
from intercom.paths import ChannelPaths
from intercom.records import Entry, Position, Refused, Written
from intercom.spool.format import Cutter
from intercom.wire.envelope import identify

#: Of the long form: how many runs.
RUNS = int(os.environ.get("INTERCOM_MACHINE_RUNS", "20000"))
#: Whether a failing run is made small, which takes minutes.
SHRINK = bool(os.environ.get("INTERCOM_MACHINE_SHRINK"))
INBOXES = ("bob", "eve")
TORN = b'{"id":"torn","type":"chat"'


class Message(NamedTuple):
    """What a sender may send, and send again."""

    inbox: str
    message_id: str
    line: bytes


def digest_of(line: bytes) -> bytes:
    """By what a message's content is known."""
    found = identify(line)
    assert found is not None
    return found.digest


class InboxModel:
    """One inbox, as simple as can be: bytes, a position, and the ids that are spent."""

    def __init__(self) -> None:
        self.data = b""
        self.generation = 1
        self.offset = 0
        self.spent: dict[str, bytes] = {}
        #: Those of the spent ids that the hub did not store itself.
        self.others: set[str] = set()
        #: Of each generation that a compaction ended: where it was cut, and its size.
        self.cuts: dict[int, tuple[int, int]] = {}
        #: Those that an emptying which nobody noticed may have made free again.
        self.unsure: set[str] = set()
        self.foreign = False
        self.known = False

    @property
    def position(self) -> Position:
        """How far it is read."""
        return Position(self.generation, self.offset)

    def end_line(self) -> None:
        """What whoever appends does first."""
        if self.data and self.data[-1:] != b"\n":
            self.data += b"\n"
        self.look()

    def look(self) -> None:
        """The ids in it are spent from now on."""
        for _start, _end, line in self.messages():
            found = identify(line)
            assert found is not None
            if found.message_id not in self.spent:
                self.spent[found.message_id] = found.digest
                self.others.add(found.message_id)

    def messages(self) -> list[tuple[int, int, bytes]]:
        """Each message once, with its place."""
        cutter = Cutter(0)
        cutter.feed(self.data)
        found, seen = [], set()
        for record in cutter.records:
            if record.line not in seen:
                found.append((record.start, record.end, record.line))
            seen.add(record.line)
        return found

    def follow(self, position: Position) -> Position:
        """Where a position of an older generation is in this one, if compactions lie between."""
        now = position
        while now.generation < self.generation:
            if now.generation not in self.cuts:
                return position
            cut, size = self.cuts[now.generation]
            now = Position(now.generation + 1, max(0, min(now.offset, size) - cut))
        return now

    def behind(self, start: Position) -> tuple[int, list[tuple[int, int, bytes]]]:
        """Where a read from there begins, and what it gives."""
        begin = 0
        start = self.follow(start)
        if start.generation == self.generation and start.offset <= len(self.data):
            begin = self.data.rfind(b"\n", 0, start.offset) + 1
        return begin, [message for message in self.messages() if message[0] >= begin]

    def is_stale(self, position: Position) -> bool:
        """Whether no commit may move there."""
        generation, offset = self.follow(position)
        inside = 0 <= offset <= len(self.data)
        at_line = offset == 0 or self.data[offset - 1 : offset] == b"\n"
        return generation != self.generation or not inside or not at_line


class SpoolMachine(RuleBasedStateMachine):
    """The rules, for either spool."""

    messages = Bundle("messages")
    positions = Bundle("positions")
    spool: Face

    def __init__(self) -> None:
        super().__init__()
        self.spool = self.make()
        self.inboxes = {name: InboxModel() for name in INBOXES}
        self.tickets = 0
        self.ids = 0
        self.full = False

    def make(self) -> Face:
        """A fresh one."""
        raise NotImplementedError

    def entry(self, message: Message, level: str = "disk") -> Entry:
        """A new try to store a message."""
        self.tickets += 1
        return entry_of(self.tickets, message.inbox, message.line, level)

    def compose(self, inbox: str, text: str, message_id: str | None = None) -> Message:
        """A message, new unless told otherwise."""
        if message_id is None:
            self.ids += 1
            message_id = f"m{self.ids}"
        return Message(inbox, message_id, line_of(message_id, text, to=inbox))

    # -- sending ------------------------------------------------------------------------------

    def expect(self, entry: Entry, outcome: Written | Refused) -> None:
        """One append, in the model too."""
        inbox = self.inboxes[entry.inbox]
        inbox.known = True
        if not self.full:
            inbox.end_line()
        spent = inbox.spent.get(entry.message_id)
        if entry.message_id in inbox.unsure and isinstance(outcome, Written):
            spent = spent if outcome.duplicate else None
        if self.full and spent is None:
            assert isinstance(outcome, Refused), outcome
            assert outcome.code == "DISK_FULL"
        elif spent is not None and spent != entry.digest:
            assert isinstance(outcome, Refused), outcome
            assert outcome.code in ("MESSAGE_ID_REUSE", "DISK_FULL")
        elif spent is not None:
            assert isinstance(outcome, Written) or self.full, outcome
            if isinstance(outcome, Written):
                assert outcome.duplicate
                if entry.line in inbox.data.split(b"\n"):
                    assert identify(outcome.record.line) == identify(entry.line)
        else:
            assert isinstance(outcome, Written), outcome
            start = len(inbox.data)
            inbox.data += entry.line + b"\n"
            inbox.spent[entry.message_id] = entry.digest
            inbox.unsure.discard(entry.message_id)
            assert not outcome.duplicate
            assert outcome.generation == inbox.generation
            assert outcome.record == (start, len(inbox.data), entry.line)
        told = self.spool.ear.safe.get(entry.ticket)
        assert (told is not None) == isinstance(outcome, Written), told
        assert told in (None, entry.level)

    @rule(
        target=messages,
        inbox=st.sampled_from(INBOXES),
        text=st.sampled_from(["", "é", "}{", "x" * 300]),
        level=st.sampled_from(["memory", "process", "disk"]),
    )
    def send(self, inbox: str, text: str, level: str) -> Message:
        message = self.compose(inbox, text)
        entry = self.entry(message, level)
        self.expect(entry, self.spool.append(entry)[0])
        return message

    @rule(target=messages, texts=st.lists(st.sampled_from(["", "y" * 80]), min_size=2, max_size=5))
    def send_many(self, texts: list[str]) -> object:
        """Several at once, to both inboxes in turns."""
        several = [self.compose(INBOXES[n % 2], text) for n, text in enumerate(texts)]
        entries = [self.entry(message) for message in several]
        for entry, outcome in zip(entries, self.spool.append(*entries), strict=True):
            self.expect(entry, outcome)
        return multiple(*several)

    @rule(message=messages)
    def send_again(self, message: Message) -> None:
        entry = self.entry(message)
        self.expect(entry, self.spool.append(entry)[0])

    @rule(message=messages)
    def send_another_under_its_id(self, message: Message) -> None:
        inbox = self.inboxes[message.inbox]
        if message.message_id in inbox.spent and message.message_id not in inbox.unsure:
            entry = self.entry(self.compose(message.inbox, "other", message.message_id))
            self.expect(entry, self.spool.append(entry)[0])

    # -- reading ------------------------------------------------------------------------------

    @rule(
        target=positions, inbox=st.sampled_from(INBOXES), limit=st.sampled_from([0, 250, 1 << 20])
    )
    def poll(self, inbox: str, limit: int) -> tuple[str, Position]:
        """Read from the stored position."""
        return self.read(inbox, None, limit)

    @rule(target=positions, place=positions, limit=st.sampled_from([0, 250, 1 << 20]))
    def read_on(self, place: tuple[str, Position], limit: int) -> tuple[str, Position]:
        """Another reader goes on from where one once was."""
        return self.read(*place, limit)

    @rule(place=positions, by=st.integers(-40, 40), generation=st.integers(-1, 1))
    def read_anywhere(self, place: tuple[str, Position], by: int, generation: int) -> None:
        inbox, (at, offset) = place
        self.read(inbox, Position(at + generation, max(0, offset + by)), 1 << 20)

    def read(self, name: str, start: Position | None, limit: int) -> tuple[str, Position]:
        """Read, in the model too; where the next read begins."""
        inbox = self.inboxes[name]
        batch = self.spool.read(name, start, limit)
        begin, expected = inbox.behind(start or inbox.position)
        assert batch.start == Position(inbox.generation, begin)
        got = [tuple(record) for record in batch.records]
        assert got == expected[: len(got)]
        missed = [message for message in expected[len(got) :] if message[1] <= batch.next.offset]
        assert not missed, "passed over"
        assert batch.next.generation == inbox.generation
        whole = inbox.data.rfind(b"\n") + 1
        assert begin <= batch.next.offset <= whole
        assert not batch.at_end or batch.next.offset == whole
        assert batch.next.offset > begin or begin == whole, "at least a line, if there is one"
        if limit == 1 << 20:
            assert batch.at_end
        return name, batch.next

    @rule(place=positions, state=st.sampled_from(["read", "skipped"]))
    def commit(self, place: tuple[str, Position], state: str) -> None:
        """Commit a position that a read gave, now or long ago."""
        self.commit_at(*place, state)

    @rule(place=positions, by=st.integers(-40, 40), generation=st.integers(-1, 1))
    def commit_anywhere(self, place: tuple[str, Position], by: int, generation: int) -> None:
        inbox, (at, offset) = place
        self.commit_at(inbox, Position(at + generation, offset + by), "read")

    def commit_at(self, name: str, position: Position, state: str) -> None:
        """Commit, in the model too."""
        inbox = self.inboxes[name]
        if self.full:
            return
        told = len(self.spool.ear.moves)
        if inbox.is_stale(position):
            with pytest.raises(StalePosition):
                self.spool.commit(name, position, state)
            return
        before = inbox.offset
        inbox.offset = max(inbox.offset, inbox.follow(position).offset)
        assert self.spool.commit(name, position, state) == inbox.position
        moves = [move[:5] for move in self.spool.ear.moves[told:]]
        moved = [(name, state, inbox.generation, before, inbox.offset)]
        assert moves == moved * (inbox.offset > before)

    @rule(place=positions)
    def note_shown(self, place: tuple[str, Position]) -> None:
        """To be shown moves nothing."""
        name, position = place
        if not self.full and not self.inboxes[name].is_stale(position):
            assert self.spool.commit(name, position, "shown") == self.inboxes[name].position

    @rule(name=st.sampled_from(INBOXES))
    def compact(self, name: str) -> None:
        inbox = self.inboxes[name]
        if self.full:
            return
        done = self.spool.compact(name)
        assert done == (inbox.offset > 0) or inbox.foreign
        if done:
            inbox.cuts[inbox.generation] = inbox.offset, len(inbox.data)
            inbox.data = inbox.data[inbox.offset :]
            inbox.generation += 1
            inbox.offset = 0
            inbox.known = False  # until the hub has a reason to look at it

    # -- others -------------------------------------------------------------------------------

    @precondition(lambda self: not self.full)
    @rule(target=messages, name=st.sampled_from(INBOXES))
    def append_offline(self, name: str) -> Message:
        """A client appends a message itself."""
        message = self.compose(name, "offline")
        inbox = self.inboxes[name]
        inbox.end_line()
        assert self.spool.append_offline(name, message.line, message.message_id)
        inbox.data += message.line + b"\n"
        inbox.look()
        inbox.known = True
        return message

    @precondition(lambda self: not self.full)
    @rule(message=messages)
    def append_offline_again(self, message: Message) -> None:
        """A client appends what stands there already, or did."""
        inbox = self.inboxes[message.inbox]
        inbox.end_line()
        there = message.line in inbox.data.split(b"\n")
        done = self.spool.append_offline(message.inbox, message.line, message.message_id)
        assert done != there
        if done:
            inbox.data += message.line + b"\n"
            inbox.look()
            inbox.known = True

    @rule(message=messages)
    def append_as_the_original_does(self, message: Message) -> None:
        """Without a look at what is there; the second copy is shown to nobody."""
        inbox = self.inboxes[message.inbox]
        if inbox.data[-1:] in (b"", b"\n"):
            self.spool.write_raw(message.inbox, message.line + b"\n")
            inbox.data += message.line + b"\n"
            inbox.look()
            inbox.known = True

    @rule(name=st.sampled_from(INBOXES), cut=st.integers(1, len(TORN)))
    def die_within_a_line(self, name: str, cut: int) -> None:
        """A writer dies."""
        self.spool.write_raw(name, TORN[:cut])
        self.inboxes[name].data += TORN[:cut]
        self.inboxes[name].look()

    @precondition(lambda self: not self.full)
    @rule(name=st.sampled_from(INBOXES))
    def empty_as_the_original_does(self, name: str) -> None:
        """Both files begin anew, with no word of generations."""
        inbox = self.inboxes[name]
        self.spool.empty(name)
        now = self.spool.read(name, None, 1).start
        assert now.offset == 0
        assert now.generation >= inbox.generation
        # A hub that has not looked at an inbox yet cannot know that it held something.
        assert now.generation > inbox.generation or not (inbox.known and inbox.messages())
        if now.generation == inbox.generation:
            inbox.unsure |= {*inbox.spent}
        inbox.data, inbox.offset, inbox.generation = b"", 0, now.generation
        inbox.foreign = self.foreign_readers

    foreign_readers = True

    # -- misfortunes --------------------------------------------------------------------------

    @precondition(lambda self: not self.full)
    @rule(room=st.integers(0, 100))
    def fill_the_disk(self, room: int) -> None:
        self.spool.fill_disk(room)
        self.full = True

    @precondition(lambda self: self.full)
    @rule()
    def make_room(self) -> None:
        self.spool.free_disk()
        self.full = False

    @precondition(lambda self: not self.full)
    @rule(target=messages, pieces=st.integers(0, 6), count=st.integers(0, 3))
    def crash(self, pieces: int, count: int) -> object:
        """The hub dies with messages under way: each is wholly there or not at all."""
        under_way = [self.compose(INBOXES[n % 2], "under way") for n in range(count)]
        self.spool.crash([self.entry(message) for message in under_way], pieces)
        for name, inbox in self.inboxes.items():
            now = self.spool.content(name)
            mine = [message.line for message in under_way if message.inbox == name]
            before = inbox.data
            if before and before[-1:] != b"\n":
                before += b"\n"
            written = b"".join(line + b"\n" for line in mine)
            assert now in (inbox.data, before, before + written), now
            if now == before + written:
                inbox.spent |= {
                    m.message_id: digest_of(m.line) for m in under_way if m.line in mine
                }
            inbox.data = now
            inbox.look()
            inbox.known = False  # until the hub has a reason to look at it
        return multiple(*under_way)

    # -- always -------------------------------------------------------------------------------

    @invariant()
    def files_are_what_they_should_be(self) -> None:
        for name, inbox in self.inboxes.items():
            content = self.spool.content(name)
            if self.full and content == inbox.data + b"\n":
                inbox.data = content  # a torn line may be ended with the last byte of room
            assert content == inbox.data
            batch = self.spool.read(name, None, 1 << 20)
            begin, expected = inbox.behind(inbox.position)
            assert batch.start == Position(inbox.generation, begin)
            assert [tuple(record) for record in batch.records] == expected

    def teardown(self) -> None:
        if hasattr(self, "spool"):
            self.spool.free_disk()
            self.spool.end()


class FilesMachine(SpoolMachine):
    """On files."""

    def make(self) -> Face:
        self.directory = tempfile.mkdtemp()
        paths = ChannelPaths(os.path.join(self.directory, "base"), "room")
        paths.prepare()
        return OnFiles(paths)

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.directory)


class MemoryMachine(SpoolMachine):
    """In memory, where there are no original programs whose readers are to be spared."""

    foreign_readers = False

    def make(self) -> Face:
        return InMemory()


MACHINES = [FilesMachine, MemoryMachine]


@pytest.fixture(autouse=True)
def _files_are_on_a_disk() -> Iterator[None]:
    with real_disk():
        yield


def go(machine: type[SpoolMachine], runs: int, steps: int) -> None:
    """So many runs of so many steps."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            phases=[phase for phase in Phase if phase is not Phase.shrink or SHRINK],
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("machine", MACHINES)
def test_a_spool_is_what_the_model_says(machine: type[SpoolMachine]) -> None:
    go(machine, 60, 40)


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_a_spool_is_what_the_model_says_in_very_many_runs(machine: type[SpoolMachine]) -> None:
    go(machine, RUNS, 50)
