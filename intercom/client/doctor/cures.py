"""What is safe to do without being asked twice. No cure moves past, or removes, unread mail.

Each tells what it did, one sentence for each thing; nothing where there was nothing to do.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable

from intercom.client import cleaning, mending
from intercom.client.erasing import Traces
from intercom.paths import ChannelPaths, open_private
from intercom.records import Position
from intercom.spool.book import Book, View
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.format import Damaged, Meta, Stored
from intercom.spool.locking import Busy, locked

#: How often a damaged position is looked at again, and after how many seconds.
_LOOKS, _SETTLE = 3, 0.02
_WORK = os.O_RDWR | os.O_APPEND


def close_to_others(path: str) -> list[str]:
    """Take from other users what they may do with a directory or file of ours.

    :raise UnsafePlace: it is not ours alone in other ways, too.
    """
    if stat.S_ISDIR(os.lstat(path).st_mode):
        fd, mode = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC), 0o700
    else:
        fd, mode = open_private(path, os.O_RDONLY), 0o600
    try:
        if not stat.S_IMODE(os.fstat(fd).st_mode) & 0o077:
            return []
        os.fchmod(fd, mode)
    finally:
        os.close(fd)
    return [f"closed {path} to other users (mode {mode:04o})"]


def sweep(paths: ChannelPaths) -> list[str]:
    """Remove what the dead left, as ``intercom cleanup --stale`` does."""
    return [f"removed {name}" for name in cleaning.sweep(paths).removed]


def recover(paths: ChannelPaths, boot: Callable[[], str]) -> list[str]:
    """Give the inboxes back what they lost in a power cut, and remove the journal.

    :param boot: names this start of the machine.
    """
    count = mending.mend(paths, boot)
    return [f"recovered the channel after a power cut: {count} messages were given back"]


def bury(paths: ChannelPaths, encoded: str) -> list[str]:
    """Remove what lies aside of a forgotten session, unless a message in it is unread."""
    traces = Traces(paths, encoded)
    if any(True for _ in traces.lines_aside()):
        return []
    traces.bury()
    return [f"removed what lay aside of {traces.session!r}, all of it read"]


def end_line(paths: ChannelPaths, encoded: str) -> list[str]:
    """End an unfinished last line, as the next writer would.

    :raise InboxLocked: others keep the lock.
    """
    calls = FileCalls()
    path = paths.file(f"inbox_{encoded}.ndjson")
    with locked(calls, path, _WORK) as fd:
        size = 0 if fd is None else calls.fstat(fd).st_size
        if fd is None or not size or calls.pread(fd, 1, size - 1) == b"\n":
            return []
        write_all(calls, fd, b"\n")
        calls.sync(fd)
    return [f"ended the unfinished line at byte {size} of {path}"]


def settle(paths: ChannelPaths, session: str) -> list[str]:
    """Bring an inbox's small files to what readers make of them, or finish its emptying.

    A position without its inbox gets an empty one, in a new generation, so that it will not
    pass over messages to come.

    :raise InboxLocked: others keep the lock.
    """
    calls = FileCalls()
    with locked(calls, paths.inbox(session), _WORK | os.O_CREAT) as fd:
        assert fd is not None
        book = Book(paths, session, calls)
        while True:
            size = calls.fstat(fd).st_size
            try:
                book.settle(fd, size)
                break
            except Busy:  # finished what was begun: now its size is another
                continue
        view = _patient_look(book, fd, size)
        position = view.truth.position
        if _differs(view, position):
            book.put_offset(position, book.foreign_at(view.stored))
        if isinstance(view.meta, Meta) and view.meta.generation != position.generation:
            book.put_meta(position.generation)
    place = f"byte {position.offset} of generation {position.generation}"
    return [f"the position of {session!r} is {place} now"]


def _patient_look(book: Book, fd: int, size: int) -> View:
    """What the small files say; an original program may be rewriting one just now."""
    for _ in range(_LOOKS):
        view = book.look(fd, size)
        if not isinstance(view.stored, Damaged):
            break
        time.sleep(_SETTLE)
    return view


def _differs(view: View, position: Position) -> bool:
    """Whether the offset file says anything but the true position."""
    stored = view.stored
    if isinstance(stored, Stored):
        generations = (None, position.generation)
        return stored.offset != position.offset or stored.generation not in generations
    return isinstance(stored, Damaged)
