"""What every verb takes, before it and after it: where the channel is, and who speaks."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from intercom.cli import output
from intercom.client.identity import Identity, Names
from intercom.client.mending import mend
from intercom.client.tree import project_directory
from intercom.errors import BadConfig, BadUsage, IntercomError
from intercom.paths import ChannelPaths
from intercom.settings.files import ChannelFile
from intercom.settings.lookup import Settings
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    from click.shell_completion import CompletionItem

_META = "intercom.options."


class Seconds(click.FloatRange):
    """A length of time: a finite number that is not negative; refused in plain words."""

    def __init__(self) -> None:
        super().__init__(min=0)

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Read it."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is no number of seconds", param, ctx)
        if seconds < 0:
            self.fail(f"{value} is less than 0", param, ctx)
        return seconds


class Whole(click.IntRange):
    """A whole number that is not too small; refused in plain words."""

    def __init__(self, least: int) -> None:
        super().__init__(min=least)
        self._least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read it."""
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", str(value)):
            self.fail(f"{value!r} is no whole number", param, ctx)
        if int(value) < self._least:
            self.fail(f"{value} is less than {self._least}", param, ctx)
        return int(value)


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
            ["--format"],
            type=click.Choice(["text", "json"]),
            help="How results are printed; or INTERCOM_FORMAT. Default: text on a terminal.",
            **kept,
        ),
        click.Option(["--json", "format"], flag_value="json", help="As --format json.", **kept),
    ]


#: Their names.
COMMON = frozenset(str(option.name) for option in _common())


def add_common(command: click.Command) -> click.Command:
    """Let a verb, or the group, take the common options, but for those that it declares itself."""
    if command.short_help is None and command.help:
        # Its first sentence, which click would cut where a list of commands has no room.
        command.short_help = " ".join(re.split(r"\.\s|\n\n", command.help, maxsplit=1)[0].split())
    if isinstance(command, click.Group):
        command.no_args_is_help = False  # one that is given nothing: see output.fail
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


session_option = click.option(
    "--session",
    metavar="ID",
    shell_complete=complete_session,
    help="Who speaks; default: INTERCOM_SESSION, or your own name.",
)


from_option = click.option(
    "--from",
    "place",
    metavar="now|start|ID",
    help="Begin at the end, at the beginning of what is there, or at a message.",
)


def _given(ctx: click.Context, name: str) -> Any:
    return ctx.meta.get(_META + name)


@dataclass(frozen=True, slots=True)
class Scope:
    """Where a verb works.

    :ivar paths: the channel's; :func:`scope` has made and checked its directory.
    :ivar project: the project's directory.
    :ivar as_json: whether results are printed as JSON.
    :ivar settings: what holds for this command.
    :ivar context: the verb's; what is held for it is let go of when it ends.
    """

    paths: ChannelPaths
    project: str
    as_json: bool
    settings: Settings
    context: click.Context

    def names(self) -> Names:
        """The project's names on the channel."""
        return Names(self.paths, self.project, os.environ)

    def session(self, option: str | None) -> str:
        """The session that speaks: the option, the environment's, or the caller's own."""
        return self.use(self.names().speaker(option)).session

    def reader(self, option: str | None) -> tuple[str, bool]:
        """The session whose inbox is read, and whether it is one; it is said if it is not.

        A name behind ``--session`` that nobody used, and to which nobody wrote, is probably
        mistyped: reading must not make it known.
        """
        who = self.use(self.names().speaker(option))
        is_ours = who.sticky or who.source != "--session" or who.hold.claim.tree is not None
        if is_ours or FileCalls().stat(self.paths.inbox(who.session)) is not None:
            return who.session, True
        from intercom.client.outbox import look_up  # only where a name is to be found

        nearest = " or ".join(map(repr, look_up(self.paths, who.session)[1]))
        meant = f"; did you mean {nearest}?" if nearest else ""
        output.note(f"nobody on this channel ever used {who.session!r}{meant}")
        return who.session, False

    def again(self, *words: str) -> str:
        """See :func:`again`."""
        return again(self.context, *words)

    def use(self, identity: Identity) -> Identity:
        """Speak as this session until the verb ends."""
        self.context.call_on_close(identity.hold.close)
        return identity


def look(ctx: click.Context) -> Scope:
    """Find the channel and the project that are meant, without making or checking anything.

    What is odd about them is said the first time only.

    :raise BadConfig: a setting that says where they are cannot be used.
    """
    seen = ctx.meta.get(_META + "scope")
    if isinstance(seen, Scope):
        return seen
    found = settings(ctx)
    for text in found.unknown():
        output.note(text)
    paths = found.paths()
    if paths.name != found.value("channel"):
        output.note(f"the channel {found.value('channel')!r} is called {paths.name!r}")
    project = project_directory(_given(ctx, "project_dir"), _here())
    scope = Scope(paths, project, output.wants_json(found.value("format")), found, ctx)
    ctx.meta[_META + "scope"] = scope
    return scope


def settings(ctx: click.Context) -> Settings:
    """What holds for a command, by its common options, the environment and the user's file."""
    names = {"base": "dir", "channel": "channel", "format": "format"}
    return Settings(os.environ, {key: _given(ctx, name) for name, key in names.items()})


@contextlib.contextmanager
def typed() -> Iterator[None]:
    """Read values that were typed: one that cannot be is bad usage, not a bad file.

    :raise BadUsage: in place of ``BadConfig``.
    """
    try:
        yield
    except BadConfig as error:
        raise BadUsage(error.text, remedy=error.remedy, details=error.details) from error


def again(ctx: click.Context, *words: str) -> str:
    """Another command for the same channel and project, as it can be pasted into a shell."""
    options = {"base": "--dir", "channel": "--channel", "project_dir": "--project-dir"}
    given = [(option, _given(ctx, name)) for name, option in options.items()]
    said = [part for option, value in given if value for part in (option, str(value))]
    return shlex.join(["intercom", *said, *words])


def format_of(words: Sequence[str]) -> str:
    """The format that a command line asks for, even one that makes no sense otherwise."""
    form = None
    for word, after in zip(words, [*words[1:], ""], strict=False):
        if word == "--json":
            form = "json"
        elif word == "--format" and after in ("text", "json"):
            form = after
        elif word in ("--format=text", "--format=json"):
            form = word.partition("=")[2]
    try:
        return str(Settings(os.environ, {"format": form}).value("format"))
    except IntercomError:  # of which more will be said elsewhere
        return "auto"


def scope(ctx: click.Context) -> Scope:
    """Find the channel and the project that are meant, and make the channel's directory.

    What a power cut has taken from the inboxes is there again afterwards.

    :raise BadConfig: a setting cannot be used; a newer version has written the channel's files.
    :raise UnsafePlace: the channel's directory is not ours alone.
    :raise CannotCreate: it cannot be made.
    :raise SpoolError: what was lost cannot be given back now.
    """
    found = look(ctx)
    found.paths.prepare(output.note)
    ChannelFile(found.paths).check_format()
    lost = mend(found.paths)
    if lost:
        output.note(f"a power cut had taken {lost} messages, which are there again")
    return found


def _here() -> str:
    """The current directory; the root where it was removed under our feet."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"
