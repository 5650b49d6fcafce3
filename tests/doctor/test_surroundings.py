"""What a channel stands on, and what surrounds it: disks, locks, sockets, settings, names."""

from __future__ import annotations

import ast
import errno
import fcntl
import json
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from intercom.client.doctor import examination, ground
from intercom.client.doctor.findings import SEVERITIES, Finding, duration, worst
from intercom.client.doctor.patient import World
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

Clinic = Any  # see conftest.py


def around(clinic: Clinic, **changes: Any) -> dict[str, Finding]:
    """What is found outside of channels."""
    world = World(**(vars(clinic.world) | changes))
    return {one.code: one for one in examination.examine_world(world) if one.severity != "ok"}


def test_a_healthy_channel_has_only_good_findings(clinic: Clinic) -> None:
    """Every check that has something good to say says it, and nothing else is said."""
    findings = examination.examine(clinic.paths, clinic.world)
    assert worst(findings) == "ok"
    assert {"directory", "locks", "no-hub"} <= {one.code for one in findings}
    assert around(clinic) == {}


# -- disks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("free", "inodes", "codes"),
    [
        ((64 << 20) // 4096, 1000, set()),
        ((64 << 20) // 4096 - 1, 1000, {"disk-low"}),
        ((64 << 20) // 4096, 999, {"inodes-low"}),
    ],
)
def test_too_little_room_is_named(clinic: Clinic, free: int, inodes: int, codes: set[str]) -> None:
    """At the limit, and one block or inode below it."""
    told = SimpleNamespace(f_bavail=free, f_frsize=4096, f_files=10_000, f_favail=inodes)
    assert clinic.found(statvfs=lambda _path: told).keys() == codes


def mounts(tmp_path: Path, point: str, kind: str) -> str:
    """A table of mounts in which a directory is of a kind."""
    table = tmp_path / "mountinfo"
    quoted = point.replace(" ", "\\040")
    table.write_text(
        "1 0 8:1 / / rw shared:1 - ext4 /dev/sda rw\n"
        f"2 1 0:9 / {quoted} rw - {kind} somewhere rw\n"
        "3 1 0:9 / /elsewhere rw - nfs4 somewhere rw\n"
    )
    return str(table)


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "fuse.sshfs", "9p", "fuse.unheard-of", "vfat"])
def test_uncertain_file_systems_are_named(clinic: Clinic, tmp_path: Path, kind: str) -> None:
    """With the reason, and where to go."""
    found = clinic.found(mounts=mounts(tmp_path, clinic.paths.base, kind))["file-system"]
    assert found.severity == "warning"
    assert kind in found.text
    assert "--dir" in found.remedy


def test_other_mounts_do_not_count(clinic: Clinic, tmp_path: Path) -> None:
    """The mount that a path is on is the longest above it."""
    table = mounts(tmp_path, "/some where", "nfs")
    assert ground.mount_of("/some where/else", table) == ("/some where", "nfs")
    assert ground.mount_of("/some wherever", table) == ("/", "ext4")
    assert "file-system" not in clinic.found(mounts=table)
    assert ground.mount_of("/", str(tmp_path / "absent")) == ("", "")


def test_memory_is_not_durable(clinic: Clinic, tmp_path: Path) -> None:
    """A note, and a warning where somebody asked for more than can be had."""
    table = mounts(tmp_path, clinic.paths.base, "tmpfs")
    found = clinic.found(mounts=table)["not-durable"]
    assert found.severity == "note"
    assert "in memory" in found.text
    asked = clinic.world.environ | {"INTERCOM_DURABILITY": "disk"}
    assert clinic.found(mounts=table, environ=asked)["not-durable"].severity == "warning"


# -- locks ------------------------------------------------------------------------------------


def test_locks_that_keep_nobody_out_are_a_problem(clinic: Clinic) -> None:
    """Neither a second descriptor of the same process ..."""
    found = clinic.found(flock=lambda _fd, _how: None)["locks-fail"]
    assert found.severity == "problem"
    assert "the same process" in found.text


def test_locks_that_another_process_does_not_see_are_a_problem(clinic: Clinic) -> None:
    """... nor a child, which takes the lock that this one believes to hold."""
    held: list[int] = []

    def only_here(fd: int, _how: int) -> None:
        if held:
            raise BlockingIOError
        held.append(fd)

    assert "another process" in clinic.found(flock=only_here)["locks-fail"].text


def test_refused_locks_are_a_problem(clinic: Clinic) -> None:
    """As on file systems that know none."""

    def refused(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    assert "No locks available" in clinic.found(flock=refused)["locks-refused"].text


def test_locks_are_tried_where_nothing_can_be_written(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then on the directory that holds channels; one that is held is no failure."""
    real = os.open

    def no_nameless_files(path: str, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EROFS, "Read-only file system")
        return real(path, flags, *more, **named)

    monkeypatch.setattr(os, "open", no_nameless_files)
    assert clinic.found() == {}
    fd = real(clinic.paths.base, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        assert clinic.found().keys() == {"locks-untried"}
    finally:
        os.close(fd)


# -- sockets ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.EPERM, errno.EACCES, errno.EAFNOSUPPORT])
def test_denied_sockets_are_named(clinic: Clinic, number: int) -> None:
    """Files are all that is left."""

    def denied() -> socket.socket:
        raise OSError(number, os.strerror(number))

    found = around(clinic, open_socket=denied)["sockets-denied"]
    assert found.severity == "warning"
    assert "intercom poll" in found.remedy


def test_a_long_path_moves_the_socket(channel_dir: Path, clinic: Clinic) -> None:
    """The path of the socket would not fit, so it is elsewhere."""
    base = channel_dir / ("x" * 90)
    paths = ChannelPaths(str(base), "default")
    paths.prepare()
    found = {one.code: one for one in examination.examine(paths, clinic.world)}
    assert found["socket-moved"].severity == "note"
    assert paths.socket in found["socket-moved"].text


# -- directories ------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a directory away")
def test_a_foreign_directory_is_a_problem(clinic: Clinic) -> None:
    """Nothing in it is looked at."""
    os.chown(clinic.paths.directory, 12345, 12345)
    try:
        found = clinic.found()
    finally:
        os.chown(clinic.paths.directory, 0, 0)
    assert found.keys() == {"directory-unsafe"}
    assert "12345" in found["directory-unsafe"].text


def damage_by(harm: str) -> Callable[[Clinic], None]:
    """Ways in which a directory cannot be used."""

    def link(clinic: Clinic) -> None:
        real = clinic.paths.directory + "-real"
        os.rename(clinic.paths.directory, real)
        os.symlink(real, clinic.paths.directory)

    def writable(clinic: Clinic) -> None:
        os.chmod(clinic.paths.directory, 0o777)

    def file(clinic: Clinic) -> None:
        os.rename(clinic.paths.directory, clinic.paths.directory + "-real")
        Path(clinic.paths.directory).touch()

    return {"link": link, "writable": writable, "file": file}[harm]


@pytest.mark.parametrize("harm", ["link", "writable", "file"])
def test_an_unsafe_directory_is_a_problem(clinic: Clinic, harm: str) -> None:
    """A link, one that others may write to, none at all: refused, and not mended."""
    damage_by(harm)(clinic)
    before = clinic.snapshot()
    assert clinic.found().keys() == {"directory-unsafe"}
    assert not clinic.cure().done
    assert clinic.snapshot() == before
    Path(clinic.paths.directory).chmod(0o700)


def test_a_directory_that_cannot_be_read_is_a_problem(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finding, not a traceback."""

    def refuse(_path: str) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuse)
    assert clinic.found().keys() == {"directory-unreadable"}


def test_a_check_that_fails_does_not_end_the_look(
    clinic: Clinic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said which one, and the others go on."""

    def fail(_path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    found = clinic.found(statvfs=fail)
    assert found.keys() == {"not-examined"}
    assert "places.room" in found["not-examined"].text


def test_a_cure_that_fails_is_told(clinic: Clinic) -> None:
    """What could not be done stands beside what is still found."""
    clinic.leave("1")
    clinic.file("offset_bob.json").write_bytes(b"{")
    clinic.file("peers.json").write_bytes(b"{}")
    with clinic.file("inbox_bob.ndjson").open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        cured = clinic.cure()
    assert cured.done == ["removed peers.json"]
    assert [one.code for one in cured.failed] == ["cure-failed"]
    assert "offset-damaged" in cured.failed[0].text
    assert "offset-damaged" in {one.code for one in cured.findings}


# -- settings and names -----------------------------------------------------------------------


def test_settings_of_the_user_are_looked_at(clinic: Clinic, tmp_path: Path) -> None:
    """A file that is no TOML, a value that cannot be, a variable that cannot be."""
    place = tmp_path / "config" / "intercom"
    place.mkdir(parents=True)
    environ = clinic.world.environ | {"XDG_CONFIG_HOME": str(place.parent)}
    (place / "config.toml").write_text("channel = [")
    assert around(clinic, environ=environ).keys() == {"settings-unreadable"}
    (place / "config.toml").write_text('transport = "pigeon"\n')
    assert around(clinic, environ=environ).keys() == {"settings-unusable"}
    environ = clinic.world.environ | {"INTERCOM_FORMAT": "xml"}
    assert "INTERCOM_FORMAT" in around(clinic, environ=environ)["settings-unusable"].text


def test_a_newer_channel_is_left_alone(clinic: Clinic) -> None:
    """What its files mean is not known, so nothing is judged and nothing cured."""
    clinic.file("channel.json").write_bytes(b'{"format": 99, "version": "9.0"}')
    clinic.file("peers.json").write_bytes(b"{}")
    before = clinic.snapshot()
    assert clinic.found().keys() == {"format-newer"}
    assert not clinic.cure().done
    assert clinic.snapshot() == before


def test_maps_of_names_are_looked_at(clinic: Clinic, tmp_path: Path) -> None:
    """One that is damaged, and one that is left of a project that is gone."""
    here = Path(clinic.world.project) / ".intercom"
    here.mkdir(mode=0o700)
    (here / "session.json").write_text("{")
    left = tmp_path / "state" / "intercom" / "gone-0123"
    left.mkdir(parents=True)
    (left / "session.json").write_text(json.dumps({"project": str(tmp_path / "gone")}))
    found = around(clinic)
    assert found.keys() == {"names-unreadable", "names-left"}
    assert found["names-left"].remedy == f"rm -r {left}"


def test_mail_in_other_channels_is_found(clinic: Clinic) -> None:
    """For the same name, with the command that shows it."""
    other = ChannelPaths(clinic.paths.base, "elsewhere")
    other.prepare()
    with Inbox(other, "bob") as inbox:
        inbox.append(clinic.line("1"), sender="ann", message_id="msg_1")
    with Inbox(other, "carl") as inbox:
        inbox.append(clinic.line("1"), sender="ann", message_id="msg_1")
    found = clinic.found()
    assert found.keys() == {"unread-elsewhere"}
    one = found["unread-elsewhere"]
    assert one.severity == "note"
    assert one.session == "bob"
    assert "--channel elsewhere poll --peek --session bob" in one.remedy
    quiet = examination.examine(clinic.paths, clinic.world, others=False)
    assert "unread-elsewhere" not in {found.code for found in quiet}


def test_every_code_is_documented() -> None:
    """Codes are for programs, so the page on operations has all of them."""
    codes: set[str] = set()
    for path in Path(examination.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                codes |= set(re.findall(r"^[a-z]+(?:-[a-z]+)+$", node.value))
    assert len(codes) > 50
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text("utf-8")
    assert not {code for code in codes if f"`{code}`" not in page}


# -- words ------------------------------------------------------------------------------------


def test_the_worst_counts() -> None:
    """Of none it is that all is well."""
    findings = [Finding(severity, "code", "text") for severity in SEVERITIES]
    assert [worst(findings[:end]) for end in range(5)] == ["ok", *SEVERITIES]


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0 s"), (59.9, "59 s"), (60, "1 min"), (7200, "2 h"), (1e6, "11 d")]
)
def test_lengths_of_time_in_words(seconds: float, said: str) -> None:
    """In the largest unit of which there is at least one."""
    assert duration(seconds) == said
