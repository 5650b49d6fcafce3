"""A listener acknowledges message by message, so what one commit does counts."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool.calls import FileCalls
from intercom.spool.inboxfile import Commit, InboxFile


class CountedReads(FileCalls):
    """A file system that notes which small files are read."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def small(self, path: str) -> bytes | None:
        """See ``FileCalls``."""
        self.read.append(os.path.basename(path))
        return super().small(path)


def test_a_commit_reads_each_small_file_once(
    paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    """Under one lock a second look could find nothing new."""
    line = message("msg_1") + b"\n"
    Path(paths.inbox("bob")).write_bytes(line)
    calls = CountedReads()
    done = InboxFile(paths, "bob", calls).commit([Commit(Position(1, len(line)))])
    assert (done.results, done.size) == ([Position(1, len(line))], len(line))
    assert sorted(calls.read) == ["meta_bob.json", "offset_bob.json"]
