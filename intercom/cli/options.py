"""Options as click reads them; what every verb takes, before it and after it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from intercom.cli import table
from intercom.cli.scope import Given
from intercom.cli.scope import Scope as Scope
from intercom.cli.scope import typed as typed
from intercom.settings.lookup import Settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_META = "intercom.options."
_F = TypeVar("_F", bound=Callable[..., Any])


class Seconds(click.FloatRange):
    """A length of time: a finite number that is not negative; refused in plain words."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        try:
            return float(table.SECONDS.read(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Whole(click.IntRange):
    """A whole number that is not too small; refused in plain words."""

    def __init__(self, least: int) -> None:
        super().__init__(min=least)
        self._kind = table.whole(least)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        try:
            return int(self._kind.read(str(value)))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def _type(kind: table.Kind) -> Any:
    """How click reads such values; it checks what is one of several words, and directories."""
    if kind.name == "choice":
        return click.Choice(kind.choices)
    if kind.name == "directory":
        return click.Path(exists=True, file_okay=False)
    if kind.name == "seconds":
        return Seconds()
    return Whole(kind.least) if kind.name == "whole" else None


def _details(option: table.Option) -> dict[str, Any]:
    """What click is told of an option of the table."""
    told: dict[str, Any] = {"help": option.help, "metavar": option.metavar}
    if option.kind.name == "flag":
        return told | {"is_flag": True, "hidden": option.hidden}
    if option.constant is not None:
        told["flag_value"] = option.constant
    else:
        told["type"] = _type(option.kind)
    if option.names_session:
        told["shell_complete"] = complete_session
    if option.several:
        return told | {"multiple": True}
    return told | {"default": option.default, "show_default": option.shows_default}


def takes(*options: table.Option, argument: table.Argument | None = None) -> Callable[[_F], _F]:
    """Let a command take options of the table, in this order, and perhaps a word by itself."""

    def decorate(function: _F) -> _F:
        if argument is not None:
            function = click.argument(argument.name, metavar=argument.metavar, required=False)(
                function
            )
        for option in reversed(options):
            function = click.option(option.word, option.name, **_details(option))(function)
        return function

    return decorate


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keep a value where the verb finds it; one given after the verb replaces one before it."""
    if value not in (None, False):
        ctx.meta[_META + str(param.name)] = value


def _common() -> list[click.Option]:
    """The options that every verb takes; their values are kept instead of being passed on."""
    kept: dict[str, Any] = {"expose_value": False, "callback": _remember}
    return [
        click.Option([option.word, option.name], **_details(option), **kept)
        for option in table.COMMON
    ]


#: Their names.
COMMON = frozenset(option.name for option in table.COMMON)


def add_common(command: click.Command) -> click.Command:
    """Let a verb, or the group, take the common options, but for those that it declares itself."""
    if command.short_help is None and command.help:
        # Its first sentence, which click would cut where a list of commands has no room.
        command.short_help = " ".join(re.split(r"\.\s|\n\n", command.help, maxsplit=1)[0].split())
    if isinstance(command, click.Group):
        command.no_args_is_help = False  # one that is given nothing: see cli.group
    declared = {parameter.name for parameter in command.params}
    if "format" not in declared:
        command.params += [option for option in _common() if option.name not in declared]
    return command


def complete_session(
    ctx: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Offer a shell the channel's sessions; see :mod:`intercom.cli.completion`."""
    from intercom.cli import completion  # for shells only, and it reads our settings

    return completion.sessions(ctx, param, incomplete)


session_option = takes(table.SESSION)
from_option = takes(table.FROM)


def given(ctx: click.Context) -> Given:
    """The common options of this command line."""
    kept = ctx.meta.get(_META + "given")
    if isinstance(kept, Given):
        return kept
    made = Given(lambda name: ctx.meta.get(_META + name), ctx.call_on_close)
    ctx.meta[_META + "given"] = made
    return made


def settings(ctx: click.Context) -> Settings:
    """What holds for a command, by its common options, the environment and the user's file."""
    return given(ctx).settings()


def look(ctx: click.Context) -> Scope:
    """See :meth:`Given.look`."""
    return given(ctx).look()


def scope(ctx: click.Context) -> Scope:
    """See :meth:`Given.scope`."""
    return given(ctx).scope()


def again(ctx: click.Context, *words: str) -> str:
    """See :meth:`Given.again`."""
    return given(ctx).again(*words)
