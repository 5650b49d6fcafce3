"""Mail that waits for a name in other channels of the same place. Standard library only.

Who polls the wrong channel finds nothing, and would not know why. So that is looked for,
but only by a poll that has found nothing, and without a trace.
"""

from __future__ import annotations

import os
import stat

from intercom.errors import IntercomError
from intercom.names import channel_name
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox, Patience
from intercom.spool.format import decode_name
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

#: No more channels than this are looked at.
MOST = 1000


class Waiting(NamedTuple):
    """Messages for the same name in another channel."""

    paths: ChannelPaths
    number: int


def waiting_elsewhere(paths: ChannelPaths, session: str) -> list[Waiting]:
    """The other channels in which messages lie unread for this name, most of them first."""
    found = []
    patience = Patience()
    for other in _others(paths):
        with suppress(IntercomError, OSError):
            info = FileCalls().stat(other.inbox(session))
            if info is not None and info.st_size:
                with Inbox(other, session, patience=patience) as inbox:
                    count = inbox.unread()
                if count:
                    found.append(Waiting(other, count))
    return sorted(found, key=lambda one: (-one.number, one.paths.name))


def _others(paths: ChannelPaths) -> Iterator[ChannelPaths]:
    """The channels beside this one: directories of ours that nobody else can look into."""
    names = []
    with suppress(OSError), os.scandir(paths.base) as entries:
        names = sorted(entry.name for entry in entries)[:MOST]
    for name in names:
        channel = decode_name(name)
        if channel is None or channel_name(channel) != channel or channel == paths.name:
            continue
        other = ChannelPaths(paths.base, channel)
        with suppress(OSError):
            found = os.lstat(other.directory)
            ours = found.st_uid == os.geteuid() and not found.st_mode & 0o022
            if stat.S_ISDIR(found.st_mode) and ours:
                yield other
