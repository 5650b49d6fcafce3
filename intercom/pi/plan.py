"""What the environment asks of a hub that serves the pi clients. Standard library only."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from intercom.errors import BadConfig
from intercom.pi.places import (
    DEFAULT_ASK_TIMEOUT_MS,
    Places,
    ask_timeout_ms,
    find_places,
    home_directory,
    wants_tcp,
)


class Plan(NamedTuple):
    """How the clients of one agent directory are served.

    :ivar tcp: beside the Unix sockets, on a free port of this machine.
    :ivar ask_ms: how long an ask waits for its reply, in milliseconds.
    """

    places: Places
    tcp: bool = False
    ask_ms: int = DEFAULT_ASK_TIMEOUT_MS


def plan_of(environ: Mapping[str, str]) -> Plan:
    """The plan of a process that was started with this environment, in this directory.

    :raise BadConfig: a variable cannot be used, or there is no home directory.
    """
    places = find_places(environ, home=home_directory(environ), cwd=os.getcwd(), uid=os.getuid())
    return Plan(places, wants_tcp(environ), ask_timeout_ms(environ))


def dump_plan(plan: Plan) -> dict[str, Any]:
    """A plan as one process tells it to another."""
    return {**plan.places._asdict(), "tcp": plan.tcp, "ask_ms": plan.ask_ms}


def parse_plan(told: Mapping[str, Any]) -> Plan:
    """The plan that another process told.

    :raise BadConfig: it is none.
    """
    paths = [told.get(name) for name in Places._fields]
    tcp, ask_ms = told.get("tcp"), told.get("ask_ms")
    whole = isinstance(ask_ms, int) and not isinstance(ask_ms, bool) and ask_ms > 0
    if not (whole and isinstance(tcp, bool) and all(map(_is_absolute, paths))):
        raise BadConfig("no places of the pi clients are named")
    return Plan(Places(*map(str, paths)), tcp, int(str(ask_ms)))


def _is_absolute(path: object) -> bool:
    return isinstance(path, str) and path.startswith("/") and "\0" not in path
