"""A channel in a directory of its own, and hubs that do what a test tells them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths

DEADLINE = 60.0


class Side:
    """The hub's end of one connection, in a test's script."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(DEADLINE)
        self.socket = sock
        self._file = sock.makefile("rb")

    def read(self) -> dict[str, Any]:
        """The next line that the client sent; empty when it hung up (or did so unread)."""
        try:
            line = self._file.readline()
        except ConnectionResetError:
            return {}
        return dict(json.loads(line)) if line else {}

    def say(self, kind: str, payload: dict[str, Any], reply_to: str | None = None) -> None:
        """Say something as the hub."""
        self.raw(
            {
                "id": "msg_0123456789ab",
                "type": kind,
                "from_session": "hub",
                "to_session": "me",
                "channel": "default",
                "reply_to": reply_to,
                "payload": payload,
                "timestamp": "2026-01-01T00:00:00.000000+00:00",
            }
        )

    def raw(self, message: dict[str, Any]) -> None:
        """Send any line."""
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def chat(self, message_id: str, text: str, sender: str = "bob") -> None:
        """Push a message."""
        self.raw(
            {
                "id": message_id,
                "type": "chat",
                "from_session": sender,
                "to_session": "me",
                "channel": "default",
                "reply_to": None,
                "payload": {"text": text},
                "timestamp": "2026-01-01T00:00:00.000000+00:00",
            }
        )

    def welcome(self, *features: str, **more: Any) -> dict[str, Any]:
        """Read the registration and grant it; return it."""
        register = self.read()
        payload: dict[str, Any] = {"status": "connected", "peers": ["bob"]}
        payload |= {"protocol": "intercom/1", "features": list(features)}
        payload |= {"hub": {"pid": 1, "version": "0"}} | more
        self.say("welcome", payload, register["id"])
        return register

    def welcome_as_original(self) -> dict[str, Any]:
        """Read the registration and welcome it as the original hub does."""
        register = self.read()
        self.say("welcome", {"status": "connected", "peers": ["bob"]})
        return register

    def close(self) -> None:
        """Hang up."""
        self._file.close()
        self.socket.close()


Script = Callable[[Side], None]


class FakeHub:
    """Listens at a channel's socket; its n-th connection is served by the n-th script."""

    def __init__(self, paths: ChannelPaths, scripts: tuple[Script, ...]) -> None:
        self.failures: list[BaseException] = []
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(paths.socket)
        self._listener.listen(8)
        self._listener.settimeout(DEADLINE)
        self._scripts = scripts
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        for script in self._scripts:
            try:
                sock, _address = self._listener.accept()
                side = Side(sock)
                try:
                    script(side)
                finally:
                    side.close()
            except BaseException as error:
                self.failures.append(error)
                break
        self._listener.close()

    def finish(self) -> None:
        """Wait until every script has run; a failed one fails the test."""
        self._thread.join(DEADLINE * 2)
        assert not self._thread.is_alive(), "the hub of this test still waits for its client"
        if self.failures:
            raise self.failures[0]


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """A channel, its directory made."""
    found = ChannelPaths(str(channel_dir), "default")
    found.prepare()
    return found


@pytest.fixture
def hub(paths: ChannelPaths) -> Iterator[Callable[..., FakeHub]]:
    """Start a fake hub with a script per connection; at the end all of them must have run."""
    started: list[FakeHub] = []

    def start(*scripts: Script) -> FakeHub:
        started.append(FakeHub(paths, scripts))
        return started[-1]

    yield start
    for one in started:
        one.finish()
