"""A hub dies at every point between a client's first try and its fallback: an id is stored once."""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import Any

import pytest

from intercom.client.dial import connect
from intercom.client.outbox import compose, deliver
from intercom.client.tokens import own_token
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths


class Relay:
    """Stands between a client and the hub, and kills the hub at one line of their talk.

    :param side: whose line it is; :param number: which, from 1; :param passed: whether the
        line still gets through.
    """

    def __init__(self, paths: ChannelPaths, pid: int, side: str, number: int, passed: bool) -> None:
        self.pid, self.side, self.number, self.passed = pid, side, number, passed
        self.happened = threading.Event()
        self.tries = 0
        self._paths = paths
        self._threads: list[threading.Thread] = []
        self._sockets: list[socket.socket] = []

    def connect(self, _paths: ChannelPaths) -> socket.socket:
        """What the client connects with: the first time to us, later to nobody."""
        self.tries += 1
        if self.happened.is_set():
            raise HubUnavailable("it is dead", details={"cause": "refused"})
        hub = socket.socket(fileno=connect(self._paths).detach())
        ours, theirs = socket.socketpair()
        hub.settimeout(60)
        ours.settimeout(60)
        self._sockets += [hub, ours]
        for name, source, target in (("client", ours, hub), ("hub", hub, ours)):
            thread = threading.Thread(target=self._pass_on, args=(name, source, target))
            thread.start()
            self._threads.append(thread)
        return theirs

    def _pass_on(self, side: str, source: socket.socket, target: socket.socket) -> None:
        lines = 0
        with source.makefile("rb") as reader:
            while line := self._read(reader):
                lines += 1
                due = (side, lines) == (self.side, self.number)
                try:
                    if not due or self.passed:
                        target.sendall(line)
                    if due:
                        self._kill()
                except OSError:
                    break
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    @staticmethod
    def _read(reader: Any) -> bytes:
        try:
            return bytes(reader.readline())
        except OSError:
            return b""

    def _kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self.happened.set()

    def end(self) -> None:
        for thread in self._threads:
            thread.join(60)
        for one in self._sockets:
            one.close()


#: The client says register, then its message; the hub says welcome, then the receipt.
POINTS = [
    (side, number, passed) for side in ("client", "hub") for number in (1, 2) for passed in (0, 1)
]


@pytest.mark.parametrize(("side", "number", "passed"), POINTS)
def test_the_message_is_stored_once(place: Any, side: str, number: int, passed: int) -> None:
    place.run("init", "--name", "ada")
    paths = ChannelPaths(str(place.base), "default")
    token = own_token(paths, "ada")
    letter = compose(paths, "ada", "bob", {"text": "once"})
    relay = Relay(paths, place.hub_pid(), side, number, bool(passed))
    try:
        outcome = deliver(paths, letter, token, patience=1.0, connect=relay.connect)
    finally:
        relay.end()
    assert relay.happened.is_set()
    assert outcome.state == "stored"
    assert place.ids_in_file("bob") == [letter.message_id]
    assert place.texts("bob") == ["once"]
    assert place.run("peers")[0] == 0  # another hub starts, and adds nothing
    again = deliver(paths, letter, token)
    assert (again.status, again.duplicate) == ("sent", True)
    assert place.ids_in_file("bob") == [letter.message_id]
    assert place.texts("bob") == []
