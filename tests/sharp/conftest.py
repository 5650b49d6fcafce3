"""A hub as a process, with everything that can be measured of it, and raw connections to it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.wire import envelope

ROOT = Path(__file__).resolve().parents[2]
#: Where this package is found, and whatever was found before.
IMPORTABLE = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
PATIENCE_S = 60.0


class Raw:
    """A connection on which a test says what it likes."""

    def __init__(self, paths: ChannelPaths) -> None:
        self.paths = paths
        self.session = ""
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        try:
            self.socket.connect(paths.socket)
        except OSError:
            self.socket.close()
            raise
        self._reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        """Any bytes."""
        self.socket.sendall(data)

    def say(self, kind: str, **fields: Any) -> None:
        """A line with these fields, and no others."""
        self.send(json.dumps({"type": kind, **fields}).encode() + b"\n")

    def read(self) -> dict[str, Any]:
        """The next line."""
        line = self._reader.readline()
        assert line, "the hub has closed the connection"
        return dict(json.loads(line))

    def until(self, *kinds: str) -> dict[str, Any]:
        """The next line of one of these types; others are passed over."""
        while True:
            found = self.read()
            if found["type"] in kinds:
                return found

    def register(self, session: str, *features: str) -> dict[str, Any]:
        """Claim a session id; the welcome."""
        self.session = session
        self.say("register", from_session=session, payload={"features": features})
        return self.until("welcome")

    def chat(self, to: str, text: str, message_id: str | None = None) -> None:
        """Send a message, and do not wait."""
        self.send(
            envelope.make(
                type="chat",
                message_id=message_id or envelope.format_id(os.urandom(6)),
                from_session=self.session,
                to_session=to,
                channel=self.paths.name,
                payload={"text": text},
                timestamp=envelope.format_timestamp(time.time()),
            )
            + b"\n"
        )

    def close(self) -> None:
        """Hang up."""
        self._reader.close()
        self.socket.close()


class HubProcess:
    """``intercom daemon`` on a channel."""

    def __init__(self, paths: ChannelPaths, *options: str, **environ: str) -> None:
        self.paths = paths
        place = ["--dir", paths.base, "--channel", paths.name]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "intercom", "daemon", *place, *options],
            env={**os.environ, "PYTHONPATH": IMPORTABLE, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._raws: list[Raw] = []
        self.pid = self.process.pid

    def wait_until_ready(self) -> None:
        """Wait until it serves."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        assert "is ready" in said, said + self.process.stdout.read()

    def connect(self, session: str = "", *features: str) -> Raw:
        """A connection; registered, if a session is given."""
        raw = Raw(self.paths)
        self._raws.append(raw)
        if session:
            raw.register(session, *features)
        return raw

    def memory(self, field: str = "VmRSS") -> int:
        """Bytes of memory that it uses now (or ``VmHWM``: at most so far)."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"no {field}")

    def log(self) -> list[dict[str, Any]]:
        """What it has logged."""
        return [json.loads(line) for line in Path(self.paths.log).read_bytes().splitlines()]

    def stop(self) -> float:
        """End it in good order; seconds that this took."""
        for raw in self._raws:
            raw.close()
        began = time.monotonic()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        said, _ = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in said, said
        assert self.process.returncode == 0, said
        return time.monotonic() - began

    def kill(self) -> None:
        """End it at once, if it is still there."""
        for raw in self._raws:
            raw.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """A channel, its directory made."""
    found = ChannelPaths(str(channel_dir), "default")
    found.prepare()
    return found


@pytest.fixture
def hub(paths: ChannelPaths) -> Iterator[Callable[..., HubProcess]]:
    """Start hubs; what a test leaves running is ended."""
    started: list[HubProcess] = []

    def start(*options: str, where: ChannelPaths = paths, **environ: str) -> HubProcess:
        one = HubProcess(where, *options, **environ)
        started.append(one)
        one.wait_until_ready()
        return one

    yield start
    for one in started:
        one.kill()


@pytest.fixture
def intercom(agent: Callable[[str], Any]) -> Callable[..., Any]:
    """Run a command that starts no hub, as session ``ada`` unless told otherwise."""

    def run(*words: str, session: str = "ada", under: Sequence[str] = ()) -> Any:
        one = agent(session)
        one.program = [*under, *one.program]
        return one.run(*words, INTERCOM_NO_SPAWN="1")

    return run


@pytest.fixture
def stored(paths: ChannelPaths) -> Callable[..., list[str]]:
    """The texts in a session's inbox file."""

    def read(session: str, where: ChannelPaths = paths) -> list[str]:
        lines = Path(where.inbox(session)).read_bytes().splitlines()
        return [json.loads(line)["payload"]["text"] for line in lines]

    return read
