"""``intercom pi-broker`` as a process, in directories of its own."""

from __future__ import annotations

import hashlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pi_frames_client import PATIENCE_S, PiClient

ROOT = Path(__file__).resolve().parents[2]
READY = "Intercom broker started (pid: "
#: What the surroundings of the tests may say and a broker of theirs must not hear.
_FOREIGN = ("INTERCOM", "PI_", "AGY", "TMP", "TEMP")


def until(reached: Callable[[], object], what: str) -> None:
    """Wait for a condition, and fail if it does not come true."""
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


class BrokerProcess:
    """One agent directory, and the broker that serves it.

    :ivar root: holds all that is below: the channels, the agent directory, a home and a
        directory for temporary files.
    :ivar environ: what the broker is started with, beside the test's own surroundings.
    """

    def __init__(self, root: Path, channel: str = "", **environ: str) -> None:
        self.root = root
        self.channels, self.agent = root / "dir", root / "agent"
        self.home, self.temporary = root / "home", root / "tmp"
        for directory in (self.home, self.temporary):
            directory.mkdir(exist_ok=True)
        self.channel = channel
        self.environ = {
            "HOME": str(self.home),
            "PI_CODING_AGENT_DIR": str(self.agent),
            "TMPDIR": str(self.temporary),
            "NODE_NO_WARNINGS": "1",
            "PYTHONFAULTHANDLER": "1",
            **environ,
        }
        self.process: subprocess.Popen[bytes] | None = None
        self._bidden: subprocess.Popen[bytes] | None = None
        self.clients: list[PiClient] = []
        self.errors = root / "stderr"

    # -- places

    @property
    def directory(self) -> Path:
        return self.agent / "intercom"

    @property
    def socket(self) -> str:
        return str(self.directory / "broker.sock")

    @property
    def subagents_socket(self) -> str:
        said = f"{os.getuid()}:{self.agent}"
        return str(self.temporary / f"pi-intercom-{_digest(said)}" / "broker.sock")

    @property
    def probed_socket(self) -> str:
        return str(self.temporary / f"pi-intercom-{_digest(str(self.agent))}.sock")

    @property
    def hub_socket(self) -> str:
        return str(self.channels / (self.channel or "pi") / "hub.sock")

    @property
    def pid_file(self) -> Path:
        return self.directory / "broker.pid"

    @property
    def port_file(self) -> Path:
        return self.directory / "broker.port.json"

    @property
    def asks(self) -> Path:
        return self.directory / "pending-asks"

    @property
    def states(self) -> Path:
        return self.directory / "extension-state"

    def state_file(self, namespace: str) -> Path:
        return self.states / f"{hashlib.sha256(namespace.encode()).hexdigest()}.json"

    def endpoint(self) -> dict[str, Any]:
        """What the port file says."""
        found = json.loads(self.port_file.read_bytes())
        assert isinstance(found, dict)
        return found

    # -- the process

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def command(self, *words: str) -> list[str]:
        channel = ["--channel", self.channel] if self.channel else []
        begin = [sys.executable, "-m", "intercom", "--dir", str(self.channels), *channel]
        return [*begin, "pi-broker", *words]

    def surroundings(self) -> dict[str, str]:
        """All that the broker is started with."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        path = os.pathsep.join([str(ROOT), *filter(None, [kept.get("PYTHONPATH")])])
        return {**kept, "PYTHONPATH": path, **self.environ}

    def launch(self, *words: str, **settings: Any) -> subprocess.Popen[bytes]:
        """Start the command as the clients do, and do not wait."""
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self.command(*(words or ("/ext/broker.ts",))),
                cwd=self.home,
                env=self.surroundings(),
                **{
                    "stdin": subprocess.DEVNULL,
                    "stdout": subprocess.PIPE,
                    "stderr": errors,
                    **settings,
                },
            )
        return self.process

    def start(self, *words: str) -> BrokerProcess:
        """Start it and wait until it says that it is ready."""
        self.launch(*words)
        self.ready()
        return self

    def ready(self) -> str:
        """Wait for the ready line; all that was said up to it."""
        process = self.process
        assert process is not None
        assert process.stdout is not None
        said, deadline = b"", time.monotonic() + PATIENCE_S
        while READY.encode() not in said:
            left = deadline - time.monotonic()
            readable = select.select([process.stdout], [], [], max(0, left))[0]
            data = os.read(process.stdout.fileno(), 65536) if readable else b""
            if not data:
                raise AssertionError(f"no ready line but {said!r}\n{self.words()}")
            said += data
        return said.decode()

    def words(self) -> str:
        """What it wrote to its standard error."""
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""

    def log(self) -> list[dict[str, Any]]:
        """The log of its channel."""
        path = Path(self.hub_socket).parent / "hub.log"
        return [json.loads(line) for line in path.read_bytes().splitlines()]

    def ended(self) -> int:
        """Wait until it has ended; its status."""
        assert self.process is not None
        status = self.process.wait(PATIENCE_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return status

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Tell it to end, and wait; its status."""
        os.kill(self.pid, number)
        return self.ended()

    def kill(self) -> None:
        """Kill it, so that it can do nothing more."""
        assert self.stop(signal.SIGKILL) == -signal.SIGKILL

    def restart(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it by a signal, and start it again in the same places."""
        assert self.stop(number) == (0 if number != signal.SIGKILL else -number)
        self.hang_up()
        self.start()

    # -- clients

    def connect(self, address: str | tuple[str, int] = "") -> PiClient:
        """A connection that has not registered."""
        client = PiClient(address or self.socket)
        self.clients.append(client)
        return client

    def join(self, session_id: str | None = None, **more: Any) -> PiClient:
        """A connection with a session."""
        client = self.connect()
        client.register(session_id, **more)
        return client

    def hang_up(self) -> None:
        """Close all connections of the test."""
        clients, self.clients = self.clients, []
        for client in clients:
            client.close()

    def bid(self) -> None:
        """At the end of a test, tell it to end, once."""
        self.hang_up()
        if self.process is not None and self.process is not self._bidden:
            self._bidden = self.process
            if self.process.poll() is None:
                self.process.send_signal(signal.SIGTERM)

    def finish(self) -> None:
        """At the end of a test: it ends when it is told to, and has said nothing bad before."""
        self.bid()
        process = self.process
        if process is None:
            return
        try:
            status = self.ended()
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # it says where it is, see PYTHONFAULTHANDLER
            self.ended()
            raise AssertionError(f"it does not end\n{self.words()}\n{self.log()[-5:]}") from None
        assert status == 0, f"it ended with {status}\n{self.words()}"
        assert "Traceback" not in self.words(), self.words()


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
