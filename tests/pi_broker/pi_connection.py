"""Blocking connections for tests: what the strict clients of all dialects have in common.

A client adds what is said in its dialect, and what it may be told.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any, Self

from pi_fields import Frame, Rejected

Address = str | tuple[str, int]

#: Seconds to wait for something that has to come.
PATIENCE_S = 60.0
MAX_FRAME = 1 << 20


class Ended(Exception):
    """The hub ended the connection."""


def packed(*frames: Any) -> bytes:
    """Frames as they go over the wire."""
    parts = []
    for frame in frames:
        body = json.dumps(frame, ensure_ascii=False).encode()
        parts.append(len(body).to_bytes(4) + body)
    return b"".join(parts)


class Connection:
    """One connection.

    :ivar arrived: what came and was not taken yet, in order.
    """

    #: What it is told one of at a time.
    unit = "frame"

    def __init__(self, address: Address) -> None:
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        try:
            self.socket.connect(address)
        except OSError:
            self.socket.close()
            raise
        self.arrived: list[Frame] = []
        self._bytes = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    # -- writing and reading

    def write_bytes(self, data: bytes, piece: int | None = None) -> None:
        """Say any bytes, so many at a time."""
        self.socket.settimeout(PATIENCE_S)
        for at in range(0, len(data), piece or max(1, len(data))):
            self.socket.sendall(data[at : at + (piece or len(data))])

    def read(self) -> Frame:
        """The next one, and it is taken."""
        if not self.arrived:
            self._receive()
        return self._pop(0)

    def take(self, kind: str, **fields: Any) -> Frame:
        """The first one of this type with these fields; what came before it is kept."""
        return self._first(
            lambda frame: (
                frame["type"] == kind and all(frame.get(name) == fields[name] for name in fields)
            )
        )

    def take_all(self, kind: str) -> list[Frame]:
        """All of this type that have come; the others are kept."""
        places = [at for at, frame in enumerate(self.arrived) if frame["type"] == kind]
        return [self._pop(at) for at in reversed(places)][::-1]

    def ended(self) -> list[Frame]:
        """Wait until the hub ends the connection; what it said before, and was not taken."""
        deadline = time.monotonic() + PATIENCE_S
        try:
            while time.monotonic() < deadline:
                self._receive()
        except Ended:
            return [self._pop(0) for _ in range(len(self.arrived))]
        raise AssertionError("the hub does not stop talking")

    def _first(self, wanted: Callable[[Frame], bool]) -> Frame:
        """Wait for the first one that is wanted, and take it."""
        at = 0
        while True:
            while at == len(self.arrived):
                self._receive()
            if wanted(self.arrived[at]):
                return self._pop(at)
            at += 1

    def _pop(self, at: int) -> Frame:
        return self.arrived.pop(at)

    def _receive(self) -> None:
        """Wait for one more.

        :raise Ended: no more will come.
        """
        while (text := self._cut()) is None:
            self.socket.settimeout(PATIENCE_S)
            try:
                data = self.socket.recv(1 << 18)
            except TimeoutError:
                raise AssertionError(f"nothing comes; so far: {self.arrived}") from None
            except (ConnectionResetError, BrokenPipeError):
                data = b""
            if not data:
                if self._bytes:
                    raise Rejected(f"half a {self.unit}, and the end: {self._bytes[:200]!r}")
                raise Ended
            self._bytes += data
        frame = json.loads(text)
        self._check(frame)
        self._keep(frame, text)

    def _cut(self) -> str | None:
        """Take the JSON of the next one off the bytes that came, if it is there."""
        raise NotImplementedError

    def _check(self, frame: Any) -> None:
        """Fail where the public client would drop its connection."""
        raise NotImplementedError

    def _keep(self, frame: Frame, text: str) -> None:
        self.arrived.append(frame)


class FramedConnection(Connection):
    """One connection of a pi client, whose frames have their length before them.

    :ivar texts: the JSON of each frame that came and was not taken yet, as it came.
    :ivar joined: by what it said it has a session.
    """

    def __init__(self, address: Address) -> None:
        super().__init__(address)
        self.joined = False
        self.texts: list[str] = []
        self._requests = 0

    def write(self, *frames: Any) -> None:
        """Say frames, all in one write."""
        for frame in frames:
            self._note(frame, frame.get("type") if isinstance(frame, dict) else None)
        self.write_bytes(packed(*frames))

    def outcome(self, message_id: str) -> Frame:
        """The next thing that the hub says of a message of ours."""
        return self._first(
            lambda frame: frame["type"].startswith("deliver") and frame["messageId"] == message_id
        )

    def unregister(self) -> None:
        self.write({"type": "unregister"})

    def presence(self, **fields: Any) -> None:
        self.write({"type": "presence", **fields})

    def _note(self, frame: Any, kind: Any) -> None:
        """Know what may be the answer."""
        raise NotImplementedError

    def _pop(self, at: int) -> Frame:
        self.texts.pop(at)
        return super()._pop(at)

    def _keep(self, frame: Frame, text: str) -> None:
        super()._keep(frame, text)
        self.texts.append(text)

    def _cut(self) -> str | None:
        if len(self._bytes) < 4:
            return None
        length = int.from_bytes(self._bytes[:4])
        if not 0 < length <= MAX_FRAME:
            raise Rejected(f"a frame of {length} bytes")
        if len(self._bytes) < 4 + length:
            return None
        body, self._bytes = self._bytes[4 : 4 + length], self._bytes[4 + length :]
        return body.decode()


def at_once(client: FramedConnection) -> list[str]:
    """The types of what has been written to a connection already."""
    client.socket.setblocking(False)
    data = client.socket.recv(1 << 16)  # fails if there is nothing
    kinds = []
    while data:
        length = int.from_bytes(data[:4])
        kinds.append(json.loads(data[4 : 4 + length])["type"])
        data = data[4 + length :]
    return kinds
