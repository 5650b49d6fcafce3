"""A process whose system calls fail as a test likes, by ``strace``; and whether they did."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from storm_place import until

#: What strace writes behind a call that it has let fail.
MARK = "(INJECTED)"


class Fault(NamedTuple):
    """The ``number``-th call of this name in each thread fails with this error."""

    call: str
    error: str
    number: int

    def __str__(self) -> str:
        return f"{self.call} {self.error} {self.number}"

    @property
    def words(self) -> list[str]:
        """As strace takes it."""
        inject = f"inject={self.call}:error={self.error}:when={self.number}"
        return ["-f", "-qq", "-e", f"trace={self.call}", "-e", inject]


def require_strace() -> str:
    """Where strace is; a test that needs it is reported as not run where it is missing or idle."""
    found = shutil.which("strace")
    if found is None:
        pytest.skip("not run: needs strace")
    tried = subprocess.run([found, "-qq", "-o", os.devnull, "true"], check=False)
    if tried.returncode:
        pytest.skip("not run: no process may be traced here")
    return found


class Injected:
    """Counts what was let fail.

    :ivar log: where strace writes.
    """

    def __init__(self, log: Path) -> None:
        self.log = log

    @property
    def times(self) -> int:
        """How often so far."""
        return self.log.read_text(errors="replace").count(MARK)


@contextmanager
def injected(pid: int, fault: Fault, log: Path) -> Iterator[Injected]:
    """Let calls of a running process fail inside the ``with``; it goes on unharmed afterwards."""
    command = [require_strace(), *fault.words, "-o", str(log), "-p", str(pid)]
    strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        until(lambda: _is_traced(pid) or strace.poll() is not None, "strace to attach")
        assert strace.poll() is None, f"strace did not attach to {pid}"
        yield Injected(log)
    finally:
        if strace.poll() is None:
            strace.send_signal(signal.SIGTERM)
        strace.wait(60)


def _is_traced(pid: int) -> bool:
    """Whether all threads of a process have a tracer."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            status = Path(f"/proc/{pid}/task/{thread}/status").read_text()
            if "\nTracerPid:\t0\n" in status:
                return False
    except OSError:
        return False
    return True
