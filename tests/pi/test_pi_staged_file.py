"""The log of messages that wait in replace mode, after crashes of every kind."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths
from intercom.pi.stagedfile import StagedFile
from intercom.records import Entry

ONE = Entry(
    0, "bob", b'{"id":"m1","payload":{"text":"\xc3\xa9"}}', "ann", "m1", b"\x00\xff", "process"
)
TWO = Entry(0, "pi.00", b'{"id":"m2"}', "ann", "m2", b"\x01", "memory")


@pytest.fixture
def paths(private: str) -> ChannelPaths:
    """A channel of ours."""
    return ChannelPaths(private, "pi")


@pytest.fixture
def log(paths: ChannelPaths) -> Path:
    path = Path(paths.file("pi_staged.ndjson"))
    path.parent.mkdir(mode=0o700, exist_ok=True)
    return path


def test_what_was_not_dropped_is_found_in_its_order(
    paths: ChannelPaths, log: Path, calls: Any
) -> None:
    staged = StagedFile(paths, calls)
    assert staged.load() == []
    for mark, entry in (("a", ONE), ("b", TWO), ("c", ONE)):
        staged.save(mark, entry)
    staged.drop("a")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    assert StagedFile(paths, calls).load() == [("b", TWO), ("c", ONE)]


def test_it_is_removed_when_nothing_waits(paths: ChannelPaths, log: Path, calls: Any) -> None:
    StagedFile(paths, calls).save("a", ONE)
    later = StagedFile(paths, calls)
    assert later.load() == [("a", ONE)]
    later.drop("b")
    assert log.exists()
    later.drop("a")
    assert not log.exists()
    later.drop("a")
    assert not log.exists()


@pytest.mark.parametrize("cut", range(2, 60, 7))
def test_a_line_that_a_crash_tore_costs_no_other(
    paths: ChannelPaths, log: Path, calls: Any, cut: int
) -> None:
    StagedFile(paths, calls).save("a", ONE)
    StagedFile(paths, calls).save("b", TWO)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - cut)
    later = StagedFile(paths, calls)
    assert later.load() == [("a", ONE)]
    later.save("c", TWO)
    assert StagedFile(paths, calls).load() == [("a", ONE), ("c", TWO)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"null",
        b"[1]",
        b"[" * 100_000,
        b'"text"',
        b"{}",
        b'{"mark":["a"],"dropped":true}',
        b'{"mark":"x"}',
        b'{"mark":"x","inbox":1,"line":"","sender":"","id":"","digest":"","level":""}',
        b'{"mark":"x","inbox":"","line":"","sender":"","id":"","digest":"zz","level":""}',
        b"\xff\xfe",
    ],
)
def test_a_foreign_line_costs_no_other(
    paths: ChannelPaths, log: Path, calls: Any, line: bytes
) -> None:
    StagedFile(paths, calls).save("a", ONE)
    with log.open("ab") as file:
        file.write(line + b"\n")
    StagedFile(paths, calls).save("b", TWO)
    assert StagedFile(paths, calls).load() == [("a", ONE), ("b", TWO)]


def test_a_link_in_its_place_is_not_written_through(
    paths: ChannelPaths, log: Path, calls: Any, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"mine")
    os.symlink(other, log)
    with pytest.raises(UnsafePlace, match="symbolic link"):
        StagedFile(paths, calls).save("a", ONE)
    assert other.read_bytes() == b"mine"
