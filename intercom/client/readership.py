"""Whether a session is read, and what waits for it, as the channel's files tell. Stdlib only.

No hub is asked and nothing is written. That somebody reads is said by kernel locks; when
that last happened by the time of the offset file, which every reader renews.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from intercom.client.readers import fields
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.spool import turns
from intercom.spool.calls import FileCalls
from intercom.spool.expiry import sent_at
from intercom.spool.files import Inbox, Patience
from intercom.wire.envelope import format_timestamp


class Readership(NamedTuple):
    """How a session stands. Times are epoch seconds, None where they are not known.

    :ivar holder: one who reads, or would if something came; None if nobody does.
    :ivar last_read: when the session's position was last written.
    :ivar unread: how many messages wait, None if the inbox cannot be read now.
    :ivar oldest: when the first of these was sent, by its sender's clock.
    """

    holder: turns.Holder | None
    last_read: float | None
    unread: int | None
    oldest: float | None

    def fields(self, now: float) -> dict[str, Any]:
        """The same for programs."""
        last = None if self.last_read is None else format_timestamp(self.last_read)
        reader: dict[str, Any] = {"state": "none", "last_read": last}
        if self.holder is not None:
            reader = {"state": "reading", **fields(self.holder), "last_read": last}
        age = None if self.oldest is None else round(max(0.0, now - self.oldest), 3)
        return {"reader": reader, "unread": self.unread, "oldest_unread_age": age}


def readership(paths: ChannelPaths, session: str, patience: Patience | None = None) -> Readership:
    """Look who reads a session, and what lies unread.

    :param patience: shared by all whom the same command looks at.
    """
    found = FileCalls().stat(paths.offset(session))
    last_read = None if found is None else found.st_mtime
    unread, oldest = _unread(paths, session, patience)
    return Readership(turns.reader_of(paths, session), last_read, unread, oldest)


def _unread(
    paths: ChannelPaths, session: str, patience: Patience | None
) -> tuple[int | None, float | None]:
    """How many messages lie unread, and when the first was sent."""
    count, oldest = 0, math.inf
    try:
        with Inbox(paths, session, patience=patience) as inbox:
            if inbox.size() == 0:
                return 0, None
            batch = inbox.read()
            if batch.records:
                oldest = sent_at(batch.records[0].line)
            count = len(batch.records)
            while not batch.at_end:
                batch = inbox.read(batch.next)
                count += len(batch.records)
    except (IntercomError, OSError):
        return None, None
    return count, oldest if math.isfinite(oldest) else None
