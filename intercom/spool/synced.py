"""Open inbox files, and what of them is safe from a power cut. Blocking, standard library only.

The writer thread appends and opens; the sync thread syncs. An :class:`OpenFile` is what
they share: its lock is held while it is synced or closed, so that no descriptor is closed
(and its number given to another file) under a running sync.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable
from threading import Lock

from intercom.spool.calls import FileCalls


class OpenFile:
    """One inbox file, open for appending.

    :ivar identity: device and inode, to be compared with what the path names.
    :ivar written: counts appends for which somebody may want to hear that they are safe;
        only the writer thread changes it.
    :ivar failed: why a sync failed, or an empty string. The kernel reports a lost page once
        and then takes it for clean, so nothing is ever again claimed of this descriptor.
    :ivar named: the directory was synced since this file was opened. Once for each open:
        the file may be new, or its maker may have died before its name was safe.
    """

    def __init__(self, fd: int, path: str, identity: tuple[int, int]) -> None:
        self.fd = fd
        self.path = path
        self.identity = identity
        self.written = 0
        self.failed = ""
        self._synced = 0
        self.named = False
        self._lock = Lock()

    @property
    def dirty(self) -> bool:
        """Whether something was written since the last sync."""
        return self._synced != self.written

    def sync(self, calls: FileCalls) -> None:
        """Sync what was written so far; tells nothing, see :attr:`failed`."""
        with self._lock:
            upto = self.written
            if self._synced == upto or self.failed or self.fd < 0:
                return
            try:
                calls.sync(self.fd)
            except OSError as error:
                self.fail(error)
            else:
                self._synced = upto

    def close(self, calls: FileCalls) -> None:
        """Let go of the descriptor. Idempotent."""
        with self._lock:
            if self.fd >= 0:
                calls.close(self.fd)
                self.fd = -1

    def fail(self, error: OSError) -> None:
        """Never claim anything of this descriptor again."""
        self.failed = f"{os.path.basename(self.path)}: {error.strerror or error}"


def sync_files(files: Iterable[OpenFile], calls: FileCalls) -> None:
    """Sync several files, and the directory once if need be; each knows whether it failed."""
    unnamed: list[OpenFile] = []
    for file in files:
        file.sync(calls)
        if not file.named:
            unnamed.append(file)
    if not unnamed:
        return
    try:
        calls.sync_directory(os.path.dirname(unnamed[0].path))
    except OSError as error:
        for file in unnamed:
            file.fail(error)
    else:
        for file in unnamed:
            file.named = True


class OpenFiles:
    """The files kept open, at most ``limit``: the longest unused ones are closed first."""

    def __init__(self, calls: FileCalls, limit: int) -> None:
        self._calls = calls
        self._limit = limit
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def get(self, path: str) -> OpenFile | None:
        """The open file of a path, None if it is not open (or can no longer be trusted)."""
        file = self._files.get(path)
        if file is None:
            return None
        if file.failed:
            self.drop(path)
            return None
        self._files.move_to_end(path)
        return file

    def add(self, fd: int, path: str, identity: tuple[int, int]) -> OpenFile:
        """Keep a newly opened file; makes room first."""
        self.shrink(self._limit - 1)
        file = self._files[path] = OpenFile(fd, path, identity)
        return file

    def shrink(self, limit: int) -> bool:
        """Close files until at most ``limit`` are open, clean ones first; False if none was."""
        if len(self._files) <= limit:
            return False
        for path in [p for p, file in self._files.items() if not file.dirty]:
            if len(self._files) <= limit:
                return True
            self.drop(path)
        while len(self._files) > limit:
            self.drop(next(iter(self._files)))
        return True

    def drop(self, path: str) -> None:
        """Close one file, what is unsynced in it synced."""
        file = self._files.pop(path, None)
        if file is not None:
            if file.dirty:
                sync_files([file], self._calls)
            file.close(self._calls)

    def __len__(self) -> int:
        return len(self._files)
