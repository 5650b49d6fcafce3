"""Whole processes: how long ``send`` and ``poll`` take, and a server to come up. Milliseconds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from socket import socket
from typing import Any

from gauge.addresses import connect
from gauge.dialects.ndjson import Ndjson
from gauge.server import Target, clean_environment, running, scratch
from gauge.targets import Ours
from gauge.texts import Arrivals, Broken, Ledger, Texts
from gauge.usage import memory_mib

#: What a command is compared with: the interpreter alone, and with what ours is made of.
PLAIN, CLICK = "python -c pass", "import click"
REACTOR = "import reactor"
_PLAIN = {
    PLAIN: "pass",
    CLICK: "import click",
    REACTOR: "import twisted.internet.reactor",
}

#: Milliseconds of each command.
Times = dict[str, list[float]]

#: Seconds for a message to be in the inbox whose sender was not told.
LATE = 10.0
#: Seconds after which a server that has just come up has done what it does then.
SETTLING = 0.3
#: What the installed command is. ``python -m`` loads a good part of the library to find it.
_INSTALLED = "import sys; from intercom.cli.main import run; sys.exit(run())"

_SIZE = 200
_RECIPIENT = "bench-recipient"


def _timed(command: list[str], **options: Any) -> tuple[float, subprocess.CompletedProcess[bytes]]:
    """Run a command; milliseconds from before its start to after its end."""
    begun = time.perf_counter()
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False, **options
    )
    took = (time.perf_counter() - begun) * 1000
    if done.returncode:
        raise Broken(f"{command} ended with {done.returncode}: {done.stderr.decode()}")
    return took, done


def _bare(name: str) -> float:
    took, _ = _timed([sys.executable, "-c", _PLAIN[name]], env=clean_environment())
    return took


def _summary(milliseconds: list[float], **more: Any) -> dict[str, Any]:
    ordered = sorted(milliseconds)
    return {
        "runs": len(ordered),
        "p50_ms": statistics.median(ordered),
        "p95_ms": ordered[int(len(ordered) * 0.95)],
        **more,
    }


class Mailing:
    """One session writes to another on a hub of ours, a process for each message.

    :param original: the client to use instead of ours, that of the mesh from which ours
        descends; it is told nothing of what became of its message.
    """

    def __init__(self, target: Ours, place: Path, original: Path | None = None) -> None:
        self._target = target
        self._place = place
        self._original = original
        # On one hub with another such pair.
        self._sender, self.recipient = "bench-sender", _RECIPIENT
        if original is not None:
            self._sender, self.recipient = "bench-original", f"{_RECIPIENT}-too"
        self._texts = Texts(_SIZE)
        self._sent = 0
        self._sock: socket | None = None
        self.levels: set[str] = set()

    def send(self) -> float:
        """Send one message.

        :raise Broken: it is not reported as stored.
        """
        text = self._texts.write(0, self._sent)
        took, done = self._run("send", self._sender, "--to", self.recipient, "--text", text)
        self._sent += 1
        told = json.loads(done.stdout)
        if told["status"] != "sent" or (not self._original and told["state"] != "stored"):
            raise Broken(f"send was not told that its message is stored: {told}")
        self.levels.add(told.get("level", ""))
        return took

    def check(self) -> None:
        """Look whether the recipient's inbox file has all of them, once and in order.

        :raise Broken: it has not.
        """
        file = self._place / self._target.channel / f"inbox_{self.recipient}.ndjson"
        deadline = time.perf_counter() + (LATE if self._original else 0.0)
        while True:
            ledger, found = Ledger({0: 0}, 1), 0
            for sender, sequence in Arrivals(_SIZE).feed(file.read_bytes()):
                ledger.enter(sender, sequence)
                found += 1
            if found == self._sent:
                return
            if time.perf_counter() >= deadline:
                raise Broken(f"{self._sent} messages were sent, and {found} are in the inbox")
            time.sleep(0.01)

    def poll(self) -> float:
        """Read the one message that has come meanwhile.

        :raise Broken: it is not this that was read.
        """
        self._put(self._texts.write(0, self._sent))
        took, done = self._run("poll", self.recipient)
        read = Arrivals(_SIZE).feed(done.stdout)
        if read != [(0, self._sent)]:
            raise Broken(f"message {self._sent} was unread, and poll has read {read}")
        self._sent += 1
        return took

    def _put(self, text: str) -> None:
        """Have a message in the inbox, without a process."""
        if self._sock is None:
            self._sock = connect(self._target.address(self._place))
            self._dialect = Ndjson(self._sock, self._sender, self._target.channel)
            self._dialect.greet(False)
        self._sock.sendall(self._dialect.frame(self.recipient, self._sent, text))
        while self._sent not in self._dialect.confirmed(self._sock.recv(65536)):
            pass

    def _run(
        self, verb: str, session: str, *words: str
    ) -> tuple[float, subprocess.CompletedProcess[bytes]]:
        where = ["--dir", str(self._place), "--channel", self._target.channel]
        if self._original is not None:
            command = [sys.executable, str(self._original), *where, verb]
        else:
            command = [sys.executable, "-c", _INSTALLED, verb, *where, "--json"]
        return _timed(
            [*command, "--session", session, *words],
            env=clean_environment() | self._target.environment(self._place),
            cwd=self._place,
        )

    def close(self) -> None:
        """Let go of the connection."""
        if self._sock is not None:
            self._sock.close()


@contextmanager
def _mailings(
    targets: Sequence[Target], base: str, original: Path | None
) -> Iterator[dict[str, Mailing]]:
    """One for each hub of ours, and one of the original's client with the first of these."""
    with ExitStack() as stack:
        mailings: dict[str, Mailing] = {}
        for hub in targets:
            if not isinstance(hub, Ours) or hub.dialect != "Ndjson":
                continue
            place = stack.enter_context(scratch(base))
            stack.enter_context(running(hub, place))
            clients: dict[str, Path | None] = {hub.name: None}
            if original is not None and not mailings:
                clients[f"original, {hub.name}"] = original
            for name, client in clients.items():
                mailings[name] = mailing = Mailing(hub, place, client)
                stack.callback(mailing.close)
        yield mailings


def _in_turn(mailings: dict[str, Mailing], do: Callable[[Mailing], float], runs: int) -> Times:
    """Each command in turn, beside the interpreter alone, and with click."""
    took: Times = {PLAIN: [], CLICK: [], **{name: [] for name in mailings}}
    for _ in range(runs):
        for name in (PLAIN, CLICK):
            took[name].append(_bare(name))
        for name, mailing in mailings.items():
            took[name].append(do(mailing))
    return took


def send(
    targets: Sequence[Target], base: str, runs: int, original: Path | None
) -> dict[str, dict[str, Any]]:
    """One round of ``send``: each command in turn, ``runs`` times.

    :return: for each command, named after its target, what it took.
    """
    with _mailings(targets, base, original) as mailings:
        took = _in_turn(mailings, Mailing.send, runs)
        for mailing in mailings.values():
            mailing.check()
    notes = {name: {"level": ", ".join(mailings[name].levels)} for name in mailings}
    return {name: _summary(times, notes=notes.get(name, {})) for name, times in took.items()}


def poll(
    targets: Sequence[Target], base: str, runs: int, original: Path | None
) -> dict[str, dict[str, Any]]:
    """One round of ``poll``, as :func:`send`; each has one message to show."""
    with _mailings(targets, base, original) as mailings:
        took = _in_turn(mailings, Mailing.poll, runs)
    return {name: _summary(times) for name, times in took.items()}


def cold_start(
    targets: Sequence[Target], base: str, runs: int, original: Path | None
) -> dict[str, dict[str, Any]]:
    """One round of starts: from the start of a process to the first accepted connection.

    And the memory of a server that nobody has connected to.
    """
    took: Times = {PLAIN: [], REACTOR: []}
    memory: dict[str, float] = {}
    for _ in range(runs):
        for name in (PLAIN, REACTOR):
            took[name].append(_bare(name))
        for target in targets:
            with scratch(base) as place, running(target, place) as server:
                if server.startup_s:
                    took.setdefault(target.name, []).append(server.startup_s * 1000)
                    time.sleep(SETTLING)
                    memory[target.name] = memory_mib(server.pid)
    rest = {name: {"rest_mib": mib} for name, mib in memory.items()}
    return {name: _summary(times, **rest.get(name, {})) for name, times in took.items()}
