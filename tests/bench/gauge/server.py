"""What a server is to the bench, how one is started, and how it is ended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gauge.addresses import connect, server_pid
from gauge.texts import Broken

BENCH = Path(__file__).resolve().parents[1]
ROOT = BENCH.parents[1]
#: Seconds for a server to come up, and to go.
START, STOP = 30.0, 15.0
#: Where servers are that a user's path may lack.
_ELSEWHERE = "/usr/local/sbin:/usr/sbin:/sbin"


class Absent(Exception):
    """A server that was asked for is not installed."""


class Target:
    """One kind of server.

    :ivar name: in reports and on the command line.
    :ivar dialect: name of a class of :mod:`gauge.dialects`.
    :ivar channel: where the server has several.
    :ivar twin: the server is that of another target, and only its clients are different.
    :ivar given: it runs already, and its name is its address.
    :ivar profiled: ``cProfile`` can run it.
    :ivar crowd: idle connections that it is asked to have at most.
    :ivar promise: how safely it keeps a message, where it does not say so itself.
    """

    name: str
    dialect: str
    channel = "bench"
    twin = False
    given = False
    profiled = False
    crowd = 1 << 16
    promise = ""

    def command(self, place: Path) -> list[str]:
        """The server's command line; ``place`` is a fresh directory of its own.

        :raise Absent: it is not installed.
        """
        raise NotImplementedError

    def address(self, place: Path) -> str:
        """Where it then listens, see :mod:`gauge.addresses`."""
        return str(place / "socket")

    def environment(self, place: Path) -> dict[str, str]:
        """What it finds in its environment beside what we have."""
        return {"PYTHONPATH": str(BENCH) + os.pathsep + str(ROOT)}


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
    :raise Absent: it is not installed.
    """
    if target.given:
        yield Running(target.name, server_pid(target.name))
        return
    command = target.command(place)
    if profile is not None:
        if not target.profiled:
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
    """Ours, without anything that would tell intercom what to do.

    Nor what would have every process compile all that it loads: what is installed is compiled.
    """
    ours = ("INTERCOM_", "AGY_", "PI_", "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(ours)}


def program(name: str, package: str) -> str:
    """Where a program is.

    :param package: what brings it, by Debian's name.
    :raise Absent: nowhere.
    """
    path = os.environ.get("PATH", os.defpath) + os.pathsep + _ELSEWHERE
    found = shutil.which(name, path=path)
    if found is None:
        raise Absent(f"there is no {name}: install the package {package}")
    return found


def _await_connection(
    server: subprocess.Popen[bytes], target: Target, place: Path, deadline: float
) -> None:
    while True:
        try:
            connect(target.address(place)).close()
        except OSError as error:
            if server.poll() is not None:
                said = (place / "output").read_text(errors="replace")
                raise Broken(f"{target.name} has ended: {said}") from error
            if time.perf_counter() > deadline:
                raise Broken(f"{target.name} accepts no connection") from error
        else:
            return
        time.sleep(0.0005)


def _end(server: subprocess.Popen[bytes]) -> None:
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(STOP)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
