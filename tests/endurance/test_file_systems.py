"""Places where locks and syncs keep no promise are refused, with a reason and a remedy."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom import mounts, paths
from intercom.election import locks
from intercom.errors import CannotCreate, UnsafePlace
from intercom.mounts import UNFIT, Mount, check_file_system, mount_of, parse_mounts
from intercom.paths import ChannelPaths

LIST = r"""
24 1 254:1 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
30 24 0:25 / /home rw,relatime shared:2 master:7 - nfs4 server:/export/home rw,vers=4.2
31 30 0:26 / /home/local rw - ext4 /dev/vdb rw
32 24 0:27 / /mnt/with\040space\134 rw - cifs //server/a\040share rw
33 24 0:28 / /hidden/share rw - nfs server:/x rw
34 24 8:2 / /hidden rw - xfs /dev/sdb rw
35 24 0:30 / /twice rw - ext4 /dev/sdc rw
36 35 0:31 / /twice rw - 9p host rw
this is no mount
37 x 0:1 / /broken rw - nfs server:/y rw
38 24 0:1 / /short
"""


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[str], str]:
    """Write a list of mounts; its path."""

    def write(text: str) -> str:
        path = tmp_path / "mountinfo"
        path.write_text(text)
        return str(path)

    return write


def test_a_list_of_mounts_is_read_whatever_stands_in_it() -> None:
    found = parse_mounts(LIST)
    assert [mount.number for mount in found] == [24, 30, 31, 32, 33, 34, 35, 36]
    assert found[3] == Mount(32, 24, "/mnt/with space\\", "cifs", "//server/a share")
    assert parse_mounts("") == []


@pytest.mark.parametrize(
    ("place", "number"),
    [
        ("/", 24),
        ("/homes/x", 24),
        ("/home", 30),
        ("/home/ada/ipc", 30),
        ("/home/local/ipc", 31),
        ("/mnt/with space\\/x", 32),
        ("/hidden/share/x", 34),
        ("/twice/x", 36),
    ],
)
def test_a_path_lies_where_the_kernel_would_find_it(place: str, number: int) -> None:
    """Not on what is hidden behind another mount, nor on a neighbour with a like name."""
    found = mount_of(place, parse_mounts(LIST))
    assert found is not None
    assert found.number == number


def test_of_two_mounts_on_one_point_the_later_counts() -> None:
    """As a list looks that was cut off from the parents of its mounts, in a container."""
    text = "5 1 0:1 / / rw - overlay overlay rw\n6 1 0:2 / / rw - ext4 /dev/sda rw\n"
    found = mount_of("/x", parse_mounts(text))
    assert found is not None
    assert found.number == 6
    looped = [Mount(1, 2, "/", "ext4", "a"), Mount(2, 1, "/", "ext4", "b")]
    assert mount_of("/x", looped) is None
    assert mount_of("/x", []) is None


@pytest.mark.parametrize("kind", sorted(UNFIT))
def test_every_unfit_kind_is_refused_with_its_name_and_a_remedy(
    listed: Callable[[str], str], kind: str
) -> None:
    mounted = listed(f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /far rw - {kind} server:/x rw\n")
    with pytest.raises(UnsafePlace) as refused:
        check_file_system("/far/base/default", mounted)
    error = refused.value
    assert error.text.startswith(f"/far/base/default {UNFIT[kind]} ({kind}, server:/x")
    assert error.details == {"type": kind, "mount": "/far", "source": "server:/x"}
    assert "--dir" in error.remedy
    assert error.exit_code == 77
    check_file_system("/near", mounted)


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "virtiofs"])
def test_local_kinds_are_taken(listed: Callable[[str], str], kind: str) -> None:
    check_file_system("/x", listed(f"1 0 0:1 / / rw - {kind} a rw\n"))


def test_where_nothing_is_known_the_locks_themselves_decide(tmp_path: Path) -> None:
    check_file_system("/x", str(tmp_path / "absent"))


def test_the_way_through_a_link_is_followed(listed: Callable[[str], str], tmp_path: Path) -> None:
    """Whoever links his channels to a share has them there."""
    (tmp_path / "link").symlink_to("/far/away")
    mounted = listed("1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / /far rw - nfs s:/x rw\n")
    with pytest.raises(UnsafePlace, match="nfs"):
        check_file_system(str(tmp_path / "link" / "base"), mounted)


def test_a_channel_is_neither_made_nor_used_there(
    channel_dir: Path, listed: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted = listed(f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / {channel_dir} rw - nfs4 s:/x rw\n")
    monkeypatch.setattr(paths, "check_file_system", lambda path: check_file_system(path, mounted))
    channel = ChannelPaths(str(channel_dir), "default")
    for use in (channel.prepare, channel.check):
        with pytest.raises(UnsafePlace, match="nfs4"):
            use()
    assert os.listdir(channel_dir) == []


def test_a_command_says_so_and_ends_with_77(agent: Callable[[str], Any], tmp_path: Path) -> None:
    """As a person sees it, whose home directory is on a server."""
    ada = agent("ada")
    customize = tmp_path / "site"
    customize.mkdir()
    mounted = tmp_path / "mountinfo"
    mounted.write_text(f"1 0 0:1 / / rw - ext4 a rw\n2 1 0:2 / {ada.base} rw - nfs4 s:/x rw\n")
    (customize / "sitecustomize.py").write_text(
        f"import intercom.mounts as m\nm.check_file_system.__defaults__ = ({str(mounted)!r},)\n"
    )
    path = os.pathsep.join([str(customize), ada.environ["PYTHONPATH"]])
    for words in (("send", "--to", "bob", "--text", "x"), ("poll",), ("daemon",)):
        ended = ada.run(*words, PYTHONPATH=path)
        assert ended.status == 77, ended.err
        assert "nfs4, s:/x mounted on" in ended.err
        assert "--dir /var/tmp/intercom-" in ended.err
    assert os.listdir(ada.base) == []


# -- what the locks say ------------------------------------------------------------------------


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL])
def test_a_file_system_without_locks_is_refused(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(_fd: int, _how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnsafePlace, match="has no locks") as refused:
        locks.take_locks(paths)
    assert os.strerror(number) in refused.value.text
    assert "--dir" in refused.value.remedy
    Path(paths.lock).touch(0o600)
    with pytest.raises(UnsafePlace, match="has no locks"):
        locks.is_led(paths)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_system_that_is_out_of_locks_is_named(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a moment, on any file system: not a reason to choose another."""

    def refuse(_fd: int, _how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(CannotCreate, match=r"cannot lock .*: No locks available"):
        locks.take_locks(paths)


def test_locks_that_keep_nobody_out_are_refused(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where they are emulated for a whole process, or granted to everybody."""
    monkeypatch.setattr(fcntl, "flock", lambda _fd, _how: None)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(UnsafePlace, match="grants one lock to two at a time"):
        locks.take_locks(paths)
    assert len(os.listdir("/proc/self/fd")) == before
    monkeypatch.undo()
    taken = locks.take_locks(paths)
    assert taken is not None
    taken.release()


@pytest.mark.parametrize(
    ("number", "outcome"), [(errno.ENOENT, "removed"), (errno.EMFILE, "cannot open")]
)
def test_a_directory_that_cannot_be_opened_twice(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch, number: int, outcome: str
) -> None:
    """One that was just removed is left for the leader to notice; all else is said."""
    opened = os.open

    def refuse(path: Any, *args: Any, **kwargs: Any) -> int:
        if path == ".":
            raise OSError(number, os.strerror(number))
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refuse)
    if outcome == "removed":
        taken = locks.take_locks(paths)
        assert taken is not None
        taken.release()
    else:
        with pytest.raises(CannotCreate, match=outcome):
            locks.take_locks(paths)


@pytest.fixture
def a_real_one(tmp_path: Path) -> Any:
    """Mount a file system of a kind, if this machine can; unmounted again afterwards."""
    made: list[Path] = []

    def mount(kind: str, *options: str) -> Path:
        place = tmp_path / kind
        place.mkdir()
        command = ["mount", "-t", kind, *options, kind, str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"not run: no {kind} can be mounted here ({done.stderr.strip()})")
        made.append(place)
        return place

    yield mount
    for place in made:
        subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.parametrize("kind", ["tmpfs", "ramfs"])
def test_a_real_mount_is_found_in_the_kernels_own_list(a_real_one: Any, kind: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: needs root")
    place = a_real_one(kind)
    found = mounts.file_system(str(place / "not made yet"))
    assert found is not None
    assert (found.kind, found.point) == (kind, str(place))
    channel = ChannelPaths(str(place / "base"), "default")
    channel.prepare()
    taken = locks.take_locks(channel)
    assert taken is not None, "locks hold there"
    taken.release()


def test_a_link_that_vanishes_while_it_is_followed_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user may exchange what is not made yet; whoever makes it finds out what it is."""
    (tmp_path / "link").symlink_to(tmp_path)

    def gone(path: Any, *_args: Any, **_kwargs: Any) -> str:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)

    monkeypatch.setattr(os, "readlink", gone)
    assert mounts.file_system(str(tmp_path / "link" / "x")) is None
    check_file_system(str(tmp_path / "link" / "x"))
