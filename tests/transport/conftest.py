"""Commands as processes, with sockets and without."""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
NO_SOCKETS = [sys.executable, str(HERE / "no_sockets.py")]
DEADLINE_S = 60.0
KNOWN_MACHINES = ("x86_64", "aarch64")


class Place:
    """A directory of channels, and commands that run in it."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.channel = base / "default"
        self._running: list[subprocess.Popen[str]] = []

    def environment(self, **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("INTERCOM", "AGY"))}
        path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
        return {**kept, "PYTHONPATH": path, "INTERCOM_DIR": str(self.base), **more}

    def words(self, *words: str, sandboxed: bool) -> list[str]:
        if sandboxed and platform.machine() not in KNOWN_MACHINES:
            pytest.skip(f"not run: no system call numbers for {platform.machine()}")
        command = [sys.executable, "-m", "intercom", *words, "--json"]
        return [*NO_SOCKETS, *command] if sandboxed else command

    def run(
        self, *words: str, sandboxed: bool = False, body: str = "", **environment: str
    ) -> tuple[int, dict[str, Any], str]:
        """Run a command to its end: status, result, standard error."""
        done = subprocess.run(
            self.words(*words, sandboxed=sandboxed),
            input=body,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            env=self.environment(**environment),
            cwd=self.base,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        lines = done.stdout.splitlines()
        return done.returncode, json.loads(lines[-1]) if lines else {}, done.stderr

    def start(self, *words: str, sandboxed: bool = False) -> subprocess.Popen[str]:
        """Start a command that goes on; it is ended with the test."""
        process = subprocess.Popen(
            self.words(*words, sandboxed=sandboxed),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment(),
            cwd=self.base,
        )
        self._running.append(process)
        return process

    def hub_pid(self) -> int:
        return int(json.loads((self.channel / "hub.lock").read_bytes())["pid"])

    def texts(self, session: str, **options: Any) -> list[str]:
        """What a session's poll shows."""
        status, result, error = self.run("poll", "--session", session, **options)
        assert status == 0, error
        return [message["payload"]["text"] for message in result["messages"]]

    def ids_in_file(self, session: str) -> list[str]:
        path = self.channel / f"inbox_{session}.ndjson"
        if not path.exists():
            return []
        return [json.loads(line)["id"] for line in path.read_bytes().splitlines()]

    def end(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate(timeout=DEADLINE_S)


def until(condition: Callable[[], Any], what: str = "it") -> Any:
    """Wait for something that must become true."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(0.02)
    return found


@pytest.fixture
def place(channel_dir: Path) -> Iterator[Place]:
    place = Place(channel_dir)
    try:
        yield place
    finally:
        place.end()


@pytest.fixture
def wait_until() -> Callable[..., Any]:
    return until
