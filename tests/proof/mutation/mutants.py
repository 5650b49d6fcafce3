"""Faults that a proof must find, each put into the product while it is being imported.

A mutant is a module of the product and what is changed in it. ``sitecustomize.py``
installs the one that INTERCOM_PROOF_MUTANT names, in every process of a run.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

Patch = Callable[[Any], None]


def ack_before_write(calls: Any) -> None:
    """The hub's writes to inboxes are done half a second after it was told that they are done."""
    write = calls.FileCalls.write

    def late(self: Any, fd: int, data: bytes) -> int:
        name = os.readlink(f"/proc/self/fd/{fd}")
        if "daemon" not in sys.argv or "inbox_" not in name:
            return int(write(self, fd, data))
        later = threading.Timer(0.5, os.write, (os.dup(fd), bytes(data)))
        later.daemon = True
        later.start()
        return len(data)

    calls.FileCalls.write = late


def reader_passes_torn_tail(inboxfile: Any) -> None:
    """A reader takes the end of the file for the end of what it has read."""
    read = inboxfile.InboxFile.read

    def read_on(self: Any, *args: Any, **kwargs: Any) -> Any:
        batch = read(self, *args, **kwargs)
        if batch.at_end:
            return batch._replace(next=batch.next._replace(offset=self.size()))
        return batch

    inboxfile.InboxFile.read = read_on


def any_place_is_a_boundary(book: Any) -> None:
    """A position may stand inside a line: without this the fault above would be repaired."""
    book.last_boundary = lambda calls, fd, offset: offset


def unlink_of_the_lock(flock: Any) -> None:
    """A leader that resigns tidies up."""
    resign = flock.FlockElection.resign

    def tidy(self: Any) -> None:
        if self._locks is not None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._paths.lock)
        resign(self)

    flock.FlockElection.resign = tidy


def no_end_of_a_torn_tail(calls: Any) -> None:
    """Nobody ends the line that a dead writer has left."""
    write = calls.FileCalls.write

    def forget(self: Any, fd: int, data: bytes) -> int:
        return 1 if bytes(data) == b"\n" else int(write(self, fd, data))

    calls.FileCalls.write = forget


def commit_before_print(output: Any) -> None:
    """``intercom poll`` counts messages as read just before it shows them."""
    write = output.write

    def late(data: bytes, *args: Any) -> None:
        if "poll" in sys.argv and b'"position"' in data:
            from intercom.paths import ChannelPaths
            from intercom.records import Position
            from intercom.spool.files import Inbox

            shown = json.loads(data)
            generation, offset = map(int, shown["position"].split(":"))
            paths = ChannelPaths(sys.argv[sys.argv.index("--dir") + 1], shown["channel"])
            Inbox(paths, shown["session"]).commit(Position(generation, offset))
        write(data, *args)

    output.write = late


def two_writer_threads(threaded: Any) -> None:
    """Two threads take the writer's work from one queue, and what gathers is given to both."""

    class TwoThreads(threaded.ThreadWorker):  # type: ignore[misc]
        def do(self, work: Callable[..., Any], *args: Any) -> Any:
            if self._thread is None:
                threading.Thread(target=self._run, daemon=True).start()

            def slowly(*args: Any) -> Any:
                time.sleep(random.uniform(0, 0.005))  # the scheduler, on a bad day
                return work(*args)

            return super().do(slowly, *args)

    threaded.ThreadWorker = TwoThreads
    threaded.ThreadedSpool._writing = property(lambda self: False, lambda self, value: None)


def no_dedupe_in_the_store(recent: Any) -> None:
    """The spool takes every message for a new one."""
    recent.RecentIds.get = lambda self, key: None


def no_dedupe_in_the_core(hub: Any) -> None:
    """The hub does not care what earlier hubs have stored."""
    if hasattr(hub.HubCore, "remembered"):
        hub.HubCore.remembered = lambda self, messages, now: []


def sync_failure_ignored(calls: Any) -> None:
    """Whatever the kernel says of a sync, it was done."""
    sync = calls.FileCalls.sync

    def hopeful(self: Any, fd: int) -> None:
        with contextlib.suppress(OSError):
            sync(self, fd)

    calls.FileCalls.sync = hopeful


#: Each mutant's modules, and what is done to them.
MUTANTS: dict[str, dict[str, Patch]] = {
    "ack before write": {"intercom.spool.calls": ack_before_write},
    "reader passes a torn tail": {
        "intercom.spool.book": any_place_is_a_boundary,
        "intercom.spool.inboxfile": reader_passes_torn_tail,
    },
    "unlink of the lock": {"intercom.election.flock": unlink_of_the_lock},
    "no end of a torn tail": {"intercom.spool.calls": no_end_of_a_torn_tail},
    "commit before print": {"intercom.cli.output": commit_before_print},
    "two writer threads": {"intercom.spool.threaded": two_writer_threads},
    "no dedupe of a retry": {
        "intercom.spool.recent": no_dedupe_in_the_store,
        "intercom.core.hub": no_dedupe_in_the_core,
    },
    "sync failure ignored": {"intercom.spool.calls": sync_failure_ignored},
}


class _Patching(MetaPathFinder):
    """Finds the modules to be patched, and has them patched when they are loaded."""

    def __init__(self, patches: dict[str, Patch]) -> None:
        self._patches = patches

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See ``MetaPathFinder``."""
        patch = self._patches.get(name)
        spec = PathFinder.find_spec(name, path, target) if patch is not None else None
        if patch is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_patch(module: ModuleType) -> None:
            load(module)
            patch(module)

        spec.loader.exec_module = load_and_patch  # type: ignore[method-assign]
        return spec


def install(name: str) -> None:
    """Have this process run with a mutant."""
    sys.meta_path.insert(0, _Patching(MUTANTS[name]))
