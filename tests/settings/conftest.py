"""Hubs of other versions, for commands that meet them."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from intercom.paths import ChannelPaths

DEADLINE = 60.0


class OtherHub:
    """Answers at a channel's socket as a hub of some version does, to one client at a time.

    :param version: what it says of itself.
    """

    def __init__(self, paths: ChannelPaths, version: str) -> None:
        self.about = {"pid": 4711, "version": version}
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(paths.socket)
        self._listener.listen(8)
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                sock, _address = self._listener.accept()
            except OSError:
                return  # shut down by close()
            sock.settimeout(DEADLINE)
            with sock, sock.makefile("rb") as lines:
                for line in lines:
                    answer = self._answer(json.loads(line))
                    if answer:
                        sock.sendall(json.dumps(answer).encode() + b"\n")

    def _answer(self, line: dict[str, Any]) -> dict[str, Any] | None:
        payload: dict[str, Any]
        if line["type"] == "register":
            kind = "welcome"
            features = line["payload"]["features"]
            payload = {"status": "connected", "peers": [], "protocol": "intercom/1"}
            payload |= {"features": features, "hub": self.about}
        elif line["type"] == "chat":
            kind = "receipt"
            payload = {"state": "stored", "level": "disk", "recipients": 1, "live": 0}
        elif line["type"] == "list":
            kind, payload = "sessions", {"sessions": [], "absent": [], "hub": self.about}
        else:
            return None
        return {
            "id": "msg_0123456789ab",
            "type": kind,
            "from_session": "hub",
            "to_session": line.get("from_session", "unknown"),
            "channel": "default",
            "reply_to": line["id"],
            "payload": payload,
            "timestamp": "2026-01-01T00:00:00.000000+00:00",
        }

    def close(self) -> None:
        """Listen no more, and wait until the last client was served."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


@pytest.fixture
def other_hub() -> Iterator[Callable[[ChannelPaths, str], OtherHub]]:
    """Start a hub of another version."""
    started: list[OtherHub] = []

    def start(paths: ChannelPaths, version: str) -> OtherHub:
        paths.prepare()
        started.append(OtherHub(paths, version))
        return started[-1]

    yield start
    for one in started:
        one.close()
