"""The command ``intercom`` as click has it: all verbs, help, and what is wrong with a line."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Sequence
from typing import Any

import click

from intercom.cli import options, output
from intercom.cli.main import INTERRUPTED, VERBS
from intercom.cli.scope import format_of
from intercom.errors import EX_USAGE


class LazyGroup(click.Group):
    """A group whose verbs are imported one at a time, when called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All verbs, in the table's order."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one verb."""
        if cmd_name not in VERBS:
            return None
        module, attribute, _help = VERBS[cmd_name]
        return options.add_common(getattr(importlib.import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, entry[2]) for verb, entry in VERBS.items()])


def _say_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    """Answer ``--version``, and end."""
    if asked and not ctx.resilient_parsing:
        from intercom.cli import version

        output.write(version.line().encode())
        ctx.exit()


@click.command(
    cls=LazyGroup, no_args_is_help=False, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_say_version,
    help="Show the version and exit.",
)
def intercom() -> None:
    """Messages between agent sessions: durable inboxes, one hub per channel.

    Results go to standard output, as JSON unless that is a terminal; everything
    else is said on standard error.
    """


options.add_common(intercom)


def call(words: Sequence[str], as_json: bool | None = None) -> int:
    """Run one command line and return its status.

    :param as_json: whether what is wrong with it is said as JSON, too; None: as it says.
    :raise BaseException: whatever the verb raises, but for what click says of the line.
    """
    try:
        result: Any = intercom.main(args=list(words), prog_name="intercom", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except click.UsageError as error:
        if as_json is None:
            as_json = output.wants_json(format_of(words))
        return fail_usage(error, as_json)


def fail_usage(error: click.UsageError, as_json: bool) -> int:
    """Say what is wrong with a command line; to one that ends before its verb, what verbs are."""
    command = error.ctx.command_path if error.ctx else "intercom"
    text = error.format_message()
    hint = f"see: {command} --help"
    if error.ctx and isinstance(error.ctx.command, click.Group) and text == "Missing command.":
        if not as_json:
            with contextlib.suppress(OSError):
                output.write_text(error.ctx.get_help() + "\n")
            return EX_USAGE
        text = "missing command"
    elif isinstance(error, click.NoSuchOption) and error.option_name == "--session":
        verb = command.partition(" ")[2]
        text = f"{verb} takes no --session"
        if not verb:
            text = "--session belongs behind the verb"
            hint = "as in: intercom poll --session ID"
    output.say("USAGE", text, hint, as_json, {})
    return EX_USAGE
