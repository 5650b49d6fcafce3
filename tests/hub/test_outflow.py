"""What a connection is sent: joined, bounded, never waited for."""

from __future__ import annotations

from functools import partial

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from intercom.hub.outflow import ANSWER_LIMIT, CHUNK, PUSH_LIMIT, Outflow
from intercom.hub.turn import TurnEnd


class Wire:
    """A transport that pauses its producer when it is told to be full."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.full = False
        self.producer: Outflow | None = None

    def registerProducer(self, producer: Outflow, streaming: bool) -> None:
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:
        self.producer = None

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        if self.full:
            assert self.producer is not None
            self.producer.pauseProducing()
            self.producer.pauseProducing()  # real transports repeat themselves


class PullWire(Wire):
    """A transport that says each time that it has nothing left, if it is asked to."""

    def registerProducer(self, producer: Outflow, streaming: bool) -> None:
        self.producer = producer
        if not streaming:
            producer.resumeProducing()


class OutflowTests(SynchronousTestCase):
    """Each test: lines go in, writes come out."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.wire = Wire()
        self.calls: list[str] = []
        self.outflow = Outflow(
            self.wire,
            TurnEnd(self.clock),
            lambda: self.calls.append("pause"),
            lambda: self.calls.append("hold"),
            lambda: self.calls.append("drained"),
        )

    def turn(self) -> None:
        self.clock.advance(0)

    def test_one_turn_is_one_write(self) -> None:
        """Lines written in one turn leave together, in order."""
        for line in (b"a", b"b", b"c"):
            self.outflow.write(line)
        self.assertEqual(self.wire.writes, [])
        self.turn()
        self.assertEqual(self.wire.writes, [b"a\nb\nc\n"])
        self.turn()
        self.assertEqual(len(self.wire.writes), 1)

    def test_large_output_leaves_in_pieces(self) -> None:
        """No single write is much over the chunk size, and nothing is lost."""
        lines = [b"%d" % n * 1000 for n in range(10) for _ in range(100)]
        for line in lines:
            self.outflow.write(line)
        self.turn()
        self.assertEqual(b"".join(self.wire.writes), b"".join(line + b"\n" for line in lines))
        self.assertLessEqual(max(map(len, self.wire.writes)), CHUNK + 1001)

    def test_a_full_transport_gets_nothing_more_until_it_has_room(self) -> None:
        """Lines wait, in order, and leave when the transport resumes."""
        self.wire.full = True
        self.outflow.write(b"first")
        self.turn()
        self.outflow.write(b"second")
        self.turn()
        self.assertEqual(self.wire.writes, [b"first\n"])
        self.wire.full = False
        self.outflow.resumeProducing()
        self.assertEqual(self.wire.writes, [b"first\n", b"second\n"])
        self.assertEqual(self.calls, [])

    def test_limits_are_told_once_each_and_draining_once(self) -> None:
        """Over 1 MiB pushes stop, over 2 MiB reading stops, at zero both go on.

        What comes now does not count: a large message costs nobody the one behind it.
        """
        self.wire.full = True
        self.outflow.write(b"x")
        self.turn()
        self.outflow.write(b"y" * (PUSH_LIMIT - 1))
        self.outflow.write(b"x" * 99)
        self.assertEqual(self.calls, [])
        self.outflow.write(b"")
        self.assertEqual(self.calls, ["pause"])
        self.outflow.write(b"z" * (ANSWER_LIMIT - PUSH_LIMIT))
        self.outflow.write(b"z")
        self.assertEqual(self.calls, ["pause", "hold"])
        self.wire.full = False
        self.outflow.resumeProducing()
        self.assertEqual(self.calls, ["pause", "hold", "drained"])
        self.assertEqual(self.outflow.unsent, 0)

    def test_what_draining_causes_to_be_written_leaves_too(self) -> None:
        """The hub goes on from the spool within the call that says 'drained'."""
        self.outflow._drained = lambda: self.outflow.write(b"more")
        self.outflow.write(b"y" * (PUSH_LIMIT + 1))
        self.outflow.write(b"")
        self.turn()
        self.turn()
        self.assertEqual(self.wire.writes[-1], b"more\n")

    def test_finishing_lets_everything_leave_first(self) -> None:
        """Then the producer is unregistered, without which the transport would never close."""
        done: list[bool] = []
        self.wire.full = True
        self.outflow.write(b"x")
        self.turn()
        self.outflow.write(b"last")
        self.outflow.finish(lambda: done.append(True))
        self.outflow.write(b"too late")
        self.turn()
        self.assertEqual(done, [])
        self.wire.full = False
        self.outflow.resumeProducing()
        self.assertEqual(self.wire.writes, [b"x\n", b"last\n"])
        self.assertEqual(done, [True])
        self.assertIsNone(self.wire.producer)

    def test_after_the_connection_is_gone_nothing_is_kept(self) -> None:
        """Lines for nobody cost nothing."""
        self.outflow.write(b"x")
        self.outflow.stopProducing()
        self.outflow.write(b"y")
        self.turn()
        self.assertEqual((self.wire.writes, self.outflow.unsent), ([], 0))


class QuickOutflowTests(SynchronousTestCase):
    """Lines that go to the socket itself; the transport gets what the kernel does not take."""

    def setUp(self) -> None:
        self.clock = Clock()
        self.wire = PullWire()
        self.sent: list[bytes] = []
        self.room = 1 << 30
        self.calls: list[str] = []
        notes = [partial(self.calls.append, name) for name in ("pause", "hold", "drained")]
        self.outflow = Outflow(self.wire, TurnEnd(self.clock), *notes)

    def send(self, data: bytes) -> int:
        if not self.room:
            raise BlockingIOError
        taken = data[: self.room]
        self.room -= len(taken)
        self.sent.append(taken)
        return len(taken)

    def test_one_turn_is_one_send(self) -> None:
        """The transport hears nothing of it."""
        self.outflow.quicken(self.send)
        for line in (b"a", b"b"):
            self.outflow.write(line)
        self.clock.advance(0)
        self.assertEqual((self.sent, self.wire.writes), ([b"a\nb\n"], []))

    def test_the_rest_goes_to_the_transport_and_everything_else_waits_for_it(self) -> None:
        """No byte passes another."""
        self.outflow.quicken(self.send)
        self.room = 3
        self.outflow.write(b"abcd")
        self.clock.advance(0)
        self.assertEqual((self.sent, self.wire.writes), ([b"abc"], [b"d\n"]))
        self.room = 100
        self.outflow.write(b"e")
        self.clock.advance(0)
        self.assertEqual((self.sent, self.wire.writes), ([b"abc"], [b"d\n"]))
        self.assertEqual(self.outflow.unsent, 2)
        self.outflow.resumeProducing()
        self.assertEqual(self.sent, [b"abc", b"e\n"])
        self.room = 0
        self.outflow.write(b"f")
        self.clock.advance(0)
        self.assertEqual(self.wire.writes, [b"d\n", b"f\n"])

    def test_limits_hold_and_it_ends_when_the_transport_has_nothing_left(self) -> None:
        """As where the transport writes all."""
        self.outflow.quicken(self.send)
        self.room = 0
        self.outflow.write(b"x")
        self.clock.advance(0)
        self.outflow.write(b"y" * PUSH_LIMIT)
        self.outflow.write(b"")
        self.assertEqual(self.calls, ["pause"])
        self.outflow.finish(lambda: self.calls.append("finished"))
        self.assertEqual(self.calls, ["pause"])
        self.room = 1 << 30
        self.outflow.resumeProducing()
        self.assertEqual(self.calls, ["pause", "drained", "finished"])
        self.assertEqual(sum(map(len, self.sent)), PUSH_LIMIT + 2)
        self.assertIsNone(self.wire.producer)

    def test_where_the_transport_may_still_hold_something_all_stays_as_it_was(self) -> None:
        """What was given to it must leave first."""
        self.outflow.write(b"early")
        self.clock.advance(0)
        self.outflow.quicken(self.send)
        self.outflow.write(b"late")
        self.clock.advance(0)
        self.assertEqual((self.sent, self.wire.writes), ([], [b"early\n", b"late\n"]))


class TurnEndTests(SynchronousTestCase):
    """One timer serves all who ask."""

    def test_actions_run_once_in_order_and_one_failure_stops_none(self) -> None:
        """A broken action is logged; the others of the turn still run."""
        clock, calls = Clock(), []
        turn = TurnEnd(clock)

        def broken() -> None:
            raise ZeroDivisionError

        for action in (lambda: calls.append(1), broken, lambda: calls.append(2)):
            turn.call(action)
        self.assertEqual(len(clock.getDelayedCalls()), 1)
        clock.advance(0)
        clock.advance(0)
        self.assertEqual(calls, [1, 2])
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError)), 1)

    def test_who_holds_a_turn_ends_it_without_a_timer(self) -> None:
        """What the end of a turn asks for is of the same turn."""
        clock, calls = Clock(), []
        turn = TurnEnd(clock)
        turn.begin()
        turn.call(lambda: turn.call(lambda: calls.append(2)))
        turn.call(lambda: calls.append(1))
        self.assertEqual((calls, clock.getDelayedCalls()), ([], []))
        turn.end()
        self.assertEqual((calls, clock.getDelayedCalls()), ([1, 2], []))
        turn.call(lambda: calls.append(3))
        clock.advance(0)
        self.assertEqual(calls, [1, 2, 3])
