"""``intercom doctor``: what it prints, its status, and how little it needs."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client.doctor import examination
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.format import dump_meta, dump_offset

Agent = Any  # see the conftest.py files
Clinic = Any
Make = Callable[[str], Agent]
NO_SOCKETS = Path(__file__).parents[1] / "transport" / "no_sockets.py"
MEMBERS = {"channel", "severity", "code", "message", "remedy", "file", "ranges", "count"}
MEMBERS |= {"session", "fixable"}


@pytest.fixture
def ann(agent: Make, tmp_path: Path) -> Agent:
    """An agent that starts no hub."""
    made = agent("ann")
    made.environ |= {"INTERCOM_NO_SPAWN": "1", "XDG_STATE_HOME": str(tmp_path / "state")}
    return made


def by_code(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The findings of a result."""
    return {one["code"]: one for one in result["findings"]}


def test_nothing_is_wrong(ann: Agent, clinic: Clinic) -> None:
    """Status 0, and each finding has all its members; nothing was made or changed."""
    before = clinic.snapshot()
    result = ann.run("doctor").ok()
    assert result.keys() == {"status", "findings", "fixed"}
    assert result["status"] == "ok"
    assert result["fixed"] == []
    assert all(one.keys() == MEMBERS for one in result["findings"])
    assert by_code(result)["directory"]["channel"] == "default"
    assert by_code(result)["sockets"]["channel"] is None
    assert clinic.snapshot() == before
    text = ann.run("doctor", "--format", "text").out.decode()
    assert "nothing is wrong" in text


def test_a_channel_that_does_not_exist_is_not_made(ann: Agent, channel_dir: Path) -> None:
    """That is no failure, for the first command makes it."""
    assert ann.run("doctor", "--channel", "none").ok()["status"] == "ok"
    assert list(channel_dir.iterdir()) == []


def test_notes_are_no_failure_and_warnings_are(ann: Agent, clinic: Clinic) -> None:
    """0 and 75; the text has what, where, and what to do."""
    clinic.file("peers.json").write_bytes(b"{}")
    clinic.file("peers.json").chmod(0o600)
    assert ann.run("doctor").ok()["status"] == "note"
    with clinic.file("inbox_bob.ndjson").open("ab") as file:
        file.write(b'{"id": "torn')
    done = ann.run("doctor")
    assert done.status == 75
    assert done.result["status"] == "warning"
    torn = by_code(done.result)["torn-tail"]
    assert torn["ranges"] == [[0, 12]]
    assert torn["fixable"] is True
    text = ann.run("doctor", "--format", "text")
    assert text.status == 75
    said = text.out.decode()
    assert "(torn-tail)" in said
    assert f"{clinic.file('inbox_bob.ndjson')}, bytes 0-12" in said
    assert "1 warning, 1 note" in said
    assert "some of it can be cured: intercom doctor --fix" in said


def test_fixing_says_each_thing_done(ann: Agent, clinic: Clinic) -> None:
    """And what is found afterwards; the status is of that."""
    clinic.leave("1", "2")
    clinic.file("peers.json").write_bytes(b"{}")
    clinic.file("offset_bob.json").write_bytes(b"{")
    done = ann.run("doctor", "--fix")
    result = done.ok()
    said = {one["message"] for one in result["fixed"]}
    assert said == {"removed peers.json", "the position of 'bob' is byte 0 of generation 1 now"}
    assert {"stale-peers", "offset-damaged"}.isdisjoint(by_code(result))
    clinic.file("peers.json").write_bytes(b"{}")
    text = ann.run("doctor", "--fix", "--format", "text").out.decode()
    assert "  done     removed peers.json\n" in text
    assert len(clinic.unread()) == 2


def test_all_channels_are_looked_at(ann: Agent, clinic: Clinic) -> None:
    """Each finding says of which channel it is; other directories are none."""
    other = ChannelPaths(clinic.paths.base, "other")
    other.prepare()
    Path(other.peers).write_bytes(b"{}")
    Path(clinic.paths.base, "Not A Channel").mkdir()
    result = ann.run("doctor", "--all-channels").ok()
    assert {one["channel"] for one in result["findings"]} == {None, "default", "other"}
    assert by_code(result)["stale-peers"]["channel"] == "other"
    fixed = ann.run("doctor", "--all-channels", "--fix").ok()["fixed"]
    assert fixed == [{"channel": "other", "message": "removed peers.json"}]


def test_settings_that_cannot_be_read_are_a_finding(
    ann: Agent, clinic: Clinic, tmp_path: Path
) -> None:
    """The look goes on with what can be known."""
    place = tmp_path / "config" / "intercom"
    place.mkdir(parents=True)
    (place / "config.toml").write_text("x = [")
    done = ann.run("doctor", XDG_CONFIG_HOME=str(place.parent))
    assert done.status == 75
    found = by_code(done.result)
    assert found["settings-unreadable"]["severity"] == "problem"
    assert found["directory"]["file"] == clinic.paths.directory
    done = ann.run("doctor", INTERCOM_FORMAT="xml")
    assert done.status == 75
    assert "settings-unusable" in by_code(done.result)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_another_user_is_told_and_not_shown(clinic: Clinic) -> None:
    """A finding, not a traceback; and no file of the channel is opened."""
    clinic.leave("secret")
    program = (
        "import os, json, time\n"
        "from intercom.client.doctor import examination, patient\n"
        "from intercom.paths import ChannelPaths\n"
        "os.setgid(12345); os.setuid(12345)\n"
        f"paths = ChannelPaths({clinic.paths.base!r}, 'default')\n"
        "world = patient.World(time.time(), {'XDG_CONFIG_HOME': '/dev/null'})\n"
        "found = examination.examine(paths, world)\n"
        "print(json.dumps([one.code for one in found]))\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, timeout=60, env=environ, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["directory-unsafe"]


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"),
    reason="the filter is written for Linux on these machines",
)
def test_it_works_in_a_sandbox(ann: Agent, clinic: Clinic) -> None:
    """Sockets are denied, and everything else is looked at."""
    clinic.file("offset_bob.json").write_bytes(b"{")
    ann.program = [sys.executable, str(NO_SOCKETS), *ann.program]
    done = ann.run("doctor")
    assert done.status == 75
    found = by_code(done.result)
    assert found["sockets-denied"]["severity"] == "warning"
    assert {"locks", "offset-damaged", "no-hub"} <= found.keys()
    assert "offset-damaged" not in by_code(ann.run("doctor", "--fix").result)


def test_a_stopped_hub_is_reported_in_time(agent: Make, stopped: Callable[[int], None]) -> None:
    """With its pid, by the command as well."""
    bob = agent("bob")
    bob.run("init", "--name", "bob").ok()
    pid = bob.hub_pid()
    stopped(pid)
    done = bob.run("doctor")
    assert done.status == 75
    found = by_code(done.result)["hub-stopped"]
    assert f"kill -CONT {pid}" in found["remedy"]


# -- how long it takes ------------------------------------------------------------------------


def test_a_large_channel_is_looked_at_in_bounds(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """50 sessions and an inbox of 20 MiB: every byte is read about once, in about a second.

    The time has room for a busy machine; what cannot be slow is counted.
    """
    line = clinic.line("x" * 180) + b"\n"
    lines = [line.replace(b"msg_xxxxxxxx", b"msg_%08d" % number) for number in range(40_000)]
    data = b"".join(lines)
    assert 20 << 20 < len(data) < 24 << 20
    clinic.file("inbox_bob.ndjson").write_bytes(data)
    clinic.file("offset_bob.json").write_bytes(
        dump_offset(Position(1, len(data) // len(line) * len(line)), "bob", clinic.world.now)
    )
    for number in range(50):
        session = f"session-{number}"
        with Inbox(clinic.paths, session) as inbox:
            inbox.enrol()
        clinic.leave("1", "2", session=session)
        Path(clinic.paths.meta(session)).write_bytes(dump_meta(session, 1))
    read = 0
    real = FileCalls.pread

    def counted(calls: FileCalls, fd: int, length: int, offset: int) -> bytes:
        nonlocal read
        found = real(calls, fd, length, offset)
        read += len(found)
        return found

    monkeypatch.setattr(FileCalls, "pread", counted)
    begun = time.monotonic()
    findings = examination.examine(clinic.paths, clinic.world)
    took = time.monotonic() - begun
    assert len([one for one in findings if one.code == "unread-without-reader"]) == 50
    assert read < 1.1 * len(data)
    assert took < 20
