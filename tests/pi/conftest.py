"""Files of the pi dialect in a private directory, and calls that fail on demand."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from intercom.pi.calls import Calls


class Crash(BaseException):
    """The process dies here: nothing that follows is done."""


class BrokenCalls(Calls):
    """A file system that fails as it is told.

    :ivar log: names of the changing calls that were begun, with the last part of their path.
    :ivar die_at: crash instead of the so-manieth of them (from 0).
    :ivar fail_at: that one fails with EIO.
    :ivar failing: error numbers by the name of the call.
    :ivar short: so many bytes are written at a time.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.die_at: int | None = None
        self.fail_at: int | None = None
        self.failing: dict[str, int] = {}
        self.short: int | None = None

    def _step(self, name: str, path: str = "") -> None:
        at = len(self.log)
        self.log.append(f"{name} {os.path.basename(path)}".strip())
        if at == self.die_at:
            raise Crash(name)
        code = 5 if at == self.fail_at else self.failing.get(name)
        if code is not None:
            raise OSError(code, os.strerror(code))

    def open(self, path: str, flags: int) -> int:
        if flags & os.O_CREAT:
            self._step("create", path)
        elif "open" in self.failing:
            self._step("open", path)
        return super().open(path, flags)

    def chmod(self, fd: int) -> None:
        self._step("chmod")
        super().chmod(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._step("write")
        return super().write(fd, data[: self.short] if self.short is not None else data)

    def sync(self, fd: int) -> None:
        self._step("sync")
        super().sync(fd)

    def read(self, fd: int, length: int) -> bytes:
        if "read" in self.failing:
            self._step("read")
        return super().read(fd, min(length, self.short or length))

    def rename(self, source: str, target: str) -> None:
        self._step("rename", target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self._step("unlink", path)
        super().unlink(path)

    def names(self, directory: str) -> list[str]:
        if "names" in self.failing:
            self._step("names")
        return super().names(directory)

    def sync_names(self, path: str) -> None:
        self._step("sync_directory", path)
        super().sync_names(path)


@pytest.fixture
def calls() -> BrokenCalls:
    """A file system that works until it is told to fail."""
    return BrokenCalls()


@pytest.fixture
def broken() -> type[BrokenCalls]:
    """To make more of them."""
    return BrokenCalls


@pytest.fixture
def crash() -> type[BaseException]:
    """What a simulated death raises."""
    return Crash


@pytest.fixture
def private(tmp_path: Path) -> str:
    """A directory of ours."""
    path = tmp_path / "private"
    path.mkdir(mode=0o700)
    return str(path)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory like /tmp, which every user can reach."""
    path = Path(tempfile.mkdtemp(prefix="intercom-pi-"))
    path.chmod(0o1777)
    yield path
    shutil.rmtree(path)
