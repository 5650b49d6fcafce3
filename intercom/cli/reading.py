"""Who reads a session's messages, in words: what ``peers`` and ``status`` say of it."""

from __future__ import annotations

from intercom.client.readership import Readership
from intercom.showing.words import ago, lasting


def words(found: Readership, now: float, *, oldest: bool = False) -> str:
    """``reading``, or ``no reader for 31 min, 4 unread``.

    :param now: epoch seconds.
    :param oldest: say also how old the first of the unread is.
    """
    if found.holder is not None:
        said = ["reading"]
    elif found.last_read is None:
        said = ["never read"]
    else:
        said = [f"no reader for {lasting(max(1.0, now - found.last_read))}"]
    if found.unread is None:
        said.append("its inbox cannot be read now")
    elif found.unread:
        said.append(f"{found.unread} unread")
        if oldest and found.oldest is not None:
            said.append(f"the oldest {ago(max(0.0, now - found.oldest))}")
    return ", ".join(said)
