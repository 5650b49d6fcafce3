"""Many connections in one reactor event: who is heard, when the turn ends, what is given back."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from twisted.internet.interfaces import IReactorFDSet
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.hub.inlet import Inlet, plain_socket
from intercom.hub.poller import Poller, is_supported


@implementer(IReactorFDSet)
class Reactor(Clock):
    """A clock that takes descriptors, whose turns the test makes."""

    def __init__(self) -> None:
        super().__init__()
        self.readers: list[Any] = []
        self.writers: list[Any] = []
        self.wait: float | None = None

    def addReader(self, reader: Any) -> None:
        self.readers.append(reader)

    def removeReader(self, reader: Any) -> None:
        self.readers.remove(reader)

    def getWriters(self) -> list[Any]:
        return self.writers

    def timeout(self) -> float | None:
        return self.wait


@pytest.fixture
def reactor() -> Reactor:
    return Reactor()


@pytest.fixture
def poller(reactor: Reactor) -> Iterator[Poller]:
    assert is_supported(reactor)
    poller = Poller(reactor)
    yield poller
    poller.close()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


class Wire:
    """A transport that notes what is asked of it."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self.asked: list[str] = []

    def getHandle(self) -> Any:
        return self.handle

    def pauseProducing(self) -> None:
        self.asked.append("pauseProducing")

    def resumeProducing(self) -> None:
        self.asked.append("resumeProducing")

    def abortConnection(self) -> None:
        self.asked.append("abortConnection")

    def readConnectionLost(self, reason: Failure) -> None:
        self.asked.append(f"end: {reason.type.__name__}")

    def connectionLost(self, reason: Failure) -> None:
        self.asked.append(f"lost: {reason.type.__name__}")


def test_all_who_have_something_to_say_are_heard_in_one_event_and_one_turn(
    reactor: Reactor, poller: Poller
) -> None:
    pairs = [socket.socketpair() for _ in range(5)]
    heard: list[Any] = []

    def hear(ours: socket.socket) -> None:
        heard.append(ours.recv(10))
        if len(heard) == 1:
            poller.turn.call(lambda: heard.append("end"))

    for ours, theirs in pairs:
        poller.watch(ours.fileno(), lambda ours=ours: hear(ours))  # type: ignore[misc]
        theirs.send(b"x")
    poller.doRead()
    assert heard == [b"x"] * 5 + ["end"]
    assert not reactor.getDelayedCalls()  # a turn that is ended here needs no timer
    for one in sum(pairs, ()):
        one.close()


def test_who_is_forgotten_within_a_round_is_not_called(poller: Poller) -> None:
    pairs = [socket.socketpair() for _ in range(2)]
    heard: list[int] = []

    def hear(number: int) -> None:
        heard.append(number)
        pairs[number][0].recv(1)
        poller.forget(pairs[1 - number][0].fileno())
        poller.forget(pairs[1 - number][0].fileno())  # again does no harm

    for number, (ours, theirs) in enumerate(pairs):
        poller.watch(ours.fileno(), lambda number=number: hear(number))  # type: ignore[misc]
        theirs.send(b"x")
    poller.doRead()
    assert len(heard) == 1
    for one in sum(pairs, ()):
        one.close()


def test_a_bug_in_who_is_called_ends_neither_the_turn_nor_the_listening(
    poller: Poller,
    pair: tuple[socket.socket, socket.socket],
    logged_failures: list[Failure],
) -> None:
    ours, theirs = pair
    heard: list[bytes] = []

    def hear() -> None:
        heard.append(ours.recv(1))
        poller.turn.call(lambda: heard.append(b"end"))
        if len(heard) == 1:
            raise ZeroDivisionError

    poller.watch(ours.fileno(), hear)
    theirs.send(b"ab")
    poller.doRead()
    assert heard == [b"a", b"end", b"b", b"end"]
    assert [one.type for one in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()


def test_it_goes_on_while_there_is_more_but_not_when_the_reactor_is_due(
    reactor: Reactor, poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    heard: list[bytes] = []

    def hear() -> None:
        heard.append(ours.recv(1))
        if len(heard) < 4:
            theirs.send(b"x")

    poller.watch(ours.fileno(), hear)
    theirs.send(b"x")
    reactor.wait = 0.0
    poller.doRead()
    assert len(heard) == 1
    reactor.wait = None
    poller.doRead()
    assert len(heard) == 4


def test_what_threads_say_comes_in_order_and_one_failure_stops_none(
    poller: Poller, logged_failures: list[Failure]
) -> None:
    said: list[int] = []

    def broken() -> None:
        raise ZeroDivisionError

    def speak() -> None:
        for number in range(100):
            poller.callFromThread(said.append, number)
            if number == 50:
                poller.callFromThread(broken)

    thread = threading.Thread(target=speak)
    thread.start()
    thread.join()
    poller.doRead()
    assert said == list(range(100))
    assert [one.type for one in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    poller.close()
    poller.callFromThread(said.append, 100)  # nobody listens any more
    assert poller.fileno() == -1


def test_a_bell_that_fails_once_is_rung_by_the_next(
    poller: Poller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a thread had to say meanwhile is not lost, and the thread goes on."""
    said: list[str] = []

    def fail(_fd: int, _value: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "eventfd_write", fail)
        poller.callFromThread(said.append, "one")
    poller.doRead()
    assert said == []
    poller.callFromThread(said.append, "two")
    poller.doRead()
    assert said == ["one", "two"]


def test_a_connection_is_read_to_its_end_and_not_while_it_is_held(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    wire, received = Wire(ours), list[bytes]()
    inlet = Inlet(wire, received.append)
    inlet.quicken(poller, ours)
    theirs.send(b"one")
    poller.doRead()
    inlet.pause()
    theirs.send(b"two")
    poller.doRead()
    assert received == [b"one"]
    inlet.resume()
    poller.doRead()
    assert received == [b"one", b"two"]
    theirs.close()
    poller.doRead()
    assert wire.asked == ["pauseProducing", "end: ConnectionDone"]
    assert received == [b"one", b"two"]


def test_one_that_the_transport_has_closed_is_forgotten_all_the_same(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    """A failed write closes a TCP connection before its protocol hears of it."""
    ours, _theirs = pair
    inlet = Inlet(Wire(ours), lambda _data: None)
    inlet.quicken(poller, ours)
    ours.close()
    inlet.close()
    poller.doRead()


def test_to_read_on_twice_is_to_read_on(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    received = list[bytes]()
    inlet = Inlet(Wire(ours), received.append)
    inlet.quicken(poller, ours)
    inlet.pause()
    inlet.resume()
    inlet.resume()
    theirs.send(b"one")
    poller.doRead()
    assert received == [b"one"]


def test_of_what_a_peer_left_unread_the_transport_hears_as_of_an_accident(
    poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    ours, theirs = pair
    wire, received = Wire(ours), list[bytes]()
    Inlet(wire, received.append).quicken(poller, ours)
    ours.send(b"unread")
    theirs.send(b"last")
    theirs.close()
    poller.doRead()
    assert received == [b"last"]
    assert wire.asked == ["pauseProducing", "lost: ConnectionLost"]


def test_one_to_whom_the_reactor_waits_to_write_ends_after_its_events(
    reactor: Reactor, poller: Poller, pair: tuple[socket.socket, socket.socket]
) -> None:
    """Closed at once, its number would be the next caller's, and so would its events."""
    ours, theirs = pair
    wire = Wire(ours)
    reactor.writers.append(wire)
    Inlet(wire, lambda _data: None).quicken(poller, ours)
    theirs.close()
    poller.doRead()
    poller.doRead()
    assert wire.asked == ["pauseProducing"]
    reactor.advance(0)
    assert wire.asked == ["pauseProducing", "end: ConnectionDone"]


def test_before_it_is_quick_the_reactor_is_asked(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    wire = Wire(pair[0])
    inlet = Inlet(wire, lambda _data: None)
    inlet.pause()
    inlet.resume()
    inlet.close()
    assert wire.asked == ["pauseProducing", "resumeProducing"]


def test_a_bug_in_a_connection_ends_that_one(
    poller: Poller,
    pair: tuple[socket.socket, socket.socket],
    logged_failures: list[Failure],
) -> None:
    ours, theirs = pair
    wire = Wire(ours)

    def broken(_data: bytes) -> None:
        raise ZeroDivisionError

    inlet = Inlet(wire, broken)
    inlet.quicken(poller, ours)
    theirs.send(b"one")
    poller.doRead()
    assert wire.asked == ["pauseProducing", "abortConnection"]
    assert [one.type for one in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    theirs.send(b"two")
    poller.doRead()  # nobody is called
    assert wire.asked == ["pauseProducing", "abortConnection"]


def test_only_sockets_that_carry_the_bytes_themselves_are_read(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    ours, _ = pair
    wire = Wire(ours)
    assert plain_socket(wire) is ours
    wire.TLS = True  # type: ignore[attr-defined]
    assert plain_socket(wire) is None
    assert plain_socket(Wire(None)) is None
    assert plain_socket(object()) is None


def test_closing_it_leaves_no_descriptor_and_no_reader(reactor: Reactor) -> None:
    before = len(os.listdir("/proc/self/fd"))
    poller = Poller(reactor)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    poller.close()
    poller.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert reactor.readers == []
