"""Leaving a message for the hub where sockets are denied. Standard library only.

A broadcast needs the hub, which alone knows who is here. A client that cannot reach it
by socket appends the message to the inbox of ``hub``; a living hub, known by its held
lock, sends it on and then moves that inbox's stored position, which is how the client
learns that it was done. What is refused then comes back as a notice to the sender.
"""

from __future__ import annotations

import time

from intercom.election import locks
from intercom.errors import IntercomError
from intercom.names import HUB
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.spool.files import Inbox

#: Seconds to wait for the hub to take what was left for it.
PATIENCE = 2.0


def is_led(paths: ChannelPaths) -> bool:
    """Whether a hub holds the channel's lock, as far as this process may look."""
    with suppress(OSError, IntercomError):
        return locks.is_led(paths)
    return False


def leave(
    paths: ChannelPaths, line: bytes, sender: str, message_id: str, patience: float = PATIENCE
) -> bool:
    """Append a line to the hub's inbox, once, and wait for the hub to send it on.

    :return: whether it did within ``patience`` seconds. If not, the hub (or its successor)
        will: the line is safe in the file.
    :raise SpoolError: it could not be appended.
    """
    with Inbox(paths, HUB) as inbox:
        inbox.append(line, sender=sender, message_id=message_id)
        end = inbox.size()
        generation = inbox.read(None, 0).start.generation
        deadline = time.monotonic() + patience
        pause = 0.005
        while time.monotonic() < deadline:
            done = inbox.read(None, 0).start
            if done.generation > generation or done.offset >= end:
                return True
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
    return False
