"""One call of a hook: what the host said, and what it is answered."""

from __future__ import annotations

import os
import select
import time

from intercom import plainjson as json
from intercom.client.namebook import Shelf
from intercom.client.tree import project_directory
from intercom.hooks import bell
from intercom.hooks.bell import MOST_IN_A_ROW, Bell
from intercom.hooks.hosts import Event, Host
from intercom.names import check_session
from intercom.paths import ChannelPaths
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

#: Most bytes of what a host says: a prompt is part of it.
MOST_INPUT = 8 << 20
#: Seconds that a host may take to say it.
INPUT_WITHIN = 0.5
#: How the mail can be read, by tool or by shell.
READ_IT = "read with the tool inbox, or in a shell: {command}"


class Surroundings(NamedTuple):
    """Where a hook runs.

    :ivar command: how a shell of the agent reads its mail.
    :ivar now: epoch seconds.
    """

    paths: ChannelPaths
    environ: Mapping[str, str]
    cwd: str
    now: float
    command: str = "intercom poll --format text"

    @classmethod
    def here(cls, paths: ChannelPaths, environ: Mapping[str, str]) -> Surroundings:
        """Those of this process."""
        try:
            cwd = os.getcwd()
        except FileNotFoundError:
            cwd = "/"
        return cls(paths, environ, cwd, time.time())


def read_input(fd: int, within: float = INPUT_WITHIN) -> dict[str, Any]:
    """What the host says; empty where that is no JSON object, or does not come in time.

    It is not waited for its end, which some hosts never send, once it is whole.
    """
    data = b""
    deadline = time.monotonic() + within
    while len(data) < MOST_INPUT:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(fd, 1 << 16) if ready else b""
        data += piece
        if not piece or piece.rstrip().endswith(b"}"):
            found = _object(data)
            if found is not None or not piece:
                return found or {}
    return {}


def _object(data: bytes) -> dict[str, Any] | None:
    if not data:
        return None
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def answer(host: Host, event: Event, said: Mapping[str, Any], at: Surroundings) -> dict[str, Any]:
    """What a host is answered; empty for nothing.

    :param said: its own words, of which none is trusted to be there.
    :raise IntercomError: a setting, a name or the channel's place cannot be used.
    :raise OSError: something cannot be read.
    """
    if host.is_stranger(at.environ) or said.get("agent_id"):  # a part of the session's agent
        return {}
    session = _session(host, said, at)
    mail = None if session is None else bell.mail_of(at.paths, session)
    if session is None or mail is None:
        return {}
    before = bell.bell_of(at.paths, session)
    text = f"{mail.words(session, at.now)}; {READ_IT.format(command=at.command)}"
    if not event.goes_on:
        bell.keep(at.paths, session, Bell(mail.end, 0), at.now)
        return event.for_model(text)
    if mail.end <= before.told:
        return {}
    goes_on_already = said.get("stop_hook_active") is not False
    in_a_row = before.in_a_row if goes_on_already else 0
    is_kept = bell.keep(at.paths, session, Bell(mail.end, in_a_row + 1), at.now)
    if goes_on_already and not is_kept:
        return {}  # or it would be told again, and go on, for ever
    if in_a_row >= MOST_IN_A_ROW:
        return event.for_user(f"{mail.words(session, at.now)}; left until you say go on")
    return event.for_model(text)


def _session(host: Host, said: Mapping[str, Any], at: Surroundings) -> str | None:
    """For whom the host asks; None if that session has no name yet, and so no mail.

    :raise ProtocolError: ``BAD_SESSION_ID``.
    """
    chosen = at.environ.get("INTERCOM_SESSION")
    if chosen:
        return check_session(chosen)
    ids = [said.get("session_id"), at.environ.get(host.variable)]
    keys = [f"{host.kind}:{one}" for one in dict.fromkeys(ids) if isinstance(one, str) and one]
    for project in dict.fromkeys(_projects(host, said, at)):
        book = Shelf(project, at.environ).look() if keys else None
        names = [book.of(key, at.paths.directory) for key in keys] if book else []
        if any(names):
            return next(name.session for name in names if name)
    return None


def _projects(host: Host, said: Mapping[str, Any], at: Surroundings) -> Iterator[str]:
    """Where the session's name may be noted."""
    places = [said.get("cwd"), *map(at.environ.get, host.directories), at.cwd]
    for place in places:
        if isinstance(place, str) and os.path.isabs(place) and "\0" not in place:
            yield project_directory(None, place)
