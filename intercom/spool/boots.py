"""Under which boot of the machine a channel's journal was begun: whether there was a power cut.

Every command that reads asks, so this is apart from the journal itself
(:mod:`intercom.spool.journal`). Blocking, standard library only.
"""

from __future__ import annotations

import os

from intercom.paths import ChannelPaths
from intercom.spool.calls import FileCalls
from intercom.tuples import NamedTuple

#: The files of a journal.
SEGMENTS = ("journal.0", "journal.1")

_BOOT = "/proc/sys/kernel/random/boot_id"
#: No header is longer.
_LONGEST = 256


class Head(NamedTuple):
    """What the first line of a segment says.

    :ivar number: segments are begun in this order.
    :ivar salt: which no earlier use of the segment had, as it stands there.
    """

    number: int
    boot: str
    salt: bytes


def boot_id() -> str:
    """What names this boot of the machine; where nothing does, each start counts as one."""
    try:
        with open(_BOOT, "rb") as file:
            return file.read().decode("ascii").strip()
    except OSError:
        return os.urandom(16).hex()


def head_of(data: bytes) -> Head | None:
    """What a segment's first line says, None if that is no header."""
    words = data.partition(b"\n")[0].split(b" ")
    if len(words) != 5 or words[:2] != [b"intercom-journal", b"1"] or not words[4].isdigit():
        return None
    return Head(int(words[4]), words[2].decode("ascii", "replace"), words[3])


def boots(paths: ChannelPaths, calls: FileCalls) -> set[str]:
    """Under which boots the segments were begun. Reads their headers only."""
    heads = (head_of(content(paths.file(name), calls, _LONGEST)) for name in SEGMENTS)
    return {head.boot for head in heads if head is not None}


def content(path: str, calls: FileCalls, limit: int = 1 << 40) -> bytes:
    """The first bytes of a file; none if it does not exist."""
    try:
        fd = calls.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return calls.pread(fd, min(limit, calls.fstat(fd).st_size), 0)
    finally:
        calls.close(fd)
