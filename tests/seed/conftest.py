"""The seed's own programs beside ours: as processes, on one channel."""

from __future__ import annotations

import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from intercom.paths import ChannelPaths

HERE = Path(__file__).resolve().parent
ROOT = str(HERE.parents[1])
PATIENCE = 60.0


def wait_until(condition: Callable[[], object]) -> None:
    """Wait for a condition, and fail if it does not come true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


class Hold:
    """A point of a program at which it waits for us.

    :ivar words: the option that makes it do so.
    """

    def __init__(self, point: str, file: Path) -> None:
        self._file = file
        self.words = ("--hold", f"{point}:{file}" if point else str(file))

    def reached(self) -> None:
        """Wait until the program has come to the point."""
        wait_until(Path(f"{self._file}.reached").exists)

    def release(self) -> None:
        """Let it go on."""
        self._file.touch()


class Talker:
    """A program that is none of ours and none of the seed's: a socket, and lines of JSON."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE)
        self._file = sock.makefile("rb")

    def say(self, **fields: Any) -> None:
        """Write one line."""
        self.socket.sendall(json.dumps(fields).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """Read one line; empty at the end."""
        line = self.hear_bytes()
        return dict(json.loads(line)) if line else {}

    def hear_bytes(self) -> bytes:
        """Read one line as it is."""
        return self._file.readline()

    def register(self, session: str) -> dict[str, Any]:
        """Claim a name; returns the answer."""
        self.say(type="register", from_session=session)
        return self.hear()


class Mesh:
    """One channel on which the seed's programs and ours meet.

    :ivar paths: the channel's files.
    """

    def __init__(self, base: Path, scratch: Path) -> None:
        self.paths = ChannelPaths(str(base), "default")
        self.scratch = scratch
        self._processes: list[subprocess.Popen[bytes]] = []
        self._talkers: list[Talker] = []
        self._unread: dict[IO[bytes], bytes] = {}
        self._holds = 0

    # -- the seed's programs

    def start(self, program: str, *words: str) -> subprocess.Popen[bytes]:
        """Start ``hub``, or ``client`` with a verb, of the seed's; it waits for no hub."""
        base = ["--dir", self.paths.base, "--channel", self.paths.name]
        if program == "client":
            base += ["--patience", "0"]
        # -S: nothing but the standard library can be imported
        return self._spawn(
            [sys.executable, "-S", str(HERE / f"original_{program}.py"), *base, *words]
        )

    def client(self, *words: str) -> dict[str, Any]:
        """Run a verb of the seed's client; returns what it prints."""
        return self.result(self.start("client", *words))

    def send(self, me: str, to: str, text: str, *options: str) -> dict[str, Any]:
        """Send a message by the seed's client."""
        return self.client(*options, "send", "--session", me, "--to", to, "--text", text)

    def poll(self, me: str) -> list[str]:
        """The texts that a poll of the seed's client shows."""
        return self.texts(self.client("poll", "--session", me)["messages"])

    def lead(self, *options: str) -> subprocess.Popen[bytes]:
        """Start the seed's hub, and wait until it serves."""
        hub = self.start("hub", *options)
        wait_until(lambda: self.published().get("hub_pid") == hub.pid)
        return hub

    def append(self, session: str, **fields: Any) -> None:
        """Write a message into an inbox as the seed's client does when it has no hub."""
        words = "import json, sys, original_hub as o; base, channel, to, text = sys.argv[1:];"
        words += "o.Place(base, channel).append(to, json.loads(text))"
        given = [self.paths.base, self.paths.name, session, json.dumps(fields)]
        process = self._spawn([sys.executable, "-S", "-c", words, *given])
        _out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err

    def hold(self, point: str = "") -> Hold:
        """A place at which one of the seed's programs is to wait."""
        self._holds += 1
        return Hold(point, self.scratch / f"hold{self._holds}")

    # -- ours

    def serve(self) -> subprocess.Popen[bytes]:
        """Start our hub, and wait until it serves."""
        hub = self.daemon()
        wait_until(lambda: self.published().get("hub_pid") == hub.pid)
        self.talker().socket.close()
        return hub

    def daemon(self) -> subprocess.Popen[bytes]:
        """Start our hub."""
        place = ["--dir", self.paths.base, "--channel", self.paths.name]
        return self._spawn([sys.executable, "-m", "intercom", "daemon", *place])

    # -- whoever

    def talker(self) -> Talker:
        """A connection to whichever hub there is, as soon as there is one."""
        deadline = time.monotonic() + PATIENCE
        while True:
            sock = socket.socket(socket.AF_UNIX)
            try:
                sock.connect(self.paths.socket)
            except (FileNotFoundError, ConnectionRefusedError):
                sock.close()
                assert time.monotonic() < deadline, "no hub answers"
                time.sleep(0.005)
            else:
                self._talkers.append(Talker(sock))
                return self._talkers[-1]

    def published(self) -> dict[str, Any]:
        """What ``peers.json`` says; empty while there is none."""
        try:
            return dict(json.loads(Path(self.paths.peers).read_bytes()))
        except (OSError, ValueError):
            return {}

    def active(self) -> list[str]:
        """Who is published as connected, in order of name."""
        return sorted(self.published().get("active_sessions", []))

    def stored(self, session: str) -> list[dict[str, Any]]:
        """Every message of an inbox file, whoever has read it; none if there is no file."""
        try:
            with open(self.paths.inbox(session), "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH)
                lines = file.read().splitlines()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines]

    # -- looking at them

    wait_until = staticmethod(wait_until)

    @staticmethod
    def result(process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """Wait for a program of the seed's to end; what it printed."""
        out, err = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, err
        return dict(json.loads(out))

    @staticmethod
    def texts(messages: list[dict[str, Any]]) -> list[str]:
        """The texts of messages."""
        return [message["payload"]["text"] for message in messages]

    def next_bytes(self, stream: IO[bytes] | None) -> bytes:
        """The next line that a program writes (its pipes are not buffered)."""
        assert stream is not None
        data = self._unread.pop(stream, b"")
        while b"\n" not in data:
            assert select.select((stream,), (), (), PATIENCE)[0], "the line did not come"
            part = os.read(stream.fileno(), 1 << 20)
            assert part, "the program has ended"
            data += part
        line, _, self._unread[stream] = data.partition(b"\n")
        return line

    def next_line(self, process: subprocess.Popen[bytes]) -> dict[str, Any]:
        """The next message that a listener prints."""
        return dict(json.loads(self.next_bytes(process.stdout)))

    def hears(self, process: subprocess.Popen[bytes], *texts: str) -> bool:
        """Whether the next messages that a listener prints are these."""
        return self.texts([self.next_line(process) for _ in texts]) == list(texts)

    @contextmanager
    def listening(self, agent: Any) -> Iterator[subprocess.Popen[bytes]]:
        """Our own listener, connected."""
        process = agent.start("listen")
        try:
            self.wait_until(lambda: agent.session in self.active())
            yield process
        finally:
            process.kill()
            process.communicate()

    def _spawn(self, command: list[str]) -> subprocess.Popen[bytes]:
        environ = {k: v for k, v in os.environ.items() if not k.startswith("INTERCOM_")}
        process = subprocess.Popen(
            command,
            cwd=self.scratch,
            env=environ | {"PYTHONPATH": os.pathsep.join([ROOT, str(HERE)])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End everything that was started here."""
        for talker in self._talkers:
            talker.socket.close()
        for process in self._processes:
            process.kill()
            process.communicate()


@pytest.fixture
def mesh(channel_dir: Path, tmp_path: Path) -> Iterator[Mesh]:
    """A channel for the seed's programs and ours; what was started on it ends with the test."""
    made = Mesh(channel_dir, tmp_path)
    yield made
    made.close()
