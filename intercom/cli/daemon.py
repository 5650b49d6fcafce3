"""``intercom daemon``: the hub of one channel in the foreground.

What a command starts when no hub answers, and what is typed to have one that stays.
Only this command loads Twisted.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import click

from intercom.cli import options, output
from intercom.records import LEVELS
from intercom.settings.hub import HubSettings, hub_settings
from intercom.settings.table import SETTINGS


@click.command
@click.option(
    "--durability",
    type=click.Choice(LEVELS),
    help="How safe a message is before its sender is told 'stored'; default: disk.",
)
@click.option(
    "--idle-exit",
    metavar="SECONDS",
    help="End after this time without any connection, or never, which is the default.",
)
@click.option("--on-demand", is_flag=True, hidden=True)
@click.option(
    "--listen",
    multiple=True,
    metavar="ENDPOINT",
    help="Listen at a Twisted endpoint, too (tcp:7654:interface=127.0.0.1); may be repeated. "
    "Who connects from outside the file system must show the channel's key.",
)
@click.option(
    "--pi",
    is_flag=True,
    help="Be found where pi-intercom and pi-subagents look for their broker; see pi-broker.",
)
@click.pass_context
def daemon(
    ctx: click.Context,
    durability: str | None,
    idle_exit: str | None,
    on_demand: bool,
    listen: tuple[str, ...],
    pi: bool,
) -> int:
    """Run the hub of a channel until SIGTERM, SIGINT or a hang-up; then exit 0.

    What the options say is kept for the channel's later hubs: see intercom config.
    Also 0 if another hub leads the channel already: it is named. 73 if an address,
    file or directory cannot be taken, with the reason.
    """
    asked = values(durability, idle_exit, listen, pi)
    paths = options.scope(ctx).paths
    settle = partial(hub_settings, paths, asked, os.environ, on_demand=on_demand)
    return run(settle(warn=output.note), settle)


def values(
    durability: str | None, idle_exit: str | None, listen: Sequence[str], pi: bool = False
) -> dict[str, Any]:
    """The settings that the options give; None where one was left out.

    :raise BadUsage: an option makes no sense.
    """
    idle, places = SETTINGS["idle_exit"], SETTINGS["listen"]
    with options.typed():
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
