"""Which files of a channel others have changed: inotify where there is one, and a slow poll.

Descriptors that we keep open are silent, since only closing a written file, putting one in
place and taking one away are asked for. inotify may lose events, and sees nothing of other
machines or of some container mounts, so the directory is also compared with how it was, every
two seconds.
A name may be told more often than it changed; whoever is told looks for himself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorFDSet, IReactorTime
from twisted.logger import Logger
from twisted.python.filepath import FilePath

from intercom.interfaces import IWorker
from intercom.spool.format import split_name

inotify: Any
try:
    from twisted.internet import inotify
except ImportError:  # not Linux
    inotify = None

#: Seconds between two looks through the directory; longer where a look takes long.
INTERVAL = 2.0
#: A look through the directory may take this part of the time, not more.
SHARE = 0.05


class Snapshot:
    """The directory as it was at the last look. Blocking, for one thread.

    :param directory: the channel's.
    :ivar took: seconds that the last look needed.
    """

    def __init__(self, directory: str) -> None:
        self.took = 0.0
        self._directory = directory
        self._files: dict[str, tuple[int, int, int]] = {}

    def changed(self) -> list[str]:
        """Names of sessions' files that are new, changed or gone since the last call."""
        began = time.monotonic()
        files: dict[str, tuple[int, int, int]] = {}
        with os.scandir(self._directory) as entries:
            for entry in entries:
                if split_name(entry.name) is None:
                    continue
                try:
                    found = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # gone between the listing and the look
                files[entry.name] = (found.st_ino, found.st_size, found.st_mtime_ns)
        before, self._files = self._files, files
        self.took = time.monotonic() - began
        gone = [name for name in before if name not in files]
        return [name for name, now in files.items() if before.get(name) != now] + gone


class DirectoryWatch:
    """Tells which sessions' files changed.

    :param worker: where the slow poll's looks are done.
    :param changed: called in the reactor's thread with names of files.
    """

    _log = Logger()

    def __init__(
        self,
        reactor: IReactorTime,
        directory: str,
        worker: IWorker,
        changed: Callable[[Iterable[str]], None],
    ) -> None:
        self._reactor = reactor
        self._directory = directory
        self._worker = worker
        self._changed = changed
        self._snapshot = Snapshot(directory)
        self._inotify: Any = None
        self._timer: IDelayedCall | None = None
        self._running = False

    async def start(self) -> None:
        """Begin: what changes from now on is told."""
        self._running = True
        self._inotify = self._listen()
        await self._look(first=True)

    def stop(self) -> None:
        """Tell nothing more. Idempotent."""
        self._running = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._inotify is not None:
            self._inotify.loseConnection()
            self._inotify = None

    async def _look(self, first: bool = False) -> None:
        """Compare the directory with how it was, now and ever again."""
        self._timer = None
        try:
            names = await self._worker.do(self._snapshot.changed)
        except OSError as error:  # the directory is gone; whoever leads the channel notices
            self._log.warn("cannot look through the channel: {error}", error=str(error))
            names = []
        if not self._running:
            return
        pause = max(INTERVAL, self._snapshot.took / SHARE)
        self._timer = self._reactor.callLater(pause, self._look_again)
        if names and not first:
            self._changed(names)

    def _look_again(self) -> None:
        look = Deferred.fromCoroutine(self._look())
        look.addErrback(lambda failure: self._log.failure("a look has failed", failure))

    def _listen(self) -> Any:
        """Ask the kernel, where it can be asked and the reactor can wait for it."""
        if inotify is None or not IReactorFDSet.providedBy(self._reactor):
            return None
        watch = None
        try:
            watch = inotify.INotify(self._reactor)
            watch.watch(
                FilePath(self._directory),
                inotify.IN_CLOSE_WRITE
                | inotify.IN_MOVED_TO
                | inotify.IN_MOVED_FROM
                | inotify.IN_DELETE,
                callbacks=[self._noticed],
            )
        except (OSError, inotify.INotifyError) as error:
            # Too many watches in this system, most likely; the poll is slower, and enough.
            self._log.info("no inotify for the channel: {error}", error=str(error))
            if watch is not None:
                watch.loseConnection()
            return None
        watch.startReading()
        return watch

    def _noticed(self, _watch: object, path: FilePath[bytes], _mask: int) -> None:
        name = os.fsdecode(path.basename())
        if split_name(name) is not None:
            self._changed([name])
