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
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from twisted.application.service import IService
from twisted.python import usage

from intercom.election.locks import already_led, is_led
from intercom.errors import BadConfig, IntercomError
from intercom.hub.collector import freeze, relax
from intercom.hub.descriptors import raise_limit
from intercom.hub.service import (
    HubService,
    Leave,
    exit_status,
    stop_reactor,
    to_stderr,
    use_monotonic_time,
)
from intercom.hub.transports import extra_endpoints, refuse_occupant
from intercom.settings.hub import HubSettings, hub_settings, not_applied
from intercom.settings.lookup import Settings
from intercom.settings.table import SETTINGS

#: What twistd takes where its user names no file; its own name cannot be told from no choice.
_TWISTD_PIDFILE = "twistd.pid"

Result = TypeVar("Result")


class Options(usage.Options):
    """What ``twistd intercom`` and ``twist intercom`` understand."""

    synopsis = "[options]"
    longdesc = "Run the hub of one intercom channel."
    optParameters = [  # noqa: N815  Twisted's name
        ["channel", "c", None, "The channel to serve; or INTERCOM_CHANNEL."],
        ["dir", None, None, "Where channels live; or INTERCOM_DIR."],
        ["durability", None, None, "Said to be stored once safe in: memory, process, disk."],
        ["idle-exit", None, None, "Seconds without any connection after which to end; or never."],
    ]
    optFlags = [  # noqa: N815  Twisted's name
        ["pi", None, "Be found where pi-intercom and pi-subagents look for their broker."],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["listen"] = []

    def opt_listen(self, endpoint: str) -> None:
        """Listen at this Twisted endpoint, too; may be repeated. TCP clients show a key."""
        self["listen"].append(endpoint)

    def postOptions(self) -> None:
        """Make the settings, and let twistd leave nothing in the working directory."""
        parent = self.parent if self.parent is not None else {}
        self["settings"], self["settle"] = self._settings()
        if parent.get("uid") is None:  # else they are files of a user who we are not yet
            self["settings"] = _or_give_up(self["settle"], warn=to_stderr)
        if "nodaemon" not in parent:
            return  # twist never daemonizes and writes no files
        if parent["pidfile"] == _TWISTD_PIDFILE:
            parent["pidfile"] = ""
        daemonizing = not (parent["nodaemon"] or parent["debug"])
        if daemonizing and not (parent["logfile"] or parent["logger"] or parent["syslog"]):
            parent["logger"] = "intercom.hub.log.Silence"
        if daemonizing and parent["uid"] is None:
            _or_give_up(_look_ahead, self["settings"])

    def _settings(self) -> tuple[HubSettings, Callable[..., HubSettings]]:
        """Which channel this hub is for, and what says how it is to be run.

        :raise UsageError: an option makes no sense.
        :raise SystemExit: the environment or the user's file does not.
        """
        try:
            asked = {key: self._given(key) for key in ("durability", "idle_exit")}
            row = SETTINGS["listen"]
            typed = [one for text in self["listen"] for one in row.of_text(text, "--listen")]
            asked["listen"] = typed or None
            asked["pi"] = bool(self["pi"]) or None
            extra_endpoints(None, typed)
        except BadConfig as error:
            raise usage.UsageError(f"{error.text}; {error.remedy}") from error
        place = Settings(os.environ, {"dir": self["dir"], "channel": self["channel"]})
        paths, channel = _or_give_up(place.paths), place.value("channel")
        if paths.name != channel:
            to_stderr(f"the channel {channel!r} is called {paths.name!r}")
        settle = partial(hub_settings, paths, asked, os.environ)
        return HubSettings(paths.base, paths.name), settle

    def _given(self, key: str) -> Any:
        """The value that an option gives a setting, None if it was left out."""
        name = key.replace("_", "-")
        return None if self[name] is None else SETTINGS[key].of_text(self[name], f"--{name}")


def _look_ahead(settings: HubSettings) -> None:
    """Before twistd forks: see what would keep the daemon from living.

    A look only; the daemon decides by its election.

    :raise IntercomError: it could not live.
    """
    paths = settings.paths
    paths.prepare(to_stderr)
    if is_led(paths):
        error = already_led(paths)
        error.remedy = not_applied(settings.kept, paths.command) if settings.kept else ""
        raise error
    refuse_occupant(paths.socket)


def _or_give_up(do: Callable[..., Result], *words: Any, **named: Any) -> Result:
    """Do something; if that is refused, say why there will be no hub.

    :raise SystemExit: with the status that says so.
    """
    try:
        return do(*words, **named)
    except IntercomError as error:
        to_stderr(f"{error.text}\n  {error.remedy}" if error.remedy else error.text)
        raise SystemExit(exit_status(error)) from error


def makeService(options: Options) -> IService:
    """Compose the hub of one channel; nothing is opened or listened at yet."""
    from twisted.internet import reactor

    use_monotonic_time(reactor)
    relax()
    reactor.callWhenRunning(freeze)
    if type(reactor).__name__ != "SelectReactor":  # which can watch only the first thousand
        raise_limit()
    parent = options.parent
    daemonizing = parent is not None and not parent.get("nodaemon", True)
    leave = _leave(reactor, daemonizing)
    return HubService(reactor, options["settings"], leave, settle=options["settle"])


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
