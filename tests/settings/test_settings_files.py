"""The files that hold settings: kept whole whatever happens, and refused by name."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom import __version__
from intercom.errors import BadConfig, CannotCreate, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.settings import files
from intercom.settings.files import FORMAT, ChannelFile, UserFile

ROOT = str(Path(__file__).resolve().parents[2])


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """A channel, its directory made."""
    found = ChannelPaths(str(channel_dir), "default")
    found.prepare()
    return found


@pytest.fixture
def write(paths: ChannelPaths) -> Callable[[Any], ChannelFile]:
    """Write a channel's file as somebody else might have."""

    def put(content: Any) -> ChannelFile:
        text = content if isinstance(content, str) else json.dumps(content)
        Path(paths.settings).write_text(text)
        return ChannelFile(paths)

    return put


@pytest.fixture
def user(tmp_path: Path) -> UserFile:
    """A user's file; neither it nor its directory is there."""
    return UserFile(str(tmp_path / "config" / "intercom" / "config.toml"))


# -- channel.json -----------------------------------------------------------------------------


def test_a_channel_without_settings_says_nothing(
    paths: ChannelPaths, write: Callable[[Any], ChannelFile]
) -> None:
    """Nor does one whose writer died before it wrote."""
    assert ChannelFile(paths).read() == {}
    ChannelFile(paths).check_format()
    assert not os.path.exists(paths.settings)
    assert write("").read() == {}
    write("").check_format()


def test_a_change_is_stamped_private_and_leaves_the_rest(
    paths: ChannelPaths, write: Callable[[Any], ChannelFile]
) -> None:
    """What a newer version wrote and we do not know stays there."""
    file = write(
        {"format": 1, "version": "0.0.9", "durability": "disk", "later": {"x": [1]}, "n": None}
    )
    file.change({"durability": "process", "idle_exit": 5})
    stamp = {"format": FORMAT, "version": __version__}
    expected = stamp | {"durability": "process", "later": {"x": [1]}, "n": None, "idle_exit": 5}
    assert file.read() == expected
    assert stat.S_IMODE(os.lstat(file.path).st_mode) == 0o600
    file.change({"durability": None})
    assert file.read() == {key: value for key, value in expected.items() if key != "durability"}
    assert os.listdir(paths.directory) == ["channel.json"]


def test_a_file_that_says_so_already_is_not_written_again(paths: ChannelPaths) -> None:
    file = ChannelFile(paths)
    file.change({"durability": "process"})
    before = os.lstat(file.path)
    file.change({"durability": "process"})
    file.change({})
    after = os.lstat(file.path)
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize(
    "content",
    ["{", "[]", "null", "\udcff", '{"format": "2"}', '{"format": true}', "[" * 100_000],
)
def test_a_damaged_file_is_refused_by_name_with_the_way_out(
    write: Callable[[Any], ChannelFile], content: str
) -> None:
    """By those who need it; it stays as it is. To the others it is no matter."""
    file = write("")
    Path(file.path).write_bytes(content.encode("utf-8", "surrogateescape"))
    for act in (file.read, lambda: file.change({"durability": "disk"})):
        with pytest.raises(BadConfig) as caught:
            act()
        assert file.path in caught.value.text
        assert f"rm {file.path}" in caught.value.remedy
    assert Path(file.path).read_bytes() == content.encode("utf-8", "surrogateescape")
    file.check_format()


def test_the_files_of_a_newer_version_are_refused_with_both_named(
    write: Callable[[Any], ChannelFile],
) -> None:
    """By everybody, and nothing is written."""
    content = {"format": FORMAT + 1, "version": "9.1", "durability": "stone"}
    file = write(content)
    for act in (file.read, file.check_format, lambda: file.change({})):
        with pytest.raises(BadConfig) as caught:
            act()
        assert caught.value.text == (
            f"channel 'default' was written by intercom 9.1, format {FORMAT + 1}; "
            f"this is intercom {__version__}, format {FORMAT}"
        )
        assert "intercom version" in caught.value.remedy
    assert json.loads(Path(file.path).read_text()) == content


@pytest.mark.parametrize("kind", ["link", "second name", "directory", "pipe"])
def test_a_planted_file_is_neither_read_nor_written(
    paths: ChannelPaths, tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "victim"
    victim.write_text('{"durability": "memory"}')
    if kind == "link":
        os.symlink(victim, paths.settings)
    elif kind == "second name":
        os.link(victim, paths.settings)
    elif kind == "directory":
        os.mkdir(paths.settings)
    else:
        os.mkfifo(paths.settings)
    file = ChannelFile(paths)
    for act in (file.read, file.check_format, lambda: file.change({"durability": "disk"})):
        with pytest.raises(UnsafePlace, match=r"channel\.json"):
            act()
    assert victim.read_text() == '{"durability": "memory"}'


def test_a_disk_that_is_full_leaves_the_file_as_it_was(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = ChannelFile(paths)
    file.change({"durability": "process"})
    before = Path(file.path).read_bytes()

    def full(_path: str, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files, "write_atomic", full)
    with pytest.raises(CannotCreate, match="No space left"):
        file.change({"durability": "disk"})
    assert Path(file.path).read_bytes() == before


def test_whoever_keeps_the_file_locked_is_not_waited_for_for_ever(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "PATIENCE", 0.05)
    file = ChannelFile(paths)
    file.change({"durability": "process"})
    with open(file.path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(CannotCreate, match="locked"):
            file.change({"durability": "disk"})
    assert file.read()["durability"] == "process"


CHANGE = """
import sys
from intercom.paths import ChannelPaths
from intercom.settings.files import ChannelFile
file = ChannelFile(ChannelPaths(sys.argv[1], "default"))
print("ready", flush=True)
sys.stdin.read()
for number in range(60):
    file.change({f"{sys.argv[2]}_{number}": number})
"""


def test_of_many_who_change_it_at_once_none_undoes_another_s_work(paths: ChannelPaths) -> None:
    """Each sets settings of its own; in the end all are there."""
    names = [f"p{number}" for number in range(4)]
    running = [
        subprocess.Popen(
            [sys.executable, "-c", CHANGE, paths.base, name],
            env=os.environ | {"PYTHONPATH": ROOT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    for one in running:
        assert one.stdout is not None
        assert one.stdout.readline() == b"ready\n"
    for one in running:
        one.communicate(timeout=60)
        assert one.returncode == 0
    found = ChannelFile(paths).read()
    assert len(found) == 2 + 4 * 60
    assert os.listdir(paths.directory) == ["channel.json"]


# -- config.toml ------------------------------------------------------------------------------


def test_a_user_without_settings_needs_no_file(user: UserFile) -> None:
    assert user.read() == {}
    assert not os.path.exists(os.path.dirname(user.path))
    assert UserFile("/dev/null/intercom/config.toml").read() == {}


def test_a_change_keeps_every_other_line(user: UserFile) -> None:
    """Comments, order, sections that we do not know."""
    before = '# mine\nchannel = "team"  # ours\n\n"idle_exit" = 5\n\n[later]\nchannel = "no"\n'
    os.makedirs(os.path.dirname(user.path))
    Path(user.path).write_text(before)
    user.change("channel", 'a "quoted" name')
    user.change("durability", "process")
    user.change("no_spawn", True)
    user.change("idle_exit", None)
    assert Path(user.path).read_text() == (
        '# mine\nchannel = "a \\"quoted\\" name"\n\ndurability = "process"\nno_spawn = true\n'
        '\n[later]\nchannel = "no"\n'
    )
    assert user.read()["later"] == {"channel": "no"}
    user.change("format", None)  # was not there


def test_a_first_setting_makes_the_file_for_its_user_alone(user: UserFile) -> None:
    user.change("idle_exit", 0.5)
    assert tomllib.loads(Path(user.path).read_text()) == {"idle_exit": 0.5}
    assert stat.S_IMODE(os.lstat(user.path).st_mode) == 0o600


def test_what_is_written_over_several_lines_is_left_to_its_writer(user: UserFile) -> None:
    """Rather than spoilt."""
    content = 'channel = """\nnot\n"""\ntext = """\ndurability = 1\n"""\n'
    os.makedirs(os.path.dirname(user.path))
    Path(user.path).write_text(content)
    for key, value in (("channel", "x"), ("durability", "disk"), ("channel", None)):
        with pytest.raises(BadConfig, match=f"{key} stands in ") as caught:
            user.change(key, value)
        assert "by hand" in caught.value.remedy
    assert Path(user.path).read_text() == content


def test_a_file_that_is_no_toml_is_refused_with_the_line(user: UserFile) -> None:
    os.makedirs(os.path.dirname(user.path))
    Path(user.path).write_text('channel = "a"\nchannel = \n')
    for act in (user.read, lambda: user.change("channel", "b")):
        with pytest.raises(BadConfig, match="line 2") as caught:
            act()
        assert user.path in caught.value.text
    Path(user.path).write_bytes(b"\xff")
    with pytest.raises(BadConfig, match=user.path):
        user.read()


def test_a_link_is_followed_and_stays_one(user: UserFile, tmp_path: Path) -> None:
    """Those who keep all such files in one place link them."""
    kept = tmp_path / "dotfiles.toml"
    kept.write_text('channel = "team"\n')
    os.makedirs(os.path.dirname(user.path))
    os.symlink(kept, user.path)
    user.change("format", "text")
    assert os.path.islink(user.path)
    assert kept.read_text() == 'channel = "team"\nformat = "text"\n'


def test_a_file_that_others_can_write_says_nothing_to_us(user: UserFile) -> None:
    """It could lead our messages elsewhere."""
    user.change("dir", "/tmp/evil")
    os.chmod(user.path, 0o602)
    with pytest.raises(UnsafePlace, match="can be written by others"):
        user.read()
    os.unlink(user.path)
    os.mkfifo(user.path)
    with pytest.raises(UnsafePlace, match="not a regular file"):
        user.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="not run: needs root")
def test_a_file_of_another_user_says_nothing_to_us(user: UserFile) -> None:
    user.change("dir", "/tmp/evil")
    os.chown(user.path, 65533, -1)
    with pytest.raises(UnsafePlace, match="does not belong to uid 0"):
        user.read()
