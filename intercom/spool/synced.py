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


class Directory:
    """The channel's directory, kept open: syncing it must not depend on a free descriptor.

    A failure to get one would look like names that are lost, of which nothing may ever be
    claimed again.
    """

    def __init__(self, path: str, calls: FileCalls) -> None:
        self._path = path
        self._calls = calls
        self._fd = -1

    def open(self) -> None:
        """Get its descriptor while there are some. Idempotent."""
        if self._fd < 0:
            self._fd = self._calls.open_directory(self._path)

    def sync(self) -> None:
        """Make the names of its files survive a power cut."""
        self.open()
        self._calls.sync_directory(self._fd)

    def close(self) -> None:
        """Let go of it. Idempotent."""
        if self._fd >= 0:
            self._calls.close(self._fd)
            self._fd = -1


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

    def __init__(self, fd: int, path: str, identity: tuple[int, int], directory: Directory) -> None:
        self.fd = fd
        self.directory = directory
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
        unnamed[0].directory.sync()  # all inboxes of a channel lie in one
    except OSError as error:
        for file in unnamed:
            file.fail(error)
    else:
        for file in unnamed:
            file.named = True


class OpenFiles:
    """The files kept open, at most ``limit``: the longest unused ones are closed first.

    :param directory: where they lie.
    """

    def __init__(self, directory: Directory, calls: FileCalls, limit: int) -> None:
        self._directory = directory
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
        file = self._files[path] = OpenFile(fd, path, identity, self._directory)
        return file

    def shrink(self, limit: int) -> None:
        """Close files until at most ``limit`` are open, clean ones first."""
        self._close(len(self._files) - limit, list(self._files))

    def make_room(self, keep: str) -> bool:
        """Close half of the files, but not the one of a path; False if there was no other.

        Whoever tries again after each True comes to an end, since every time there are fewer.
        """
        others = [path for path in self._files if path != keep]
        self._close((len(others) + 1) // 2, others)
        return bool(others)

    def _close(self, count: int, paths: list[str]) -> None:
        if count > 0:
            for path in sorted(paths, key=lambda path: self._files[path].dirty)[:count]:
                self.drop(path)

    def drop(self, path: str) -> None:
        """Close one file, what is unsynced in it synced."""
        file = self._files.pop(path, None)
        if file is not None:
            if file.dirty:
                sync_files([file], self._calls)
            file.close(self._calls)

    def __len__(self) -> int:
        return len(self._files)
