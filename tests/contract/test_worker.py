"""What every worker promises: with a thread of its own, and step by step."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from intercom.errors import IntercomError
from intercom.interfaces import IWorker
from intercom.spool.worker import MemoryWorker, ThreadWorker


class WorkerContract:
    """The tests; ``make`` gives a worker, ``drive`` lets it work until a condition holds."""

    worker: Any

    def make(self) -> IWorker:
        raise NotImplementedError

    def drive(self, until: Callable[[], bool]) -> None:
        raise NotImplementedError

    def setUp(self) -> None:
        self.worker = self.make()

    def result_of(self, done: Deferred[Any]) -> Any:
        results: list[Any] = []
        done.addBoth(results.append)
        self.drive(lambda: bool(results))
        return results[0]

    def test_provides_the_interface(self: Any) -> None:
        self.assertTrue(verifyObject(IWorker, self.worker))
        self.result_of(self.worker.quit())

    def test_results_and_failures_come_back(self: Any) -> None:
        self.assertEqual(self.result_of(self.worker.do(divmod, 7, 2)), (3, 1))
        failure = self.result_of(self.worker.do(int, "no number"))
        failure.trap(ValueError)
        self.assertEqual(self.result_of(self.worker.do(len, "still here")), 10)
        self.result_of(self.worker.quit())

    def test_nothing_has_happened_when_do_returns(self: Any) -> None:
        fired: list[int] = []
        self.worker.do(lambda: 1).addCallback(fired.append)
        self.assertEqual(fired, [])
        self.drive(lambda: fired == [1])
        self.result_of(self.worker.quit())

    def test_work_is_done_strictly_one_after_the_other(self: Any) -> None:
        order: list[int] = []
        at_once: list[bool] = []
        busy = threading.Lock()

        def work(number: int) -> int:
            at_once.append(busy.acquire(blocking=False))
            time.sleep(0.001 if number % 5 == 0 else 0)
            order.append(number)
            busy.release()
            return number

        fired: list[int] = []
        for number in range(200):
            self.worker.do(work, number).addCallback(fired.append)
        self.drive(lambda: len(fired) == 200)
        self.assertEqual(order, list(range(200)))
        self.assertEqual(fired, list(range(200)))
        self.assertTrue(all(at_once))
        self.result_of(self.worker.quit())

    def test_cancelling_stops_no_work(self: Any) -> None:
        did: list[int] = []
        first = self.worker.do(did.append, 1)
        first.cancel()
        self.result_of(first).trap(CancelledError)
        self.result_of(self.worker.do(did.append, 2))
        self.assertEqual(did, [1, 2])
        self.result_of(self.worker.quit())

    def test_quitting_runs_what_was_asked_and_takes_no_more(self: Any) -> None:
        did: list[int] = []
        for number in range(20):
            self.worker.do(did.append, number)
        ended = [self.worker.quit(), self.worker.quit()]
        self.result_of(self.worker.do(did.append, 99)).trap(IntercomError)
        for quit in ended:
            self.assertIsNone(self.result_of(quit))
        self.assertEqual(did, list(range(20)))
        self.assertIsNone(self.result_of(self.worker.quit()))
        self.result_of(self.worker.do(did.append, 99)).trap(IntercomError)


class ThreadWorkerTests(WorkerContract, SynchronousTestCase):
    """With a thread, and a reactor whose turns the test makes."""

    def make(self) -> IWorker:
        self.reactor = TurnByTurn()
        return ThreadWorker(self.reactor, "test-worker")

    def drive(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not until():
            assert time.monotonic() < deadline
            self.reactor.turn()

    def test_its_thread_begins_when_needed_ends_with_it_and_holds_up_no_exit(self) -> None:
        before = threading.active_count()
        self.assertEqual(self.result_of(self.worker.quit()), None)
        self.assertEqual(threading.active_count(), before)
        worker = ThreadWorker(self.reactor, "test-worker")
        thread = self.result_of(worker.do(threading.current_thread))
        self.assertIn("test-worker", thread.name)
        self.assertTrue(thread.daemon)
        self.assertIsNot(thread, threading.current_thread())
        self.result_of(worker.quit())
        self.assertFalse(thread.is_alive())

    def test_it_goes_on_though_the_reactor_could_not_be_woken(self) -> None:
        """What was done is heard at the next turn, whoever makes it."""
        call = self.reactor.callFromThread

        def fail(*said: Any) -> None:
            call(*said)
            raise OSError(28, "No space left on device")

        self.reactor.callFromThread = fail
        worker = ThreadWorker(self.reactor, "test-worker")
        self.assertEqual(self.result_of(worker.do(int)), 0)
        self.result_of(worker.do(int, "x")).trap(ValueError)
        self.assertEqual(self.result_of(worker.do(int)), 0)
        self.result_of(worker.quit())


class MemoryWorkerTests(WorkerContract, SynchronousTestCase):
    """Step by step."""

    def make(self) -> IWorker:
        return MemoryWorker()

    def drive(self, until: Callable[[], bool]) -> None:
        while not until():
            assert self.worker.perform()

    def test_one_step_is_one_piece_of_work(self) -> None:
        did: list[int] = []
        self.worker.do(did.append, 1)
        self.worker.do(did.append, 2)
        self.assertTrue(self.worker.perform())
        self.assertEqual(did, [1])
        self.worker.perform_all()
        self.assertEqual(did, [1, 2])
        self.assertFalse(self.worker.perform())


class TurnByTurn(Clock):
    """A reactor that takes calls from threads and runs them when told to."""

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._some = threading.Condition()

    def callFromThread(self, call: Callable[..., object], *args: Any) -> None:
        with self._some:
            self._calls.append((call, args))
            self._some.notify()

    def turn(self) -> None:
        with self._some:
            self._some.wait_for(lambda: self._calls, 0.1)
            calls, self._calls = self._calls, []
        for call, args in calls:
            call(*args)
