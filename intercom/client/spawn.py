"""Reach a channel's hub, starting one where none runs. Standard library only.

Of any number of clients one starts the hub, under ``spawn.lock``; the others
wait and probe. Ready is a hub that takes connections; no file is a sign of it.
"""

from __future__ import annotations

import _socket as socket  # the compiled part, which is all that is needed
import fcntl
import os
import sys
import time

from intercom.client.dial import connect
from intercom.election.locks import holders, is_led, is_original, leader
from intercom.errors import (
    EX_CANTCREAT,
    EX_CONFIG,
    EX_NOPERM,
    CannotCreate,
    HubUnavailable,
    IntercomError,
    UnsafePlace,
)
from intercom.paths import ChannelPaths, open_private, read_private
from intercom.plain import contextmanager
from intercom.settings.lookup import ENVIRONMENT, Found, Settings
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence

#: Seconds for a hub to be found or started.
SPAWN_TIMEOUT = 10.0
#: How a hub is started that nobody asked for: it leaves when idle, unless the settings say else.
SPAWN_OPTIONS = ("--on-demand",)
#: Seconds between two probes.
PROBE_INTERVAL = 0.02
#: Seconds given to a hub that leads already to listen, or to leave.
ANOTHER_LEADS = 1.0
#: Of a hub's last words, so many lines are shown.
LAST_LINES = 6
#: Bytes without which no hub can write the few small files that it begins with.
LEAST_ROOM = 1 << 15
#: Environment that says which agent session this is; a hub serves many and is none.
_AGENTS = "CLAUDE CODEX KIMI GEMINI CURSOR COPILOT OPENCODE ANTIGRAVITY"
_AGENT_PREFIXES = tuple(_AGENTS.split())
_AGENT_NAMES = frozenset({"INTERCOM_SESSION", "INTERCOM_NO_SPAWN", "INTERCOM_TRANSPORT"})

#: Hubs started by this process, kept to be reaped: they outlive most of us, not all.
_children: list[subprocess.Popen[bytes]] = []


def ensure_hub(
    paths: ChannelPaths,
    *,
    environ: Mapping[str, str] | None = None,
    timeout: float = SPAWN_TIMEOUT,
) -> socket.socket:
    """Return a connection to the channel's hub, after starting one if need be.

    The channel's directory must exist (``paths.prepare()``). Where ``no_spawn`` is set
    nothing is started, with ``transport`` ``spool`` not even a connection is tried.

    :raise HubUnavailable: sockets are denied, spawning is forbidden, or the hub that was
        started ended or did not listen in time; its last words are in the text.
    :raise CannotCreate: the hub that was started could not make its socket or files.
    :raise BadConfig: a setting that says how to reach hubs has an impossible value.
    :raise UnsafePlace: another user's process holds the socket, or something that is not
        ours has the name of a file that is needed.
    """
    environ = os.environ if environ is None else environ
    settings = Settings(environ)
    transport, no_spawn = settings.find("transport"), settings.find("no_spawn")
    if transport.value == "spool":
        raise HubUnavailable(
            f"{_named('INTERCOM_TRANSPORT=spool', 'transport', transport)} forbids to use the hub",
            details={"cause": "denied"},
        )
    _reap()
    found = _probe(paths)
    if isinstance(found, socket.socket):
        return found
    if no_spawn.value:
        said = _named("INTERCOM_NO_SPAWN", "no_spawn", no_spawn)
        found.remedy += f" ({said} is set, so none was started)"
        raise found
    deadline = time.monotonic() + timeout
    while True:
        with right_to_spawn(paths) as is_ours:
            if is_ours:
                left = max(0.0, deadline - time.monotonic())
                return start_hub(paths, SPAWN_OPTIONS, environ=environ, timeout=left)[0]
        time.sleep(PROBE_INTERVAL)
        found = _probe(paths)
        if isinstance(found, socket.socket):
            return found
        if time.monotonic() > deadline:
            raise _nobody_may(paths, timeout)


def start_hub(
    paths: ChannelPaths,
    options: Sequence[str],
    *,
    environ: Mapping[str, str],
    timeout: float = SPAWN_TIMEOUT,
) -> tuple[socket.socket, bool]:
    """Start a hub with these options of ``intercom daemon``, unless one answers already.

    The caller holds :func:`right_to_spawn`.

    :return: a connection to the hub that leads now, and whether one was started.
    :raise IntercomError: see :func:`ensure_hub`.
    """
    found = _probe(paths)
    if isinstance(found, socket.socket):
        return found, False
    deadline = time.monotonic() + timeout
    return _start_and_wait(paths, options, environ, deadline, timeout), True


def _named(variable: str, key: str, found: Found) -> str:
    """Who says so: the variable, or the setting in its file."""
    return variable if found.source == ENVIRONMENT else f"{key} in {found.where}"


def _probe(paths: ChannelPaths) -> socket.socket | HubUnavailable:
    """Connect, or say why there is nobody to connect to.

    :raise HubUnavailable: starting a hub would not help.
    """
    try:
        return connect(paths)
    except HubUnavailable as error:
        if error.details["cause"] not in ("absent", "refused"):
            raise
        return error


@contextmanager
def right_to_spawn(paths: ChannelPaths) -> Iterator[bool]:
    """Hold the right to start a hub, or not: whether this is so is what ``with`` gives."""
    fd = open_private(paths.spawn_lock, os.O_RDWR | os.O_CREAT)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _start_and_wait(
    paths: ChannelPaths,
    options: Sequence[str],
    environ: Mapping[str, str],
    deadline: float,
    timeout: float,
) -> socket.socket:
    """Start a hub and wait until somebody leads the channel and takes connections."""
    child = _start(paths, options, environ)
    again_at = None
    while True:
        found = _probe(paths)
        if isinstance(found, socket.socket):
            return found
        status, now = child.poll(), time.monotonic()
        if status:
            raise _start_failed(paths, status)
        if now > deadline:
            raise _nobody_came(paths, timeout)
        if status == 0 and again_at is None:
            again_at = now + ANOTHER_LEADS  # it will listen soon, unless it is about to leave
        elif again_at is not None and now > again_at:
            if is_led(paths) and is_original(paths):
                raise _without_door(paths)
            child, again_at = _start(paths, options, environ), None
        time.sleep(PROBE_INTERVAL)


def _start(
    paths: ChannelPaths, options: Sequence[str], environ: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    """Start a hub of this interpreter and this package, in a session of its own."""
    import subprocess  # seldom needed, and not for nothing

    command = [sys.executable, "-m", "intercom", "daemon"]
    command += ["--channel", paths.name, "--dir", paths.base, *options]
    output = open_private(paths.spawn_output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    try:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd="/",
            env=hub_environment(environ),
            umask=0o077,
            start_new_session=True,
        )
    except OSError as error:
        raise CannotCreate(
            f"cannot start {sys.executable}: {error.strerror}",
            remedy=f"start the hub by hand: intercom daemon --channel {paths.name}",
        ) from error
    finally:
        os.close(output)
    _children.append(child)
    return child


def hub_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of a spawned hub: no agent's identity, and this package importable.

    The hub runs in ``/``, so relative entries of ``PYTHONPATH`` are made absolute, and
    a checkout that is found by the current directory is named.
    """
    kept = {
        name: value
        for name, value in environ.items()
        if name not in _AGENT_NAMES and not name.startswith(_AGENT_PREFIXES)
    }
    entries = [
        os.path.abspath(part) for part in kept.get("PYTHONPATH", "").split(os.pathsep) if part
    ]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    installed = os.path.basename(root) in ("site-packages", "dist-packages")
    if not installed and root not in entries:
        entries.insert(0, root)
    if entries:
        kept["PYTHONPATH"] = os.pathsep.join(entries)
    return kept


def _reap() -> None:
    """Take note of hubs started earlier that have ended, so that no zombie stays."""
    _children[:] = [child for child in _children if child.poll() is None]


def _last_words(paths: ChannelPaths) -> str:
    """The end of what the hub started last had to say."""
    try:
        said = read_private(paths.spawn_output) or b""
    except (OSError, UnsafePlace):
        return ""
    lines = said.decode("utf-8", "replace").strip().splitlines()
    lines = [line for line in lines if not line.startswith("{")]  # the same, for programs
    return "\n".join(lines[-LAST_LINES:])


def _is_full(paths: ChannelPaths) -> bool:
    """Whether a hub had no room to begin, nor to say so."""
    try:
        found = os.statvfs(paths.directory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < LEAST_ROOM


def _start_failed(paths: ChannelPaths, status: int) -> IntercomError:
    """Show why the hub that we started has ended."""
    words = _last_words(paths)
    said = f"; its last words:\n{words}" if words else " without a word"
    remedy = f"see all that it said: cat {paths.spawn_output}"
    if not words and _is_full(paths):
        said, remedy = ": the disk is full", "make room, then try again; see where: df -h"
    text = f"the hub of channel {paths.name!r} could not be started (exit status {status}){said}"
    kinds: dict[int, type[IntercomError]] = {EX_CANTCREAT: CannotCreate, EX_NOPERM: UnsafePlace}
    return kinds.get(status, HubUnavailable)(
        text,
        # Whoever can do without a hub does so here, too; whoever cannot has this status.
        code="BAD_CONFIG" if status == EX_CONFIG else None,
        remedy=remedy,
        details={"cause": "failed"},
    )


def _without_door(paths: ChannelPaths) -> HubUnavailable:
    """An original hub leads whose socket somebody has deleted; it does not make another."""
    pid = leader(paths).get("pid")
    who = f" (pid {pid})" if pid else ""
    return HubUnavailable(
        f"the hub of channel {paths.name!r}{who}, one of the original mesh, cannot be reached: "
        f"its socket {paths.socket} was deleted",
        remedy=f"end it: kill {pid}; the next command starts another" if pid else "",
        details={"cause": "absent", "pid": pid},
    )


def _nobody_may(paths: ChannelPaths, timeout: float) -> HubUnavailable:
    """Another process kept the right to start a hub, and none came."""
    pids = holders(paths.spawn_lock)
    who = f" ({', '.join(f'pid {pid}' for pid in pids)}, as it seems)" if pids else ""
    return HubUnavailable(
        f"no hub of channel {paths.name!r} was ready within {timeout:.0f} s: another process{who} "
        f"keeps the right to start one",
        remedy=f"see whether it is stopped: fuser -v {paths.spawn_lock}; then end it: kill PID",
        details={"cause": "failed"},
    )


def _nobody_came(paths: ChannelPaths, timeout: float) -> HubUnavailable:
    """A hub was started, by us or another, and yet nobody listens."""
    words = _last_words(paths)
    said = f"; the last words of the one that was started:\n{words}" if words else ""
    return HubUnavailable(
        f"no hub of channel {paths.name!r} was ready within {timeout:.0f} s{said}",
        remedy=f"look at {paths.spawn_output}, or start one by hand: "
        f"intercom --dir {paths.base} --channel {paths.name} daemon",
        details={"cause": "failed"},
    )
