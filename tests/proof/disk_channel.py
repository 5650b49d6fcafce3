"""A channel's spool on real files, its threads step by step and its time in our hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from zope.interface import implementer

from intercom.interfaces import ISpoolListener
from intercom.paths import ChannelPaths
from intercom.records import Entry, Moved, Outcome, Refused, Remembered, Shifted, Written
from intercom.spool.calls import FileCalls
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.worker import MemoryWorker
from intercom.wire.envelope import identify, make

#: Bytes of a journal's segment: a few messages fill it.
JOURNAL = 2048


def line_of(message_id: str, text: str = "", sender: str = "ann", to: str = "bob") -> bytes:
    """The line of a chat."""
    return make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session=to,
        channel="room",
        payload={"text": text},
        timestamp="2026-01-01T00:00:00.000000+00:00",
    )


def entry_of(ticket: int, inbox: str, line: bytes, level: str = "disk", **more: Any) -> Entry:
    """An entry that stores a line."""
    found = identify(line)
    assert found is not None
    return Entry(ticket, inbox, line, found.sender, found.message_id, found.digest, level, **more)


@contextmanager
def real_disk() -> Iterator[None]:
    """Let every place count as one whose files survive a power cut, and journals be small."""
    with (
        patch("intercom.spool.threaded.file_level", return_value="disk"),
        patch("intercom.spool.journal.SMALLEST", JOURNAL),
    ):
        yield


@implementer(ISpoolListener)
class Ear:
    """Keeps what a spool tells, and minds its promises.

    :ivar generations: the one of each inbox of which something was told.
    :param tell: called with the tickets and the level of what is safe.
    """

    def __init__(self, tell: Callable[[Sequence[int], str], None] | None = None) -> None:
        self.decided: dict[int, Written | Refused] = {}
        self.safe: dict[int, str] = {}
        self.unsafe: dict[int, str] = {}
        self.generations: dict[str, int] = {}
        self.moves: list[Moved] = []
        self.past: list[Remembered] | None = None
        self.known: dict[str, float | None] = {}
        self._tell = tell

    def written(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Written | Refused):
                assert outcome.ticket not in self.decided, outcome
                self.decided[outcome.ticket] = outcome
            self._follow(outcome)

    def _follow(self, outcome: Outcome) -> None:
        """A new generation is told of before anything that stands in it."""
        if isinstance(outcome, Refused) or (isinstance(outcome, Written) and outcome.duplicate):
            return
        known = self.generations.setdefault(outcome.inbox, outcome.generation)
        assert known == outcome.generation, (known, outcome)
        if isinstance(outcome, Shifted):
            assert outcome.into > outcome.generation
            self.generations[outcome.inbox] = outcome.into

    def stored(self, tickets: Sequence[int], level: str) -> None:
        for ticket in tickets:
            assert isinstance(self.decided[ticket], Written), ticket
            assert ticket not in self.safe, ticket
            assert ticket not in self.unsafe, ticket
            self.safe[ticket] = level
        if self._tell is not None:
            self._tell(tickets, level)

    def unsynced(self, tickets: Sequence[int], text: str) -> None:
        for ticket in tickets:
            assert ticket not in self.safe, ticket
            self.unsafe[ticket] = text

    def remembered(self, messages: Sequence[Remembered]) -> None:
        assert self.past is None, "told once"
        self.past = list(messages)

    def moved(self, moves: Sequence[Moved]) -> None:
        self.moves += moves

    def seen(self, sessions: dict[str, float | None]) -> None:
        self.known.update(sessions)

    def forgotten(self, sessions: Sequence[str]) -> None:
        for session in sessions:
            self.known.pop(session, None)


class Channel:
    """One life of a hub's spool.

    :param boot: the boot of the machine in which it lives.
    :param tell: see :class:`Ear`.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls,
        boot: str = "first",
        tell: Callable[[Sequence[int], str], None] | None = None,
    ) -> None:
        self.paths = paths
        self.calls = calls
        self.ear = Ear(tell)
        self.clock = Clock()
        self.workers = [MemoryWorker() for _ in range(3)]
        writer, syncer, reader = self.workers
        self.spool = ThreadedSpool(
            self.clock,
            paths,
            calls=calls,
            writer=writer,
            syncer=syncer,
            reader=reader,
            boot=lambda: boot,
        )

    def open(self) -> Channel:
        """Open it, and let it come to rest."""
        self.now(self.spool.open(self.ear))
        return self

    def rest(self) -> None:
        """Let everything happen that needs no time."""
        for _ in range(10_000):
            self.clock.advance(0)
            if not sum(worker.perform() for worker in self.workers):
                self.clock.advance(0)
                if not any(worker.perform() for worker in self.workers):
                    return
        raise AssertionError("the spool never comes to rest")

    def pass_time(self, seconds: float, step: float = 0.1) -> None:
        """Let time pass, and everything happen that it brings."""
        self.rest()
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.rest()

    def now(self, answer: Deferred[Any]) -> Any:
        """What is answered, without waiting for more than gathering commits wait."""
        found: list[Any] = []
        answer.addBoth(found.append)
        self.rest()
        if not found:
            self.pass_time(0.4)
        assert found, "no answer"
        if hasattr(found[0], "raiseException"):
            found[0].raiseException()
        return found[0]

    def append(self, *entries: Entry) -> list[Written | Refused]:
        """Append, and return what became of each."""
        self.spool.append(entries)
        self.rest()
        return [self.ear.decided[entry.ticket] for entry in entries]

    def close(self) -> None:
        """End in good order."""
        closed = self.spool.close()
        self.rest()
        for _ in range(40):
            if closed.called:
                break
            self.pass_time(0.3)
        assert closed.called, "the spool does not close"
