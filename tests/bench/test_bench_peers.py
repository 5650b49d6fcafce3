"""Servers that others made, from their packages or given as a command: each message is seen."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest
from gauge import main
from gauge.doubles import measured
from gauge.peers import PEERS
from gauge.server import BENCH, ROOT, Absent
from gauge.targets import targets_named
from gauge.workloads import Workload


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_takes_and_brings_each_message(name: str) -> None:
    """To one receiver, and to all of ten; those that promise to keep a message say so of each."""
    (target,) = targets_named(name, ())
    try:
        found = measured(target, Workload("short", "messages_per_s", 200, 4, 5, window=8))
    except Absent as error:
        pytest.skip(str(error))
    assert found["messages"] == 4 * 48  # the first twentieth warms up
    assert ("receipt_p50_us" in found) == (name != "nats")
    found = measured(target, Workload("short", "messages_per_s", 20, 1, 10, fan_out=True))
    assert found["messages"] == 19 * 10
    assert ("receipt_p50_us" in found) == (name != "nats")


def test_a_peer_that_is_not_installed_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the package that brings it, and a status of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("gauge.server._ELSEWHERE", str(tmp_path))
    words = ["bulk", "--target", "redis-always", "--dir", str(tmp_path)]
    assert main.main(words) == os.EX_UNAVAILABLE
    told = capsys.readouterr()
    assert "there is no redis-server: install the package redis-server" in told.err
    assert not told.out


RELAYS = """
import sys
sys.path[:0] = sys.argv[3:]
from gauge.relay import Relay

class Confirming(Relay):
    def recipients(self, sender, line):
        sender.waiting.append(b'["' + line[7:23] + b'"]' + bytes([10]))
        self.flush(sender)
        return super().recipients(sender, line)

(Confirming if sys.argv[1] == "confirming" else Relay)(sys.argv[2]).serve()
"""


@pytest.mark.parametrize(
    ("kind", "name", "confirms"), [("cmd", "relay", False), ("cmd-ack", "confirming", True)]
)
def test_any_command_can_be_measured(kind: str, name: str, confirms: bool) -> None:
    """One that speaks NDJSON, and perhaps answers each line with one that has its id."""
    words = [sys.executable, "-c", RELAYS, name, "{socket}", str(BENCH), str(ROOT)]
    (target,) = targets_named(f"mine={kind}:{shlex.join(words)}", ())
    assert target.name == "mine"
    found = measured(target, Workload("short", "messages_per_s", 80, 2, 2, window=4))
    assert found["messages"] == 76
    assert ("receipt_p50_us" in found) == confirms
    with pytest.raises(ValueError, match="says with neither"):
        targets_named("cmd:hub --quiet", ())
