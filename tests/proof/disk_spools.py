"""Two spools behind one face, so that one model can be held against both.

Each can be told to crash with work under way, to have no room, and to be interfered with by
programs that do not go through it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import Any, Protocol

from disk_channel import Channel, Ear
from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from intercom.paths import ChannelPaths
from intercom.records import Batch, Entry, Position, Refused, Written
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.memory import MemorySpool

#: Longer than the hub takes to notice what others did.
NOTICED = 2.2


class Limited(FileCalls):
    """Files of which a process may be robbed, on a disk that may be full; syncs take no time.

    :ivar room: so many bytes can be written yet, None for any number.
    """

    def __init__(self) -> None:
        self.room: int | None = None
        self._open: set[int] = set()

    def open(self, path: str, flags: int) -> int:
        fd = super().open(path, flags)
        self._open.add(fd)
        return fd

    def open_directory(self, path: str) -> int:
        fd = super().open_directory(path)
        self._open.add(fd)
        return fd

    def close(self, fd: int) -> None:
        self._open.discard(fd)
        super().close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        if self.room is not None:
            if self.room <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            data = memoryview(data)[: self.room]
            self.room -= len(data)
        return super().write(fd, data)

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, fd: int) -> None:
        pass

    def die(self) -> None:
        """Let go of everything, as a process does that is killed."""
        for fd in self._open:
            os.close(fd)
        self._open.clear()


class Face(Protocol):
    """What the model's rules do to a spool."""

    ear: Ear

    def append(self, *entries: Entry) -> list[Written | Refused]: ...
    def read(self, inbox: str, start: Position | None, limit: int) -> Batch: ...
    def commit(self, inbox: str, position: Position, state: str) -> Position: ...
    def compact(self, inbox: str) -> bool: ...
    def write_raw(self, inbox: str, data: bytes) -> None: ...
    def append_offline(self, inbox: str, line: bytes, message_id: str) -> bool: ...
    def empty(self, inbox: str) -> None: ...
    def fill_disk(self, room: int) -> None: ...
    def free_disk(self) -> None: ...
    def crash(self, entries: list[Entry], pieces: int) -> None: ...
    def content(self, inbox: str) -> bytes: ...
    def end(self) -> None: ...


class OnFiles:
    """The real one."""

    def __init__(self, paths: ChannelPaths) -> None:
        self._paths = paths
        self._calls = Limited()
        self._channel = Channel(paths, self._calls).open()

    @property
    def ear(self) -> Ear:
        return self._channel.ear

    def append(self, *entries: Entry) -> list[Written | Refused]:
        return self._channel.append(*entries)

    def read(self, inbox: str, start: Position | None, limit: int) -> Batch:
        batch: Batch = self._channel.now(self._channel.spool.read(inbox, start, limit))
        mine = Inbox(self._paths, inbox, calls=self._calls).read(start, limit)
        assert mine == batch, "hub and commands read the same"
        return batch

    def commit(self, inbox: str, position: Position, state: str) -> Position:
        stored: Position = self._channel.now(self._channel.spool.commit(inbox, position, state))
        return stored

    def compact(self, inbox: str) -> bool:
        done: bool = self._channel.now(self._channel.spool.compact(inbox))
        return done

    def write_raw(self, inbox: str, data: bytes) -> None:
        with open(self._paths.inbox(inbox), "ab") as file:
            file.write(data)
        self._notice()

    def append_offline(self, inbox: str, line: bytes, message_id: str) -> bool:
        with Inbox(self._paths, inbox, calls=self._calls) as file:
            done = file.append(line, sender="ann", message_id=message_id)
        self._notice()
        return done

    def empty(self, inbox: str) -> None:
        for path, data in (
            (self._paths.inbox(inbox), b""),
            (self._paths.offset(inbox), b'{"offset": 0, "updated_at": 1.0}'),
        ):
            with open(path, "wb") as file:
                file.write(data)
        self._notice()

    def fill_disk(self, room: int) -> None:
        self._calls.room = room

    def free_disk(self) -> None:
        self._calls.room = None

    def crash(self, entries: list[Entry], pieces: int) -> None:
        self._channel.spool.append(entries)
        for _ in range(pieces):
            self._channel.clock.advance(0)
            for worker in self._channel.workers:
                worker.perform()
        self._calls.die()
        self._channel = Channel(self._paths, self._calls).open()

    def content(self, inbox: str) -> bytes:
        with contextlib.suppress(FileNotFoundError), open(self._paths.inbox(inbox), "rb") as file:
            return file.read()
        return b""

    def end(self) -> None:
        self._channel.close()
        names = os.listdir(self._paths.directory)
        litter = [name for name in names if name.startswith((".tmp-", ".keep_"))]
        assert not litter, litter

    def _notice(self) -> None:
        self._channel.pass_time(NOTICED, 1.1)


class InMemory:
    """Its twin."""

    def __init__(self) -> None:
        self.ear = Ear()
        self._spool = MemorySpool()
        self._open()

    def append(self, *entries: Entry) -> list[Written | Refused]:
        self._spool.append(entries)
        self._spool.perform()
        return [self.ear.decided[entry.ticket] for entry in entries]

    def read(self, inbox: str, start: Position | None, limit: int) -> Batch:
        batch: Batch = self._now(self._spool.read(inbox, start, limit))
        return batch

    def commit(self, inbox: str, position: Position, state: str) -> Position:
        stored: Position = self._now(self._spool.commit(inbox, position, state))
        return stored

    def compact(self, inbox: str) -> bool:
        done: bool = self._now(self._spool.compact(inbox))
        return done

    def write_raw(self, inbox: str, data: bytes) -> None:
        self._spool.others_append(inbox, data)
        self._spool.perform()

    def append_offline(self, inbox: str, line: bytes, message_id: str) -> bool:
        # As Inbox.append does under the lock: end a torn line, look, append.
        data = self._spool.inbox(inbox).data
        torn = b"\n" if data and data[-1:] != b"\n" else b""
        if line in bytes(data + torn).split(b"\n"):
            self.write_raw(inbox, torn)
            return False
        self.write_raw(inbox, torn + line + b"\n")
        return True

    def empty(self, inbox: str) -> None:
        # It has no way to notice a reset by others; so nobody is told.
        self._spool.inbox(inbox).reset()
        self.ear.generations.pop(inbox, None)

    def fill_disk(self, room: int) -> None:
        for inbox in ("bob", "eve"):
            self._spool.refusals[inbox] = ("DISK_FULL", "no room")

    def free_disk(self) -> None:
        self._spool.refusals.clear()

    def crash(self, entries: list[Entry], pieces: int) -> None:
        self._spool.append(entries)
        for _ in range(min(pieces, len(self._spool._todo))):
            self._spool._todo.popleft()()
        before, self._spool = self._spool, MemorySpool(history=self._spool.remembered())
        self._spool.inboxes, self._spool.known = before.inboxes, before.known
        self.ear = Ear()
        self._open()

    def content(self, inbox: str) -> bytes:
        return bytes(self._spool.inbox(inbox).data)

    def end(self) -> None:
        closed = self._spool.close()
        self._spool.perform()
        assert closed.called

    def _open(self) -> None:
        self._now(self._spool.open(self.ear))

    def _now(self, answer: Deferred[Any]) -> Any:
        found: list[Any] = []
        answer.addBoth(found.append)
        self._spool.perform()
        self._spool.clock.advance(0.3)
        self._spool.perform()
        if isinstance(found[0], Failure):
            found[0].raiseException()
        return found[0]
