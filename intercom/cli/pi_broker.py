"""``intercom pi-broker``: the broker that the pi clients start when they find none.

It is the hub of channel ``pi``, in the foreground, in the places where they look. Where a hub
of ours holds the channel without these places it is asked to take them, and this process
waits until that hub goes, or it is told to go itself.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from intercom.cli import options, output, serving
from intercom.errors import AlreadyLed, HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.pi.plan import Plan, plan_of
from intercom.pi.runtime import say_ready
from intercom.settings.hub import HubSettings, hub_settings
from intercom.settings.lookup import OPTION

if TYPE_CHECKING:
    from intercom.client.borrowing import Loan

#: The channel, unless an option names another: what a shell of the client says of channels is
#: for other programs.
CHANNEL = "pi"
#: Seconds in which the leader of the channel must answer; the clients wait for five.
WITHIN = 4.5
_PAUSE = 0.05


@click.command("pi-broker")
@click.argument("script", required=False)
@click.pass_context
def pi_broker(ctx: click.Context, script: str | None) -> int:
    """Be the broker of pi-intercom and pi-subagents, in the places where they look.

    They start it themselves if their config.json says so: set brokerCommand to the path of
    intercom, and brokerArgs to ["pi-broker"]. What they append, the path of their own
    broker's SCRIPT, does not matter. Which places these are is decided by PI_CODING_AGENT_DIR
    and TMPDIR, as it is for them. The channel is pi, unless --channel names another.

    Runs until SIGTERM or SIGINT, or until nobody was connected for five seconds; then exits 0.
    73 if a place cannot be had, 77 if it is not ours, 78 if a variable cannot be used.
    """
    found = options.look(ctx)
    channel = found.settings.find("channel")
    named = channel.value if channel.source == OPTION else CHANNEL
    paths = ChannelPaths(found.paths.base, named)
    plan = plan_of(os.environ)
    paths.prepare(output.note)
    deadline = time.monotonic() + WITHIN
    while True:
        if not _is_led(paths):
            status = _serve(paths)
            if status is not None:
                return status
        try:
            with closing(_borrow(paths, plan)) as loan:
                return _stay(loan)
        except HubUnavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE)


def _is_led(paths: ChannelPaths) -> bool:
    from intercom.election.locks import is_led

    return is_led(paths)


def _serve(paths: ChannelPaths) -> int | None:
    """Be the hub; None if another came first. The reactor runs once in a process: then again."""
    from intercom.hub.service import exit_status

    settle = partial(_settings, paths)
    error = serving.run_until_end(settle(), settle)
    if not isinstance(error, AlreadyLed):
        return exit_status(error)
    if not _is_led(paths):  # it has gone again
        os.execv(sys.executable, [sys.executable, "-m", "intercom", *sys.argv[1:]])  # noqa: S606
    return None


def _settings(paths: ChannelPaths) -> HubSettings:
    """As the channel's, but with the places, and gone when it is of no use."""
    return replace(
        hub_settings(paths, {}, os.environ, on_demand=True, warn=output.note),
        pi=True,
        leaves_unused=True,
        idle_exit=None,
    )


def _borrow(paths: ChannelPaths, plan: Plan) -> Loan:
    from intercom.client.borrowing import borrow

    return borrow(paths, plan, WITHIN)


def _stay(loan: Loan) -> int:
    """Say that the places answer, and wait for the end of the hub, or of us."""

    def end(_number: int, _frame: Any) -> None:
        raise _Ended

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, end)
    try:
        say_ready(loan.pid)
        loan.wait()
        output.note("the hub that served the places has gone")
    except _Ended:
        serving.ignore_signals()
        try:
            loan.give_back()
        except IntercomError as error:
            output.note(error.text)
    return 0


class _Ended(Exception):
    """A signal has told us to go."""
