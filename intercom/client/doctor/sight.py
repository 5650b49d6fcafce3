"""Who leads a channel, by the kernel's word and by its own. Nothing is made or started."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from intercom.client import control
from intercom.client.desk import is_led
from intercom.client.processes import Table
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.settings.lookup import Settings

#: Seconds in which both locks are taken by whoever takes them at all.
BETWEEN_LOCKS = 0.3
_PAUSE = 0.03
_LOCKS = "/proc/locks"


class HubState(NamedTuple):
    """What there is to see of a hub.

    :ivar led: somebody holds ``hub.lock``; ``kept``: the channel directory's own lock.
    :ivar sight: what the one who listens at the socket says, None if nobody answers.
    :ivar trouble: why nobody does.
    """

    led: bool
    kept: bool
    sight: control.Sight | None
    trouble: IntercomError | None

    @property
    def cause(self) -> str:
        """Why nobody answers, in one word: see :mod:`intercom.client.dial`."""
        return "" if self.trouble is None else str(self.trouble.details.get("cause", "failed"))


def see(paths: ChannelPaths, environ: Mapping[str, str]) -> HubState:
    """Look whether a hub leads, and ask whoever listens. Who has just begun is waited for."""
    deadline = time.monotonic() + control.BIND_WITHIN
    while True:
        led = is_led(paths)
        sight, trouble = _ask(paths, environ)
        state = HubState(led, _is_kept(paths), sight, trouble)
        moving = state.cause in ("absent", "refused") if led else sight is not None
        if not moving or time.monotonic() > deadline:
            break
        time.sleep(_PAUSE)
    deadline = time.monotonic() + BETWEEN_LOCKS
    while state.kept and not state.led and time.monotonic() < deadline:
        time.sleep(_PAUSE)
        state = state._replace(led=is_led(paths), kept=_is_kept(paths))
    return state


def _ask(
    paths: ChannelPaths, environ: Mapping[str, str]
) -> tuple[control.Sight | None, IntercomError | None]:
    """What the hub says, or why it says nothing; not asked where sockets are not wanted."""
    try:
        if Settings(environ).value("transport") == "spool":
            text = "the settings forbid to use the hub's socket"
            return None, HubUnavailable(text, details={"cause": "forbidden"})
        return control.look(paths), None
    except IntercomError as error:
        return None, error


def _is_kept(paths: ChannelPaths) -> bool:
    """Whether somebody holds the lock of the channel's directory, looked at for a moment."""
    with contextlib.suppress(OSError):
        fd = os.open(paths.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
    return False


def is_stopped(pid: int) -> bool:
    """Whether a process was stopped, by Ctrl-Z for example, and not resumed."""
    found = Table().status(pid)
    return found is not None and found.state in "Tt"


def holder(path: str) -> int | None:
    """The pid of the process that locked a file (``flock``), None where that is not known."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        found = os.stat(path)
        where = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
        with open(_LOCKS, encoding="ascii", errors="replace") as file:
            for line in file:
                words = line.split()
                if words[1] == "FLOCK" and words[5] == where and int(words[4]) > 0:
                    return int(words[4])
    return None
