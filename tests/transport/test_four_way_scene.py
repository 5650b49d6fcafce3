"""A shell that listens, an original client, a sandbox without sockets, a person at a terminal.

Each sends to everybody and to each; each hears every other, once, and is told how.
"""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ORIGINAL = Path(__file__).parent.parent / "seed" / "original_client.py"
NAMES = ("shell", "original", "boxed", "person")


class Lines:
    """What a process prints, gathered by a thread."""

    def __init__(self, stream: Any) -> None:
        self.lines: list[str] = []
        self._thread = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._thread.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.lines.append(line)

    def texts(self) -> list[str]:
        found = []
        for line in list(self.lines):
            if line.startswith("{"):
                said = json.loads(line)
                if said.get("type") == "chat":
                    found.append(said["payload"]["text"])
        return sorted(found)


class Terminal:
    """A person's terminal: what it shows."""

    def __init__(self, command: list[str], environment: dict[str, str], cwd: Path) -> None:
        self.screen = ""
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, cwd=cwd
        )
        os.close(slave)

    def look(self) -> str:
        while select.select([self._master], [], [], 0.05)[0]:
            try:
                data = os.read(self._master, 65536)
            except OSError:
                break
            if not data:
                break
            self.screen += data.decode(errors="replace")
        return self.screen

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        os.close(self._master)


@pytest.fixture
def terminal(place: Any) -> Iterator[Terminal]:
    command = [sys.executable, "-m", "intercom", "listen", "--session", "person"]
    environment = place.environment(TERM="xterm", COLUMNS="100")
    terminal = Terminal(command, environment, place.base)
    try:
        yield terminal
    finally:
        terminal.end()


def original(place: Any, *words: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(ORIGINAL), "--dir", str(place.base), *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=place.base
    )
    place._running.append(process)
    return process


def test_each_of_four_hears_the_others_once_and_is_told_the_truth(
    place: Any, terminal: Terminal, wait_until: Any
) -> None:
    shell = Lines(place.start("listen", "--session", "shell").stdout)
    boxed = Lines(place.start("listen", "--session", "boxed", sandboxed=True).stdout)
    wait_until(lambda: (place.channel / "hub.sock").exists(), "a hub")
    listening = original(place, "listen", "--session", "original", "--no-fresh")
    heard = Lines(listening.stdout)

    def present() -> bool:
        rows = place.run("peers")[1]["sessions"]
        return {row["session"] for row in rows} >= {"shell", "original", "person"}

    wait_until(present, "everybody")

    # The shell and the person send through the hub, with receipts.
    for name in ("shell", "person"):
        status, sent, _ = place.run("send", "--session", name, body=f"{name} to all")
        assert (status, sent["status"], sent["state"]) == (0, "sent", "stored")
    # The sandbox is told that sockets are denied, and that the hub took it all the same.
    status, sent, _ = place.run("send", "--session", "boxed", sandboxed=True, body="boxed to all")
    assert (status, sent["status"], sent["state"]) == (0, "spooled_offline", "stored")
    assert sent["cause"] == "denied"
    # The original client knows no receipts; its message arrives like any other. It speaks
    # under another name here, since its hub lets one connection speak for an id.
    done = original(place, "send", "--session", "original-2", "--text", "original to all")
    assert done.wait(60) == 0

    everybody = ["boxed to all", "original to all", "person to all", "shell to all"]

    def all_but(name: str) -> list[str]:
        return [text for text in everybody if text != f"{name} to all"]

    wait_until(lambda: shell.texts() == all_but("shell"), "the shell's mail")
    wait_until(lambda: boxed.texts() == all_but("boxed"), "the sandbox's mail")
    wait_until(lambda: heard.texts() == everybody, "the original's mail")
    wait_until(
        lambda: all(text in terminal.look() for text in all_but("person")), "the person's mail"
    )

    # Direct messages, from each to each, by the ways that each has.
    for sender in ("shell", "person", "boxed"):
        for target in NAMES:
            if target != sender:
                words = ["send", "--session", sender, "--to", target]
                body = f"{sender} to {target}"
                status, sent, _ = place.run(*words, sandboxed=sender == "boxed", body=body)
                expected = "spooled_offline" if sender == "boxed" else "sent"
                assert (status, sent["status"], sent["known"]) == (0, expected, True)
    for target in ("shell", "boxed", "person"):
        words = ["send", "--session", "original-2", "--to", target]
        assert original(place, *words, "--text", f"original to {target}").wait(60) == 0

    def direct(name: str) -> list[str]:
        senders = [one for one in NAMES if one != name]
        return sorted(f"{sender} to {name}" for sender in senders)

    wait_until(lambda: shell.texts() == sorted(all_but("shell") + direct("shell")))
    wait_until(lambda: boxed.texts() == sorted(all_but("boxed") + direct("boxed")))
    wait_until(lambda: heard.texts() == sorted(everybody + direct("original")))
    wait_until(lambda: all(text in terminal.look() for text in direct("person")))
    for text in all_but("person") + direct("person"):
        assert terminal.screen.count(text) == 1, terminal.screen
