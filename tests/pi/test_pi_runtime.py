"""The files by which a running broker is found."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import CannotCreate, SpoolError
from intercom.pi import runtime


def pid_file(private: str) -> Path:
    return Path(private, "broker.pid")


def test_the_first_line_of_the_pid_file_is_the_pid(private: str, calls: Any) -> None:
    path = pid_file(private)
    before = os.umask(0o777)
    try:
        published = runtime.publish_pid(str(path), 4711, calls)
    finally:
        os.umask(before)
    assert path.read_bytes() == b"4711\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert runtime.read_pid(str(path), calls) == 4711
    assert published.withdraw(calls)
    assert os.listdir(private) == []
    assert not published.withdraw(calls)


def test_the_port_file_is_what_clients_read(private: str, calls: Any) -> None:
    path = Path(private, "broker.port.json")
    published = runtime.publish_port(str(path), 40123, "aa-bb", calls)
    expected = b'{"transport":"tcp","host":"127.0.0.1","port":40123,"stateId":"aa-bb"}\n'
    assert path.read_bytes() == expected
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert published.withdraw(calls)
    assert not path.exists()


def test_a_living_strangers_pid_is_replaced(private: str, calls: Any) -> None:
    path = pid_file(private)
    path.write_text(str(os.getppid()))
    runtime.publish_pid(str(path), 1, calls)
    assert path.read_text() == "1\n"


def test_a_link_is_replaced_and_not_followed(private: str, calls: Any, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("precious")
    pid_file(private).symlink_to(precious)
    runtime.publish_pid(str(pid_file(private)), 1, calls)
    assert (precious.read_text(), pid_file(private).read_text()) == ("precious", "1\n")
    assert not pid_file(private).is_symlink()


@pytest.mark.parametrize("how", ["replaced", "rewritten", "gone", "linked"])
def test_what_is_no_longer_ours_stays(private: str, calls: Any, how: str) -> None:
    """A successor with the same pid, which another pid namespace may give, is another still."""
    path = pid_file(private)
    published = runtime.publish_pid(str(path), 7, calls)
    if how == "replaced":
        runtime.publish_pid(str(path), 7, calls)
    elif how == "rewritten":
        path.write_text("8\n")
    elif how == "gone":
        path.unlink()
    else:
        path.rename(path.with_suffix(".moved"))
        path.symlink_to(path.with_suffix(".moved"))
    before = path.read_text() if path.exists() else None
    assert not published.withdraw(calls)
    assert (path.read_text() if path.exists() else None) == before


@pytest.mark.parametrize("call", ["create", "chmod", "write", "rename"])
def test_a_failed_write_leaves_what_was_there(private: str, calls: Any, call: str) -> None:
    path = pid_file(private)
    path.write_text("1\n")
    calls.failing[call] = errno.ENOSPC
    with pytest.raises(CannotCreate, match="No space left") as caught:
        runtime.publish_pid(str(path), 2, calls)
    assert str(path) in caught.value.text
    assert path.read_text() == "1\n"
    assert os.listdir(private) == ["broker.pid"]


def test_a_directory_in_its_place_is_an_error(private: str, calls: Any) -> None:
    pid_file(private).mkdir()
    with pytest.raises(CannotCreate):
        runtime.publish_pid(str(pid_file(private)), 2, calls)
    assert os.listdir(private) == ["broker.pid"]


def test_a_file_that_cannot_be_removed_is_reported(private: str, calls: Any) -> None:
    published = runtime.publish_pid(str(pid_file(private)), 2, calls)
    calls.failing["unlink"] = errno.EROFS
    with pytest.raises(SpoolError, match="Read-only"):
        published.withdraw(calls)


def test_what_a_crash_left_is_removed_by_the_next(
    private: str, broken: Any, crash: type[BaseException]
) -> None:
    path = pid_file(private)
    path.write_text("1\n")
    reached, at = True, 0
    while reached:
        calls = broken()
        calls.die_at = at
        try:
            runtime.publish_pid(str(path), 2, calls)
            reached = False
        except crash:
            assert path.read_text() in ("1\n", "2\n")
        at += 1
    assert at > 4
    assert os.listdir(private) == ["broker.pid"]
    assert path.read_text() == "2\n"


@pytest.mark.parametrize(
    ("content", "pid"),
    [
        (b"12", 12),
        (b"12\nlinux-v1 x\n", 12),
        (b"", None),
        (b"x12\n", None),
        (b"-1\n", None),
        (b"9" * 5000, None),
        (b"\xff\n", None),
    ],
)
def test_reading_a_pid(private: str, calls: Any, content: bytes, pid: int | None) -> None:
    pid_file(private).write_bytes(content)
    assert runtime.read_pid(str(pid_file(private)), calls) == pid


def test_no_pid_file_has_no_pid(private: str, calls: Any) -> None:
    assert runtime.read_pid(str(pid_file(private)), calls) is None
    pid_file(private).symlink_to("/proc/1/stat")
    assert runtime.read_pid(str(pid_file(private)), calls) is None


@pytest.mark.parametrize(
    ("expected", "shown", "right"),
    [
        ("a-b", "a-b", True),
        ("a-b", "a-c", False),
        ("a-b", "a-", False),
        ("a-b", "", False),
        ("a-b", None, False),
        ("a-b", "\ud800é", False),
        ("", "", False),
        ("", None, False),
    ],
)
def test_state_ids(expected: str, shown: str | None, right: bool) -> None:
    assert runtime.is_state_id(expected, shown) is right
