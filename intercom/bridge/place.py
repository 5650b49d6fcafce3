"""Where the bridge works, and taking a session's place there. Blocking, standard library only."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from intercom.bridge.resumed import environ_of_session
from intercom.client.callers import AGENTS
from intercom.client.identity import Identity, Names
from intercom.client.mending import mend
from intercom.client.processes import Table
from intercom.client.readers import Seat
from intercom.client.tokens import own_token
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.settings.files import ChannelFile
from intercom.spool.files import Inbox

#: What reads, for people.
PROGRAM = "intercom mcp"
#: Where Codex says with each call which of its threads that is of.
_CODEX_TURN = "x-codex-turn-metadata"
#: The variables by which commands of that thread know it.
_CODEX_VARIABLE = "CODEX_THREAD_ID"
#: Hosts that tell with each call only whose it is, and give us nothing of their environment.
_TELLING = ("codex",)
_LONGEST = 200


class Place(NamedTuple):
    """Where a bridge works, and who was said to speak.

    :ivar find: finds the channel and the project's directory; raises where a setting that
        says so cannot be used, which is told to the model rather than to nobody.
    :ivar option: ``--session``, None if it was not given.
    :ivar note: told of what deserves attention.
    """

    find: Callable[[], tuple[ChannelPaths, str]]
    option: str | None
    environ: Mapping[str, str]
    note: Callable[[str], None]

    @property
    def is_named(self) -> bool:
        """Whether somebody has said the session's name."""
        return self.option is not None or bool(self.environ.get("INTERCOM_SESSION"))

    def waits(self, host: str) -> bool:
        """Whether only a call can tell whose session this is.

        :param host: the host's name, as it says itself.
        """
        if self.is_named or any(self.environ.get(name) for _kind, name in AGENTS):
            return False
        return any(word in host.lower() for word in _TELLING)


class Taken(NamedTuple):
    """A session's place, taken.

    :ivar seat: among its readers.
    """

    paths: ChannelPaths
    identity: Identity
    token: str
    seat: Seat

    @property
    def name(self) -> str:
        """The session's id."""
        return self.identity.session

    def close(self) -> None:
        """Leave. Idempotent."""
        self.seat.close()
        self.identity.hold.close()


def caller_of(meta: Mapping[str, Any]) -> str:
    """The thread that a call says it is of; empty if it does not.

    A subagent's thread counts as the one that started it.
    """
    told = meta.get(_CODEX_TURN)
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except (ValueError, RecursionError):
            return ""
    if not isinstance(told, dict):
        return ""
    own, whole = told.get("thread_id"), told.get("session_id")
    if "parent_thread_id" in told:
        candidates = [whole if whole != own else None, told["parent_thread_id"], own]
    else:
        candidates = [own, whole]
    for found in candidates:
        if isinstance(found, str) and 0 < len(found) <= _LONGEST and found.isprintable():
            return found
    return ""


def name_now(place: Place, caller: str) -> str | None:
    """The name that a caller has by now, which its own commands may have changed. Blocking.

    :return: None if there is nothing to go by.
    """
    if place.is_named:
        return None
    with contextlib.suppress(IntercomError, OSError):
        paths, project = place.find()
        return Names(paths, project, _environ(place, caller)).own()
    return None


def _environ(place: Place, caller: str) -> Mapping[str, str]:
    """The environment in which a caller's own commands run, as far as it says who that is."""
    if caller:
        return {**place.environ, _CODEX_VARIABLE: caller}
    return environ_of_session(place.environ, Table())


def take_place(place: Place, caller: str) -> Taken:
    """Find out who speaks, and be known as one who could show that session's messages.

    :param caller: what :func:`caller_of` said.
    :raise IntercomError: channel, name or token cannot be had.
    """
    paths, project = place.find()
    paths.prepare(place.note)
    ChannelFile(paths).check_format()
    mend(paths)
    identity = Names(paths, project, _environ(place, caller)).speaker(place.option)
    try:
        token = own_token(paths, identity.session)
        Inbox(paths, identity.session).enrol()
        seat = Seat(paths, identity.session, PROGRAM, time.time())
    except BaseException:
        identity.hold.close()
        raise
    return Taken(paths, identity, token, seat)
