"""Forgetting a name: out of the project's map, its files off the channel, its mail told first.

Under the name's own lock (so nobody begins to use it), then the inbox's (so nothing is
appended meanwhile), the small files go, then the inbox steps aside under a name that
nobody writes to, then the claim goes. A crash at any step leaves what forgetting again
finishes: an inbox without its position is unread from the start, and one that stepped
aside waits to be told of. Standard library only.
"""

from __future__ import annotations

from intercom.client import claims
from intercom.client.erasing import Traces
from intercom.client.identity import Names
from intercom.client.offline import look_up
from intercom.errors import IntercomError
from intercom.names import file_name
from intercom.paths import ChannelPaths


def forget(paths: ChannelPaths, names: Names, session: str) -> Traces:
    """Remove a name that nobody uses; what was unread lies aside: see :class:`Traces`.

    :return: what is left of it, to be shown and then buried.
    :raise IntercomError: ``SESSION_COLLISION``: somebody uses it; ``TARGET_NOT_FOUND``:
        nobody ever did.
    """
    traces = Traces(paths, file_name(session))
    if not traces.exist() and not names.has(session):
        raise IntercomError(
            f"no session of channel {paths.name!r} ever used the name {session!r}",
            code="TARGET_NOT_FOUND",
            details={"nearest": look_up(paths, session)[1]},
        )
    if session in names.connected:
        raise _in_use(paths, session)
    with names.without(session), claims.alone(paths, session) as unused:
        if not unused:
            raise _in_use(paths, session)
        traces.put_aside()
    return traces


def _in_use(paths: ChannelPaths, session: str) -> IntercomError:
    return IntercomError(
        f"somebody speaks as {session!r} on channel {paths.name!r} at this moment",
        code="SESSION_COLLISION",
        remedy="end what listens or polls under that name: intercom peers; then forget it again",
        details={"session": session},
    )
