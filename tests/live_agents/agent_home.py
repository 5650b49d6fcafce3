"""A home that holds nothing but what a test puts there, and programs that run in it.

Whatever a program starts has the home in its environment, and is found and ended by it: agents
leave servers, watchers and updaters behind, in sessions and process groups of their own.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from agent_programs import Program
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

ROOT = Path(__file__).resolve().parents[2]
#: Whatever a program wants from elsewhere, it asks of a port that nobody listens at.
NOWHERE = "http://127.0.0.1:9"
RUN_S = 120
END_S = 10


@dataclass(frozen=True)
class Finished:
    """What a program left."""

    status: int
    out: str
    err: str

    def ok(self) -> str:
        """What it printed, if it ended well."""
        assert self.status == 0, (self.status, self.out[-2000:], self.err[-2000:])
        return self.out


class AgentHome:
    """A home with projects below it, intercom on the ``PATH``, and a place for its channels.

    Where that is stands in a file: not all hosts let a variable through to what they start.
    """

    def __init__(self, base: Path, channels: Path) -> None:
        self.path = base / "home"
        self.bin = self.path / ".local" / "bin"
        self.outputs = base / "outputs"
        self._numbers = itertools.count()  # commands may run side by side
        for directory in (self.bin, self.outputs):
            directory.mkdir(parents=True)
        # Codex runs commands in login shells, which set their own PATH
        self.write(".profile", 'PATH="$HOME/.local/bin:$PATH"\n')
        self.write(".config/intercom/config.toml", f'dir = "{channels}"\n')
        self._command("intercom", f'PYTHONPATH={ROOT} exec {sys.executable} -m intercom "$@"')
        node = shutil.which("node")
        assert node is not None
        (self.bin / "node").symlink_to(node)

    def _command(self, name: str, line: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)

    def add(self, program: Program, installed: Callable[[Program], Path]) -> None:
        """Put a program on the ``PATH``, and the Node that it needs."""
        if program.node is not None:
            self.add(program.node, installed)
        link = self.bin / program.command
        link.unlink(missing_ok=True)
        link.symlink_to(installed(program))

    def write(self, name: str, text: str) -> None:
        """Write a file of the home."""
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    def project(self, name: str) -> Path:
        """A directory with a repository, as people have them."""
        directory = self.path / name
        directory.mkdir()
        subprocess.run(["git", "init", "-q", directory], check=True, timeout=30, env=self.environ())
        return directory

    def environ(self) -> dict[str, str]:
        """What a program is given, beside what its host needs; nothing of who runs the test."""
        path = f"{self.bin}:/usr/local/bin:/usr/bin:/bin"
        nowhere = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), NOWHERE)
        here = dict.fromkeys(("NO_PROXY", "no_proxy"), "127.0.0.1,localhost")
        return {"HOME": str(self.path), "PATH": path, "LANG": "C.UTF-8"} | nowhere | here

    def run(self, project: Path, *words: str, stdin: str = "", **environ: str) -> Finished:
        """Run a command to its end, which comes at the latest after `RUN_S`.

        Its output goes to files: what it leaves behind may hold a pipe open for ever.
        """
        number = next(self._numbers)
        given, out, err = (self.outputs / f"{number:03}.{name}" for name in ("in", "out", "err"))
        given.write_text(stdin)
        with (
            given.open("rb") as source,
            out.open("wb") as result,
            err.open("wb") as errors,
        ):
            process = subprocess.Popen(
                words,
                cwd=project,
                env=self.environ() | environ,
                stdin=source,
                stdout=result,
                stderr=errors,
                start_new_session=True,
            )
            try:
                status = process.wait(RUN_S)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                status = process.wait()
        texts = (file.read_text("utf-8", "replace") for file in (out, err))
        return Finished(status, *texts)

    def begin(self, project: Path, *words: str, **environ: str) -> Deferred[Finished]:
        """Run a command while the reactor goes on."""
        found: Deferred[Finished] = deferToThread(self.run, project, *words, **environ)
        return found

    # -- the end ------------------------------------------------------------------------------

    def end(self) -> None:
        """End all that runs in this home, gently first."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + END_S
            told: set[int] = set()
            while (left := self._running()) and time.monotonic() < deadline:
                for pid in set(left) - told:
                    _kill(pid, number)
                told |= set(left)
                time.sleep(0.05)
        assert not self._running(), "processes of the programs cannot be ended"

    def _running(self) -> list[int]:
        """The pids of all processes that have this home."""
        mark = f"HOME={self.path}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue  # it has ended, or is somebody else's
        return found


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return
