"""``intercom daemon``: the hub of one channel in the foreground.

What a command starts when no hub answers, and what is typed to have one that stays.
Only this command loads Twisted.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import click

from intercom.cli import options
from intercom.records import LEVELS

if TYPE_CHECKING:
    from intercom.hub.settings import HubSettings


@click.command
@click.option(
    "--durability",
    type=click.Choice(LEVELS),
    default="disk",
    show_default=True,
    help="How safe a message is before its sender is told 'stored'.",
)
@click.option(
    "--idle-exit",
    type=float,
    metavar="SECONDS",
    help="End after this time without any connection; without it the hub stays.",
)
@click.option(
    "--listen",
    multiple=True,
    metavar="ENDPOINT",
    help="Listen at a Twisted endpoint, too (tcp:7654:interface=127.0.0.1); may be repeated. "
    "Who connects from outside the file system must show the channel's key.",
)
@click.pass_context
def daemon(
    ctx: click.Context, durability: str, idle_exit: float | None, listen: tuple[str, ...]
) -> int:
    """Run the hub of a channel until SIGTERM, SIGINT or a hang-up; then exit 0.

    Also 0 if another hub leads the channel already: it is named. 73 if an address,
    file or directory cannot be taken, with the reason.
    """
    from intercom.hub.settings import HubSettings

    paths = options.scope(ctx).paths
    return run(HubSettings(paths.base, paths.name, durability, idle_exit, listen))


def run(settings: HubSettings) -> int:
    """Run a hub in this process, which is all its own, and return its exit status."""
    from twisted.internet import reactor as _reactor
    from twisted.logger import globalLogBeginner

    from intercom.hub.service import HubService, exit_status, stop_reactor, use_monotonic_time

    reactor: Any = _reactor  # its declared type knows neither threads nor triggers
    use_monotonic_time(reactor)
    # The hub's log is its service's; what is printed is for whoever started us.
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    ended: list[int] = []

    def leave(error: BaseException | None) -> None:
        ended.append(exit_status(error))
        stop_reactor(reactor)

    service = HubService(reactor, settings, leave)
    reactor.callWhenRunning(service.startService)
    reactor.addSystemEventTrigger("before", "shutdown", service.stopService)
    # The reactor itself takes SIGTERM and SIGINT; a closed terminal is a request to go, too.
    signal.signal(signal.SIGHUP, lambda *_: reactor.callFromThread(stop_reactor, reactor))
    reactor.run()
    return ended[0] if ended else 0
