"""A channel in a directory of its own, messages, and a file system that fails on demand."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Entry
from intercom.spool.calls import FileCalls
from intercom.wire.envelope import identify, make


@pytest.fixture
def paths(tmp_path: Path) -> ChannelPaths:
    """A channel's files, in a directory that exists."""
    paths = ChannelPaths(str(tmp_path / "base"), "room")
    paths.prepare()
    return paths


@pytest.fixture
def message() -> Callable[..., bytes]:
    """Makes the line of a chat."""

    def message(message_id: str, text: str = "hi", sender: str = "ann", to: str = "bob") -> bytes:
        return make(
            type="chat",
            message_id=message_id,
            from_session=sender,
            to_session=to,
            channel="room",
            payload={"text": text},
            timestamp="2026-01-01T00:00:00.000000+00:00",
        )

    return message


@pytest.fixture
def entry(message: Callable[..., bytes]) -> Callable[..., Entry]:
    """Makes an entry for bob's inbox, unless told otherwise."""

    def entry(ticket: int, text: str = "hi", level: str = "disk", **changes: object) -> Entry:
        inbox = str(changes.pop("inbox", "bob"))
        message_id = str(changes.pop("message_id", f"msg_{ticket}"))
        line = message(message_id, text, to=inbox)
        found = identify(line)
        assert found is not None
        made = Entry(ticket, inbox, line, "ann", message_id, found.digest, level)
        return made._replace(**changes)

    return entry


class Crash(BaseException):
    """The process dies here: nothing that follows is done."""


class BrokenCalls(FileCalls):
    """A file system that fails as it is told.

    :ivar log: names of the changing calls that were made.
    :ivar die_at: crash instead of the so-manieth of them (from 0).
    :ivar write_limit: so many bytes fit, then ENOSPC.
    :ivar failing: error numbers by the name of the call.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.die_at: int | None = None
        self.write_limit: int | None = None
        self.failing: dict[str, int] = {}

    def _step(self, name: str) -> None:
        if name in self.failing:
            raise OSError(self.failing[name], os.strerror(self.failing[name]))
        if self.die_at == len(self.log):
            raise Crash(name)
        self.log.append(name)

    def open(self, path: str, flags: int) -> int:
        if "open" in self.failing:
            self._step("open")
        return super().open(path, flags)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._step("write")
        if self.write_limit is not None:
            if self.write_limit <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = memoryview(data)[: self.write_limit]
            self.write_limit -= len(data)
        return super().write(fd, data)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._step("pwrite")
        return super().pwrite(fd, data, offset)

    def allocate(self, fd: int, length: int) -> None:
        self._step("allocate")
        super().allocate(fd, length)

    def ftruncate(self, fd: int, length: int) -> None:
        self._step("ftruncate")
        super().ftruncate(fd, length)

    def sync(self, fd: int) -> None:
        self._step("sync")
        super().sync(fd)

    def rename(self, source: str, target: str) -> None:
        self._step("rename")
        super().rename(source, target)

    def sync_directory(self, fd: int) -> None:
        self._step("sync_directory")
        super().sync_directory(fd)

    def unlink(self, path: str) -> None:
        self._step("unlink")
        super().unlink(path)


@pytest.fixture
def calls() -> BrokenCalls:
    """A file system that works until it is told to fail."""
    return BrokenCalls()


@pytest.fixture
def crash() -> type[BaseException]:
    """What a simulated death raises."""
    return Crash
