"""Whole processes: how long ``send`` takes, and a server to come up. Milliseconds."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from gauge.server import Target, clean_environment, running, scratch
from gauge.targets import Ours
from gauge.texts import Arrivals, Broken, Ledger, Texts

#: What a command is compared with: the interpreter alone, and with what ours is made of.
PLAIN, CLICK = "python -c pass", "import click"
REACTOR = "import reactor"
_PLAIN = {
    PLAIN: "pass",
    CLICK: "import click",
    REACTOR: "import twisted.internet.reactor",
}

_SIZE = 200
_SENDER, _RECIPIENT = "bench-sender", "bench-recipient"


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
    """``intercom send`` to a hub that runs, again and again."""

    def __init__(self, target: Ours, place: Path) -> None:
        self._target = target
        self._place = place
        self._texts = Texts(_SIZE)
        self._sent = 0
        self.levels: set[str] = set()

    def send(self) -> float:
        """Send one message.

        :raise Broken: it is not reported as stored.
        """
        where = ["--channel", self._target.channel, "--dir", str(self._place), "--json"]
        who = ["--session", _SENDER, "--to", _RECIPIENT]
        text = self._texts.write(0, self._sent)
        took, done = _timed(
            [sys.executable, "-m", "intercom", "send", *where, *who, "--text", text],
            env=clean_environment() | self._target.environment(self._place),
            cwd=self._place,
        )
        self._sent += 1
        told = json.loads(done.stdout)
        if (told["status"], told["state"]) != ("sent", "stored"):
            raise Broken(f"send was not told that its message is stored: {told}")
        self.levels.add(told["level"])
        return took

    def check(self) -> None:
        """Look whether the recipient's inbox file has all of them, once and in order.

        :raise Broken: it has not.
        """
        ledger, found = Ledger({0: 0}, 1), 0
        file = self._place / self._target.channel / f"inbox_{_RECIPIENT}.ndjson"
        for sender, sequence in Arrivals(_SIZE).feed(file.read_bytes()):
            ledger.enter(sender, sequence)
            found += 1
        if found != self._sent:
            raise Broken(f"{self._sent} messages were sent, and {found} are in the inbox")


def send(targets: Sequence[Target], base: str, runs: int) -> dict[str, dict[str, Any]]:
    """One round of ``send``: each command in turn, ``runs`` times.

    :return: for each command, named after its target, what it took.
    """
    with ExitStack() as stack:
        mailings: dict[str, Mailing] = {}
        for target in targets:
            if isinstance(target, Ours) and target.dialect == "Ndjson":
                place = stack.enter_context(scratch(base))
                stack.enter_context(running(target, place))
                mailings[target.name] = Mailing(target, place)
        took: dict[str, list[float]] = {PLAIN: [], CLICK: [], **{name: [] for name in mailings}}
        for _ in range(runs):
            for name in (PLAIN, CLICK):
                took[name].append(_bare(name))
            for name, mailing in mailings.items():
                took[name].append(mailing.send())
        for mailing in mailings.values():
            mailing.check()
    notes = {name: {"level": ", ".join(mailings[name].levels)} for name in mailings}
    return {name: _summary(times, notes=notes.get(name, {})) for name, times in took.items()}


def cold_start(targets: Sequence[Target], base: str, runs: int) -> dict[str, dict[str, Any]]:
    """One round of starts: from the start of a process to the first accepted connection."""
    took: dict[str, list[float]] = {PLAIN: [], REACTOR: []}
    for _ in range(runs):
        for name in (PLAIN, REACTOR):
            took[name].append(_bare(name))
        for target in targets:
            with scratch(base) as place, running(target, place) as server:
                if server.startup_s:
                    took.setdefault(target.name, []).append(server.startup_s * 1000)
    return {name: _summary(times) for name, times in took.items()}
