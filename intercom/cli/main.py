"""The command ``intercom``: finds the verb, and turns every failure into words and a status.

A verb's module is imported when it is called, so that none pays for another's
imports; the list of verbs with their one-line help stands here.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from intercom.cli import options, output

#: verb: (module, attribute, one line of help), in the order in which help lists them.
VERBS = {
    "init": ("intercom.cli.init", "init", "Take a place on the channel and start afresh."),
    "name": ("intercom.cli.name", "name", "Show who you are, or be called otherwise."),
    "forget": ("intercom.cli.forget", "forget", "Remove a name, and tell what it had unread."),
    "send": ("intercom.cli.send", "send", "Send a message, its text from standard input."),
    "poll": ("intercom.cli.poll", "poll", "Show what lies unread."),
    "listen": ("intercom.cli.listen", "listen", "Show what lies unread, then whatever comes."),
    "peers": ("intercom.cli.peers", "peers", "Show who is here."),
    "status": ("intercom.cli.status", "status", "Show how far a message has come."),
    "ack": ("intercom.cli.ack", "ack", "Say how far messages were dealt with."),
    "dead": ("intercom.cli.dead", "dead", "Show what was given up unread."),
    "hook": ("intercom.cli.hook", "hook", "Tell an agent that mail waits, as its host asks."),
    "skill": ("intercom.cli.skill", "skill", "Print what an agent has to know of this."),
    "config": ("intercom.cli.config", "config", "Show what is set and who says so; set it."),
    "paths": ("intercom.cli.paths", "paths", "Show where everything is, and what that promises."),
    "version": ("intercom.cli.version", "version", "Show the versions of command and hub."),
    "hub": ("intercom.cli.hub", "hub", "Start, stop, look at and replace the channel's hub."),
    "doctor": ("intercom.cli.doctor", "doctor", "Find what is wrong with a channel; cure it."),
    "cleanup": ("intercom.cli.cleanup", "cleanup", "Remove what the dead left, or all sessions."),
    "mcp": (
        "intercom.cli.mcp",
        "mcp",
        "Serve an agent's host with tools of MCP.",
    ),
    "pi-broker": ("intercom.cli.pi_broker", "pi_broker", "Serve pi-intercom and pi-subagents."),
    "daemon": ("intercom.cli.daemon", "daemon", "Run the channel's hub in the foreground."),
}

INTERRUPTED = 130


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


def run(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its status (see ``intercom.errors``)."""
    output.secure_descriptors()
    words = list(sys.argv[1:] if arguments is None else arguments)
    sys.exit(_status(words))


def _status(words: list[str]) -> int:
    """Run one command line; every expected failure becomes words and a status."""
    if words[:1] == ["hook"]:
        return _hook(words[1:])
    try:
        result: Any = intercom.main(args=words, prog_name="intercom", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BaseException as error:
        status = output.fail(error, output.wants_json(options.format_of(words)))
        if status is None:
            raise
        return status


def _hook(words: list[str]) -> int:
    """Run a hook, which has its own way with failures."""
    from intercom.cli import hooking

    return hooking.call(words, _by_click)


def _by_click(words: list[str]) -> int:
    try:
        result: Any = intercom.main(args=words, prog_name="intercom", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.UsageError as error:
        return output.fail(error, False) or 0
