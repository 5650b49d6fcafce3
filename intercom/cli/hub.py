"""``intercom hub``: start, stop, look at and replace the hub of a channel.

Nobody has to: whatever needs a hub starts one. These are for people, and for scripts.
"""

from __future__ import annotations

import contextlib
import os
import time
from typing import Any

import click

from intercom.cli import logs as hublog
from intercom.cli import options, output
from intercom.cli.daemon import daemon
from intercom.cli.serving import check_endpoints, values
from intercom.client import control
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths, forgetful
from intercom.settings.hub import hub_settings, not_applied
from intercom.showing.text import escape, label

#: As many names of connected sessions are shown as text; JSON has all.
MAX_NAMES = 20


@click.group
def hub() -> None:
    """Start, stop, look at and replace the hub of a channel.

    Not needed to talk: the first command that needs a hub starts one.
    """


def _say(ctx: click.Context, fields: dict[str, Any], text: str) -> None:
    """Print a result, as JSON or as text."""
    if options.look(ctx).as_json:
        output.write(output.to_json(fields) + b"\n")
    else:
        output.write_text(text + "\n")


# -- start, stop, restart ---------------------------------------------------------------------


@hub.command
@click.pass_context
def start(ctx: click.Context, /, **asked: Any) -> None:
    """Start a hub in the background; return when it serves.

    It stays until it is told to stop, unless --idle-exit says else. What the options
    say is kept for the channel's later hubs. That one runs already is no failure; it
    goes on as it is, and the options are not applied.
    """
    given = values(**asked)
    paths = options.scope(ctx).paths
    words = _words(ctx, asked)
    pid, started = control.start(paths, words, os.environ)
    fields = {"status": "started" if started else "running", "pid": pid, "channel": paths.name}
    if words and not started:
        fields["options"] = "ignored"
        output.note(not_applied(given, options.again(ctx)))
    state = "is started" if started else "runs already"
    _say(
        ctx,
        fields | {"socket": paths.socket},
        f"the hub of channel {paths.name} {state}: pid {pid}",
    )


#: All but those that every verb takes, and what only commands say to each other.
start.params += [
    parameter
    for parameter in daemon.params
    if isinstance(parameter, click.Option)
    and not parameter.hidden
    and parameter.name not in options.COMMON
]


def _words(ctx: click.Context, asked: dict[str, Any]) -> list[str]:
    """The options that were given, as the daemon takes them."""
    given = {"COMMANDLINE"}
    words = []
    for parameter in ctx.command.params:
        name = str(parameter.name)
        source = ctx.get_parameter_source(name)
        if name in asked and source is not None and source.name in given:
            several = asked[name] if parameter.multiple else [asked[name]]
            words += [part for value in several for part in (parameter.opts[0], str(value))]
    return words


@hub.command
@click.pass_context
def stop(ctx: click.Context) -> None:
    """End the hub in good order; return when the channel is free. None runs: no failure."""
    paths = options.scope(ctx).paths
    names: list[str] = []
    with contextlib.suppress(HubUnavailable):
        names = control.look(paths).names
    pid = control.stop(paths)
    fields: dict[str, Any] = {"status": "not_running", "pid": pid, "channel": paths.name}
    if pid is None:
        return _say(ctx, fields, f"no hub of channel {paths.name} runs")
    if names:
        output.note(f"{_listed(names)} will start another when they connect again")
    fields |= {"status": "stopped", "sessions": names}
    return _say(ctx, fields, f"the hub of channel {paths.name} has ended: pid {pid}")


@hub.command
@click.pass_context
def restart(ctx: click.Context) -> None:
    """Put a new hub in the place of the running one; nothing that was stored is lost.

    Listeners connect again by themselves, and messages under way are sent again. Settings
    with which no hub could start leave the running one as it is.
    """
    paths = options.scope(ctx).paths
    check_endpoints(hub_settings(paths, {}, os.environ).listen)
    old, pid = control.restart(paths, os.environ)
    fields = {"status": "restarted" if old else "started", "pid": pid, "channel": paths.name}
    instead = f", in the place of pid {old}" if old else ""
    _say(ctx, fields | {"old_pid": old}, f"the hub of channel {paths.name} is pid {pid}{instead}")


# -- status -----------------------------------------------------------------------------------


@hub.command
@click.pass_context
def status(ctx: click.Context) -> None:
    """Say whether a hub runs, and how. Starts none; exit 69 if none runs, or it is stopped."""
    paths = options.look(ctx).paths
    paths.check()
    try:
        found = control.look(paths)
    except HubUnavailable as error:
        if error.details.get("cause") == "silent" or control.proven(paths) is None:
            raise
        found = control.look(paths)  # it was about to listen
    idle = None if found.sessions else _idle(paths, time.time())
    fields = {
        "status": "running",
        "channel": paths.name,
        "pid": found.pid,
        "version": found.told.get("version"),
        "started": found.told.get("started"),
        "sessions": found.names,
        "idle": idle,
        "idle_exit": found.told.get("idle_exit"),
        "durability": found.told.get("durability"),
        "level": found.level(paths),
        "listen": list(found.told.get("listen") or ()),
        "socket": paths.socket,
        "log": paths.log,
        "original": found.original,
    }
    _say(ctx, fields, _status_text(paths, fields, time.time()))


def _idle(paths: ChannelPaths, now: float) -> float | None:
    """Seconds since the last session left, as far as the hub has published it."""
    since = control.published(paths).get("updated_at")
    if not isinstance(since, int | float):
        return None
    return round(max(0.0, now - since), 1)


def _status_text(paths: ChannelPaths, fields: dict[str, Any], now: float) -> str:
    """The status for people."""
    kind = "an original hub runs" if fields["original"] else "running"
    rows = [(f"hub of channel {paths.name}:", f"{kind}, pid {fields['pid']}")]
    if fields["version"]:
        rows.append(("  version", label(fields["version"])))
    if isinstance(fields["started"], int | float):
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(fields["started"]))
        rows.append(("  since", f"{moment}, for {_span(now - fields['started'])}"))
    rows.append(("  sessions", _listed(fields["sessions"]) or "none"))
    if fields["idle"] is not None:
        ends = fields["idle_exit"]
        leaves = (
            f", leaves after {_setting(ends)} without a connection"
            if isinstance(ends, int | float)
            else ", stays"
        )
        rows.append(("  idle", f"for {_span(fields['idle'])}{leaves}"))
    if fields["level"]:
        short = fields["level"] != fields["durability"]
        why = f", not {fields['durability']}: {forgetful(paths.directory)}" if short else ""
        rows.append(("  durability", f"{fields['level']}{why}"))
    rows.append(("  socket", paths.socket))
    rows += [("  listens at", place) for place in fields["listen"]]
    rows.append(("  log", paths.log))
    return "\n".join([" ".join(rows[0]), *(f"{name:13}{escape(said)}" for name, said in rows[1:])])


def _listed(names: list[str]) -> str:
    """Names in a sentence, not too many."""
    more = [f"{len(names) - MAX_NAMES} more"] if len(names) > MAX_NAMES else []
    return ", ".join([*map(label, names[:MAX_NAMES]), *more])


def _span(seconds: float) -> str:
    """A length of time, in its largest unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"


def _setting(seconds: float) -> str:
    """A length of time as it was set: in the largest unit that does not round it."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:g} {unit}"
    return f"{seconds:g} s"


# -- logs -------------------------------------------------------------------------------------


@hub.command
@click.option("-n", "--lines", type=click.IntRange(min=0), default=50, show_default=True,
              metavar="N", help="Show the last N lines.")  # fmt: skip
@click.option("-f", "--follow", is_flag=True, help="Then show each line as it is written.")
@click.pass_context
def logs(ctx: click.Context, lines: int, follow: bool) -> None:
    """Show the hub's log: for people on a terminal, else the JSON lines as they are."""
    scope = options.look(ctx)
    hublog.show(scope.paths, lines, follow=follow, raw=scope.as_json)


for _verb in hub.commands.values():
    options.add_common(_verb)
