"""What others than its sender know of a message: that it came through the hub, and from whom.

The hub notes in its history what it stored as said by a connection that was registered under
the sender's name. What somebody left for it in its own inbox, or appended to the recipient's,
it notes as left or found there; where no hub runs, nobody notes it. Then nobody can say whose
it is. What a session noted
of itself on the channel, its working tree and through this its agent's program, is its own
word. Standard library only; no hub is asked.
"""

from __future__ import annotations

import os
import time

from intercom.client import claims
from intercom.client.callers import AGENTS
from intercom.client.namebook import Shelf
from intercom.election.locks import is_led
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths, open_private
from intercom.plain import suppress
from intercom.showing.blocks import UNVERIFIED, Known
from intercom.showing.words import moment
from intercom.spool import history
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from intercom.wire.envelope import Identity

#: The hub notes what it stored a moment later: seconds to wait for that, and between two looks.
PATIENCE = 0.1
_PAUSE = 0.01
#: Messages that were sent longer ago, in seconds, are not waited for.
_RECENT = 5.0
_PROGRAMS = frozenset(kind for kind, _variable in AGENTS)
_NOT_FOUND = object()


class Shown(NamedTuple):
    """A message that is about to be shown.

    :ivar line: as it stands in the inbox, without line feed.
    :ivar fields: what it says.
    """

    line: bytes
    fields: Mapping[str, Any]


def known_of(
    paths: ChannelPaths,
    inbox: str,
    messages: Sequence[Shown],
    *,
    environ: Mapping[str, str] = os.environ,
    now: Callable[[], float] = time.time,
    sleep: Callable[[float], None] = time.sleep,
    patience: float = PATIENCE,
) -> list[Known]:
    """What is known of each of these messages of an inbox, in their order. Never raises.

    :param inbox: whose it is.
    :param patience: seconds to wait for a hub that runs to note what it has just stored.
    """
    with suppress(IntercomError, OSError):
        stored = _stored(paths, inbox, messages)
        waited = 0.0
        while waited < patience and _may_come(paths, messages, stored, now()):
            sleep(_PAUSE)
            waited += _PAUSE
            stored = _stored(paths, inbox, messages)
        words: dict[object, Known] = {}
        for one in messages:
            sender = one.fields.get("from_session")
            if isinstance(sender, str) and sender not in words:
                words[sender] = own_word(paths, sender, environ)
        return [
            words.get(one.fields.get("from_session"), UNVERIFIED)._replace(
                stored_at=at if isinstance(at, float) else None
            )
            for one, at in zip(messages, stored, strict=True)
        ]
    return [UNVERIFIED] * len(messages)


def _may_come(
    paths: ChannelPaths, messages: Sequence[Shown], stored: Sequence[object], now: float
) -> bool:
    """Whether a hub runs that will note something of a message of which nothing is noted yet."""
    young = any(
        at is _NOT_FOUND and _age(one, now) < _RECENT
        for one, at in zip(messages, stored, strict=True)
    )
    return young and is_led(paths)


def _stored(paths: ChannelPaths, inbox: str, messages: Sequence[Shown]) -> list[object]:
    """When the hub stored each message; None if it found it there, or nothing is noted."""
    identities = [envelope.identify(one.line) for one in messages]
    left = {(one.sender, one.message_id) for one in identities if one is not None}
    found: dict[int, object] = {}
    for told in history.recent(paths, left):
        key = (told.get("from"), told.get("id"))
        for at, (one, identity) in enumerate(zip(messages, identities, strict=True)):
            if identity is not None and key == (identity.sender, identity.message_id):
                said = _said(told, paths, inbox, one, identity)
                if said is not _NOT_FOUND and not isinstance(found.get(at), float):
                    found[at] = said
        left -= {
            (identity.sender, identity.message_id)
            for at, identity in enumerate(identities)
            if identity is not None and isinstance(found.get(at), float)
        }
    return [found.get(at, _NOT_FOUND) for at in range(len(messages))]


def _said(
    told: Mapping[str, Any], paths: ChannelPaths, inbox: str, one: Shown, identity: Identity
) -> object:
    """What a line of the history says of a message: when it was stored, None that it was found.

    A message of another dialect names its hash itself, in ``payload.pi``, which anybody could
    copy: it has to stand where the hub has put it.
    """
    with suppress(KeyError, TypeError, ValueError, IndexError):
        places = [place for place in told["to"] if place[0] == inbox]
        if places and told["digest"] == identity.digest.hex():
            is_stored = told["level"] is not None and not told.get("left")
            if is_stored and "pi" in (one.fields.get("payload") or {}):
                is_stored = any(_stands(paths, inbox, one.line, *place[2:]) for place in places)
            return float(told["at"]) if is_stored else None
    return _NOT_FOUND


def _stands(paths: ChannelPaths, inbox: str, line: bytes, start: int, end: int) -> bool:
    """Whether a line stands at these bytes of an inbox."""
    if end - start != len(line) + 1:
        return False
    fd = open_private(paths.inbox(inbox), os.O_RDONLY)
    try:
        return os.pread(fd, len(line), start) == line
    finally:
        os.close(fd)


def _age(one: Shown, now: float) -> float:
    """How long ago a message was sent, as it says; very long if it does not."""
    sent = moment(one.fields.get("timestamp"))
    return float("inf") if sent is None else abs(now - sent)


def own_word(paths: ChannelPaths, session: str, environ: Mapping[str, str] = os.environ) -> Known:
    """What a session has noted of itself: its working tree's name, and its agent's program.

    Blocking. Empty where nothing is noted, or it cannot be read.
    """
    project, kind = "", ""
    with suppress(IntercomError, OSError, ValueError):
        project = claims.look(paths, session).project
        book = Shelf(project, environ).look() if project else None
        name = book.find(session, paths.directory) if book else None
        kind = (name.caller or "").partition(":")[0] if name else ""
    return Known(None, kind if kind in _PROGRAMS else "", os.path.basename(project))
