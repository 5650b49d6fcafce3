"""The servers that are compared: how each is started, and which dialect it speaks.

A new server is one class here; one with a protocol of its own brings another in
:mod:`gauge.dialects`.
"""

from __future__ import annotations

import hashlib
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
#: What is spoken on the sockets of our hub for pi clients: theirs, and a hub's own.
PI = {"pi": "Pi", "pi-subagents": "PiSubagents", "pi-ndjson": "Ndjson"}
#: A longer path of pi-subagents' socket moves to /tmp.
_LONGEST = 100


class Target:
    """One kind of server.

    :ivar name: in reports and on the command line.
    :ivar dialect: name of a class of :mod:`gauge.dialects`.
    :ivar channel: where the server has several.
    :ivar twin: the server is that of another target, and only its clients are different.
    """

    name: str
    dialect: str
    channel = "bench"
    twin = False

    def command(self, place: Path) -> list[str]:
        """The server's command line; ``place`` is a fresh directory of its own."""
        raise NotImplementedError

    def address(self, place: Path) -> str:
        """The path of the Unix socket at which it then listens."""
        return str(place / "socket")

    def environment(self, place: Path) -> dict[str, str]:
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
        self.twin = live
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

    def environment(self, place: Path) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        # No settings of whoever measures: a path where there are none.
        return {"PYTHONPATH": str(self.root), "XDG_CONFIG_HOME": "/nonexistent"}


class OursForPi(Ours):
    """Our hub as the broker of pi clients, in directories of its own, its rate limit lifted.

    :param kind: which of its sockets is used, a key of :data:`PI`.
    """

    channel = "pi"

    def __init__(self, kind: str, level: str, checkout: Path | None = None) -> None:
        super().__init__(level, checkout=checkout)
        self.name = self.name.replace("ours", kind, 1)
        self.kind = kind
        self.dialect = PI[kind]
        self.twin = kind != "pi"

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-m", "intercom", "--dir", str(place / "dir"), "pi-broker"]

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        agent = place / "agent"
        if self.kind == "pi":
            return str(agent / "intercom" / "broker.sock")
        if self.kind == "pi-ndjson":
            return super().address(place / "dir")
        digest = hashlib.sha256(f"{os.getuid()}:{agent}".encode()).hexdigest()[:16]
        path = str(place / f"pi-intercom-{digest}" / "broker.sock")
        return path if len(path) <= _LONGEST else path.replace(str(place), "/tmp")

    def environment(self, place: Path) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        return super().environment(place) | {
            "HOME": str(place),
            "TMPDIR": str(place),
            "PI_CODING_AGENT_DIR": str(place / "agent"),
            "INTERCOM_DURABILITY": self.level,
            "INTERCOM_PI_BURST": "1000000",
            "INTERCOM_PI_RATE": "1000000",
            "INTERCOM_PI_SESSIONS": "10000",
        }


class Given(Target):
    """A hub that runs already, with NDJSON on a Unix socket ``.../CHANNEL/NAME``."""

    dialect = "Ndjson"

    def __init__(self, path: str) -> None:
        self.name = path
        self.channel = Path(path).absolute().parent.name


#: Our hub's names on the command line, each one target for each level.
OURS = ("ours", "ours-live", *PI)


def targets_named(name: str, levels: Sequence[str], checkout: Path | None = None) -> list[Target]:
    """What a name on the command line stands for; our hub is one target for each level."""
    if name in PI:
        return [OursForPi(name, level, checkout) for level in levels]
    if name in OURS:
        return [Ours(level, name == "ours-live", checkout) for level in levels]
    if name in ("echo", "relay"):
        return [Bare(name, "Echo" if name == "echo" else "Ndjson")]
    if "/" in name:
        return [Given(name)]
    known = ", ".join(("echo", "relay", *OURS))
    raise ValueError(f"{name!r} is none of {known}, and no path of a socket")


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
            env=clean_environment() | target.environment(place),
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
    ours = ("INTERCOM_", "AGY_", "PI_")
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
