"""``twistd intercom`` and ``twist intercom``: options, and the hub put together.

Typed by hand, ``twistd intercom --channel X`` becomes a daemon that leaves nothing
in the working directory: unless told otherwise it has no pid file (the channel's
lock says who leads) and no ``twistd.log`` (the channel's ``hub.log`` has everything).

Exit status. 0: the hub runs, or another leads the channel (it is named); 73: an
address, file or directory could not be taken; 77: the place is not ours; 78: a
setting is unusable. ``twist`` and ``twistd -n`` return these always. A daemonizing
twistd returns them for what can be seen before it forks: who leads, and what stands
at the socket's place. What only the forked process finds out, such as a TCP port in
use, the parent reports on standard error with status 1, which is all that twistd's
start-up pipe can carry; what comes out once the reactor runs (a file that cannot be
written) ends the daemon, and stands in ``hub.log``. If two daemons start at the same
moment the loser's parent returns 0, as for any channel that is led. Stopped by a
signal, ``twistd -n`` and ``twist`` die of that signal (143 in a shell), after the
orderly stop.
"""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from twisted.application.service import IService
from twisted.python import usage

from intercom.election.flock import already_led, is_led
from intercom.errors import BadConfig, IntercomError
from intercom.hub.service import (
    HubService,
    Leave,
    exit_status,
    stop_reactor,
    to_stderr,
    use_monotonic_time,
)
from intercom.hub.settings import HubSettings
from intercom.hub.transports import refuse_occupant
from intercom.paths import base_directory

#: What twistd takes where its user names no file; its own name cannot be told from no choice.
_TWISTD_PIDFILE = "twistd.pid"


class Options(usage.Options):
    """What ``twistd intercom`` and ``twist intercom`` understand."""

    synopsis = "[options]"
    longdesc = "Run the hub of one intercom channel."
    optParameters = [  # noqa: N815  Twisted's name
        ["channel", "c", None, "The channel to serve; or INTERCOM_CHANNEL."],
        ["dir", None, None, "Where channels live; or INTERCOM_DIR."],
        ["durability", None, "disk", "Said to be stored once safe in: memory, process, disk."],
        ["idle-exit", None, None, "Seconds without any connection after which to end.", float],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []

    def opt_listen(self, endpoint: str) -> None:
        """Listen at this Twisted endpoint, too; may be repeated. TCP clients show a key."""
        self["listen"].append(endpoint)

    def postOptions(self) -> None:
        """Make the settings, and let twistd leave nothing in the working directory."""
        self["settings"] = self._settings()
        parent = self.parent
        if parent is None or "nodaemon" not in parent:
            return  # twist never daemonizes and writes no files
        if parent["pidfile"] == _TWISTD_PIDFILE:
            parent["pidfile"] = ""
        daemonizing = not (parent["nodaemon"] or parent["debug"])
        if daemonizing and not (parent["logfile"] or parent["logger"] or parent["syslog"]):
            parent["logger"] = "intercom.hub.log.Silence"
        if daemonizing and parent["uid"] is None:
            _look_ahead(self["settings"])

    def _settings(self) -> HubSettings:
        channel = self["channel"] or os.environ.get("INTERCOM_CHANNEL") or "default"
        try:
            settings = HubSettings(
                base=base_directory(self["dir"], os.environ),
                channel=channel,
                durability=self["durability"],
                idle_exit=self["idle-exit"],
                listen=tuple(self["listen"]),
            )
        except BadConfig as error:
            raise usage.UsageError(f"{error.text}; {error.remedy}") from error
        if settings.paths.name != channel:
            to_stderr(f"the channel {channel!r} is called {settings.paths.name!r}")
        return settings


def _look_ahead(settings: HubSettings) -> None:
    """Before twistd forks: end with the right status if the daemon could not live.

    A look only; the daemon decides by its election.

    :raise SystemExit: with a message on standard error.
    """
    paths = settings.paths
    try:
        paths.prepare(to_stderr)
        if is_led(paths):
            raise already_led(paths)
        refuse_occupant(paths.socket)
    except IntercomError as error:
        to_stderr(f"{error.text}\n  {error.remedy}" if error.remedy else error.text)
        raise SystemExit(exit_status(error)) from error


def makeService(options: Options) -> IService:
    """Compose the hub of one channel; nothing is opened or listened at yet."""
    from twisted.internet import reactor

    use_monotonic_time(reactor)
    parent = options.parent
    daemonizing = parent is not None and not parent.get("nodaemon", True)
    return HubService(reactor, options["settings"], _leave(reactor, daemonizing))


def _leave(reactor: Any, daemonizing: bool) -> Leave:
    """How a hub ends the twistd or twist that it runs in."""

    def leave(error: BaseException | None) -> None:
        status = exit_status(error)
        if reactor.running:
            if status:
                # Neither twistd nor twist lets a service choose the exit status once the
                # reactor has run; this takes effect when they have put everything away.
                atexit.register(_exit_now, status)
            stop_reactor(reactor)
        elif not daemonizing:
            raise SystemExit(status)
        elif status and error is not None:
            raise error  # twistd tells its waiting parent; SystemExit would hang that for ever
        else:
            reactor.callWhenRunning(stop_reactor, reactor)

    return leave


def _exit_now(status: int) -> None:
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    os._exit(status)
