"""The tool ``peers``: who can be written to."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from intercom.bridge.server import Call, Said
from intercom.bridge.session import Session
from intercom.bridge.words import with_unread
from intercom.client import attesting, control
from intercom.client.dial import ConnectionLost
from intercom.client.readership import Readership, readership
from intercom.names import RESERVED
from intercom.paths import ChannelPaths
from intercom.showing.blocks import own_word
from intercom.showing.text import label
from intercom.showing.words import ago, lasting
from intercom.spool.calls import FileCalls
from intercom.spool.files import Patience
from intercom.spool.known import take_census

#: So many names are listed of those that are connected, and of those that are not.
MOST_HERE, MOST_AWAY = 100, 100
#: So many names of those that are not connected are given where nobody asked for them.
SOME_AWAY = 10


class _Listing(NamedTuple):
    """Who there is.

    :ivar rows: of those connected, as a hub lists them.
    :ivar absent: the other names.
    :ivar published: no hub could be asked: this is what its files say.
    """

    rows: list[dict[str, Any]]
    absent: list[str]
    published: bool = False


async def peers(session: Session, call: Call) -> Said:
    """Carry out a call."""
    listing = await _ask_hub(session)
    if listing is None:
        listing = await session.threads.call(_from_files, session.paths)
    show_all = bool(call.arguments.get("all"))
    text = await session.threads.call(_text, session, listing, show_all)
    return Said(with_unread(text, await session.unread()))


async def _ask_hub(session: Session) -> _Listing | None:
    """What the hub says; None if it cannot be asked over the session's own connection."""
    client = await session.hub()
    if client is None:
        return None
    try:
        told = (await client.ask("list", {})).payload
    except ConnectionLost:
        return None
    rows = [dict(row) for row in told.get("sessions") or () if isinstance(row, dict)]
    return _Listing(rows, [str(name) for name in told.get("absent") or ()])


def _from_files(paths: ChannelPaths) -> _Listing:
    """What the files say. Blocking."""
    here = control.published(paths).get("active_sessions")
    names = sorted(map(str, here)) if isinstance(here, list) else []
    known = take_census(paths, FileCalls(), time.time()).sessions
    return _Listing(
        [{"session": name} for name in names], sorted(set(known) - set(names) - RESERVED), True
    )


def _text(session: Session, listing: _Listing, show_all: bool) -> str:
    """The listing in words. Blocking, since what lies unread is looked up."""
    now, patience = time.time(), Patience()
    lines = [f"you are {label(session.name)} on channel {label(session.paths.name)}"]
    others = [row for row in listing.rows if str(row.get("session")) != session.name]
    for row in others[:MOST_HERE]:
        found = readership(session.paths, str(row.get("session")), patience)
        lines.append(f"{_who(session, row.get('session'))}: {', '.join(_about(row, found, now))}")
    if len(others) > MOST_HERE:
        lines.append(f"and {len(others) - MOST_HERE} more are connected")
    if not others:
        lines.append("nobody else is connected")
    absent = [name for name in listing.absent if name != session.name]
    if show_all:
        for name in absent[:MOST_AWAY]:
            found = readership(session.paths, name, patience)
            said = ["not connected", *_read(found, now)]
            lines.append(f"{_who(session, name)}: {', '.join(said)}")
    shown = absent[MOST_AWAY:] if show_all else absent
    if shown:
        lines.append(_rest(shown, show_all))
    if listing.published:
        lines.append("the hub could not be asked: this is what the channel's files say")
    return "\n".join(lines)


def _who(session: Session, name: object) -> str:
    """A name, and what its session says of itself: which agent, in which working tree."""
    known = attesting.own_word(session.paths, str(name))
    return f"{label(name)}{own_word(known)}"


def _rest(names: list[str], show_all: bool) -> str:
    """Those that are not listed one by one."""
    if show_all:
        return f"and {len(names)} more are not connected"
    more = len(names) - SOME_AWAY
    rest = f" and {more} more (all=true)" if more > 0 else ""
    return f"not connected: {', '.join(map(label, names[:SOME_AWAY]))}{rest}"


def _about(row: dict[str, Any], found: Readership, now: float) -> list[str]:
    """What there is to say of one that is connected."""
    said = []
    if row.get("name"):
        said.append(f"called {label(row['name'])}")
    said += [label(row[key]) for key in ("dialect", "model", "status") if row.get(key)]
    if row.get("cwd"):
        said.append(f"in {label(os.path.basename(str(row['cwd']).rstrip('/')))}")
    since = row.get("since")
    if isinstance(since, int | float) and not isinstance(since, bool):
        said.append(f"connected for {lasting(max(0.0, since))}")
    else:
        said.append("connected")
    return said + _read(found, now)


def _read(found: Readership, now: float) -> list[str]:
    """How it reads what it is sent."""
    said = []
    if found.holder is not None:
        said.append("reading")
    elif found.last_read is None:
        said.append("never read")
    else:
        said.append(f"last read {ago(max(0.0, now - found.last_read))}")
    if found.unread:
        said.append(f"{found.unread} unread")
    return said
