"""Bridges as processes, and hosts that talk to them line by line."""

from __future__ import annotations

import contextlib
import fcntl
import json
import queue
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DEADLINE_S = 30.0
#: How a host of before 2026 begins.
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "a-host", "version": "1"},
}


class Host:
    """A host of one bridge: says lines, and takes what comes back, in any order."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._number = 0
        self._heard: queue.Queue[bytes] = queue.Queue()
        self._early: dict[object, dict[str, Any]] = {}
        self._reading = threading.Event()
        self._reading.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        if self.process.stdout is not None:
            for line in self.process.stdout:
                self._heard.put(line)
                self._reading.wait()
        self._heard.put(b"")

    def deaf(self) -> None:
        """Take nothing more than the next line, until the end."""
        self._reading.clear()

    def waits_to_write(self) -> bool:
        """Whether the bridge has more to say than its pipe holds."""
        assert self.process.stdout is not None
        held = fcntl.ioctl(self.process.stdout, termios.FIONREAD, b"\0" * 4)
        return int.from_bytes(held, sys.byteorder) >= 60_000

    def written(self) -> list[str]:
        """The texts of all results that were written out whole, those of a dead bridge too."""
        self._reading.set()
        self._reader.join(DEADLINE_S)
        found = []
        while (line := self._heard.get(timeout=DEADLINE_S)).endswith(b"\n"):
            found.append(json.loads(line)["result"]["content"][0]["text"])
        return found

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self) -> dict[str, Any]:
        """The next line of the bridge: JSON-RPC, whatever it is."""
        line = self._heard.get(timeout=DEADLINE_S)
        assert line.endswith(b"\n"), "the bridge has ended"
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        return dict(message)

    def ask(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request, and return its id."""
        self._number += 1
        said = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}}
        self.write(json.dumps(said).encode() + b"\n")
        return self._number

    def note(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification."""
        said = {"jsonrpc": "2.0", "method": method, "params": params or {}}
        self.write(json.dumps(said).encode() + b"\n")

    def answer(self, about: int) -> dict[str, Any]:
        """The answer to a request; others that come before it are kept."""
        while about not in self._early:
            message = self.line()
            self._early[message["id"]] = message
        return self._early.pop(about)

    def request(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self.answer(self.ask(method, params))

    def begin(self, tool: str, meta: dict[str, Any] | None = None, /, **arguments: Any) -> int:
        """Call a tool and go on."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        if meta is not None:
            params["_meta"] = meta
        return self.ask("tools/call", params)

    def text(self, about: int, *, failed: bool = False) -> str:
        """The text of a tool's result."""
        answer = self.answer(about)
        assert "result" in answer, answer
        (content,) = answer["result"]["content"]
        assert answer["result"].get("isError", False) is failed, content
        return str(content["text"])

    def call(self, tool: str, *, failed: bool = False, **arguments: Any) -> str:
        """Call a tool and wait for its text."""
        return self.text(self.begin(tool, **arguments), failed=failed)

    def be_connected(self) -> None:
        """Wait until the bridge has its connection to the hub, as its listing tells."""
        deadline = time.monotonic() + DEADLINE_S
        while "could not be asked" in self.call("peers"):
            assert time.monotonic() < deadline

    def end(self) -> str:
        """End the bridge, however it is; what it said on standard error."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        assert self.process.stderr is not None
        with self.process.stderr as file:
            said = file.read().decode()
        self.process.wait(DEADLINE_S)
        self._reading.set()
        self._reader.join(DEADLINE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(BrokenPipeError):
                if pipe is not None:
                    pipe.close()
        return said

    def leave(self) -> int:
        """Close standard input; the bridge's exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def start(channel_dir: Path, agent: Callable[[str], Any]) -> Iterator[Callable[..., Host]]:
    """Start the bridge of a session, greeted unless said otherwise; ended before the hubs are."""
    hosts: list[Host] = []

    def make(
        session: str,
        *,
        greet: bool = True,
        through: tuple[str, ...] = (),
        stdout: Any = subprocess.PIPE,
        hello: dict[str, Any] = HELLO,
        **environ: str,
    ) -> Host:
        who = agent(session)
        process = subprocess.Popen(
            [*through, sys.executable, "-m", "intercom", "mcp"],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=subprocess.PIPE,
            cwd=who.project,
            env=who.environ | environ,
        )
        host = Host(process)
        hosts.append(host)
        if greet:
            assert "result" in host.request("initialize", hello)
            host.note("notifications/initialized")
        return host

    yield make
    errors = [host.end() for host in hosts]
    assert not [one for one in errors if "Traceback" in one], "\n".join(errors)
