"""Workloads of a few operations on a channel, and what must be true of it after a crash.

What was promised, and when, stands in the log as ``Told``: ``sent`` before a message is
given away, ``stored`` when it was called safe, ``committing`` and ``committed`` around a
commit, ``reset`` before an original program empties an inbox.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

from disk_channel import Channel, entry_of, line_of
from disk_log import LoggingCalls, Op, State, Told, lay_out

from intercom.paths import ChannelPaths
from intercom.records import Batch, Position, Written
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox

INBOXES = ("bob", "eve", "joe")
#: The operations, each a letter.
OPERATIONS = {
    "a": "send a message to one inbox, at level disk",
    "p": "the same at level process",
    "b": "send a message to three inboxes, at level disk",
    "o": "a client appends to an inbox itself",
    "c": "read an inbox and commit",
    "k": "compact it",
    "r": "an original program empties it",
    "t": "two seconds pass",
    "R": "the hub ends, and another starts",
}


class Message(NamedTuple):
    """One message for one inbox; ``number`` counts all of them in the order of sending."""

    number: int
    inbox: str
    message_id: str
    line: bytes


class Workload:
    """Runs operations on a channel of its own, everything written down.

    :param letters: which, see :data:`OPERATIONS`.
    """

    def __init__(self, paths: ChannelPaths, letters: str) -> None:
        self.calls = LoggingCalls()
        self._paths = paths
        self._messages: dict[int, Message] = {}
        self._ids = 0
        self._channel = self._start()
        for letter in letters:
            self._perform(letter)

    @property
    def log(self) -> list[Op]:
        """Everything that was done and said."""
        return self.calls.log

    def end(self) -> None:
        """Let go of the files; what that writes is not part of the workload."""
        self._channel.close()

    def _start(self) -> Channel:
        return Channel(self._paths, self.calls, tell=self._stored).open()

    def _stored(self, tickets: Sequence[int], level: str) -> None:
        for ticket in tickets:
            self.calls.tell("stored", (self._messages[ticket], level))

    def _perform(self, letter: str) -> None:
        if letter in "ap":
            self._send("disk" if letter == "a" else "process", "bob")
        elif letter == "b":
            self._send("disk", *INBOXES)
        elif letter == "o":
            self._append_offline("bob")
        elif letter == "c":
            self._read_and_commit("bob")
        elif letter == "k":
            self._channel.now(self._channel.spool.compact("bob"))
        elif letter == "r":
            self._reset("bob")
        elif letter == "t":
            self._channel.pass_time(2.5)
        else:
            self._channel.close()
            self._channel = self._start()

    def _draw(self, *inboxes: str) -> list[Message]:
        self._ids += 1
        messages = []
        for inbox in inboxes:
            number = len(self._messages) + 1
            # All are of one length: where one was lost, another fits in its place.
            line = line_of(f"m{self._ids}", "é", to="all" if len(inboxes) > 1 else inbox)
            messages.append(Message(number, inbox, f"m{self._ids}", line))
            self._messages[number] = messages[-1]
            self.calls.tell("sent", messages[-1])
        return messages

    def _send(self, level: str, *inboxes: str) -> None:
        entries = [
            entry_of(message.number, message.inbox, message.line, level)
            for message in self._draw(*inboxes)
        ]
        for outcome in self._channel.append(*entries):
            assert isinstance(outcome, Written), outcome

    def _append_offline(self, inbox: str) -> None:
        (message,) = self._draw(inbox)
        with Inbox(self._paths, inbox, calls=self.calls) as file:
            assert file.append(message.line, sender="ann", message_id=message.message_id)
        self.calls.tell("stored", (message, "disk"))

    def _read_and_commit(self, inbox: str) -> None:
        batch: Batch = self._channel.now(self._channel.spool.read(inbox, None, 1 << 20))
        lines = [record.line for record in batch.records]
        self.calls.tell("committing", (inbox, lines))
        if lines:
            self._channel.now(self._channel.spool.commit(inbox, batch.next))
        self.calls.tell("committed", (inbox, lines))

    def _reset(self, inbox: str) -> None:
        """As the original's ``init`` does: both files opened anew, no generation."""
        self.calls.tell("reset", inbox)
        for path, data in (
            (self._paths.inbox(inbox), b""),
            (self._paths.offset(inbox), b'{"offset": 0, "updated_at": 1.0}'),
        ):
            with open(path, "wb") as file:
                file.write(data)
            self.calls.adopt(path)


class Promises:
    """What had been said up to a moment of the log.

    :ivar sent: everything that was sent, in order.
    :ivar due: what must be there unread, in order.
    :ivar gone: lines that must not be shown again, by inbox.
    """

    def __init__(self, log: Sequence[Op], end: int, power: bool) -> None:
        self.sent: list[Message] = []
        due: list[Message] = []
        passed: dict[str, set[bytes]] = {inbox: set() for inbox in INBOXES}
        self.gone: dict[str, set[bytes]] = {inbox: set() for inbox in INBOXES}
        for op in log[:end]:
            if not isinstance(op, Told):
                continue
            if op.what == "sent":
                self.sent.append(op.about)
            elif op.what == "stored":
                message, level = op.about
                if level == "disk" or (level == "process" and not power):
                    due.append(message)
            elif op.what == "committing":
                passed[op.about[0]].update(op.about[1])
            elif op.what == "committed" and not power:
                self.gone[op.about[0]].update(op.about[1])
            elif op.what == "reset":
                passed[op.about].update(m.line for m in self.sent if m.inbox == op.about)
        self.due = sorted(m for m in due if m.line not in passed[m.inbox])
        self.passed = passed

    def mark(self, state: State) -> bytes:
        """The same for the same files and the same promises."""
        said = (sorted(state.items()), self.due, sorted(self.gone.items()), self.sent)
        return hashlib.blake2b(repr(said).encode()).digest()


class Recovery:
    """A channel after a crash, and a hub and readers that come to it.

    :param power: what survives a power cut was promised, and no more.
    :param boot: in which boot of the machine they come.
    """

    def __init__(
        self, paths: ChannelPaths, state: State, promises: Promises, power: bool, boot: str
    ) -> None:
        self._paths = paths
        self._state = state
        self._promises = promises
        self._power = power
        self._boot = boot

    def check(self, calls: FileCalls | None = None) -> None:
        """Recover, and see that every promise is kept; then go on as if nothing had been."""
        lay_out(self._state, self._paths.directory)
        calls = calls or Unsynced()
        channel = Channel(self._paths, calls, self._boot).open()
        self._kept(channel, "after the hub's start")
        self._sent_again(channel)
        self._kept(channel, "after everything was sent again", again=True)
        channel.close()
        channel = Channel(self._paths, calls, self._boot).open()
        self._kept(channel, "after another start", again=True)
        channel.close()
        litter = [name for name in os.listdir(self._paths.directory) if name.startswith(".keep")]
        assert not litter, litter

    def log(self) -> tuple[list[Op], int]:
        """What the start of a hub does to the disk, and how much of that is only what was there."""
        lay_out(self._state, self._paths.directory)
        calls = LoggingCalls()
        calls.begin(self._paths.directory)
        began = len(calls.log)
        channel = Channel(self._paths, calls, self._boot).open()
        done = list(calls.log)
        channel.close()
        return done, began

    def _kept(self, channel: Channel, when: str, again: bool = False) -> None:
        for inbox in INBOXES:
            unread: Batch = channel.now(channel.spool.read(inbox, None, 1 << 20))
            mine = Inbox(self._paths, inbox, calls=channel.calls, sleep=lambda _: None).read()
            assert (mine.start, mine.records) == (unread.start, unread.records), when
            beginning = Position(unread.start.generation, 0)
            whole: Batch = channel.now(channel.spool.read(inbox, beginning, 1 << 20))
            self._lines_are_true(inbox, [record.line for record in whole.records], when)
            self._nothing_is_missing(inbox, [record.line for record in unread.records], when, again)

    def _lines_are_true(self, inbox: str, lines: list[bytes], when: str) -> None:
        sent = [message.line for message in self._promises.sent if message.inbox == inbox]
        news = [line for line in lines if line not in sent and b'"id":"new' not in line]
        assert not news, f"{when}: {inbox} holds what nobody sent: {news}"
        twice = [line for line in set(lines) if lines.count(line) > 1]
        assert not twice, f"{when}: {inbox} holds twice: {twice}"

    def _nothing_is_missing(self, inbox: str, unread: list[bytes], when: str, again: bool) -> None:
        promises = self._promises
        due = [message.line for message in promises.due if message.inbox == inbox]
        assert [line for line in unread if line in due] == due, (
            f"{when}: {inbox} shows {unread}, and owes {due}"
        )
        if again:
            sent = [message.line for message in promises.sent if message.inbox == inbox]
            owed = [line for line in sent if line not in promises.passed[inbox]]
            lost = [line for line in owed if line not in unread]
            assert not lost, f"{when}: {inbox} lost {lost}"
        elif not self._power:
            shown_again = promises.gone[inbox].intersection(unread)
            assert not shown_again, f"{when}: {inbox} shows again {shown_again}"

    def _sent_again(self, channel: Channel) -> None:
        """Whoever got no receipt sends again; here, everybody does, and one sends more."""
        entries = [
            entry_of(ticket, message.inbox, message.line)
            for ticket, message in enumerate(self._promises.sent)
        ]
        entries += [
            entry_of(1000 + n, inbox, line_of(f"new{n}", to=inbox))
            for n, inbox in enumerate(INBOXES)
        ]
        for outcome in channel.append(*entries):
            assert isinstance(outcome, Written), outcome
        told: dict[int, Any] = channel.ear.safe
        assert set(told) == {entry.ticket for entry in entries}, told
        assert set(told.values()) == {"disk"}, told


class Unsynced(FileCalls):
    """Files as they are, and syncs that take no time: nothing crashes here any more."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, fd: int) -> None:
        pass
