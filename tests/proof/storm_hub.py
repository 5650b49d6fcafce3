"""A hub whose system calls stop it or fail at a named point: ``storm_hub.py '{"stop": ...}'``.

It is the ordinary ``intercom daemon``; only the spool's door to the file system
(``FileCalls``) is another one. ``stop`` is ``[call, file, number, when]``: at the
``number``-th call of this name on a file whose name contains ``file`` the process stops
itself (SIGSTOP), ``before`` the call, ``after`` it, or when ``half`` of a write is done.
``publish`` is a call, too: the renaming of the bound socket. Calls are counted from the
moment when the file ``armed`` exists in the channel's directory, ``publish`` always, and a
sync once something was written to an inbox. With ``fault`` true every sync fails from that
moment on, as on a broken disk.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from storm_program import begin

from intercom.cli.main import run
from intercom.hub.transports import ChannelPort
from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.spool.threaded import ThreadedSpool

#: The file by which a test says that it counts from now on.
ARMED = "armed"


def name_of(fd: int) -> str:
    """The name of an open file."""
    return os.path.basename(os.readlink(f"/proc/self/fd/{fd}"))


class Stop:
    """Stops this process at one point."""

    def __init__(self, armed: str, call: str, file: str, number: int, when: str) -> None:
        self._armed = armed
        self._call, self._file, self.when = call, file, when
        self._left = number
        self._written = False

    def meets(self, call: str, name: str) -> bool:
        """Whether this call is the one."""
        if call != "publish" and not os.path.exists(self._armed):
            return False
        self._written = self._written or (call == "write" and "inbox_" in name)
        if call != self._call or self._file not in name:
            return False
        if call == "sync" and not self._written:
            return False
        self._left -= 1
        return self._left == 0


def stop_here() -> None:
    """Stand still until somebody ends this process, and do not go one step further."""
    # A signal to the process may be taken by another thread, while this one goes on.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
    while True:
        time.sleep(1)


class StoppingCalls(FileCalls):
    """The real calls, of which one stops the process."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    def _around(self, call: str, name: str, work: Callable[[], Any]) -> Any:
        meets = self._stop.meets(call, name)
        if meets and self._stop.when == "before":
            stop_here()
        result = work()
        if meets:
            stop_here()
        return result

    def write(self, fd: int, data: bytes | memoryview) -> int:
        work = super().write
        return self._written("write", fd, data, lambda data: work(fd, data))

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        work = super().pwrite
        return self._written("pwrite", fd, data, lambda data: work(fd, data, offset))

    def _written(
        self, call: str, fd: int, data: bytes | memoryview, work: Callable[[Any], int]
    ) -> int:
        if self._stop.when != "half":
            written: int = self._around(call, name_of(fd), lambda: work(data))
            return written
        if not self._stop.meets(call, name_of(fd)):
            return work(data)
        done = work(memoryview(data)[: len(data) // 2])
        stop_here()
        return done

    def sync(self, fd: int) -> None:
        self._around("sync", name_of(fd), lambda: super(StoppingCalls, self).sync(fd))

    def sync_directory(self, fd: int) -> None:
        work = super().sync_directory
        self._around("sync_directory", name_of(fd), lambda: work(fd))

    def rename(self, source: str, target: str) -> None:
        work = super().rename
        self._around("rename", os.path.basename(target), lambda: work(source, target))

    def ftruncate(self, fd: int, length: int) -> None:
        work = super().ftruncate
        self._around("ftruncate", name_of(fd), lambda: work(fd, length))


def install(paths: ChannelPaths, job: dict[str, Any]) -> None:
    """Put the other door in place, for every spool of this process."""
    armed = paths.file(ARMED)
    if job.get("fault"):
        fail_syncs(armed)
    if "stop" in job:
        stop_at(Stop(armed, *job["stop"]))


def fail_syncs(armed: str) -> None:
    """Have the kernel fail every sync once the file ``armed`` exists."""
    system: Any = os
    sync = system.fdatasync

    def failing(fd: int) -> None:
        if os.path.exists(armed):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(fd)

    system.fdatasync = failing


def stop_at(stop: Stop) -> None:
    """Have spools and the socket's port meet a point."""
    spool: Any = ThreadedSpool
    port: Any = ChannelPort
    begin, publish = spool.__init__, port.publish

    def begin_with_calls(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs | {"calls": StoppingCalls(stop)})

    def publish_or_stop(self: Any) -> None:
        if stop.meets("publish", ""):
            stop_here()
        publish(self)

    spool.__init__ = begin_with_calls
    port.publish = publish_or_stop


def main(job: dict[str, Any]) -> None:
    """Run the hub."""
    paths = ChannelPaths(job["base"], job["channel"])
    install(paths, job)
    sys.argv = ["intercom", "--dir", job["base"], "--channel", job["channel"], "daemon"]
    run()


if __name__ == "__main__":
    main(begin())
