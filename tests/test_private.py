"""What is ours alone, and what is refused because it might not be.

Attacks by a second user are in ``tests/safety``; here is what one user can show.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from intercom import private
from intercom.errors import CannotCreate, UnsafePlace


def test_a_file_is_not_even_cut_before_it_is_known_to_be_ours(tmp_path: Path) -> None:
    precious, name = tmp_path / "precious", tmp_path / "name"
    precious.write_text("precious")
    os.link(precious, name)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with pytest.raises(UnsafePlace, match="second name"):
        private.open_private(str(name), flags)
    assert precious.read_text() == "precious"
    precious.unlink()
    os.close(private.open_private(str(name), flags))
    assert name.read_text() == ""


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "socket"])
def test_a_refusal_names_path_owner_and_mode(tmp_path: Path, flags: int, kind: str) -> None:
    """Whatever the system itself would have said, or waited for."""
    path = tmp_path / "x"
    if kind == "link":
        path.symlink_to("/etc/hostname")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        os.mknod(path, stat.S_IFSOCK | 0o600)
    mode = stat.S_IMODE(os.lstat(path).st_mode)
    with pytest.raises(UnsafePlace) as caught:
        private.open_private(str(path), flags)
    assert str(path) in caught.value.text
    assert f"uid {os.geteuid()}, mode {mode:04o}" in caught.value.text
    assert f"remove it: rm {path}" in caught.value.remedy


def test_other_failures_are_the_systems_own(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        private.open_private(str(tmp_path / "absent"), os.O_RDONLY)
    (tmp_path / "file").write_text("")
    with pytest.raises(NotADirectoryError):
        private.open_private(str(tmp_path / "file" / "below"), os.O_RDONLY)


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o703])
def test_nothing_is_made_below_what_everybody_can_write(tmp_path: Path, mode: int) -> None:
    above = tmp_path / "above"
    above.mkdir()
    above.chmod(mode)
    with pytest.raises(UnsafePlace, match="others can write") as caught:
        private.private_directory(str(above / "deep" / "place"))
    assert str(above) in caught.value.text
    assert f"mode {mode:04o}" in caught.value.text
    assert list(above.iterdir()) == []


def test_places_below_are_fine_where_the_sticky_bit_or_our_own_group_keeps_them(
    tmp_path: Path,
) -> None:
    """As in /tmp; and where every user has a group, homes are open to it."""
    shared, grouped = tmp_path / "shared", tmp_path / "grouped"
    for above, mode in ((shared, 0o1777), (grouped, 0o775)):
        above.mkdir()
        os.chown(above, -1, os.getegid())
        above.chmod(mode)
        private.private_directory(str(above / "place"))
        assert stat.S_IMODE((above / "place").stat().st_mode) == 0o700


def test_links_on_the_way_are_looked_through(tmp_path: Path) -> None:
    """A link above is fine; where it leads must be as safe as any other way."""
    (tmp_path / "real" / "sub").mkdir(parents=True)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "good").symlink_to("real/./sub/../sub")
    (tmp_path / "bad").symlink_to(tmp_path / "open")
    (tmp_path / "worse").symlink_to("bad")
    private.private_directory(str(tmp_path / "good" / "place"))
    assert (tmp_path / "real" / "sub" / "place").is_dir()
    for name in ("bad", "worse"):
        with pytest.raises(UnsafePlace, match=str(tmp_path / "open")):
            private.private_directory(str(tmp_path / name / "place"))


def test_a_way_that_leads_nowhere_is_an_error_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("absent")
    for name in ("loop", "dangling"):
        with pytest.raises(CannotCreate, match="cannot make the directory"):
            private.private_directory(str(tmp_path / name / "place"))


def test_a_relative_place_is_as_good_as_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    private.private_directory("a/b")
    private.private_directory("c")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
