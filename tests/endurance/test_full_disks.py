"""A disk of 64 KiB that fills and is freed again, under commands and under a hub.

The long form sends INTERCOM_FULL messages across the edge.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from storm_place import record

from intercom.client.letters import compose
from intercom.client.offline import store_offline
from intercom.errors import HubUnavailable, SpoolError
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

#: Room for a small file and its successor beside it.
PAGES = 8192
FULL = int(os.environ.get("INTERCOM_FULL", "2000"))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 64 KiB."""
    if os.geteuid() != 0:
        pytest.skip("not run: needs root")
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=0700", "tmpfs", str(place)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"not run: no file system can be mounted here ({made.stderr.strip()})")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


class Edge:
    """Sends one message after another without a hub, and makes room when there is none."""

    def __init__(self, place: Path) -> None:
        self.paths = ChannelPaths(str(place / "base"), "default")
        self.paths.prepare()
        self.inbox = Path(self.paths.inbox("bob"))
        self.ballast = place / "ballast"
        self.reserve = place / "reserve"
        self.reserve.write_bytes(b"x" * 2 * PAGES)
        self.ends: Counter[str] = Counter()
        self.sent: list[str] = []
        self.shown: list[str] = []

    def send(self, number: int, size: int) -> None:
        """Send; what is refused leaves the file as it was."""
        name = f"m{number:05}"
        letter = compose(self.paths, "ada", "bob", {"text": "x" * size}, message_id=name)
        before = self.inbox.read_bytes() if self.inbox.exists() else b""
        try:
            outcome = store_offline(self.paths, letter, HubUnavailable("none is wanted"))
        except SpoolError as error:
            self.ends[error.code] += 1
            assert self.inbox.read_bytes() == before if before else True
            self.make_room(number)
        else:
            self.ends[str(outcome.state)] += 1
            self.sent.append(name)

    def make_room(self, number: int) -> None:
        """Take the ballast away, or read everything and have it emptied."""
        if number % 2 and self.ballast.exists():
            self.ballast.unlink()
        else:
            self.read()

    def read(self) -> None:
        """Read and acknowledge what is there, then put the ballast back if it fits."""
        with Inbox(self.paths, "bob") as inbox:
            batch = inbox.read()
            assert batch.damaged == []
            self.shown += [record.line.split(b'"')[3].decode() for record in batch.records]
            for work in (lambda: inbox.commit(batch.next), inbox.compact):
                try:
                    work()
                except SpoolError as error:  # no room for a small file; nothing has changed
                    self.ends[f"{error.code} of a reader"] += 1
                    os.truncate(self.reserve, max(0, os.path.getsize(self.reserve) - PAGES))
                    work()
            with contextlib.suppress(OSError):
                self.reserve.write_bytes(b"x" * 2 * PAGES)


def cross(place: Path, count: int) -> Edge:
    """Go over the edge again and again; nothing stored may be missing, torn or twice there."""
    edge = Edge(place)
    for number in range(count):
        if not edge.ballast.exists() and number % 7 == 0:
            with contextlib.suppress(OSError):
                edge.ballast.write_bytes(b"x" * 20_000)
        edge.send(number, 500 + 400 * (number % 17))
    edge.ballast.unlink(missing_ok=True)
    edge.read()
    assert edge.shown == edge.sent
    return edge


def test_nothing_is_lost_or_torn_at_the_edge_of_a_tiny_disk(tiny_disk: Path) -> None:
    edge = cross(tiny_disk, 60)
    assert edge.ends["stored"] > 15, edge.ends
    assert edge.ends["DISK_FULL"] > 2, edge.ends


@pytest.mark.slow
def test_very_often_at_the_edge_of_a_tiny_disk(tiny_disk: Path) -> None:
    edge = cross(tiny_disk, FULL)
    record("full disk", dict(edge.ends))
    assert edge.ends["DISK_FULL"] > FULL // 50


def test_a_hub_on_a_tiny_disk_refuses_and_goes_on(hub: Any, tiny_disk: Path, stored: Any) -> None:
    """Where a hub can only just be: what it calls stored is there, and it comes back to life."""
    where = ChannelPaths(str(tiny_disk / "base"), "default")
    where.prepare()
    ballast = tiny_disk / "ballast"
    ballast.write_bytes(b"x" * 12_000)
    one = hub("--durability", "process", where=where)
    ada = one.connect("ada", "receipts")
    kept, states = [], Counter[str]()
    for number in range(40):
        ada.chat("bob", f"{number} " + "x" * 3000)
        receipt = ada.until("receipt")["payload"]
        states[receipt["state"]] += 1
        if receipt["state"] == "stored":
            kept.append(f"{number}")
        else:
            assert receipt["code"] == "DISK_FULL"
    assert states["stored"] >= 1
    assert states["refused"] >= 1
    assert [text.split()[0] for text in stored("bob", where)] == kept
    ballast.unlink()
    ada.chat("bob", "room again")
    assert ada.until("receipt")["payload"]["state"] == "stored"
    assert [text.split()[0] for text in stored("bob", where)] == [*kept, "room"]
    assert one.stop() < 10.0


def test_commands_on_a_full_disk_say_so_and_show_what_there_is(
    tiny_disk: Path, tmp_path: Path, agent: Any
) -> None:
    """Mail can be read without room for a position; every refusal names the disk."""
    bob = type(agent("bob"))(tiny_disk / "base", tmp_path / "bob", "bob")
    bob.paths.prepare()
    letter = compose(bob.paths, "ada", "bob", {"text": "hello"}, message_id="m1")
    store_offline(bob.paths, letter, HubUnavailable("none is wanted"))
    ballast = tiny_disk / "ballast"
    with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(b"x" * 4096):
            pass
    shown = bob.run("poll")
    assert shown.status == 73
    assert [one["payload"]["text"] for one in shown.result["messages"]] == ["hello"]
    assert "will be shown again" in shown.err
    listened = bob.run("listen", "--timeout", "1")
    assert (listened.status, listened.result["code"]) == (73, "DISK_FULL")
    started = bob.run("hub", "start")
    assert started.status == 73
    assert "the disk is full" in started.err
    assert "df -h" in started.err
    ballast.unlink()
    assert bob.texts() == ["hello"]
    assert bob.texts() == []
