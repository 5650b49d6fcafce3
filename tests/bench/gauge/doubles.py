"""For the tests of the bench: running it, one load by itself, and a server that fails one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from gauge import measure
from gauge.load import Job
from gauge.server import BENCH, Target, running, scratch
from gauge.workloads import Workload

TIMEOUT = 120


def bench(where: Path, *words: str) -> dict[str, Any]:
    """Run the bench as its users do, and return all that it has found."""
    command = [sys.executable, str(BENCH / "run.py"), *words, "--dir", str(where), "--json", "-"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=where, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows_of(found: dict[str, Any], workload: str) -> dict[str, dict[str, Any]]:
    """One workload's rows by target."""
    (told,) = (one for one in found["workloads"] if one["name"] == workload)
    return {row["target"]: row for row in told["rows"]}


def measured(target: Target, workload: Workload) -> dict[str, Any]:
    """One load, its generator in this process."""
    with scratch("/tmp") as place, running(target, place) as server:
        return measure.measure(
            Job(workload, target.dialect, server.address, "bench", server.pid, "b", 15.0)
        )


class Crooked(Target):
    """A relay that does one thing wrong with its tenth message, or reads no more of a sender."""

    dialect = "Ndjson"
    _program = """
import select
import sys
from gauge.relay import Relay

FAULTS = {
    "lose": lambda line: [],
    "repeat": lambda line: [line, line],
    "damage": lambda line: [line.replace(b"dozen", b"dizen")],
    "swap ends": lambda line: [line.replace(b":000000009]", b":000000008]")],
    "cut": lambda line: [line[:120]],
    "refuse": lambda line: [b'{"type":"error","to_session":"b-from-0000","payload":"no"}'],
}
fault = FAULTS.get(sys.argv[1])

class Crooked(Relay):
    seen = 0

    def heard(self, peer, data):
        if peer.name:
            *lines, peer.begun = (peer.begun + data).split(b"\\n")
            heard = len(lines)
            if sys.argv[1] == "reverse":
                lines.reverse()
            elif fault is not None:
                at = 9 - self.seen
                if 0 <= at < len(lines):
                    lines[at : at + 1] = fault(lines[at])
                    if sys.argv[1] == "refuse":
                        del lines[at + 1 :]
            self.seen += heard
            data, begun, peer.begun = b"".join(line + b"\\n" for line in lines), peer.begun, b""
            super().heard(peer, data)
            peer.begun = begun
        else:
            super().heard(peer, data)

    def flush(self, peer):
        super().flush(peer)
        if sys.argv[1] == "stop reading" and peer.name == b"b-to-0001":
            for other in self._peers.values():
                if other.name == b"b-from-0001":
                    self._poll.modify(other.sock, 0 if peer.unsent else select.EPOLLIN)

Crooked(sys.argv[2]).serve()
"""

    def __init__(self, fault: str) -> None:
        self.name = self.fault = fault

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-c", self._program, self.fault, self.address(place)]
