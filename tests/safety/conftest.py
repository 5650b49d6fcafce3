"""Users of one machine: whoever runs intercom, and another who wishes them no good.

Only root can be two users. Without root these tests are reported as not run.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths

ROOT = Path(__file__).resolve().parents[2]
#: Where this package is found, and whatever was found before.
IMPORTABLE = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
#: The one who attacks, and the ordinary user whom he attacks. Neither has an account.
ATTACKER = 65001
ORDINARY = 65002
#: A Python that any user may run; the scripts given to it need no package.
PYTHON = "/usr/bin/python3"
PATIENCE_S = 60.0
#: What the kernel may forbid in directories that everybody can write, and its strictest value.
PROTECTIONS = {
    "protected_symlinks": "1",
    "protected_hardlinks": "1",
    "protected_fifos": "2",
    "protected_regular": "2",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without root there is only one user: say so, and never call that a success."""
    if os.geteuid() == 0:
        return
    for item in items:
        if Path(__file__).parent in item.path.parents and "needs_root" in item.fixturenames:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.skip(reason="not run: needs root"))


@pytest.fixture(scope="session")
def needs_root() -> None:
    """For tests with two users in them."""
    assert os.geteuid() == 0
    for program in (PYTHON, shutil.which("setpriv")):
        if program is None or not os.path.exists(program):
            pytest.skip(f"not run: needs {program or 'setpriv'}")


@pytest.fixture(params=["unprotected", "protected"])
def protection(request: pytest.FixtureRequest, needs_root: None) -> Iterator[bool]:
    """Whether the kernel itself hinders links, pipes and files of others in shared directories.

    The settings are the machine's: nobody else who runs these tests changes them meanwhile,
    and they are put back whatever happens.
    """
    places = {name: Path("/proc/sys/fs", name) for name in PROTECTIONS}
    with places["protected_symlinks"].open() as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        before = {name: place.read_text() for name, place in places.items()}
        changed = []
        try:
            for name, place in places.items():
                protected = request.param == "protected"
                if (before[name].strip() != "0") != protected:
                    place.write_text(PROTECTIONS[name] if protected else "0")
                    changed.append(name)
            yield request.param == "protected"
        except OSError as error:
            pytest.skip(f"not run: the kernel's protection of links cannot be set here ({error})")
        finally:
            for name in changed:
                places[name].write_text(before[name])


# -- one who attacks --------------------------------------------------------------------------


class Attacker:
    """Runs small programs as a user who is none of ours."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[str]] = []
        self.uid = ATTACKER

    def command(self, program: str, *words: object) -> list[str]:
        """A Python program, run with his rights and no others."""
        user = [f"--reuid={ATTACKER}", f"--regid={ATTACKER}", "--clear-groups"]
        return ["setpriv", *user, PYTHON, "-I", "-c", program, *map(str, words)]

    def start(self, program: str, *words: object) -> subprocess.Popen[str]:
        """Begin something, and wait until it says that it is ready."""
        process = subprocess.Popen(
            self.command(program, *words), stdout=subprocess.PIPE, text=True, cwd="/"
        )
        self.started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    def does(self, program: str, *words: object) -> str:
        """Do something that he is able to do."""
        done = subprocess.run(
            self.command(program, *words),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd="/",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def cannot(self, program: str, *words: object) -> None:
        """Try something that the kernel forbids him."""
        program += "\nraise SystemExit('it could be done')"
        done = subprocess.run(
            self.command(program, *words), capture_output=True, text=True, cwd="/", check=False
        )
        assert "PermissionError" in done.stderr, done.stderr


@pytest.fixture
def attacker(needs_root: None) -> Iterator[Attacker]:
    """Somebody else on this machine."""
    made = Attacker()
    yield made
    for process in made.started:
        process.kill()
        process.communicate()


# -- one who runs intercom --------------------------------------------------------------------


class Ended:
    """What a command printed, and its status."""

    def __init__(self, status: int, out: bytes, err: str) -> None:
        self.status = status
        self.out = out
        self.err = err
        assert "Traceback" not in err, err

    @property
    def result(self) -> dict[str, Any]:
        """The one JSON object on standard output."""
        found = json.loads(self.out)
        assert isinstance(found, dict), found
        return found

    def ok(self) -> dict[str, Any]:
        """The result of a command that must have succeeded."""
        assert self.status == 0, (self.status, self.out, self.err)
        return self.result


class Servants:
    """The process that runs commands as any user."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = 0
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("servant.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": IMPORTABLE},
            text=True,
        )

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "the servant has died"
        return dict(json.loads(line))

    def ask(self, **asked: Any) -> dict[str, Any]:
        """One request."""
        assert self._process.stdin is not None
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        return self._answer()

    def start(self, **asked: Any) -> tuple[int, Path]:
        """Begin a command; its pid, and the beginning of the names of its output files."""
        self._count += 1
        name = self._directory / str(self._count)
        files = {"in": "/dev/null", "out": f"{name}.out", "err": f"{name}.err"}
        return int(self.ask(do="start", **files, **asked)["pid"]), name

    def end(self, pid: int, name: Path) -> Ended:
        """Wait for a command's end."""
        status = int(self.ask(do="end", pid=pid)["status"])
        out, err = (name.with_suffix(ending) for ending in (".out", ".err"))
        return Ended(status, out.read_bytes(), err.read_text())

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=PATIENCE_S)


@pytest.fixture(scope="session")
def servants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servants]:
    """One for all tests: it takes a second to load everything."""
    made = Servants(tmp_path_factory.mktemp("servants"))
    try:
        assert made._answer() == {"ready": True}
        yield made
    finally:
        made.close()


class User:
    """Somebody with a channel, and commands to run on it.

    :ivar uid: who.
    :ivar paths: his channel; the directory that holds channels is his, and private.
    :ivar home: where his commands run.
    """

    def __init__(self, servants: Servants, uid: int, base: Path, home: Path) -> None:
        self.uid = uid
        self.home = home
        self.paths = ChannelPaths(str(base), "default")
        self._servants = servants
        self._running: dict[int, Path] = {}

    def own(self, *places: str | Path) -> None:
        """Give files to him that root has made for him."""
        for place in places:
            os.lchown(place, self.uid, self.uid)

    def settle(self) -> None:
        """Have the channel's directory, as if he had used it before."""
        for place in (self.paths.base, self.paths.directory):
            os.mkdir(place, 0o700)
            self.own(place)

    def start(self, *words: str, umask: int = 0o077, **environ: str) -> int:
        """Begin a command, and tell its pid."""
        pid, name = self._servants.start(
            words=words,
            uid=self.uid,
            umask=umask,
            cwd=str(self.home),
            environ={
                "HOME": str(self.home),
                "INTERCOM_DIR": self.paths.base,
                "INTERCOM_SESSION": "ada",
                "INTERCOM_NO_SPAWN": "1",
                "PYTHONPATH": IMPORTABLE,
                **environ,
            },
        )
        self._running[pid] = name
        return pid

    def end(self, pid: int) -> Ended:
        """Wait for a command's end."""
        if not has_ended(pid, PATIENCE_S):
            pytest.fail("a command does not end")
        return self._servants.end(pid, self._running.pop(pid))

    def run(self, *words: str, umask: int = 0o077, **environ: str) -> Ended:
        """Run a command to its end."""
        return self.end(self.start(*words, umask=umask, **environ))

    def serve(self, *options: str, umask: int = 0o077) -> int:
        """Start a hub, and wait until it listens."""
        pid = self.start("daemon", *options, umask=umask)
        deadline = time.monotonic() + PATIENCE_S
        while not os.path.lexists(self.paths.socket) or os.path.islink(self.paths.socket):
            if has_ended(pid):
                pytest.fail(f"the hub has ended: {self.end(pid).err}")
            assert time.monotonic() < deadline, "the hub does not listen"
            time.sleep(0.01)
        return pid

    def stop(self, pid: int) -> Ended:
        """End a hub in good order."""
        os.kill(pid, signal.SIGTERM)
        return self.end(pid)

    def stop_all(self) -> None:
        """End what a failed test has left."""
        for pid in list(self._running):
            os.kill(pid, signal.SIGKILL)
            self._servants.end(pid, self._running.pop(pid))


@pytest.fixture
def commons() -> Iterator[Path]:
    """A directory like /tmp: everybody makes files there, and nobody removes another's."""
    directory = Path(tempfile.mkdtemp(prefix="ic-", dir="/tmp"))
    directory.chmod(0o1777)
    yield directory
    shutil.rmtree(directory)


@pytest.fixture(params=["an ordinary user", "root"])
def user(
    request: pytest.FixtureRequest, needs_root: None, servants: Servants, commons: Path
) -> Iterator[User]:
    """Who is attacked. Root can open everything, and so has to look the more closely."""
    home = commons / "home"
    home.mkdir(mode=0o700)
    uid = 0 if request.param == "root" else ORDINARY
    made = User(servants, uid, commons / "base", home)
    made.own(home)
    yield made
    made.stop_all()


@pytest.fixture
def myself(servants: Servants, channel_dir: Path, tmp_path: Path) -> Iterator[User]:
    """Whoever runs these tests, root or not."""
    made = User(servants, os.geteuid(), channel_dir / "base", tmp_path)
    yield made
    made.stop_all()


# -- what must stay as it is ------------------------------------------------------------------

_ACCESS, _MODIFY, _ATTRIB, _MOVED, _CREATE, _DELETE = 0x1, 0x2, 0x4, 0xC0, 0x100, 0x200
_EVENT = struct.Struct("iIII")


class Treasure:
    """Files outside of any channel, under the kernel's watch.

    :ivar file: one with a content; :ivar folder: a directory with another in it.
    :ivar absent: a name that is free.
    """

    CONTENT = b"precious\n"

    def __init__(self, directory: Path, uid: int) -> None:
        self.directory = directory
        self.file = directory / "file"
        self.folder = directory / "folder"
        self.absent = directory / "absent"
        for place in (directory, self.folder, self.folder / "default"):
            place.mkdir(mode=0o700)
        for file in (self.file, self.folder / "default" / "inbox_ada.ndjson"):
            file.write_bytes(self.CONTENT)
            file.chmod(0o600)
        self.places = [directory, *sorted(directory.rglob("*"))]
        for place in self.places:
            os.chown(place, uid, uid)
        self._watch = -1

    def watch(self) -> None:
        """Notice from now on whatever is read or changed in any of them."""
        self.close()
        libc = ctypes.CDLL(None, use_errno=True)
        self._watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        wanted = _ACCESS | _MODIFY | _ATTRIB | _MOVED | _CREATE | _DELETE
        for place in self.places:
            assert libc.inotify_add_watch(self._watch, os.fsencode(place), wanted) > 0

    def events(self) -> list[int]:
        """What was noticed since the last call."""
        found = []
        while select.select([self._watch], [], [], 0)[0]:
            data = os.read(self._watch, 65536)
            while data:
                _number, mask, _cookie, length = _EVENT.unpack_from(data)
                found.append(mask)
                data = data[_EVENT.size + length :]
        return found

    def assert_untouched(self) -> None:
        """Nothing was read and nothing was changed; and the watch would have noticed."""
        assert self.events() == []
        assert [self.directory, *sorted(self.directory.rglob("*"))] == self.places
        self.events()
        assert self.file.read_bytes() == self.CONTENT
        assert _ACCESS in self.events(), "the watch is blind"

    def close(self) -> None:
        """Watch no more."""
        if self._watch >= 0:
            os.close(self._watch)
            self._watch = -1


@pytest.fixture
def treasure(commons: Path, user: User) -> Iterator[Treasure]:
    """What the user has elsewhere, and attackers would have him read, change or overwrite."""
    made = Treasure(commons / "treasure", user.uid)
    yield made
    made.close()


def has_ended(pid: int, within: float = 0.0) -> bool:
    """Whether a process ends within so many seconds, though nobody has waited for it yet."""
    fd = os.pidfd_open(pid)
    try:
        return bool(select.select([fd], [], [], within)[0])
    finally:
        os.close(fd)
