"""A home that holds nothing but what a test puts there, and programs that run in it.

Whatever a program starts has the home in its environment, and is found and ended by it: agents
leave servers, watchers and updaters behind, in sessions and process groups of their own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from agent_programs import CLAUDE, CODEX, Program
from twisted.internet.defer import Deferred
from twisted.internet.threads import deferToThread

ROOT = Path(__file__).resolve().parents[2]
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
    """A home with projects below it, and a ``PATH`` that begins with intercom.

    :ivar channels: where the channels are (``INTERCOM_DIR``).
    :ivar extra: further variables for whatever is run.
    """

    def __init__(self, base: Path, channels: Path) -> None:
        self.path = base / "home"
        self.bin = self.path / ".local" / "bin"
        self.outputs = base / "outputs"
        self.channels = channels
        self.extra: dict[str, str] = {}
        for directory in (self.bin, self.outputs):
            directory.mkdir(parents=True)
        # Codex runs commands in login shells, which set their own PATH
        (self.path / ".profile").write_text('PATH="$HOME/.local/bin:$PATH"\n')
        self._command("intercom", f'PYTHONPATH={ROOT} exec {sys.executable} -m intercom "$@"')
        node = shutil.which("node")
        assert node is not None
        (self.bin / "node").symlink_to(node)

    def _command(self, name: str, line: str) -> None:
        file = self.bin / name
        file.write_text(f"#!/bin/sh\n{line}\n")
        file.chmod(0o755)

    def add(self, program: Program, installed: Path) -> None:
        """Put a program on the ``PATH``."""
        (self.bin / program.command).symlink_to(installed)

    def project(self, name: str) -> Path:
        """A directory with a repository, as people have them."""
        directory = self.path / name
        directory.mkdir()
        subprocess.run(["git", "init", "-q", directory], check=True, timeout=30, env=self.environ())
        return directory

    def environ(self) -> dict[str, str]:
        """Everything that a program is given; nothing of whoever runs the test."""
        return {
            "HOME": str(self.path),
            "PATH": f"{self.bin}:/usr/local/bin:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "INTERCOM_DIR": str(self.channels),
            "CLAUDE_CONFIG_DIR": str(self.path / ".claude"),
            "CODEX_HOME": str(self.path / ".codex"),
            **self.extra,
        }

    def run(self, project: Path, *words: str, stdin: str = "", **environ: str) -> Finished:
        """Run a command to its end, which comes at the latest after `RUN_S`.

        Its output goes to files: what it leaves behind may hold a pipe open for ever.
        """
        number = len(list(self.outputs.iterdir()))
        out, err = (self.outputs / f"{number:03}.{name}" for name in ("out", "err"))
        (self.outputs / f"{number:03}.in").write_text(stdin)
        with (
            open(self.outputs / f"{number:03}.in") as source,
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


# -- the two programs -------------------------------------------------------------------------

CODEX_CONFIG = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""


def configure_codex(home: AgentHome, url: str) -> None:
    """Give Codex its model; what intercom needs comes behind it."""
    place = home.path / ".codex"
    place.mkdir(exist_ok=True)
    (place / "config.toml").write_text(CODEX_CONFIG.format(url=url))


def start_codex(home: AgentHome, project: Path, prompt: str, *options: str) -> Deferred[Finished]:
    """One turn of Codex, in the sandbox that it has by default in a trusted project."""
    words = [CODEX.command, "exec", "--json", "--sandbox", "workspace-write", *options, prompt]
    return home.begin(project, *words, SCRIPTED_KEY="none")


def start_claude(
    home: AgentHome, url: str, project: Path, prompt: str, *options: str
) -> Deferred[Finished]:
    """One turn of Claude Code."""
    words = [CLAUDE.command, "-p", prompt, "--output-format", "stream-json", "--verbose"]
    return home.begin(
        project,
        *words,
        *options,
        ANTHROPIC_BASE_URL=url,
        ANTHROPIC_API_KEY="none",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )
