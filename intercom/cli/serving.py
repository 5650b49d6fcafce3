"""The work of ``intercom daemon``, however its command line was read."""

from __future__ import annotations

import os
import signal

from intercom.cli import output
from intercom.cli.scope import typed
from intercom.settings.hub import HubSettings, hub_settings
from intercom.settings.table import SETTINGS
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from intercom.cli.scope import Given


def work(
    given: Given,
    *,
    durability: str | None,
    idle_exit: str | None,
    on_demand: bool,
    listen: Sequence[str],
    pi: bool,
) -> int:
    """Run the hub of a channel; see the command's help."""
    asked = values(durability, idle_exit, listen, pi)
    paths = given.scope().paths

    def settle(**how: Any) -> HubSettings:
        return hub_settings(paths, asked, os.environ, on_demand=on_demand, **how)

    return run(settle(warn=output.note), settle)


def values(
    durability: str | None, idle_exit: str | None, listen: Sequence[str], pi: bool = False
) -> dict[str, Any]:
    """The settings that the options give; None where one was left out.

    :raise BadUsage: an option makes no sense.
    """
    idle, places = SETTINGS["idle_exit"], SETTINGS["listen"]
    with typed():
        asked: dict[str, Any] = {
            "durability": durability,
            "idle_exit": None if idle_exit is None else idle.of_text(idle_exit, "--idle-exit"),
            "listen": [one for text in listen for one in places.of_text(text, "--listen")] or None,
            "pi": pi or None,
        }
        check_endpoints(asked["listen"] or ())
    return asked


def check_endpoints(places: Sequence[str]) -> None:
    """Make sure that Twisted knows what these endpoints are; it is loaded if there are any.

    :raise BadConfig: it does not.
    """
    if places:
        from intercom.hub.transports import extra_endpoints

        extra_endpoints(None, places)


def run(settings: HubSettings, settle: Callable[[], HubSettings]) -> int:
    """Run a hub in this process, which is all its own, and return its exit status.

    :param settle: see :class:`intercom.hub.service.HubService`.
    """
    from intercom.hub.service import exit_status

    return exit_status(run_until_end(settings, settle))


def run_until_end(settings: HubSettings, settle: Callable[[], HubSettings]) -> BaseException | None:
    """Run a hub in this process; why it could not start or go on, None if it could.

    The reactor can be run once in a process.

    :param settle: see :class:`intercom.hub.service.HubService`.
    """
    from intercom.hub import collector

    collector.relax()
    from twisted.internet import reactor as _reactor
    from twisted.logger import globalLogBeginner

    from intercom.hub.descriptors import raise_limit
    from intercom.hub.service import HubService, stop_reactor, use_monotonic_time

    raise_limit()
    reactor: Any = _reactor  # its declared type knows neither threads nor triggers
    use_monotonic_time(reactor)
    # The hub's log is its service's; what is printed is for whoever started us.
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    ended: list[BaseException | None] = []

    def leave(error: BaseException | None) -> None:
        ended.append(error)
        stop_reactor(reactor)

    service = HubService(reactor, settings, leave, settle=settle)
    reactor.callWhenRunning(service.startService)
    reactor.callWhenRunning(collector.freeze)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    # The reactor itself takes SIGTERM and SIGINT; a closed terminal is a request to go, too.
    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(stop_reactor, reactor))
    reactor.run()
    error = ended[0] if ended else None
    if error is None:  # we are going, and nothing that comes now makes it an accident
        ignore_signals()
    return error


def ignore_signals() -> None:
    """Be deaf to whoever tells this process to end."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
