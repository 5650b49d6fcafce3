"""How many descriptors a hub may have open, and what they are for.

Connections never get the last ones: the inboxes, the log, and the door itself, which tells
those who are one too many, need some at any time.
"""

from __future__ import annotations

import contextlib
import resource
from typing import NamedTuple

#: A soft limit is raised to this, or as far as the system lets us.
ENOUGH = 65_536
#: So many are kept back from connections, or two of three where there are few.
KEPT_BACK = 64
_FEW = 3 * KEPT_BACK
#: What a hub without connections and inboxes has open, with some to spare: its locks, logs,
#: sockets, and what the threads need for the moment.
_OWN = 40
#: Twice as many inboxes as connections, where there is plenty: one that is closed to make room
#: for another is synced first, and a broadcast to all is to cost one sync, not one for each.
_MOST_INBOXES, _LEAST_INBOXES = 4096, 8


class Budget(NamedTuple):
    """What the descriptors are for.

    :ivar connections: served at the same time.
    :ivar inboxes: kept open for appending.
    :ivar guarded: receivers for whom reader and turn are held locked, two each.
    """

    connections: int
    inboxes: int
    guarded: int


def budget(available: int, connections: int) -> Budget:
    """Divide so many descriptors.

    :param connections: as many as are wanted.
    """
    kept = KEPT_BACK if available >= _FEW else 2 * available // 3
    served = max(1, min(connections, available - kept))
    left = available - served
    inboxes = max(_LEAST_INBOXES, min(_MOST_INBOXES, left // 4))
    return Budget(served, inboxes, max(0, (left - inboxes - _OWN) // 2))


def open_at_most() -> int:
    """How many descriptors this process may have open."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return ENOUGH if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Let this process open more, as far as it may; for a process that is all a hub's own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
