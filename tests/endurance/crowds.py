"""Many connections to one hub, read and written by one thread."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any

PATIENCE_S = 60.0


class Member:
    """One connection that never blocks; what comes is cut into lines, or not read at all.

    :ivar reads: whether it reads.
    :ivar lines: what it has read and nobody has taken.
    :ivar closed: the hub has hung up.
    """

    def __init__(self, path: str, session: str = "", reads: bool = True) -> None:
        self.session = session
        self.reads = reads
        self.lines: list[dict[str, Any]] = []
        self.closed = False
        self._rest = b""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.setblocking(False)
        _connect(self.socket, path)
        if session:
            self.register(session)

    def register(self, session: str) -> None:
        """Claim a name; the welcome comes later."""
        self.session = session
        self.say("register", from_session=session, payload={"features": ["receipts"]})

    def say(self, kind: str, **fields: Any) -> None:
        """Send one line, which has to go at once."""
        data = json.dumps({"type": kind, **fields}).encode() + b"\n"
        deadline = time.monotonic() + PATIENCE_S
        while data:
            try:
                data = data[self.socket.send(data) :]
            except BlockingIOError:
                assert time.monotonic() < deadline, "the hub takes nothing"
                select.select([], [self.socket], [], 1)

    def take_in(self) -> None:
        """Read what is there."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    data = self.socket.recv(1 << 18)
                except ConnectionResetError:
                    data = b""
                if not data:
                    self.closed = True
                    return
                *whole, self._rest = (self._rest + data).split(b"\n")
                self.lines += map(json.loads, whole)

    def of(self, kind: str) -> list[dict[str, Any]]:
        """The lines of a type so far."""
        return [line for line in self.lines if line["type"] == kind]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()


def _connect(sock: socket.socket, path: str) -> None:
    """Connect; a full queue is asked again."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            sock.connect(path)
        except BlockingIOError:
            assert time.monotonic() < deadline, "the queue of connections stays full"
            time.sleep(0.005)
        else:
            return


class Crowd:
    """All members."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.members: list[Member] = []

    def join(self, session: str = "", reads: bool = True) -> Member:
        """Add one."""
        self.members.append(Member(self.path, session, reads))
        return self.members[-1]

    def listen(self, seconds: float = 0.0) -> None:
        """Have all that read take in what comes for so long."""
        poller = select.poll()
        of = {one.socket.fileno(): one for one in self.members if one.reads and not one.closed}
        for fd in of:
            poller.register(fd, select.POLLIN)
        for fd, _event in poller.poll(seconds * 1000):
            of[fd].take_in()

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Listen until something has become true."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            self.listen(0.05)
            assert time.monotonic() < deadline, f"waited in vain for {what}"

    def until_all(self, kind: str, count: int = 1) -> None:
        """Listen until every member that reads has so many lines of a type."""

        def done() -> bool:
            return all(len(one.of(kind)) >= count for one in self.members if one.reads)

        self.until(done, f"{count} {kind} each")

    def close(self) -> None:
        """Hang up, all of them."""
        for one in self.members:
            one.close()
        self.members.clear()


def descriptors(pid: int) -> int:
    """How many files and sockets a process has open, but for inboxes: it keeps the last ones."""
    count = 0
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            name = os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}"))
            count += not name.startswith("inbox_")
    return count


def cpu_seconds(pid: int) -> float:
    """What a process has used of the processors."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
