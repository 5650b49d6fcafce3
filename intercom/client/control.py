"""Looking at a channel's hub, and ending or replacing it. Standard library only.

Whether there is a hub the kernel decides: ``hub.lock`` is held. Which process it is,
too: the one that listens at the channel's socket. A process is told to end only if
that and what stands in the lock file agree, and by a handle (pidfd, where there are
such) that cannot come to mean another process in between.
"""

from __future__ import annotations

import _socket as socket
import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from intercom.client.blocking import HubConnection, Received, new_id, refusal
from intercom.client.dial import ConnectionLost, connect, peer_credentials, silent
from intercom.client.spawn import SPAWN_OPTIONS, SPAWN_TIMEOUT, right_to_spawn, start_hub
from intercom.election.locks import is_led, leader
from intercom.errors import CLOSING_CODES, HubUnavailable, IntercomError
from intercom.names import ANONYMOUS
from intercom.paths import ChannelPaths, file_level, read_private
from intercom.records import LEVELS

#: Seconds in which a hub has answered, or counts as stopped.
LOOK_WITHIN = 1.8
#: Seconds for a hub to end, once it was told to. It promises two.
END_WITHIN = 5.0
#: A hub that holds the lock and has no socket binds it within a second.
BIND_WITHIN = 1.5
_INTERVAL = 0.02
_TURNED_AWAY = CLOSING_CODES - {"SHUTTING_DOWN"}


@dataclass(frozen=True, slots=True)
class Sight:
    """What a running hub says of itself.

    :ivar pid: of the process that listens at the socket.
    :ivar told: ``version``, ``started``, ``durability``, ``idle_exit``, ``listen``; empty
        for an original hub, which tells nothing.
    :ivar sessions: the connected ones, a row each.
    """

    pid: int
    told: dict[str, Any] = field(default_factory=dict)
    sessions: list[dict[str, Any]] = field(default_factory=list)
    original: bool = False

    @property
    def names(self) -> list[str]:
        """The connected sessions' names."""
        return [str(row.get("session")) for row in self.sessions]

    def level(self, paths: ChannelPaths) -> str | None:
        """The durability that messages really reach, None if the hub does not say."""
        asked = self.told.get("durability")
        if asked not in LEVELS:
            return None
        return min(str(asked), file_level(paths.directory), key=LEVELS.index)


def look(
    paths: ChannelPaths, within: float = LOOK_WITHIN, reached: socket.socket | None = None
) -> Sight:
    """Ask the hub what it is and who is connected. Starts none, and claims no session.

    :param reached: a connection to it, if there is one already; it is closed.
    :raise HubUnavailable: there is none, or it does not answer (``details["cause"]``).
    :raise IntercomError: it turned us away.
    """
    deadline = time.monotonic() + within
    with HubConnection(reached or connect(paths, within), paths, ANONYMOUS) as hub:
        question = new_id()
        line = json.dumps({"type": "list", "id": question}).encode()
        hub.send_line(line, max(0.1, deadline - time.monotonic()))
        told: dict[str, Any] = {}
        while True:
            received = hub.receive(max(0.0, deadline - time.monotonic()))
            if received is None:
                raise silent(paths, hub.pid)
            if received.type == "error" and received.payload.get("code") in _TURNED_AWAY:
                raise refusal(received.payload)
            if received.type == "welcome" and "protocol" not in received.payload:
                return Sight(hub.pid or 0, sessions=_published(paths), original=True)
            hub_of = received.payload.get("hub")  # an older hub says it in its welcome only
            told |= hub_of if isinstance(hub_of, dict) else {}
            if received.type == "sessions" and _answers(received, question):
                rows = [dict(row) for row in received.payload.get("sessions") or ()]
                return Sight(hub.pid or int(told.get("pid") or 0), told, rows)


def _answers(received: Received, question: str) -> bool:
    return received.envelope is not None and received.envelope["reply_to"] == question


def _published(paths: ChannelPaths) -> list[dict[str, Any]]:
    """Who is connected, as the list of an original hub has it; we are ``unknown`` there."""
    names = published(paths).get("active_sessions")
    found = names if isinstance(names, list) else []
    return [{"session": str(name)} for name in found if name != ANONYMOUS]


def published(paths: ChannelPaths) -> dict[str, Any]:
    """What ``peers.json`` says, nothing if that cannot be read."""
    with contextlib.suppress(ValueError, RecursionError, IntercomError, OSError):
        found: Any = json.loads(read_private(paths.peers) or b"{}")
        if isinstance(found, dict):
            return found
    return {}


def where(paths: ChannelPaths) -> str:
    """The options by which any command finds a channel, as a shell takes them."""
    import shlex  # seldom needed, and not for nothing

    return f"--dir {shlex.quote(paths.base)} --channel {shlex.quote(paths.name)}"


# -- starting -------------------------------------------------------------------------------


def start(
    paths: ChannelPaths, options: Sequence[str], environ: Mapping[str, str]
) -> tuple[int, bool]:
    """Start a hub with these options of ``intercom daemon``, unless the channel has one.

    :return: the pid of the hub that serves now, and whether it was started by this.
    :raise IntercomError: see :func:`intercom.client.spawn.ensure_hub`.
    """
    with alone(paths):
        return _start(paths, options, environ)


def _start(
    paths: ChannelPaths, options: Sequence[str], environ: Mapping[str, str]
) -> tuple[int, bool]:
    sock, started = start_hub(paths, options, environ=environ)
    sock.close()
    return look(paths).pid, started


@contextlib.contextmanager
def alone(paths: ChannelPaths, patience: float = SPAWN_TIMEOUT) -> Iterator[None]:
    """Be the only one that starts a hub of this channel; commands that need one wait.

    :raise IntercomError: ``HUB_STUCK``: another command keeps starting one.
    """
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        while not stack.enter_context(right_to_spawn(paths)):
            stack.close()
            if time.monotonic() > deadline:
                raise IntercomError(
                    f"another command has been starting a hub of channel {paths.name!r} for "
                    f"{patience:.0f} s",
                    code="HUB_STUCK",
                    remedy=f"see which: fuser -v {paths.spawn_lock}",
                )
            time.sleep(_INTERVAL)
        yield


# -- ending ---------------------------------------------------------------------------------


class _Process:
    """A process that cannot be taken for another, where the system has pidfds."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):  # a kernel or a sandbox without them
                self._fd = os.pidfd_open(pid)

    def terminate(self) -> None:
        """Tell it to end in good order; one that is gone needs no telling."""
        with contextlib.suppress(ProcessLookupError):
            if self._fd is not None:
                signal.pidfd_send_signal(self._fd, signal.SIGTERM)
            else:
                os.kill(self.pid, signal.SIGTERM)

    def close(self) -> None:
        """Let go of the handle."""
        if self._fd is not None:
            os.close(self._fd)


def stop(paths: ChannelPaths, within: float = END_WITHIN) -> int | None:
    """End the channel's hub in good order, and wait until it leads no longer.

    :return: its pid; None if there was no hub.
    :raise IntercomError: ``HUB_STUCK``: which process leads is not certain, so none was
        ended; or it was told to end and has not in time.
    :raise HubUnavailable: this process may not use sockets, and so cannot find out.
    """
    pid = proven(paths)
    if pid is None:
        return None
    process = _Process(pid)
    try:
        if proven(paths) != pid:  # the handle was opened, so this is of that process
            raise _uncertain(paths, pid, None)
        process.terminate()
        if not _wait(lambda: not _leads(paths, pid), within):
            raise IntercomError(
                f"the hub of channel {paths.name!r} (pid {pid}) was told to end and has not "
                f"within {within:.0f} s; it may be stopped",
                code="HUB_STUCK",
                remedy=f"let it go on, and so end: kill -CONT {pid}; or: kill -9 {pid}",
                details={"pid": pid},
            )
    finally:
        process.close()
    return pid


def proven(paths: ChannelPaths) -> int | None:
    """The pid of the process that leads: it listens at the socket, and the lock file names it.

    None if nobody leads. A hub that is about to listen is waited for.

    :raise IntercomError: ``HUB_STUCK``: somebody leads, and this cannot be said of anyone.
    :raise HubUnavailable: this process may not use sockets.
    """
    deadline = time.monotonic() + BIND_WITHIN
    while is_led(paths):
        try:
            pid = _who_listens(paths)
        except HubUnavailable as error:
            if error.details.get("cause") == "denied":
                raise
            if time.monotonic() > deadline and is_led(paths):
                raise _uncertain(paths, leader(paths).get("pid"), error) from error
            time.sleep(_INTERVAL)
            continue
        named = leader(paths).get("pid")
        if pid and pid == named and is_led(paths):
            return pid
        if time.monotonic() > deadline:
            raise _uncertain(paths, named, None)
        time.sleep(_INTERVAL)
    return None


def _who_listens(paths: ChannelPaths) -> int:
    """The pid at the other end of the socket, 0 where it lives in a namespace of its own.

    By the kernel's word; where the system has none for this, by the hub's own.
    """
    with contextlib.closing(connect(paths)) as sock:
        credentials = peer_credentials(sock)
    return credentials[0] if credentials else int(look(paths).told.get("pid") or 0)


def _uncertain(paths: ChannelPaths, pid: object, why: HubUnavailable | None) -> IntercomError:
    """What to say where the lock is held, and by whom is not proven."""
    who = f" (pid {pid}, as it says)" if pid else ""
    reason = f"; {why.text}" if why is not None else ", which the kernel does not confirm"
    return IntercomError(
        f"a hub{who} leads channel {paths.name!r}{reason}; no process was ended",
        code="HUB_STUCK",
        remedy=f"see who holds the lock: fuser -v {paths.lock}; then end that process: kill PID",
        details={"pid": pid},
    )


def _leads(paths: ChannelPaths, pid: int) -> bool:
    """Whether that process still holds the lock; a successor may hold it already.

    A lock that is held by somebody who does not say who he is counts as its.
    """
    return is_led(paths) and leader(paths).get("pid") in (pid, None)


def _wait(condition: Callable[[], bool], within: float) -> bool:
    """Wait for a condition; False if it does not come true."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_INTERVAL)
    return True


# -- replacing ------------------------------------------------------------------------------


def restart(paths: ChannelPaths, environ: Mapping[str, str]) -> tuple[int | None, int]:
    """Put another hub in the place of the channel's hub, run as it was run.

    Its options are in ``channel.json``; that it was to leave when idle, it says itself.
    Nobody else starts one in between. What the old one had promised is in the files;
    clients that were connected, or in the middle of sending, come to the new one.

    :return: the old hub's pid (None: there was none) and the new one's.
    :raise IntercomError: see :func:`stop` and :func:`start`; a hub that does not answer is
        left alone (``HUB_UNAVAILABLE``).
    """
    with alone(paths):
        leaves_when_idle = False
        if proven(paths) is not None:
            with contextlib.suppress(ConnectionLost):  # it is about to leave
                leaves_when_idle = look(paths).told.get("idle_exit") is not None
        old = stop(paths)
        options = SPAWN_OPTIONS if leaves_when_idle else ()
        return old, _start(paths, options, environ)[0]
