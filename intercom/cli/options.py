"""What every verb takes, before it and after it: where the channel is, and who speaks."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import click

from intercom.cli import output
from intercom.client import identity
from intercom.paths import ChannelPaths, base_directory

DEFAULT_CHANNEL = "default"
_META = "intercom.options."


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a value where the verb finds it; one given after the verb replaces one before it."""
    if value not in (None, False):
        ctx.meta[_META + str(param.name)] = value


def _common() -> list[click.Option]:
    """The options that every verb takes; their values are kept instead of being passed on."""
    kept: dict[str, Any] = {"default": None, "expose_value": False, "callback": _remember}
    place = click.Path(exists=True, file_okay=False)
    return [
        click.Option(
            ["--dir", "base"], metavar="DIR", help="Where channels live; or INTERCOM_DIR.", **kept
        ),
        click.Option(
            ["--channel"], metavar="NAME", help="The channel; or INTERCOM_CHANNEL.", **kept
        ),
        click.Option(
            ["--project-dir"],
            type=place,
            help="The project; by default what is around here.",
            **kept,
        ),
        click.Option(
            ["--json", "as_json"], is_flag=True, help="Print JSON on a terminal too.", **kept
        ),
    ]


def add_common(command: click.Command) -> click.Command:
    """Let a verb, or the group, take the common options, but for those that it declares itself."""
    declared = {parameter.name for parameter in command.params}
    if "as_json" not in declared:
        command.params += [option for option in _common() if option.name not in declared]
    return command


session_option = click.option(
    "--session", metavar="ID", help="Who speaks; default: INTERCOM_SESSION, or the project's own."
)


def _channel(ctx: click.Context) -> str | None:
    return _given(ctx, "channel") or os.environ.get("INTERCOM_CHANNEL") or None


def _given(ctx: click.Context, name: str) -> Any:
    return ctx.meta.get(_META + name)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a verb works.

    :ivar paths: the channel's, its directory made and checked.
    :ivar project: the project's directory.
    :ivar as_json: whether results are printed as JSON.
    """

    paths: ChannelPaths
    project: str
    as_json: bool

    def session(self, option: str | None) -> str:
        """The session that speaks: the option, the environment's, or the project's own."""
        return identity.session_of(self.project, option, os.environ)


def scope(ctx: click.Context) -> Scope:
    """Find the channel and the project that the options and the environment name.

    :raise UnsafePlace: the channel's directory is not ours alone.
    :raise CannotCreate: it cannot be made.
    """
    wanted = _channel(ctx) or DEFAULT_CHANNEL
    paths = ChannelPaths(base_directory(_given(ctx, "base"), os.environ), wanted)
    if paths.name != wanted:
        output.note(f"the channel {wanted!r} is called {paths.name!r}")
    paths.prepare(output.note)
    project = identity.project_directory(_given(ctx, "project_dir"), _here())
    return Scope(paths, project, output.wants_json(bool(_given(ctx, "as_json"))))


def _here() -> str:
    """The current directory; the root where it was removed under our feet."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"
