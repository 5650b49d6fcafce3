"""After a power cut: whoever opens the channel first gives the inboxes back what they lost.

A hub does it when it starts. A command that reads before any hub runs must not see the
inboxes as the power cut left them: a position behind what was lost would look like a reset.
Standard library only.
"""

from __future__ import annotations

import time

from intercom.errors import InboxLocked
from intercom.paths import ChannelPaths
from intercom.spool.boots import boot_id, boots
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds for which another may be at it.
PATIENCE = 5.0
_PAUSE = 0.01


def mend(paths: ChannelPaths, boot: Callable[[], str] = boot_id, patience: float = PATIENCE) -> int:
    """Recover the channel if a power cut makes it due; cheap where none does.

    :return: how many messages were given back.
    :raise IntercomError: it is due, and cannot be done.
    """
    calls = FileCalls()
    begun = boots(paths, calls)
    if not begun:
        return 0
    name, deadline = boot(), time.monotonic() + patience
    if not begun - {name}:
        return 0
    from intercom.election.locks import take_locks  # after a power cut only
    from intercom.spool.inboxfile import failure
    from intercom.spool.recovery import recover

    while begun - {name}:
        locks = take_locks(paths)
        if locks is not None:
            try:
                return sum(recover(paths, calls, name).appended.values())
            except OSError as error:
                raise failure(paths.file("journal.0"), error) from error
            finally:
                locks.release()
        if time.monotonic() > deadline:
            raise InboxLocked(
                f"channel {paths.name!r} is still being recovered after a power cut",
                remedy="see what the hub says: intercom hub logs",
            )
        time.sleep(_PAUSE)
        begun = boots(paths, calls)
    return 0
