"""Removing a channel's files: the litter of the dead, or all that sessions left.

Standard library only. Whoever removes more than abandoned temporary files holds the
two locks that make a hub, so that none can run or start meanwhile. Lock files stay, for
a lock on an unlinked file guards nothing, and so do settings, the channel's key and the
log.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from intercom.client import control
from intercom.client.erasing import all_traces, unlink
from intercom.election.locks import Locks, take_locks
from intercom.errors import IntercomError
from intercom.names import HUB
from intercom.paths import ChannelPaths
from intercom.spool.known import ABANDONED
from intercom.spool.recovery import MARKER

#: Seconds for which the hub's locks may be busy: somebody only looks whether they are, or
#: a hub is on its way out.
PROBES = 0.3
PATIENCE = 2.0
_PAUSE = 0.01
#: What hubs keep about the messages of all sessions, and goes when these are gone.
_RECORDS = (
    *("history.ndjson", "history.1.ndjson"),
    *("journal.0", "journal.1", MARKER),
    *("dead.ndjson", "dead.1.ndjson"),
)
#: How the names of sockets begin that a hub has bound and not yet given their place.
_UNPUBLISHED = ".hub"


class Swept(NamedTuple):
    """What was removed.

    :ivar removed: names of files, in the channel's directory unless absolute; sorted.
    :ivar unread: how many unread messages were among them.
    :ivar stopped: pid of the hub that was ended for it, None if none ran.
    """

    removed: list[str]
    unread: int = 0
    stopped: int | None = None


def sweep(paths: ChannelPaths) -> Swept:
    """Remove what the dead left: sockets, lists, last words, old temporary files.

    Where a hub leads, everything but the temporary files is its own.
    """
    locks = _take(paths, PROBES)
    try:
        removed = _temporary(paths)
        if locks is not None:
            removed += _of_dead_hub(paths)
    finally:
        if locks is not None:
            locks.release()
    return Swept(sorted(removed))


def clear(paths: ChannelPaths, *, force: bool) -> Swept:
    """Remove all that sessions have on the channel, ending an idle hub first.

    :param force: although sessions are connected, or messages lie unread.
    :raise IntercomError: ``IN_USE``, with what is in use; ``HUB_STUCK``; ``INBOX_LOCKED``.
        What was removed before that is named in ``details["removed"]``.
    """
    with control.alone(paths):
        connected = control.look(paths).names if control.proven(paths) is not None else []
        if not force:
            traces = all_traces(paths)
            used = {one.session for one in traces if one.is_used()} | set(connected)
            _refuse_used(paths, used)
            _refuse_unread(paths, {one.session: one.unread() for one in traces})
        stopped = control.stop(paths)
        with _hub_kept_out(paths):
            removed = _temporary(paths) + _of_dead_hub(paths)
            lost = 0
            try:
                for one in all_traces(paths):
                    unread = one.erase(removed, despite_unread=force)
                    lost += unread
                    if not force:  # they came since we looked
                        _refuse_unread(paths, {one.session: unread})
            except IntercomError as error:
                error.details["removed"] = sorted(removed)
                raise
            unlink(map(paths.file, _RECORDS), paths, removed)
            return Swept(sorted(removed), lost, stopped)


def _refuse_used(paths: ChannelPaths, names: Collection[str]) -> None:
    """Refuse while sessions are connected, or commands run that speak as one."""
    if names:
        raise IntercomError(
            f"{_counted(len(names), 'session')} of channel {paths.name!r} in use: "
            f"{', '.join(map(repr, sorted(names)))}",
            code="IN_USE",
            remedy=f"end what runs as them, or: intercom {control.where(paths)} cleanup --force",
            details={"sessions": sorted(names)},
        )


def _refuse_unread(paths: ChannelPaths, counts: Mapping[str, int]) -> None:
    """Refuse while messages lie unread."""
    counts = {session: count for session, count in counts.items() if count}
    if counts:
        whose = ", ".join(f"{count} for {session!r}" for session, count in counts.items())
        readers = [session for session in counts if session != HUB]
        see = f"poll --peek --session {shlex.quote(readers[0])}" if readers else "hub start"
        raise IntercomError(
            f"{_counted(sum(counts.values()), 'message')} of channel {paths.name!r} unread: "
            f"{whose}",
            code="IN_USE",
            remedy=f"see them: intercom {control.where(paths)} {see}; or remove them: "
            f"intercom {control.where(paths)} cleanup --force",
            details={"unread": counts},
        )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


@contextlib.contextmanager
def _hub_kept_out(paths: ChannelPaths) -> Iterator[None]:
    """Hold the locks that a hub needs.

    :raise IntercomError: ``IN_USE``: another hub has them by now.
    """
    locks = _take(paths, PATIENCE)
    if locks is None:
        raise IntercomError(
            f"another hub has taken channel {paths.name!r} meanwhile",
            code="IN_USE",
            remedy=f"look at it: intercom {control.where(paths)} hub status",
        )
    try:
        yield
    finally:
        locks.release()


def _take(paths: ChannelPaths, patience: float) -> Locks | None:
    """Take the locks that a hub needs; None if they are held for longer."""
    deadline = time.monotonic() + patience
    while (locks := take_locks(paths)) is None and time.monotonic() < deadline:
        time.sleep(_PAUSE)
    return locks


def _of_dead_hub(paths: ChannelPaths) -> list[str]:
    """Remove what a hub has beside the inboxes; the caller holds its locks."""
    removed: list[str] = []
    sockets = {paths.file("hub.sock"), paths.socket}
    sockets |= {entry.path for entry in _entries(paths) if entry.name.startswith(_UNPUBLISHED)}
    unlink(sorted(filter(_is_socket, sockets)), paths, removed)
    unlink([paths.socket_pointer, paths.peers, paths.spawn_output], paths, removed)
    return removed


def _temporary(paths: ChannelPaths) -> list[str]:
    """Remove temporary files that are too old to be in anybody's hands."""
    removed: list[str] = []
    now = time.time()
    for entry in _entries(paths):
        if entry.name.startswith(".tmp-"):
            with contextlib.suppress(FileNotFoundError):
                if now - entry.stat(follow_symlinks=False).st_mtime > ABANDONED:
                    unlink([entry.path], paths, removed)
    return removed


def _entries(paths: ChannelPaths) -> list[os.DirEntry[str]]:
    with os.scandir(paths.directory) as entries:
        return list(entries)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False
