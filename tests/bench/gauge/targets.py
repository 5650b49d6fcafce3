"""The servers that are compared: how each is started, and which dialect it speaks.

A new server is one class here; one with a protocol of its own brings another in
:mod:`gauge.dialects`.
"""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from socket import AF_UNIX, SO_PEERCRED, SOCK_STREAM, SOL_SOCKET, socket

from gauge.texts import Broken

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parents[1]
#: Durability levels of our hub, as its ``--durability`` takes them.
LEVELS = ("memory", "process", "disk")
#: Seconds for a server to come up, and to go.
START, STOP = 30.0, 15.0


class Target:
    """One kind of server.

    :ivar name: in reports and on the command line.
    :ivar dialect: name of a class of :mod:`gauge.dialects`.
    :ivar channel: where the server has several.
    """

    name: str
    dialect: str
    channel = "bench"

    def command(self, place: Path) -> list[str]:
        """The server's command line; ``place`` is a fresh directory of its own."""
        raise NotImplementedError

    def address(self, place: Path) -> str:
        """The path of the Unix socket at which it then listens."""
        return str(place / "socket")

    def environment(self) -> dict[str, str]:
        """What it finds in its environment beside what we have."""
        return {"PYTHONPATH": str(BENCH) + os.pathsep + str(ROOT)}


class Bare(Target):
    """The standard library's servers, see :mod:`gauge.relay`."""

    def __init__(self, name: str, dialect: str) -> None:
        self.name = name
        self.dialect = dialect

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-m", "gauge.relay", self.name, self.address(place)]


class Ours(Target):
    """Our hub, as a daemon.

    :param level: of durability.
    :param live: receivers take pushes only, and acknowledge nothing.
    :param checkout: the tree whose hub it is, ours if None.
    """

    def __init__(self, level: str, live: bool = False, checkout: Path | None = None) -> None:
        self.level = level
        self.live = live
        self.name = ("ours-live-" if live else "ours-") + level
        if checkout is not None:
            self.name += f"@{checkout.name}"
        self.dialect = "NdjsonLive" if live else "Ndjson"
        self.root = checkout or ROOT

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        words = ["--channel", self.channel, "--dir", str(place), "--durability", self.level]
        return [sys.executable, "-m", "intercom", "daemon", *words]

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        return str(place / self.channel / "hub.sock")

    def environment(self) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        # No settings of whoever measures: a path where there are none.
        return {"PYTHONPATH": str(self.root), "XDG_CONFIG_HOME": "/nonexistent"}


class Given(Target):
    """A hub that runs already, with NDJSON on a Unix socket ``.../CHANNEL/NAME``."""

    dialect = "Ndjson"

    def __init__(self, path: str) -> None:
        self.name = path
        self.channel = Path(path).absolute().parent.name


def targets_named(name: str, levels: Sequence[str], checkout: Path | None = None) -> list[Target]:
    """What a name on the command line stands for; our hub is one target for each level."""
    if name in ("ours", "ours-live"):
        return [Ours(level, name == "ours-live", checkout) for level in levels]
    if name in ("echo", "relay"):
        return [Bare(name, "Echo" if name == "echo" else "Ndjson")]
    if "/" in name:
        return [Given(name)]
    raise ValueError(f"{name!r} is neither echo, relay, ours, ours-live nor the path of a socket")


class Running:
    """A server that accepts connections.

    :ivar startup_s: from its start to the first connection; 0 if we did not start it.
    """

    def __init__(self, address: str, pid: int, startup_s: float = 0.0) -> None:
        self.address = address
        self.pid = pid
        self.startup_s = startup_s


@contextmanager
def scratch(base: str) -> Iterator[Path]:
    """A fresh directory, whose files go where ``base`` is stored."""
    with tempfile.TemporaryDirectory(prefix="gauge-", dir=base) as made:
        yield Path(made)


@contextmanager
def running(
    target: Target, place: Path, *, core: int | None = None, profile: Path | None = None
) -> Iterator[Running]:
    """Start a server (or look up a given one), and end it afterwards.

    :param core: the only processor that it may use.
    :param profile: file for ``cProfile``'s figures of its main thread.
    :raise Broken: it does not come up.
    """
    if isinstance(target, Given):
        yield Running(target.name, _server_pid(target.name))
        return
    command = target.command(place)
    if profile is not None:
        if not isinstance(target, Ours):
            raise ValueError(f"{target.name} cannot be profiled")
        command[1:1] = ["-m", "cProfile", "-o", str(profile)]
    with (place / "output").open("wb") as output:
        begun = time.perf_counter()
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=place,
            env=clean_environment() | target.environment(),
        )
    try:
        if core is not None:
            os.sched_setaffinity(server.pid, {core})
        _await_connection(server, target, place, begun + START)
        yield Running(target.address(place), server.pid, time.perf_counter() - begun)
    finally:
        _end(server)


def clean_environment() -> dict[str, str]:
    """Ours, without anything that would tell intercom what to do."""
    ours = ("INTERCOM_", "AGY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def _await_connection(
    server: subprocess.Popen[bytes], target: Target, place: Path, deadline: float
) -> None:
    while True:
        try:
            with socket(AF_UNIX, SOCK_STREAM) as sock:
                sock.connect(target.address(place))
                return
        except OSError as error:
            if server.poll() is not None:
                said = (place / "output").read_text(errors="replace")
                raise Broken(f"{target.name} has ended: {said}") from error
            if time.perf_counter() > deadline:
                raise Broken(f"{target.name} accepts no connection") from error
        time.sleep(0.0005)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def _server_pid(address: str) -> int:
    """Who made a listening socket, as the kernel knows it."""
    with socket(AF_UNIX, SOCK_STREAM) as sock:
        sock.connect(address)
        credentials = sock.getsockopt(SOL_SOCKET, SO_PEERCRED, struct.calcsize("3i"))
    pid: int = struct.unpack("3i", credentials)[0]
    return pid
