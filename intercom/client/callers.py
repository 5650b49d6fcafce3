"""Who calls: the agent session, multiplexer pane or terminal that a command was started from.

Standard library only. Nothing is asked of any program: the environment says which
session or pane this is, and ``/proc`` who its processes are. Where there is no
``/proc`` callers are still told apart, but few of them can be known to be gone.
"""

from __future__ import annotations

import os

from intercom.client.processes import Process, Table
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Variables that hold the id of an agent's session, one id for its whole life. Hosts that
#: export only a flag (``CURSOR_AGENT``, ``GEMINI_CLI``, ``ANTIGRAVITY_AGENT``) tell no sessions
#: apart and are not asked.
AGENTS = (
    ("claude", "CLAUDE_CODE_SESSION_ID"),
    ("codex", "CODEX_THREAD_ID"),
    ("codex", "CODEX_SESSION_ID"),
    ("kimi", "KIMI_SESSION_ID"),
    ("copilot", "COPILOT_AGENT_SESSION_ID"),
)
#: Multiplexers: the variable that numbers the pane, and one that names the server it is of.
PANES = (
    ("tmux", "TMUX_PANE", "TMUX"),
    ("zellij", "ZELLIJ_PANE_ID", "ZELLIJ_SESSION_NAME"),
    ("screen", "WINDOW", "STY"),
    ("wezterm", "WEZTERM_PANE", "WEZTERM_UNIX_SOCKET"),
    ("kitty", "KITTY_WINDOW_ID", "KITTY_PID"),
)
#: These number nothing without their server.
_NEED_SERVER = frozenset({"tmux", "screen"})
#: The process of the agent itself, where it says so.
_AGENT_PID = "CLAUDE_PID"
#: Device numbers that Linux gives to pseudo-terminals.
_PSEUDO_TERMINALS = range(136, 144)
#: The caller of a tree that cannot be told from any other.
NONE = "none"


class Caller(NamedTuple):
    """Where a command comes from.

    :ivar key: the same for every command of the caller, another for every other.
    :ivar kind: ``claude``, ``codex``, ``tmux`` ... ``terminal`` or ``none``.
    :ivar process: the process whose end is the end of the caller, None if that is not known.
    """

    key: str
    kind: str
    process: Process | None


def in_words(key: str) -> str:
    """A caller's key as people say it: ``terminal /dev/pts/3``, ``tmux pane %0``."""
    kind, _, rest = key.partition(":")
    if kind == NONE:
        return "commands without a terminal"
    if kind == "terminal":
        parts = rest.split(":")  # a device that has no name is two numbers
        return f"terminal {':'.join(parts[: 1 if rest.startswith('/') else 2])}"
    if kind in {pane[0] for pane in PANES}:
        return f"{kind} pane {rest.rpartition(':')[2]}"
    return f"{kind} session {rest}"


class _Sign(NamedTuple):
    """Variables that together name an agent's session or a pane."""

    kind: str
    key: str
    assignments: frozenset[bytes]
    is_agent: bool


def find_caller(environ: Mapping[str, str], table: Table | None = None) -> Caller:
    """Tell who calls: the nearest of agent session and pane, else the terminal, else ``none``.

    Nearest is what was set closest to this process among its ancestors: a program within a
    pane within an agent is the pane's, and the other way round. Where that is not to be
    seen, and between equals, the order is that of :data:`AGENTS`, then :data:`PANES`.
    """
    table = table or Table()
    signs = list(_signs(environ))
    if not signs:
        return _terminal(table)
    line = [(pid, table.environ(pid)) for pid in table.ancestors(table.own)]
    # Our own variables may have been changed since we were started.
    reach = [_reach(sign, line) for sign in signs]
    nearest = min(range(len(signs)), key=lambda i: (reach[i], i))
    sign, top = signs[nearest], reach[nearest]
    pids = [pid for pid, _ in line] or [table.own]
    ender = _host(environ, pids, top) if sign.is_agent else _root(table, pids[top])
    return Caller(sign.key, sign.kind, table.process(ender) if ender else None)


def _signs(environ: Mapping[str, str]) -> Iterator[_Sign]:
    """Everything that the environment says of who this is, in order."""
    for kind, name in AGENTS:
        if value := environ.get(name):
            yield _Sign(kind, f"{kind}:{value}", _assigned(environ, name), True)
    for kind, name, server_name in PANES:
        value, server = environ.get(name), environ.get(server_name, "")
        if value and (server or kind not in _NEED_SERVER):
            if kind == "tmux":  # socket, server's pid, and a session that the pane may leave
                server = server.rpartition(",")[0]
            names = (name, server_name) if server else (name,)
            yield _Sign(kind, f"{kind}:{server}:{value}", _assigned(environ, *names), False)


def _assigned(environ: Mapping[str, str], *names: str) -> frozenset[bytes]:
    return frozenset(os.fsencode(f"{name}={environ[name]}") for name in names)


def _reach(sign: _Sign, line: list[tuple[int, frozenset[bytes]]]) -> int:
    """How many steps up the line of ancestors the variables are set throughout."""
    top = 0
    for step, (_pid, variables) in enumerate(line[1:], 1):
        if not sign.assignments <= variables:
            break
        top = step
    return top


def _host(environ: Mapping[str, str], pids: list[int], top: int) -> int | None:
    """The agent's own process: it set the variables for those it started, not for itself.

    None where it is not among our ancestors: they hang on process 1 if theirs has ended.
    """
    named = environ.get(_AGENT_PID, "")
    if named.isdecimal() and int(named) in pids[1:]:
        return int(named)
    above = pids[top + 1] if len(pids) > top + 1 else 0
    return above if above > 1 else None


def _root(table: Table, pid: int) -> int | None:
    """The process that a multiplexer started in the pane: it leads the pane's terminal session.

    A pane whose variables were set by somebody else ends we do not know when.
    """
    found = table.status(pid)
    return pid if found is not None and found.session == pid else None


def _terminal(table: Table) -> Caller:
    """The controlling terminal, and the shell that leads its session."""
    own = table.status(table.own)
    if own is None:
        return _terminal_by_descriptors(table)
    if not own.terminal:
        return Caller(NONE, NONE, None)
    name = _device_name(own.terminal)
    leader = table.process(own.session) if own.session else None
    if leader is None:  # it is in a process namespace that we do not see
        return Caller(f"terminal:{name}", "terminal", None)
    return Caller(f"terminal:{name}:{leader.pid}:{leader.start}", "terminal", leader)


def _terminal_by_descriptors(table: Table) -> Caller:
    """The same without ``/proc``: a terminal among our descriptors, and its session's number."""
    for fd in (0, 1, 2):
        try:
            name = os.ttyname(fd)
        except OSError:
            continue
        leader = os.getsid(0)
        return Caller(f"terminal:{name}:{leader}", "terminal", table.process(leader))
    return Caller(NONE, NONE, None)


def _device_name(number: int) -> str:
    """A terminal's name, the same whatever our descriptors are redirected to."""
    major, minor = os.major(number), os.minor(number)
    if major in _PSEUDO_TERMINALS:
        return f"/dev/pts/{(major - _PSEUDO_TERMINALS.start) * 256 + minor}"
    return f"{major}:{minor}"
