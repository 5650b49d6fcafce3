"""Where a channel lives, and what is refused there."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from intercom import paths
from intercom.errors import CannotCreate, UnsafePlace


def test_the_directory_that_is_chosen_is_made_absolute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.chdir("/usr")
    assert paths.base_directory("/o") == "/o"
    assert paths.base_directory("lib/../lib") == "/usr/lib"
    assert paths.base_directory("~/here") == "/home/me/here"


def test_the_default_is_shared_with_the_original_programs_if_it_is_ours(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shared = tmp_path / "agy-ipc"
    monkeypatch.setattr(paths, "SHARED_DEFAULT", str(shared))
    own = f"{shared}-{os.geteuid()}"
    assert paths.base_directory(None) == str(shared)  # absent
    shared.mkdir()
    assert paths.base_directory(None) == str(shared)  # ours
    shared.rmdir()
    shared.symlink_to(tmp_path)
    assert paths.base_directory(None) == own
    shared.unlink()
    shared.write_text("")
    assert paths.base_directory(None) == own


def test_a_channel_is_made_private_whatever_the_umask(tmp_path: Path) -> None:
    for mask in (0o000, 0o077, 0o777):
        channel = paths.ChannelPaths(str(tmp_path / f"b{mask:o}"), "c")
        before = os.umask(mask)
        try:
            channel.prepare()
        finally:
            os.umask(before)
        for place in (channel.base, channel.directory):
            assert stat.S_IMODE(os.lstat(place).st_mode) == 0o700


def test_one_that_others_can_read_is_tightened_with_a_word(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir(mode=0o755)
    place.chmod(0o755)
    said: list[str] = []
    paths.private_directory(str(place), said.append)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert "0755" in said[0]
    paths.private_directory(str(place), said.append)
    assert len(said) == 1


def test_one_that_others_can_write_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    place = tmp_path / "open"
    place.mkdir()
    place.chmod(0o770)
    with pytest.raises(UnsafePlace, match="others can write") as caught:
        paths.private_directory(str(place))
    assert "chmod 700" in caught.value.remedy
    assert stat.S_IMODE(place.stat().st_mode) == 0o770


def test_links_and_files_are_refused_each_with_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(tmp_path / "real")
    file.write_text("")
    with pytest.raises(UnsafePlace, match="symbolic link") as caught:
        paths.private_directory(str(link))
    assert str(tmp_path / "real") in caught.value.remedy
    with pytest.raises(UnsafePlace, match="not a directory"):
        paths.private_directory(str(file))
    with pytest.raises(CannotCreate, match="cannot make"):
        paths.private_directory(str(file / "below"))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a directory of another user")
def test_another_users_directory_is_refused_naming_both_uids(tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    place.mkdir(mode=0o700)
    os.chown(place, 65001, 65001)
    with pytest.raises(UnsafePlace, match=r"uid 65001.*uid 0"):
        paths.private_directory(str(place))


def test_files_are_opened_without_following_anything(tmp_path: Path) -> None:
    target = tmp_path / "victim"
    target.write_text("precious")
    (tmp_path / "link").symlink_to(target)
    os.link(target, tmp_path / "hard")
    os.mkfifo(tmp_path / "fifo")
    for name, words in (("link", "symbolic link"), ("hard", "second name"), ("fifo", "regular")):
        with pytest.raises(UnsafePlace, match=words):
            paths.open_private(str(tmp_path / name), os.O_RDONLY)
        with pytest.raises((UnsafePlace, OSError)):
            paths.open_private(str(tmp_path / name), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    assert target.read_text() == "precious"


def test_a_file_is_made_private_and_replaced_in_one_step(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    paths.write_atomic(path, b"one")
    paths.write_atomic(path, b"two")
    assert paths.read_private(path) == b"two"
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["f"]
    assert paths.read_private(path + "x") is None


def test_a_failed_replacement_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    (tmp_path / "d" / "x").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        paths.write_atomic(str(tmp_path / "d"), b"data")
    assert os.listdir(tmp_path) == ["d"]


def test_a_socket_path_that_is_too_long_moves_to_a_short_private_place(tmp_path: Path) -> None:
    channel = paths.ChannelPaths(str(tmp_path / ("x" * 90)), "c")
    assert len(channel.socket) <= paths.MAX_SOCKET_PATH
    assert channel.socket != channel.file("hub.sock")
    channel.prepare()
    assert stat.S_IMODE(os.lstat(os.path.dirname(channel.socket)).st_mode) == 0o700
    other = paths.ChannelPaths(str(tmp_path / ("x" * 91)), "c")
    assert other.socket != channel.socket
    assert paths.ChannelPaths("/tmp/short", "c").socket == "/tmp/short/c/hub.sock"


MOUNTS = """\
1 0 8:1 / / rw - ext4 /dev/sda rw
2 1 0:5 / /tmp rw - tmpfs tmpfs rw
3 1 0:6 / /with\\040space rw - ramfs ramfs rw
"""


@pytest.mark.parametrize(
    ("place", "level"),
    [("/home/x", "disk"), ("/tmp/x", "process"), ("/tmpx", "disk"), ("/with space/y", "process")],
)
def test_the_level_that_a_place_can_reach_is_read_from_its_file_system(
    tmp_path: Path, place: str, level: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)
    assert paths.file_level(place, str(mounts)) == level


def test_without_a_list_of_mounts_nothing_better_than_disk_is_known(tmp_path: Path) -> None:
    assert paths.file_level("/x", str(tmp_path / "absent")) == "disk"


def test_real_memory_file_systems_are_recognised() -> None:
    if os.path.ismount("/dev/shm"):
        assert paths.file_level("/dev/shm/x") == "process"
