"""How soon a server of tools answers, and how fast: a bridge beside the official library's.

Both are driven in turn, by the same lines, in the same run:

    python tests/bench/mcp_servers.py [--starts 7] [--calls 300] [--json]

``ping`` is the same for both. The official server's tools do nothing at all; the bridge's
``inbox`` looks into a file under its lock, and ``send`` stores a message through a hub at level
``process``. ``cpu`` is the server's processor time for one of each, which hardly depends on
what else the machine does.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: A server of the official library, with two tools of the same names.
STOCK = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("stock")
@server.tool()
def inbox(wait_s: float = 0) -> str:
    "Read."
    return "nothing unread"
@server.tool()
def send(to: str, text: str) -> str:
    "Send."
    return "sent"
server.run("stdio")
"""
COMMANDS = {
    "intercom mcp": [sys.executable, "-m", "intercom", "mcp"],
    "official library": [sys.executable, "-c", STOCK],
}
CALLS: dict[str, dict[str, Any]] = {
    "inbox": {"wait_s": 0},
    "send": {"to": "somebody", "text": "hello"},
}


class Server:
    """One server, and the lines that are exchanged with it."""

    def __init__(self, command: list[str], environ: dict[str, str], directory: str) -> None:
        self.begun = time.perf_counter()
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environ,
            cwd=directory,
        )
        self._number = 0

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Say one line, and wait for one."""
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None
        assert stdout is not None
        self._number += 1
        said = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        stdin.write(json.dumps(said).encode() + b"\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        if answer.get("id") != self._number or "result" not in answer:
            raise SystemExit(f"{method} was answered with {answer}")
        return answer

    def open(self) -> float:
        """Begin the conversation; seconds since the process was started."""
        info = {"name": "bench", "version": "1"}
        opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        self.request("initialize", opening)
        took = time.perf_counter() - self.begun
        assert self.process.stdin is not None
        self.process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
        return took

    def timed(self, what: str) -> float:
        """Seconds for one ``ping``, or one call of a tool."""
        begun = time.perf_counter()
        if what == "ping":
            self.request("ping", {})
        else:
            self.request("tools/call", {"name": what, "arguments": CALLS[what]})
        return time.perf_counter() - begun

    def cpu(self) -> float:
        """Processor seconds of all its threads up to now."""
        fields = (
            Path(f"/proc/{self.process.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        )
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident memory, in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text("utf-8")
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def end(self) -> None:
        """Let it go."""
        self.process.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
        self.process.wait()


@contextlib.contextmanager
def channel() -> Iterator[tuple[dict[str, str], str]]:
    """A channel with a hub, and somebody to write to; its environment and directory."""
    with tempfile.TemporaryDirectory(prefix="ic-mcp-", dir="/tmp") as directory:
        environ = {name: text for name, text in os.environ.items() if "INTERCOM" not in name}
        environ |= {"PYTHONPATH": str(ROOT), "INTERCOM_DIR": directory, "INTERCOM_SESSION": "ada"}
        hub = [sys.executable, "-m", "intercom", "hub"]
        quiet: dict[str, Any] = {"env": environ, "cwd": directory, "check": True}
        quiet |= {"stdout": subprocess.DEVNULL}
        subprocess.run([*hub, "start", "--durability", "process"], **quiet)
        poll = [sys.executable, "-m", "intercom", "poll"]
        subprocess.run(poll, **quiet | {"env": environ | {"INTERCOM_SESSION": "somebody"}})
        try:
            yield environ, directory
        finally:
            subprocess.run([*hub, "stop"], **quiet)


def measure(starts: int, calls: int) -> list[dict[str, Any]]:
    """One row for each server: milliseconds, and MiB."""
    with channel() as (environ, directory):
        opened: dict[str, list[float]] = {name: [] for name in COMMANDS}
        for _ in range(starts):  # in turn, so that both meet the same machine
            for name, command in COMMANDS.items():
                server = Server(command, environ, directory)
                opened[name].append(server.open())
                server.end()
        rows = []
        for name, command in COMMANDS.items():
            server = Server(command, environ, directory)
            server.open()
            row: dict[str, Any] = {"server": name, "start_best": 1000 * min(opened[name])}
            row["start_median"] = 1000 * statistics.median(opened[name])
            row["start_cpu"] = 1000 * server.cpu()
            for what in ("ping", *CALLS):
                server.timed(what)
                used = server.cpu()
                took = sorted(server.timed(what) for _ in range(calls))
                row[f"{what}_p50"] = 1000 * took[len(took) // 2]
                row[f"{what}_p95"] = 1000 * took[len(took) * 95 // 100]
                row[f"{what}_cpu"] = 1000 * (server.cpu() - used) / calls
            row["memory"] = server.memory()
            server.end()
            rows.append(row)
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """The rows, for people."""
    columns = [name for name in rows[0] if name != "server"]
    lines = ["| | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    for row in rows:
        lines.append(f"| {row['server']} | " + " | ".join(f"{row[c]:.2f}" for c in columns) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--starts", type=int, default=7)
    options.add_argument("--calls", type=int, default=300)
    options.add_argument("--json", action="store_true")
    given = options.parse_args()
    rows = measure(given.starts, given.calls)
    print(json.dumps(rows) if given.json else table(rows))


if __name__ == "__main__":
    main()
