"""``intercom config``: what is set, who says so, and how to change it."""

from __future__ import annotations

import os
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.serving import check_endpoints
from intercom.election.locks import is_led
from intercom.errors import EX_CONFIG, BadConfig
from intercom.names import nearest
from intercom.settings.basics import PLACE, Setting
from intercom.settings.files import ChannelFile, UserFile, user_path
from intercom.settings.lookup import CHANNEL, DEFAULT, ENVIRONMENT, Settings
from intercom.settings.table import SETTINGS
from intercom.showing.text import escape


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Offer a shell the settings."""
    return [key for key in SETTINGS if key.startswith(incomplete)]


@click.command(context_settings={"ignore_unknown_options": True})  # -5 is a value
@click.argument("key", required=False, shell_complete=_complete)
@click.argument("values", nargs=-1, metavar="[VALUE]...")
@click.option("--unset", is_flag=True, help="Let the setting be as if nobody had set it.")
@click.option("--user", is_flag=True, help="For all your channels, in your config.toml.")
@click.pass_context
def config(
    ctx: click.Context, key: str | None, values: tuple[str, ...], unset: bool, user: bool
) -> int:
    """Show what is set and who says so; or set KEY, for the channel or for all of yours.

    \b
    intercom config                       show everything
    intercom config durability            show one
    intercom config durability process    set it for this channel
    intercom config --user dir ~/mesh     set it for all your channels
    intercom config --unset durability    take it back

    What concerns a hub holds from its next start on.
    """  # noqa: D301  the backspace tells click to keep the lines
    _check_usage(key, values, unset, user)
    if key is None:
        return _show(ctx, list(SETTINGS))
    row = _row(key)
    if not values and not unset:
        return _show(ctx, [row.key], alone=True)
    _check_place(row, user)
    value = None if unset else _value(row, values)
    scope = options.look(ctx) if user else options.scope(ctx)
    if user:
        file = user_path(os.environ)
        UserFile(file).change(row.key, value)
    else:
        file = scope.paths.settings
        ChannelFile(scope.paths).change({row.key: value})
    _report(ctx, scope, row, value, file)
    return 0


def _check_usage(key: str | None, values: tuple[str, ...], unset: bool, user: bool) -> None:
    """Refuse words that do not go together."""
    for word in (key or "", *values):
        if word.startswith("--"):
            raise click.UsageError(f"no such option: {word}")
    if unset and (key is None or values):
        raise click.UsageError("--unset takes the one setting to take back: --unset KEY")
    if user and not (values or unset):
        raise click.UsageError("--user goes with a setting and its value, or with --unset")


def _row(key: str) -> Setting:
    """The setting that is meant; ``idle-exit`` is ``idle_exit``."""
    row = SETTINGS.get(key.replace("-", "_"))
    if row is None:
        meant = " or ".join(nearest(key, SETTINGS))
        raise click.UsageError(
            f"no setting is called {key!r}"
            + (f"; did you mean {meant}?" if meant else f"; there are {', '.join(SETTINGS)}")
        )
    return row


def _check_place(row: Setting, user: bool) -> None:
    """Refuse to write a setting where nobody would look for it."""
    if row.user if user else row.channel:
        return
    if user and row.channel:
        raise click.UsageError(f"{row.key} belongs to one channel: leave --user out")
    if row.user:
        raise click.UsageError(f"{row.key} belongs to you, not to a channel: add --user")
    raise click.UsageError(f"{row.key} stands in no file; set {row.variables[0]} instead")


def _value(row: Setting, words: tuple[str, ...]) -> Any:
    """The value that the words of the command line stand for.

    :raise BadUsage: they stand for none.
    """
    if len(words) > 1 and not row.kind.several:
        raise click.UsageError(f"{row.key} has one value, not {len(words)}")
    with options.typed():
        if row.kind.several:
            several = [one for word in words for one in row.of_text(word, row.key)]
            check_endpoints(several)
            return several
        value = row.of_text(words[0], row.key)
    return os.path.abspath(os.path.expanduser(value)) if row.kind is PLACE else value


def _show(ctx: click.Context, keys: list[str], alone: bool = False) -> int:
    """Show settings as the next hub, or the next command, would find them."""
    scope = options.look(ctx)
    settings = scope.settings.on(ChannelFile(scope.paths))
    for text in settings.unknown()[len(scope.settings.unknown()) :]:
        output.note(text)
    rows = [_described(settings, SETTINGS[key], scope) for key in keys]
    if scope.as_json:
        result = (
            rows[0]
            if alone
            else {
                "channel": scope.paths.name,
                "file": scope.paths.settings,
                "user_file": user_path(os.environ),
                "settings": rows,
            }
        )
        output.write(output.to_json(result) + b"\n")
    else:
        text = _long_text(rows[0]) if alone else _text(rows)
        output.write_text(text)
    problems = [row["problem"] for row in rows if "problem" in row]
    for problem in problems:
        output.note(problem)
    return EX_CONFIG if problems else 0


def _described(settings: Settings, row: Setting, scope: options.Scope) -> dict[str, Any]:
    """One setting: its value, and who says so."""
    described: dict[str, Any] = {"key": row.key, "value": None, "source": None, "where": ""}
    try:
        found = settings.find(row.key)
    except BadConfig as error:
        described["where"] = error.details.get("where", "")
        described["problem"] = f"{error.text}: {error.remedy}"
    else:
        value = scope.paths.base if row.key == "dir" else found.value
        described |= {"value": value, "source": found.source, "where": found.where}
    return described | {
        "help": row.help,
        "wanted": row.kind.wanted,
        "variables": row.variables,
    }


def _shown(value: Any) -> str:
    """A value for a person."""
    if isinstance(value, list | tuple):
        return " ".join(map(_shown, value)) or "-"
    if value is None:
        return "-"
    return escape(str(value).lower() if isinstance(value, bool) else str(value))


def _text(rows: list[dict[str, Any]]) -> str:
    """All settings, a line each."""
    first = max(len(row["key"]) for row in rows)
    width = max(len(_shown(row["value"])) for row in rows)
    lines = [
        f"{row['key']:<{first}} {_shown(row['value']):<{width}}  {_origin(row)}" for row in rows
    ]
    return "".join(line.rstrip() + "\n" for line in lines)


def _long_text(row: dict[str, Any]) -> str:
    """One setting, and what it is."""
    said = f"{row['key']} = {_shown(row['value'])}  ({_origin(row)})\n  {row['help']}\n"
    variable = f"; or {row['variables'][0]}" if row["variables"] else ""
    return f"{said}  {row['wanted']}{variable}\n"


def _origin(row: dict[str, Any]) -> str:
    """Who says so, for a person."""
    if "problem" in row:
        return f"unusable, from {escape(row['where'])}"
    if row["key"] == "idle_exit" and row["source"] == DEFAULT:
        return "default; a hub started by hand stays"
    return escape(row["where"]) or DEFAULT


def _report(ctx: click.Context, scope: options.Scope, row: Setting, value: Any, file: str) -> None:
    """Say what was done, from when on it holds, and who says otherwise."""
    result = {
        "status": "unset" if value is None else "set",
        "key": row.key,
        "value": value,
        "file": file,
        "takes_effect": "next hub" if row.channel else "next command",
        "hub_runs": row.channel and is_led(scope.paths),
    }
    if scope.as_json:
        output.write(output.to_json(result) + b"\n")
    else:
        said = "is not set any more" if value is None else f"= {_shown(value)}"
        output.write_text(f"{row.key} {said} in {escape(file)}\n")
    if result["hub_runs"]:
        output.note(
            f"the hub of channel {scope.paths.name!r} goes on as it is; to have this now: "
            f"{options.again(ctx, 'hub', 'restart')}"
        )
    _warn_of_others(scope, row, file)


def _warn_of_others(scope: options.Scope, row: Setting, file: str) -> None:
    """Say who says otherwise and wins, since the change has no effect then."""
    try:
        found = Settings(os.environ, None, ChannelFile(scope.paths)).find(row.key)
    except BadConfig as error:
        if error.details.get("where") != file:
            output.note(error.text)
        return
    of_channel = file == scope.paths.settings
    if found.source == ENVIRONMENT or (found.source == CHANNEL and not of_channel):
        output.note(f"but {found.where} says {_shown(found.value)}, and wins here")
