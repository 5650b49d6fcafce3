"""Reach a channel's hub, starting one where none runs. Standard library only.

Of any number of clients one starts the hub, under ``spawn.lock``; the others
wait and probe. Ready is a hub that takes connections; no file is a sign of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from intercom.client.dial import connect
from intercom.errors import (
    EX_CANTCREAT,
    EX_NOPERM,
    CannotCreate,
    HubUnavailable,
    IntercomError,
    UnsafePlace,
)
from intercom.paths import ChannelPaths, open_private, read_private

if TYPE_CHECKING:
    import subprocess

#: Seconds for a hub to be found or started, and after which a spawned one ends unused.
SPAWN_TIMEOUT = 10.0
IDLE_EXIT = 600
#: Seconds between two probes.
PROBE_INTERVAL = 0.02
#: Seconds given to a hub that leads already to listen, or to leave.
ANOTHER_LEADS = 1.0
#: Of a hub's last words, so many lines are shown.
LAST_LINES = 6
#: Environment that says which agent session this is; a hub serves many and is none.
_AGENT_PREFIXES = ("CLAUDE", "CODEX", "GEMINI", "CURSOR", "COPILOT", "OPENCODE", "ANTIGRAVITY")
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

    The channel's directory must exist (``paths.prepare()``). With
    ``INTERCOM_NO_SPAWN`` set nothing is started, with ``INTERCOM_TRANSPORT=spool``
    not even a connection is tried.

    :raise HubUnavailable: sockets are denied, spawning is forbidden, or the hub that was
        started ended or did not listen in time; its last words are in the text.
    :raise CannotCreate: the hub that was started could not make its socket or files.
    :raise UnsafePlace: another user's process holds the socket, or something that is not
        ours has the name of a file that is needed.
    """
    environ = os.environ if environ is None else environ
    if environ.get("INTERCOM_TRANSPORT") == "spool":
        raise HubUnavailable(
            "INTERCOM_TRANSPORT=spool forbids to use the hub", details={"cause": "denied"}
        )
    _reap()
    found = _probe(paths)
    if isinstance(found, socket.socket):
        return found
    if environ.get("INTERCOM_NO_SPAWN"):
        found.remedy += " (INTERCOM_NO_SPAWN is set, so none was started)"
        raise found
    deadline = time.monotonic() + timeout
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(_spawn_lock(paths)):
            stack.close()
            time.sleep(PROBE_INTERVAL)
            found = _probe(paths)
            if isinstance(found, socket.socket):
                return found
            if time.monotonic() > deadline:
                raise _nobody_came(paths, timeout)
        found = _probe(paths)
        if isinstance(found, socket.socket):
            return found
        return _start_and_wait(paths, environ, deadline, timeout)


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


@contextlib.contextmanager
def _spawn_lock(paths: ChannelPaths) -> Iterator[bool]:
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
    paths: ChannelPaths, environ: Mapping[str, str], deadline: float, timeout: float
) -> socket.socket:
    """Start a hub and wait until somebody leads the channel and takes connections."""
    child = _start(paths, environ)
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
            child, again_at = _start(paths, environ), None
        time.sleep(PROBE_INTERVAL)


def _start(paths: ChannelPaths, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a hub of this interpreter and this package, in a session of its own."""
    import subprocess  # seldom needed, and not for nothing

    command = [sys.executable, "-m", "intercom", "daemon"]
    command += ["--channel", paths.name, "--dir", paths.base, "--idle-exit", str(IDLE_EXIT)]
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
    return "\n".join(lines[-LAST_LINES:])


def _start_failed(paths: ChannelPaths, status: int) -> IntercomError:
    """Show why the hub that we started has ended."""
    words = _last_words(paths)
    said = f"; its last words:\n{words}" if words else " without a word"
    text = f"the hub of channel {paths.name!r} could not be started (exit status {status}){said}"
    remedy = f"all that it said is in {paths.spawn_output}"
    kinds: dict[int, type[IntercomError]] = {EX_CANTCREAT: CannotCreate, EX_NOPERM: UnsafePlace}
    return kinds.get(status, HubUnavailable)(text, remedy=remedy, details={"cause": "failed"})


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
