"""What every spool promises: on files, and in memory."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any
from unittest.mock import patch

from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from intercom.errors import IntercomError, StalePosition
from intercom.interfaces import ISpool, ISpoolListener
from intercom.paths import ChannelPaths
from intercom.records import (
    Appeared,
    Entry,
    Moved,
    Outcome,
    Position,
    Refused,
    Remembered,
    Shifted,
    Span,
    Written,
)
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.memory import MemorySpool
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.watch import INTERVAL
from intercom.spool.worker import MemoryWorker
from intercom.wire.envelope import MAX_LINE, identify, make


def line(message_id: str, text: str = "hi", sender: str = "ann") -> bytes:
    return make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session="bob",
        channel="room",
        payload={"text": text},
        timestamp="t",
    )


def entry(ticket: int, text: str = "hi", **changes: Any) -> Entry:
    message_id = changes.pop("message_id", f"m{ticket}")
    said = line(message_id, text)
    found = identify(said)
    assert found is not None
    made = Entry(ticket, "bob", said, "ann", message_id, found.digest, "disk")
    return made._replace(**changes)


@implementer(ISpoolListener)
class Recorder:
    """Keeps what it is told, and minds the promises about it."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.safe: dict[int, str] = {}
        self.unsafe: dict[int, str] = {}
        self.sightings: list[dict[str, float | None]] = []
        self.gone: list[str] = []
        self.memories: list[Remembered] = []
        self.moves: list[Moved] = []
        self.log: list[str] = []
        self.decided: dict[int, Written | Refused] = {}

    def written(self, outcomes: Sequence[Outcome]) -> None:
        self.log.append("written")
        for outcome in outcomes:
            if not isinstance(outcome, Appeared | Shifted):
                assert outcome.ticket not in self.decided, outcome
                self.decided[outcome.ticket] = outcome
        self.outcomes += outcomes

    def stored(self, tickets: Sequence[int], level: str) -> None:
        self.log.append("stored")
        for ticket in tickets:
            assert isinstance(self.decided[ticket], Written)
            assert ticket not in self.safe
            assert ticket not in self.unsafe
            self.safe[ticket] = level

    def unsynced(self, tickets: Sequence[int], text: str) -> None:
        for ticket in tickets:
            assert isinstance(self.decided[ticket], Written)
            assert ticket not in self.safe
            self.unsafe[ticket] = text

    def remembered(self, messages: Iterable[Remembered]) -> None:
        assert not self.sightings, "what earlier hubs stored comes before who is known"
        self.memories += messages

    def moved(self, moves: Sequence[Moved]) -> None:
        assert all(move.start < move.end for move in moves), moves
        self.moves += moves

    def seen(self, sessions: dict[str, float | None]) -> None:
        self.sightings.append(sessions)

    def forgotten(self, sessions: Sequence[str]) -> None:
        self.gone += sessions

    def told(self) -> list[Any]:
        """Outcomes in short: tickets written, codes of refusals, others' lines; then forgets."""
        short: list[Any] = []
        for outcome in self.outcomes:
            if isinstance(outcome, Written):
                short.append(outcome.ticket)
            elif isinstance(outcome, Refused):
                short.append((outcome.ticket, outcome.code))
            elif isinstance(outcome, Shifted):
                if outcome.stays:
                    short.append((outcome.generation, outcome.into, outcome.stays))
            else:
                short += [record.line for record in outcome.records]
        self.outcomes = []
        return short


class SpoolContract:
    """The tests, and what they need of each implementation."""

    spool: Any
    clock: Clock

    def make(self) -> None:
        """Set ``spool`` and ``clock``."""

    def run_all(self) -> None:
        """Let everything happen that needs no time."""
        raise NotImplementedError

    def others_append(self, data: bytes) -> None:
        """Append to bob's inbox as another program does."""
        raise NotImplementedError

    def others_commit(self, position: Position, state: str) -> None:
        """Commit a position of bob's inbox as another program of ours does."""
        raise NotImplementedError

    def others_reset(self) -> None:
        """Empty bob's inbox as another program does."""
        raise NotImplementedError

    def reopen(self) -> None:
        """Open another spool on what the one before it left, telling a new listener."""
        raise NotImplementedError

    def others_forget(self) -> None:
        """Take bob's files away as another program does, and let it be noticed."""
        raise NotImplementedError

    def lock(self) -> None:
        """Hold the lock of bob's inbox as another program does."""
        raise NotImplementedError

    def unlock(self) -> None:
        """Let go of it."""
        raise NotImplementedError

    def break_syncs(self) -> None:
        """Let syncs fail from now on."""
        raise NotImplementedError

    # -----------------------------------------------------------------------------------------

    def setUp(self: Any) -> None:
        self.listener = Recorder()
        self.make()
        self.addCleanup(self.close_at_last)

    def open(self: Any) -> None:
        self.assertIsNone(self.now(self.spool.open(self.listener)))

    def now(self: Any, answer: Deferred[Any]) -> Any:
        """The answer; a commit may wait for others a moment."""
        self.pass_time(0.3)
        return self.successResultOf(answer)

    def refusal(self: Any, answer: Deferred[Any], kind: type[Exception]) -> Any:
        self.pass_time(0.3)
        return self.failureResultOf(answer, kind).value

    def pass_time(self, seconds: float, step: float = 0.05) -> None:
        """Let time pass, and everything happen that it brings."""
        passed = 0.0
        self.run_all()
        while passed < seconds - 1e-9:
            self.clock.advance(min(step, seconds - passed))
            passed += step
            self.run_all()

    def close_at_last(self: Any) -> None:
        closed = self.spool.close()
        self.run_all()
        self.pass_time(2.5)
        self.successResultOf(closed)

    def begin_again(self: Any) -> None:
        """Close the spool; another one tells another listener."""
        self.now(self.spool.close())
        self.listener = Recorder()
        self.reopen()

    def moved(self: Any) -> list[tuple[Any, ...]]:
        """What was told to have moved, in short; then forgets."""
        self.pass_time(3.0)
        short = [
            (one.inbox, one.state, one.generation, one.start, one.end)
            for one in self.listener.moves
        ]
        self.listener.moves = []
        return short

    def append(self: Any, *entries: Entry) -> list[Any]:
        self.spool.append(entries)
        self.run_all()
        return list(self.listener.told())

    # -- appending ----------------------------------------------------------------------------

    def test_provides_the_interface(self: Any) -> None:
        self.assertTrue(verifyObject(ISpool, self.spool))
        self.assertTrue(verifyObject(ISpoolListener, self.listener))

    def test_entries_are_written_in_order_then_called_safe(self: Any) -> None:
        self.open()
        self.spool.append([entry(n) for n in range(3)])
        self.spool.append([entry(3)])
        self.assertEqual(self.listener.log, [])  # later, never from within the call
        self.run_all()
        self.assertEqual(self.listener.log[:1], ["written"])
        end = 0
        for ticket, outcome in enumerate(self.listener.outcomes):
            self.assertEqual((outcome.ticket, outcome.inbox), (ticket, "bob"))
            self.assertEqual(outcome.record.line, entry(ticket).line)
            self.assertEqual(outcome.record.start, end)
            end = outcome.record.end
            self.assertEqual(end, outcome.record.start + len(outcome.record.line) + 1)
            self.assertEqual((outcome.generation, outcome.duplicate), (1, False))
        self.assertEqual(self.listener.safe, dict.fromkeys(range(4), "disk"))
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual([r.line for r in batch.records], [entry(n).line for n in range(4)])

    def test_each_level_is_called_by_its_own_name(self: Any) -> None:
        self.open()
        self.append(
            *(entry(n, level=level) for n, level in enumerate(("memory", "process", "disk")))
        )
        self.assertEqual(self.listener.safe, {0: "memory", 1: "process", 2: "disk"})

    def test_a_failed_sync_is_told_and_nothing_is_called_safe(self: Any) -> None:
        self.open()
        self.break_syncs()
        self.assertEqual(self.append(entry(1), entry(2, level="process")), [1, 2])
        self.pass_time(1.5)
        self.assertEqual(self.listener.safe, {2: "process"})
        self.assertEqual(list(self.listener.unsafe), [1])
        self.assertTrue(self.listener.unsafe[1])
        self.flushLoggedErrors()

    def test_the_same_message_again_is_told_where_it_stands(self: Any) -> None:
        self.open()
        self.append(entry(1, message_id="m"))
        first = self.listener.decided[1]
        self.append(entry(2, message_id="m"), entry(3, "other", message_id="m"))
        self.assertEqual(self.listener.decided[2], first._replace(ticket=2, duplicate=True))
        self.assertEqual(self.listener.decided[3].code, "MESSAGE_ID_REUSE")
        self.assertEqual(self.listener.safe, {1: "disk", 2: "disk"})
        self.assertEqual(len(self.now(self.spool.read("bob", None, 9999)).records), 1)

    def test_strangers_are_told_of_or_refused(self: Any) -> None:
        self.open()
        self.now(self.spool.enrol("bert"))
        self.append(entry(1, only_known=True), entry(2, ask_known=True), entry(3))
        refused = self.listener.decided[1]
        self.assertEqual((refused.code, refused.known), ("TARGET_NOT_FOUND", ("bert",)))
        self.assertFalse(self.listener.decided[2].known)
        self.assertTrue(self.listener.decided[3].known)
        self.now(self.spool.enrol("bob"))
        self.now(self.spool.enrol("bob"))
        self.append(entry(4, only_known=True), entry(5, ask_known=True))
        self.assertTrue(self.listener.decided[4].known and self.listener.decided[5].known)

    def test_a_session_whose_files_are_taken_away_is_a_stranger_again(self: Any) -> None:
        self.open()
        self.now(self.spool.enrol("bob"))
        self.append(entry(1, ask_known=True))
        self.assertTrue(self.listener.decided[1].known)
        self.others_forget()
        self.run_all()
        self.clock.advance(1.0)
        self.run_all()
        self.assertEqual(set(self.listener.gone), {"bob"})
        self.append(entry(2, ask_known=True), entry(3, only_known=True))
        self.assertFalse(self.listener.decided[2].known)
        self.assertEqual(self.listener.decided[3].code, "TARGET_NOT_FOUND")

    def test_a_refused_stranger_leaves_nothing(self: Any) -> None:
        self.open()
        self.append(entry(1, only_known=True))
        self.assertEqual(self.now(self.spool.read("bob", None, 9)).next, Position(1, 0))
        self.assertFalse(self.now(self.spool.compact("bob")))

    def test_what_no_reader_could_see_is_refused(self: Any) -> None:
        self.open()
        long = entry(1, line=b"{" + b" " * MAX_LINE + b"}")
        told = self.append(long, entry(2, line=b"{}\n{}"), entry(3))
        self.assertEqual(
            sorted(map(str, told)),
            sorted(map(str, [(1, "LINE_TOO_LONG"), (2, "LINE_TOO_LONG"), 3])),
        )

    # -- locks --------------------------------------------------------------------------------

    def test_a_locked_inbox_keeps_its_order_and_delays_no_other(self: Any) -> None:
        self.open()
        self.append(entry(0))
        self.lock()
        self.assertEqual(self.append(entry(1), entry(2, inbox="eve"), entry(3)), [2])
        self.pass_time(0.5)
        self.assertEqual(self.append(entry(4), entry(5, inbox="eve")), [5])
        self.unlock()
        self.pass_time(0.5)
        self.assertEqual(self.append(entry(6)), [1, 3, 4, 6])
        self.assertEqual(self.listener.safe, dict.fromkeys(range(7), "disk"))

    def test_a_lock_held_for_two_seconds_is_a_refusal(self: Any) -> None:
        self.open()
        self.append(entry(0))
        self.lock()
        self.append(entry(1))
        self.pass_time(1.0)
        self.append(entry(2))
        self.pass_time(0.9)
        self.assertEqual(self.listener.told(), [])
        self.pass_time(0.2)
        self.assertEqual(self.listener.told(), [(1, "INBOX_LOCKED")])
        self.pass_time(0.8)
        self.assertEqual(self.listener.told(), [])  # each has its own two seconds
        self.pass_time(0.2)
        self.assertEqual(self.listener.told(), [(2, "INBOX_LOCKED")])
        self.unlock()
        self.assertEqual(self.append(entry(3)), [3])

    # -- others -------------------------------------------------------------------------------

    def test_known_sessions_are_told_when_it_opens(self: Any) -> None:
        self.open()
        self.now(self.spool.enrol("bert"))
        self.now(self.spool.close())
        self.listener.sightings.clear()
        self.reopen()
        self.assertEqual(self.listener.sightings, [{"bert": None}])

    def test_lines_of_others_are_told_once_and_before_what_comes_behind_them(self: Any) -> None:
        self.open()
        self.append(entry(0))
        self.others_append(line("o1") + b"\nrubbish\n" + line("o2") + b"\n")
        told = self.append(entry(1))
        self.assertEqual(told, [line("o1"), line("o2"), 1])
        self.others_append(line("o3") + b"\n")
        self.pass_time(3.0)
        self.assertEqual(self.listener.told(), [line("o3")])
        self.pass_time(3.0)
        self.assertEqual(self.append(entry(2)), [2])

    def test_what_others_stored_already_is_not_stored_again(self: Any) -> None:
        self.open()
        self.others_append(entry(1).line + b"\n")
        self.assertEqual(self.append(entry(1)), [entry(1).line, 1])
        self.assertTrue(self.listener.decided[1].duplicate)

    def test_a_torn_line_of_others_is_ended(self: Any) -> None:
        self.open()
        self.others_append(line("o1")[:30])
        self.pass_time(3.0)
        self.assertEqual(self.append(entry(1)), [1])
        self.others_append(line("whole"))
        self.assertEqual(self.append(entry(2)), [line("whole"), 2])
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual(
            [r.line for r in batch.records], [entry(1).line, line("whole"), entry(2).line]
        )
        self.assertEqual([span.start for span in batch.damaged], [0])

    # -- reading ------------------------------------------------------------------------------

    def test_reading_begins_at_the_stored_position_or_where_asked(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        self.assertEqual(self.now(self.spool.commit("bob", Position(1, size))), Position(1, size))
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual((batch.start, batch.next), (Position(1, size), Position(1, 4 * size)))
        self.assertTrue(batch.at_end)
        for start, begin in (
            (Position(1, 2 * size), 2 * size),
            (Position(1, 2 * size + 5), 2 * size),
            (Position(1, 4 * size), 4 * size),
            (Position(1, 4 * size + 1), 0),
            (Position(0, size), 0),
            (Position(9, size), 0),
        ):
            batch = self.now(self.spool.read("bob", start, 1 << 20))
            self.assertEqual(batch.start, Position(1, begin))

    def test_a_limit_gives_what_fits_and_at_least_one_line(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        for limit, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2)):
            batch = self.now(self.spool.read("bob", None, limit))
            self.assertEqual(len(batch.records), count, limit)
            self.assertFalse(batch.at_end)
        self.assertTrue(self.now(self.spool.read("bob", None, 4 * size)).at_end)

    def test_an_inbox_that_does_not_exist_is_empty(self: Any) -> None:
        self.open()
        batch = self.now(self.spool.read("nobody", None, 100))
        self.assertEqual((batch.records, batch.next, batch.at_end), ([], Position(1, 0), True))

    def test_commits_go_forward_only_and_to_real_places(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(3)))
        size = len(entry(0).line) + 1
        answers = [
            self.spool.commit("bob", Position(1, place))
            for place in (2 * size, size, 3 * size, 2 * size, 7, 4 * size)
        ] + [self.spool.commit("bob", Position(2, 0))]
        self.pass_time(0.3)
        stored = [self.successResultOf(answer).offset // size for answer in answers[:4]]
        self.assertEqual(stored, [2, 2, 3, 3])
        for answer in answers[4:]:
            self.assertEqual(self.refusal(answer, StalePosition).code, "STALE_POSITION")

    def test_a_message_that_stands_twice_is_read_once(self: Any) -> None:
        self.open()
        self.append(entry(1), entry(2))
        self.others_append(entry(1).line + b"\n" + line("m1", "other") + b"\n" + line("m3") + b"\n")
        self.pass_time(3.0)
        lines = [entry(n).line for n in (1, 2)] + [line("m1", "other"), line("m3")]
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual([record.line for record in batch.records], lines)
        size = len(entry(1).line) + 1
        place = (2 * size, 3 * size)
        self.assertEqual([span[:2] for span in batch.repeated], [place])
        self.assertIsInstance(batch.repeated[0], Span)
        # Wherever one begins behind the first of the two.
        batch = self.now(self.spool.read("bob", Position(1, 2 * size), size))
        self.assertEqual((batch.records, batch.next.offset), ([], 3 * size))
        self.assertEqual([span[:2] for span in batch.repeated], [place])

    # -- striking off, and removing -----------------------------------------------------------

    def struck(self: Any) -> list[int]:
        """Where the lines begin that are struck off, in lines of bob's inbox."""
        size = len(entry(0).line) + 1
        return sorted(place.offset // size for place in self.now(self.spool.skipped("bob")))

    def test_one_line_may_be_struck_off_before_the_position_comes_there(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        for n in (1, 3, 3):
            self.assertIsNone(
                self.now(self.spool.skip("bob", Position(1, n * size), (n + 1) * size, False))
            )
        self.assertEqual(self.struck(), [1, 3])
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual(
            [record.line for record in batch.records], [entry(n).line for n in range(4)]
        )
        self.assertEqual((self.listener.moves, self.listener.told()), ([], []))
        self.now(self.spool.commit("bob", Position(1, 2 * size)))
        self.assertEqual(self.struck(), [3])
        self.begin_again()
        self.assertEqual(self.struck(), [3])

    def test_what_is_struck_off_stays_so_when_the_inbox_is_made_smaller(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        self.now(self.spool.skip("bob", Position(1, 2 * size), 3 * size, True))
        self.now(self.spool.commit("bob", Position(1, size)))
        self.assertTrue(self.now(self.spool.compact("bob")))
        self.assertEqual(self.now(self.spool.skipped("bob")), {Position(2, size): 2 * size})
        # named by the place that it had
        self.now(self.spool.skip("bob", Position(1, 3 * size), 4 * size, True))
        self.assertEqual(
            self.now(self.spool.skipped("bob")),
            {Position(2, size): 2 * size, Position(2, 2 * size): 3 * size},
        )

    def test_what_is_read_or_nowhere_is_not_struck_off(self: Any) -> None:
        self.open()
        self.append(entry(0), entry(1))
        size = len(entry(0).line) + 1
        self.now(self.spool.commit("bob", Position(1, size)))
        self.now(self.spool.skip("bob", Position(1, 0), size, False))
        self.now(self.spool.skip("nobody", Position(1, 0), size, False))
        self.assertEqual(self.struck(), [])
        self.assertEqual(self.now(self.spool.skipped("nobody")), {})

    def test_an_inbox_that_is_removed_is_a_strangers(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(3)))
        size = len(entry(0).line) + 1
        self.now(self.spool.commit("bob", Position(1, size)))
        self.now(self.spool.skip("bob", Position(1, size), 2 * size, False))
        self.assertEqual(self.now(self.spool.discard("bob")), 2)
        self.pass_time(3.0)
        self.assertEqual(self.listener.gone[-1:], ["bob"])
        self.listener.told()
        self.assertEqual(self.append(entry(7, ask_known=True)), [7])
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        self.assertEqual([record.line for record in batch.records], [entry(7).line])
        self.assertEqual(self.struck(), [])
        self.assertEqual(self.now(self.spool.discard("nobody")), 0)

    # -- what became of messages --------------------------------------------------------------

    def test_commits_of_every_state_are_told_as_they_happened(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(6)))
        size = len(entry(0).line) + 1
        at = [Position(1, n * size) for n in range(7)]
        for place, state, stored in (
            (at[2], "shown", at[0]),  # it moves nothing
            (at[1], "shown", at[0]),  # and is told once
            (at[1], "read", at[1]),
            (at[1], "read", at[1]),
            (at[3], "shown", at[1]),  # what was not shown before
            (at[4], "skipped", at[4]),
            (at[5], "read", at[5]),
            (at[3], "shown", at[5]),
        ):
            answer = self.spool.commit("bob", place, state)
            self.assertEqual(self.now(answer), stored)
        expected = [("shown", 0, 2), ("read", 0, 1), ("shown", 2, 3), ("skipped", 1, 4)]
        expected.append(("read", 4, 5))
        self.assertEqual(
            self.moved(),
            [("bob", state, 1, start * size, end * size) for state, start, end in expected],
        )
        for state in ("shown", "skipped"):
            self.refusal(self.spool.commit("bob", Position(2, 0), state), StalePosition)
            self.refusal(self.spool.commit("bob", Position(1, 3), state), StalePosition)
        self.assertEqual(self.moved(), [])

    def test_commits_that_gather_keep_their_order_and_their_states(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(6)))
        size = len(entry(0).line) + 1
        wanted = [(1, "read"), (2, "read"), (3, "read"), (4, "skipped"), (5, "shown"), (5, "read")]
        answers = [self.spool.commit("bob", Position(1, n * size), how) for n, how in wanted]
        self.pass_time(0.5)
        stored = [self.successResultOf(answer).offset // size for answer in answers]
        self.assertEqual(stored, [1, 2, 3, 4, 4, 5])
        ends = [(move[1], move[3] // size, move[4] // size) for move in self.moved()]
        self.assertEqual(ends[-3:], [("skipped", 3, 4), ("shown", 4, 5), ("read", 4, 5)])
        # Reads in a row are one or several events, which together say the same.
        reads = ends[:-3]
        self.assertEqual([reads[0][1], reads[-1][2]], [0, 3])
        self.assertEqual({how for how, _, _ in reads}, {"read"})
        self.assertEqual([end for _, _, end in reads[:-1]], [start for _, start, _ in reads[1:]])

    def test_a_commit_may_be_in_a_hurry(self: Any) -> None:
        """Nothing that came before it is done later, and nothing waits for time to pass."""
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        self.now(self.spool.commit("bob", Position(1, size)))
        answers = [
            self.spool.commit("bob", Position(1, 2 * size), "skipped"),
            self.spool.commit("bob", Position(1, 3 * size)),
        ]
        self.spool.hurry("bob")
        answers.append(self.spool.commit("bob", Position(1, 4 * size)))
        self.spool.hurry("bob")
        self.spool.hurry("nobody")
        for _ in range(4):
            self.run_all()
        stored = [self.successResultOf(answer).offset // size for answer in answers]
        self.assertEqual(stored, [2, 3, 4])

    def test_reading_on_begins_behind_what_was_committed_before(self: Any) -> None:
        """However soon it is asked for: nobody is shown again what it has just confirmed."""
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        self.now(self.spool.commit("bob", Position(1, size)))
        for count in (2, 3):
            self.spool.commit("bob", Position(1, count * size))
        reading = self.spool.read("bob", None, 1 << 20)
        for _ in range(4):
            self.run_all()
        self.assertEqual(self.successResultOf(reading).start.offset // size, 3)

    def test_what_others_commit_is_told_in_order_and_once(self: Any) -> None:
        self.open()
        self.append(*(entry(n) for n in range(4)))
        size = len(entry(0).line) + 1
        self.others_commit(Position(1, 2 * size), "shown")
        self.others_commit(Position(1, size), "read")
        self.now(self.spool.commit("bob", Position(1, 2 * size)))
        self.others_commit(Position(1, 3 * size), "skipped")
        self.assertEqual(
            self.moved(),
            [
                ("bob", "shown", 1, 0, 2 * size),
                ("bob", "read", 1, 0, size),
                ("bob", "read", 1, size, 2 * size),
                ("bob", "skipped", 1, 2 * size, 3 * size),
            ],
        )
        self.begin_again()
        self.assertEqual(self.moved(), [])  # it is no news

    def test_what_was_pushed_may_be_noted_at_any_time(self: Any) -> None:
        self.open()
        self.append(entry(1))
        self.assertIsNone(self.spool.pushed("bob", 1, 0, len(entry(1).line) + 1))
        self.assertIsNone(self.spool.pushed("eve", 1, 0, 10))
        self.assertEqual(self.append(entry(2)), [2])

    # -- what earlier hubs stored -------------------------------------------------------------

    def test_what_earlier_hubs_stored_is_told_and_stored_no_second_time(self: Any) -> None:
        self.open()
        self.append(entry(1), entry(2), entry(3, message_id="m2", inbox="eve"))
        self.begin_again()
        told = [(one.sender, one.message_id, set(one.inboxes)) for one in self.listener.memories]
        self.assertEqual(told, [("ann", "m1", {"bob"}), ("ann", "m2", {"bob", "eve"})])
        self.assertEqual(self.listener.memories[0].digest, entry(1).digest)
        self.assertTrue(all(one.age >= 0 for one in self.listener.memories))
        again = [entry(4, message_id="m1"), entry(5, message_id="m2", inbox="eve")]
        self.append(
            *again, entry(6, "other", message_id="m2"), entry(7, message_id="m1", inbox="eve")
        )
        decided = self.listener.decided
        self.assertEqual([decided[n].duplicate for n in (4, 5, 7)], [True, True, False])
        self.assertEqual(decided[6].code, "MESSAGE_ID_REUSE")
        self.pass_time(1.5)
        self.assertEqual(self.listener.safe, dict.fromkeys((4, 5, 7), "disk"))
        self.assertEqual(len(self.now(self.spool.read("bob", None, 9999)).records), 2)

    def test_an_id_stays_spent_when_its_message_was_read_and_taken_out(self: Any) -> None:
        self.open()
        self.append(entry(1))
        self.now(self.spool.commit("bob", Position(1, len(entry(1).line) + 1)))
        self.assertTrue(self.now(self.spool.compact("bob")))
        self.see_the_id_spent()

    def test_an_id_stays_spent_when_the_inbox_was_reset(self: Any) -> None:
        self.open()
        self.now(self.spool.enrol("bob"))
        self.append(entry(1))
        self.others_reset()
        self.see_the_id_spent()

    def see_the_id_spent(self: Any) -> None:
        """Of m1, which stands nowhere any more."""
        self.append(entry(2, message_id="m1"), entry(3, "other", message_id="m1"), entry(4))
        self.assertTrue(self.listener.decided[2].duplicate)
        self.assertEqual(self.listener.decided[3].code, "MESSAGE_ID_REUSE")
        self.begin_again()
        self.append(entry(5, message_id="m1"))
        self.assertTrue(self.listener.decided[5].duplicate)
        batch = self.now(self.spool.read("bob", Position(2, 0), 9999))
        self.assertEqual([record.line for record in batch.records], [entry(4).line])

    def test_what_is_read_is_taken_out_and_the_unread_begins_a_generation(self: Any) -> None:
        self.open()
        self.append(entry(1), entry(2))
        self.listener.told()
        size = len(entry(1).line) + 1
        self.assertFalse(self.now(self.spool.compact("bob")))
        self.now(self.spool.commit("bob", Position(1, size)))
        self.assertTrue(self.now(self.spool.compact("bob")))
        for start in (None, Position(1, 0), Position(1, size)):
            batch = self.now(self.spool.read("bob", start, 1 << 20))
            self.assertEqual((batch.start, batch.next), (Position(2, 0), Position(2, size)))
            self.assertEqual([record.line for record in batch.records], [entry(2).line])
        # Who knows a place from before the compaction finds it.
        batch = self.now(self.spool.read("bob", Position(1, 2 * size), 1 << 20))
        self.assertEqual((batch.start, batch.records), (Position(2, size), []))
        self.assertEqual(self.now(self.spool.commit("bob", Position(1, size))), Position(2, 0))
        self.spool.append([entry(3)])
        self.run_all()
        # what is left has other places, and is not told again
        self.assertEqual(self.listener.told(), [(1, 2, ((size, 2 * size),)), 3])
        self.assertEqual(self.listener.decided[3].record.start, size)
        self.assertEqual(self.now(self.spool.commit("bob", Position(2, size))), Position(2, size))

    def test_an_inbox_that_is_read_is_emptied(self: Any) -> None:
        self.open()
        self.append(entry(1), entry(2))
        size = len(entry(1).line) + 1
        self.assertFalse(self.now(self.spool.compact("bob")))
        self.now(self.spool.commit("bob", Position(1, 2 * size)))
        self.assertTrue(self.now(self.spool.compact("bob")))
        self.assertFalse(self.now(self.spool.compact("bob")))
        self.assertEqual(self.append(entry(3)), [3])
        written = self.listener.decided[3]
        self.assertEqual((written.generation, written.record.start), (2, 0))
        batch = self.now(self.spool.read("bob", Position(1, 2 * size), 1 << 20))
        self.assertEqual((batch.start, len(batch.records)), (Position(2, 0), 1))
        self.assertEqual(self.now(self.spool.commit("bob", Position(1, size))), Position(2, 0))

    # -- keeping no longer --------------------------------------------------------------------

    def expire(self: Any, keep_bytes: int | None, older_than: float | None) -> list[bytes]:
        """The lines of bob's that are dropped unread."""
        answer = self.spool.expire("bob", keep_bytes, older_than)
        return [record.line for record in self.now(answer)]

    def left(self: Any) -> list[bytes]:
        batch = self.now(self.spool.read("bob", None, 1 << 20))
        return [record.line for record in batch.records]

    def test_an_inbox_keeps_the_newest_of_its_messages(self: Any) -> None:
        self.open()
        entries = [entry(n) for n in range(3)]
        self.append(*entries)
        size = len(entries[0].line) + 1
        self.assertEqual(self.expire(3 * size, None), [])
        self.assertEqual(self.expire(3 * size + 1, None), [])
        self.assertEqual(self.expire(3 * size - 1, None), [entries[0].line])
        self.assertEqual(self.left(), [entries[1].line, entries[2].line])
        self.assertEqual(self.append(entry(7)), [(1, 2, ((size, 3 * size),)), 7])
        self.assertEqual(self.expire(0, None), [entries[1].line, entries[2].line, entry(7).line])
        self.assertEqual(self.left(), [])

    def test_an_inbox_keeps_nothing_that_is_too_old(self: Any) -> None:
        """A message whose time nobody can read is not old."""
        self.open()
        old = [line(f"old{n}").replace(b'"t"', b'"1960-01-01T00:00:00+00:00"') for n in (1, 2)]
        self.others_append(old[0] + b"\n")
        self.append(entry(1))
        self.others_append(old[1] + b"\n")
        self.append(entry(2))
        self.assertEqual(self.expire(None, 3600.0), old)
        self.assertEqual(self.left(), [entry(1).line, entry(2).line])
        self.assertEqual(self.expire(None, None), [])

    def test_what_was_read_goes_without_a_word(self: Any) -> None:
        self.open()
        self.append(entry(0), entry(1))
        size = len(entry(0).line) + 1
        self.now(self.spool.commit("bob", Position(1, size)))
        self.assertEqual(self.expire(size, None), [])
        self.assertEqual(self.left(), [entry(1).line])
        self.assertEqual(self.expire(size - 1, None), [entry(1).line])

    def test_what_was_dropped_is_known_all_the_same(self: Any) -> None:
        """A repetition of it is none the less one."""
        self.open()
        self.append(entry(1))
        self.expire(0, None)
        self.listener.told()
        self.append(entry(2, message_id="m1", text="hi"))
        self.assertTrue(self.listener.decided[2].duplicate)

    def test_all_inboxes_are_listed(self: Any) -> None:
        self.open()
        self.assertEqual(self.now(self.spool.list_inboxes()), [])
        self.append(entry(1), entry(2, inbox="eve"))
        self.assertEqual(sorted(self.now(self.spool.list_inboxes())), ["bob", "eve"])
        self.assertEqual(self.now(self.spool.expire("nobody", 0, 0.0)), [])
        self.assertEqual(sorted(self.now(self.spool.list_inboxes())), ["bob", "eve"])

    def test_a_spool_that_is_closed_drops_nothing(self: Any) -> None:
        self.open()
        self.append(entry(1))
        self.now(self.spool.close())
        for answer in (self.spool.expire("bob", 0, None), self.spool.list_inboxes()):
            self.assertEqual(self.refusal(answer, IntercomError).code, "SHUTTING_DOWN")

    # -- closing ------------------------------------------------------------------------------

    def test_closing_writes_and_syncs_everything_first(self: Any) -> None:
        self.open()
        self.spool.append([entry(1), entry(2, level="process"), entry(3, inbox="eve")])
        closed = [self.spool.close(), self.spool.close()]
        closed[0].addCallback(lambda _: self.listener.log.append("closed"))
        self.run_all()
        for answer in closed:
            self.successResultOf(answer)
        self.assertEqual(sorted(self.listener.safe), [1, 2, 3])
        self.assertEqual(self.listener.log[-1], "closed")
        self.assertEqual(self.append(entry(4)), [1, 2, 3, (4, "SHUTTING_DOWN")])
        self.refusal(self.spool.read("bob", None, 9), IntercomError)
        self.refusal(self.spool.commit("bob", Position(1, 0)), IntercomError)
        self.assertIsNone(self.now(self.spool.close()))

    def test_closing_waits_no_longer_than_a_second_for_a_lock(self: Any) -> None:
        self.open()
        self.append(entry(0))
        self.lock()
        self.append(entry(1))
        closed = self.spool.close()
        self.pass_time(0.8)
        self.assertNoResult(closed)
        self.pass_time(0.4)
        self.successResultOf(closed)
        self.assertEqual(self.listener.told(), [(1, "INBOX_LOCKED")])
        self.unlock()

    def test_closing_what_was_never_opened_is_no_trouble(self: Any) -> None:
        self.assertIsNone(self.now(self.spool.close()))


class _BrokenSyncs(FileCalls):
    broken = False

    def sync(self, fd: int) -> None:
        if self.broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync(fd)


class ThreadedSpoolTests(SpoolContract, SynchronousTestCase):
    """On files, its threads step by step and its clock in our hands."""

    def make(self) -> None:
        directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, directory)
        # Where temporary files are kept in memory, the tests still want to see syncs.
        level = patch("intercom.spool.threaded.file_level", return_value="disk")
        level.start()
        self.addCleanup(level.stop)
        self.paths = ChannelPaths(directory, "room")
        self.paths.prepare()
        self.calls = _BrokenSyncs()
        self.held = -1
        self.reopen(opening=False)

    def reopen(self, opening: bool = True) -> None:
        self.clock = Clock()
        self.workers = [MemoryWorker() for _ in range(3)]
        writer, syncer, reader = self.workers
        self.spool = ThreadedSpool(
            self.clock, self.paths, calls=self.calls, writer=writer, syncer=syncer, reader=reader
        )
        if opening:
            self.open()

    def run_all(self) -> None:
        quiet = False
        while not quiet:
            self.clock.advance(0)
            quiet = sum(worker.perform() for worker in self.workers) == 0
        self.clock.advance(0)

    def others_append(self, data: bytes) -> None:
        with open(self.paths.inbox("bob"), "ab") as file:
            file.write(data)

    def others_commit(self, position: Position, state: str) -> None:
        Inbox(self.paths, "bob").commit(position, state=state)

    def others_reset(self) -> None:
        os.truncate(self.paths.inbox("bob"), 0)

    def others_forget(self) -> None:
        self.clock.advance(INTERVAL)  # no inotify with this clock
        self.run_all()
        for path in (self.paths.meta("bob"), self.paths.inbox("bob")):
            os.unlink(path)
        self.clock.advance(INTERVAL)

    def lock(self) -> None:
        self.held = os.open(self.paths.inbox("bob"), os.O_RDONLY)
        fcntl.flock(self.held, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def unlock(self) -> None:
        os.close(self.held)

    def break_syncs(self) -> None:
        self.calls.broken = True


class MemorySpoolTests(SpoolContract, SynchronousTestCase):
    """In memory, when told to."""

    def make(self) -> None:
        self.spool = MemorySpool()
        self.clock = self.spool.clock

    def reopen(self) -> None:
        before = self.spool
        self.make()
        self.spool.inboxes, self.spool.known = before.inboxes, before.known
        self.spool.history = before.remembered()
        self.open()

    def run_all(self) -> None:
        self.spool.perform()

    def others_append(self, data: bytes) -> None:
        self.spool.others_append("bob", data)

    def others_commit(self, position: Position, state: str) -> None:
        self.spool.others_commit("bob", position, state)

    def others_reset(self) -> None:
        self.spool.inbox("bob").reset()

    def others_forget(self) -> None:
        self.spool.others_forget("bob")

    def lock(self) -> None:
        self.spool.locked.add("bob")

    def unlock(self) -> None:
        self.spool.locked.clear()

    def break_syncs(self) -> None:
        self.spool.sync_failure = "the disk is broken"

    def test_what_was_pushed_can_be_looked_at(self: Any) -> None:
        self.spool.pushed("bob", 1, 0, 9)
        self.assertEqual(self.spool.pushes, [("bob", 1, 0, 9)])


class ClockedMemorySpoolTests(MemorySpoolTests):
    """In memory, in the turns of a clock."""

    def make(self) -> None:
        self.clock = Clock()
        self.spool = MemorySpool(self.clock)

    def run_all(self) -> None:
        for _ in range(50):
            self.clock.advance(0)
