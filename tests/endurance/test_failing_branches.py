"""System calls that fail where nothing else makes them fail: each such branch is entered once.

Which ones those are is told by ``uncovered.py``.
"""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from twisted.internet import inotify, reactor
from uncovered import unentered

from intercom import paths as places
from intercom import private
from intercom.election import locks
from intercom.errors import CannotCreate, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Written
from intercom.spool import boots, past, recovery, turns, watch
from intercom.spool.calls import FileCalls
from intercom.spool.recent import RecentIds
from intercom.spool.store import Store
from intercom.wire import envelope

Patch = pytest.MonkeyPatch


def failing(number: int, path: str = "") -> Callable[..., Any]:
    """A call that fails, always or for one path, which it is given first."""

    def fail(*args: Any, **_kwargs: Any) -> Any:
        raise OSError(number, os.strerror(number), args[0] if args else path)

    return fail


class Failing(FileCalls):
    """The file system, of which some calls fail for some files.

    :ivar wrong: call and part of a file's name, or nothing; then the error's number.
    """

    def __init__(self) -> None:
        self.wrong: tuple[str, str, int] | None = None

    def _check(self, call: str, name: str) -> None:
        if self.wrong is not None and self.wrong[0] == call and self.wrong[1] in name:
            raise OSError(self.wrong[2], os.strerror(self.wrong[2]), name)

    def open(self, path: str, flags: int) -> int:
        self._check("open", path)
        return super().open(path, flags)

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        self._check("pread", os.readlink(f"/proc/self/fd/{fd}"))
        return super().pread(fd, length, offset)


@pytest.fixture
def calls() -> Failing:
    """A file system that works until it is told to fail."""
    return Failing()


def entry(paths: ChannelPaths, number: int, inbox: str = "bob") -> Entry:
    """A message on its way."""
    line = envelope.make(
        type="chat",
        message_id=f"m{number}",
        from_session="ada",
        to_session=inbox,
        channel=paths.name,
        payload={"text": "x"},
        timestamp=envelope.format_timestamp(1.0),
    )
    found = envelope.identify(line)
    assert found is not None
    return Entry(number, inbox, line, "ada", f"m{number}", found.digest, "process")


# -- election ----------------------------------------------------------------------------------


def test_a_lock_file_that_cannot_be_opened_is_named(
    paths: ChannelPaths, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(locks, "open_private", failing(errno.EMFILE))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(CannotCreate, match="Too many open files") as refused:
        locks.take_locks(paths)
    assert paths.lock in refused.value.text
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_leader_that_may_not_be_signalled_lives(paths: ChannelPaths, monkeypatch: Patch) -> None:
    """One that runs as root, for a user."""
    Path(paths.lock).write_text('{"pid": 4194303, "version": "1.0"}')
    assert locks.leader(paths) == {}
    monkeypatch.setattr(os, "kill", failing(errno.EPERM))
    assert locks.leader(paths) == {"pid": 4194303, "version": "1.0"}


# -- places ------------------------------------------------------------------------------------


def test_a_shared_place_that_cannot_be_looked_at_is_not_ours(monkeypatch: Patch) -> None:
    monkeypatch.setattr(os, "lstat", failing(errno.EACCES))
    assert places.base_directory(None) == f"{places.SHARED_DEFAULT}-{os.geteuid()}"


def test_rules_that_cannot_be_read_are_passed_over(tmp_path: Path, monkeypatch: Patch) -> None:
    """Of the system's rules about /tmp some may be root's alone."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.conf").write_text("D /tmp 1777 root root -\n")
    (rules / "b.conf").write_text("# D /tmp\nq /var/tmp\nD /tmp 1777\n")
    glob, read = Path.glob, Path.read_text

    def only_ours(path: Path, pattern: str) -> Any:
        return glob(rules, pattern) if str(path) == "/etc/tmpfiles.d" else iter(())

    def closed(path: Path, *args: Any, **kwargs: Any) -> str:
        if path.name == "a.conf":
            raise PermissionError(errno.EACCES, "closed", str(path))
        return read(path, *args, **kwargs)

    monkeypatch.setattr(os.path, "isdir", lambda _path: True)
    monkeypatch.setattr(Path, "glob", only_ours)
    monkeypatch.setattr(Path, "read_text", closed)
    assert places._emptied_at_boot("/tmp/x") == str(rules / "b.conf")
    assert places._emptied_at_boot("/home/x") == ""


def test_a_look_at_a_place_says_what_making_it_would(tmp_path: Path, monkeypatch: Patch) -> None:
    private.check_directory(str(tmp_path / "a" / "b"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CannotCreate, match="Not a directory"):
        private.check_directory(str(tmp_path / "file" / "a"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "access", lambda *_args: False)
        with pytest.raises(CannotCreate, match="Permission denied"):
            private.check_directory(str(tmp_path / "closed" / "a"))
    monkeypatch.setattr(os, "lstat", failing(errno.EIO))
    with pytest.raises(CannotCreate, match="Input/output error"):
        private.check_directory(str(tmp_path))


def test_where_namespaces_cannot_be_read_every_user_is_one(monkeypatch: Patch) -> None:
    monkeypatch.setattr(builtins, "open", failing(errno.ENOENT))
    assert private._nobody_known() is None


# -- spool -------------------------------------------------------------------------------------


def stocked(paths: ChannelPaths, boot: str) -> None:
    """Store a message, in a boot of the machine."""
    store = Store(paths)
    store.start(boot)
    (written,) = store.append_batch([entry(paths, 1)]).outcomes
    assert isinstance(written, Written)
    store.close()


@pytest.mark.parametrize(
    ("call", "file"), [("open", "history"), ("pread", "history"), ("open", "inbox_bob")]
)
def test_a_past_that_cannot_be_read_is_none(
    paths: ChannelPaths, calls: Failing, call: str, file: str
) -> None:
    """The hub starts; a repetition is then found in the inbox, or not at all."""
    stocked(paths, "boot 1")
    assert past.read_past(paths, calls, 0.0, "boot 2", RecentIds()).ends
    calls.wrong = (call, file, errno.EIO)
    assert past.read_past(paths, calls, 0.0, "boot 2", RecentIds()).ends == {}


def test_a_boot_without_a_name_is_one_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(boots, "_BOOT", str(tmp_path / "absent"))
    assert len(boots.boot_id()) == 32
    assert boots.boot_id() != boots.boot_id()


def test_an_inbox_that_was_forgotten_needs_no_sync(paths: ChannelPaths) -> None:
    recovery._sync(paths, FileCalls(), "nobody")
    assert not os.path.exists(paths.inbox("nobody"))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOENT, errno.EMFILE])
def test_a_look_at_an_inbox_that_fails_costs_nobody_anything(
    paths: ChannelPaths, calls: Failing, number: int
) -> None:
    """Somebody appended to it; it cannot be opened now, or is gone again. The next look tells."""
    store = Store(paths, calls)
    store.start()
    inbox = Path(paths.inbox("bob"))
    inbox.write_bytes(entry(paths, 1).line + b"\n")
    calls.wrong = ("open", "inbox_bob", number)
    work = store.work(["bob"], [entry(paths, 2, inbox="carol")])
    assert [type(one) for one in work.outcomes] == [Written]
    calls.wrong = None
    assert [type(one) for one in store.work(["bob"], []).outcomes] == [Appeared]
    store.close()


def test_a_turn_that_cannot_be_asked_for_is_nobodys(
    paths: ChannelPaths, monkeypatch: Patch
) -> None:
    Path(paths.turn("bob")).touch(0o600)
    monkeypatch.setattr(fcntl, "flock", failing(errno.ENOLCK))
    assert turns.turn_of(paths, "bob") is None


def test_a_file_that_goes_while_it_is_looked_at_is_gone(
    paths: ChannelPaths, monkeypatch: Patch
) -> None:
    Path(paths.inbox("bob")).touch(0o600)
    Path(paths.inbox("eve")).touch(0o600)
    scan = os.scandir

    class Entries:
        def __enter__(self) -> Any:
            found = list(scan(paths.directory))
            Path(paths.inbox("bob")).unlink()
            return iter(found)

        def __exit__(self, *_exc: object) -> None:
            return None

    monkeypatch.setattr(os, "scandir", lambda _path: Entries())
    assert watch.Snapshot(paths.directory).changed() == ["inbox_eve.ndjson"]


def test_a_system_that_is_out_of_watches_is_polled(paths: ChannelPaths, monkeypatch: Patch) -> None:
    """Without a kernel's word the slow poll is what there is."""
    watching = watch.DirectoryWatch(reactor, paths.directory, None, print)  # type: ignore[arg-type]
    for where, name in ((inotify.INotify, "watch"), (inotify, "INotify")):
        with monkeypatch.context() as patch:
            patch.setattr(where, name, failing(errno.ENOSPC))
            if name == "INotify":
                assert watching._listen() is None
            else:
                before = len(os.listdir("/proc/self/fd"))
                assert watching._listen() is None
                assert len(os.listdir("/proc/self/fd")) == before


def test_an_unsafe_lock_file_is_no_lock(paths: ChannelPaths) -> None:
    """What is not ours alone is neither opened nor taken for a sign of a hub."""
    os.symlink("/etc/hostname", paths.lock)
    with pytest.raises(UnsafePlace):
        locks.is_led(paths)
    assert locks.leader(paths) == {}


def test_a_branch_that_no_test_enters_is_found() -> None:
    """By the script that lists them."""
    source = (
        "try:\n    f()\n"
        "except (ValueError, FileNotFoundError):\n    pass\n"
        "except ValueError:\n    pass\n"
        "except BlockingIOError:\n    g()\n"
        "except BaseException:\n    raise\n"
    )
    found = list(unentered(source, {1, 2, 3, 8}))
    assert found == [(3, "(ValueError, FileNotFoundError)")]
    assert [line for line, _caught in unentered(source, {4})] == [7]
