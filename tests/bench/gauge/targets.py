"""The servers that are compared: how each is started, and which dialect it speaks.

A new server is one class here, or in :mod:`gauge.peers` if others made it; one with a
protocol of its own brings another in :mod:`gauge.dialects`.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from gauge.addresses import free_port, tcp
from gauge.peers import PEERS
from gauge.server import ROOT, Target

#: Durability levels of our hub, as its ``--durability`` takes them.
LEVELS = ("memory", "process", "disk")
#: What is spoken on the sockets of our hub for pi clients: theirs, and a hub's own.
PI = {"pi": "Pi", "pi-subagents": "PiSubagents", "pi-ndjson": "Ndjson"}
#: A longer path of pi-subagents' socket moves to /tmp.
_LONGEST = 100
#: How a command is given on the command line, and what its hub then speaks.
COMMANDS = {"cmd": "Ndjson", "cmd-ack": "NdjsonIds"}


class Bare(Target):
    """The standard library's servers, see :mod:`gauge.relay`."""

    def __init__(self, name: str, dialect: str) -> None:
        self.name = name
        self.dialect = dialect

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-m", "gauge.relay", self.name, self.address(place)]


class Ours(Target):
    """Our hub, as a daemon.

    :param level: of durability.
    :param live: receivers take pushes only, and acknowledge nothing.
    :param checkout: the tree whose hub it is, ours if None.
    """

    profiled = True

    def __init__(self, level: str, live: bool = False, checkout: Path | None = None) -> None:
        self.level = level
        self.twin = live
        self.name = ("ours-live-" if live else "ours-") + level
        if checkout is not None:
            self.name += f"@{checkout.name}"
        self.dialect = "NdjsonLive" if live else "Ndjson"
        self.root = checkout or ROOT

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        words = ["--channel", self.channel, "--dir", str(place), "--durability", self.level]
        return [sys.executable, "-m", "intercom", "daemon", *words]

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        return str(place / self.channel / "hub.sock")

    def environment(self, place: Path) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        # No settings of whoever measures: a path where there are none.
        # Otherwise nothing is set but room for as many connections as the loads make.
        return {
            "PYTHONPATH": str(self.root),
            "XDG_CONFIG_HOME": "/nonexistent",
            "INTERCOM_CONNECTIONS": "8192",
        }


class OursForPi(Ours):
    """Our hub as the broker of pi clients, in directories of its own, its rate limit lifted.

    :param kind: which of its sockets is used, a key of :data:`PI`.
    """

    channel = "pi"
    crowd = 100  # 128 sessions, as we ship it

    def __init__(self, kind: str, level: str, checkout: Path | None = None) -> None:
        super().__init__(level, checkout=checkout)
        self.name = self.name.replace("ours", kind, 1)
        self.kind = kind
        self.dialect = PI[kind]
        self.twin = kind != "pi"

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-m", "intercom", "--dir", str(place / "dir"), "pi-broker"]

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        agent = place / "agent"
        if self.kind == "pi":
            return str(agent / "intercom" / "broker.sock")
        if self.kind == "pi-ndjson":
            return super().address(place / "dir")
        digest = hashlib.sha256(f"{os.getuid()}:{agent}".encode()).hexdigest()[:16]
        path = str(place / f"pi-intercom-{digest}" / "broker.sock")
        return path if len(path) <= _LONGEST else path.replace(str(place), "/tmp")

    def environment(self, place: Path) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        return super().environment(place) | {
            "HOME": str(place),
            "TMPDIR": str(place),
            "PI_CODING_AGENT_DIR": str(place / "agent"),
            "INTERCOM_DURABILITY": self.level,
            "INTERCOM_PI_BURST": "1000000",
            "INTERCOM_PI_RATE": "1000000",
            "INTERCOM_PI_SESSIONS": "10000",
        }


class Given(Target):
    """A hub that runs already, with NDJSON on a Unix socket ``.../CHANNEL/NAME``."""

    dialect = "Ndjson"
    given = True

    def __init__(self, path: str) -> None:
        self.name = path
        self.channel = Path(path).absolute().parent.name


class Command(Target):
    """Any program that is a hub and speaks NDJSON.

    :param text: its command line, with ``{socket}`` where it wants the path of its socket (or
        ``{port}`` for a port of the loopback), and ``{run}`` for a directory of its own.
    :param kind: a key of :data:`COMMANDS`.
    """

    def __init__(self, name: str, text: str, kind: str) -> None:
        self._words = shlex.split(text)
        if not any("{socket}" in word or "{port}" in word for word in self._words):
            raise ValueError(f"{text!r} says with neither {{socket}} nor {{port}} where it listens")
        plain = [os.path.basename(word) for word in self._words if "{" not in word]
        self.name = name or "-".join(plain)
        self.dialect = COMMANDS[kind]
        self._port = 0

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        self._port = free_port()
        places = {"{socket}": place / "socket", "{run}": place, "{port}": self._port}
        words = []
        for word in self._words:
            for mark, value in places.items():
                word = word.replace(mark, str(value))
            words.append(word)
        words[0] = os.path.abspath(words[0]) if os.sep in words[0] else words[0]
        return words

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        if any("{port}" in word for word in self._words):
            return tcp(self._port)
        return super().address(place)

    def environment(self, place: Path) -> dict[str, str]:
        """See :meth:`Target.environment`."""
        return {}


#: Our hub's names on the command line, each one target for each level.
OURS = ("ours", "ours-live", *PI)
#: Names that stand for several.
SETS = {"peers": tuple(PEERS), "all": ("echo", "relay", "ours", "ours-live", *PI, *PEERS)}


def targets_named(name: str, levels: Sequence[str], checkout: Path | None = None) -> list[Target]:
    """What a name on the command line stands for; our hub is one target for each level.

    :raise ValueError: nothing.
    """
    if name in SETS:
        return [target for one in SETS[name] for target in targets_named(one, levels)]
    if name in PI:
        return [OursForPi(name, level, checkout) for level in levels]
    if name in OURS:
        return [Ours(level, name == "ours-live", checkout) for level in levels]
    if name in ("echo", "relay"):
        return [Bare(name, "Echo" if name == "echo" else "Ndjson")]
    if name in PEERS:
        return [PEERS[name]]
    before, _, command = name.partition(":")
    own, _, kind = before.rpartition("=")
    if command and kind in COMMANDS:
        return [Command(own, command, kind)]
    if "/" in name:
        return [Given(name)]
    known = ", ".join(("echo", "relay", *OURS, *PEERS, *SETS))
    raise ValueError(f"{name!r} is none of {known}, no cmd:COMMAND, and no path of a socket")
