"""Pending asks and extension states are in one place: the pi directory while that is served.

A hub that takes the clients' places while it runs brings what it has in its channel; whatever
a crash leaves in between is brought by the next one. Standard library only.
"""

from __future__ import annotations

import os

from intercom.pi import askfiles, statefiles
from intercom.pi.calls import Calls, content, failed, place, prepared


def bring_asks(source: str, target: str, now: int, calls: Calls) -> None:
    """Bring the pending asks of one directory into another.

    :param now: milliseconds.
    :raise IntercomError: some could not be brought, and lie where they were.
    """
    if source == target or not os.path.isdir(source):
        return
    for ask in askfiles.prune(source, now, calls).asks:
        askfiles.save(target, ask, calls)
        askfiles.remove(source, ask.message_id, ask.scope, calls)


def bring_states(source: str, target: str, calls: Calls) -> None:
    """Bring extension states into another directory; of two the higher revision stays.

    :raise IntercomError: some could not be brought, and lie where they were.
    """
    if source == target or not os.path.isdir(source):
        return
    statefiles.open_states(target, calls)
    for name in calls.names(source):
        old, new = os.path.join(source, name), os.path.join(target, name)
        try:
            data = content(calls, old) if name.endswith((".json", ".json.bak")) else None
            if data is None:
                continue
            if statefiles.revision_of(data) > statefiles.revision_of(content(calls, new) or b""):
                place(calls, prepared(calls, target, data, durable=True), new)
                calls.sync_names(target)
            calls.unlink(old)
        except OSError as error:
            raise failed("move", old, error) from error
