"""Where a verb works: the channel and the project that its common options mean."""

from __future__ import annotations

import os

from intercom.cli import output
from intercom.client.speaking import Identity, as_given
from intercom.errors import BadConfig, BadUsage, IntercomError
from intercom.paths import ChannelPaths
from intercom.plain import cached_property, contextmanager
from intercom.settings.files import ChannelFile
from intercom.settings.lookup import Settings
from intercom.spool.boots import boot_id, boots
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from intercom.client.identity import Names


class Given:
    """The common options of one command line, and what is held until its verb ends.

    :param value: gives what an option was given, by its name in the program; None: it was not.
    :param on_close: takes what is to be called when the verb ends.
    """

    def __init__(
        self,
        value: Callable[[str], Any],
        on_close: Callable[[Callable[[], object]], object],
    ) -> None:
        self._value = value
        self._on_close = on_close
        self._seen: Scope | None = None

    def settings(self) -> Settings:
        """What holds: by the common options, the environment and the user's file."""
        names = {"base": "dir", "channel": "channel", "format": "format"}
        return Settings(os.environ, {key: self._value(name) for name, key in names.items()})

    def look(self) -> Scope:
        """Find the channel and the project that are meant, without making or checking anything.

        What is odd about them is said the first time only.

        :raise BadConfig: a setting that says where they are cannot be used.
        """
        if self._seen is not None:
            return self._seen
        found = self.settings()
        for text in found.unknown():
            output.note(text)
        paths = found.paths()
        if paths.name != found.value("channel"):
            output.note(f"the channel {found.value('channel')!r} is called {paths.name!r}")
        project = self._value("project_dir")
        self._seen = Scope(self, paths, project, output.wants_json(found.value("format")), found)
        return self._seen

    def scope(self) -> Scope:
        """The same, and make the channel's directory.

        What a power cut has taken from the inboxes is there again afterwards.

        :raise BadConfig: a setting cannot be used; a newer version has written the channel's
            files.
        :raise UnsafePlace: the channel's directory is not ours alone.
        :raise CannotCreate: it cannot be made.
        :raise SpoolError: what was lost cannot be given back now.
        """
        found = self.look()
        found.paths.prepare(output.note)
        ChannelFile(found.paths).check_format()
        begun = boots(found.paths, FileCalls())
        if begun and begun != {boot_id()}:
            from intercom.client.mending import mend  # after a power cut only

            lost = mend(found.paths)
            if lost:
                output.note(f"a power cut had taken {lost} messages, which are there again")
        return found

    def again(self, *words: str) -> str:
        """Another command for the same channel and project, as it can be pasted into a shell."""
        import shlex  # for what is said only

        options = {"base": "--dir", "channel": "--channel", "project_dir": "--project-dir"}
        given = [(option, self._value(name)) for name, option in options.items()]
        said = [part for option, value in given if value for part in (option, str(value))]
        return shlex.join(["intercom", *said, *words])

    def hold(self, identity: Identity) -> Identity:
        """Speak as this session until the verb ends."""
        self._on_close(identity.hold.close)
        return identity


class Scope:
    """Where a verb works.

    :ivar given: the common options.
    :ivar paths: the channel's; :meth:`Given.scope` has made and checked its directory.
    :param project: what was said of the project's directory, None for nothing.
    :ivar as_json: whether results are printed as JSON.
    :ivar settings: what holds for this command.
    """

    def __init__(
        self,
        given: Given,
        paths: ChannelPaths,
        project: str | None,
        as_json: bool,
        settings: Settings,
    ) -> None:
        self.given = given
        self.paths = paths
        self._project = project
        self.as_json = as_json
        self.settings = settings

    @cached_property
    def project(self) -> str:
        """The project's directory."""
        from intercom.client.tree import project_directory  # not where a name was given

        return project_directory(self._project, _here())

    def names(self) -> Names:
        """The project's names on the channel."""
        from intercom.client.identity import Names  # not where a name was given

        return Names(self.paths, self.project, os.environ)

    def session(self, option: str | None) -> str:
        """The session that speaks: the option, the environment's, or the caller's own."""
        return self._speaker(option).session

    def reader(self, option: str | None) -> tuple[str, bool]:
        """The session whose inbox is read, and whether it is one; it is said if it is not.

        A name behind ``--session`` that nobody used, and to which nobody wrote, is probably
        mistyped: reading must not make it known.
        """
        who = self._speaker(option)
        is_ours = who.sticky or who.source != "--session" or who.hold.claim.tree is not None
        if is_ours or FileCalls().stat(self.paths.inbox(who.session)) is not None:
            return who.session, True
        from intercom.client.offline import look_up  # only where a name is to be found

        nearest = " or ".join(map(repr, look_up(self.paths, who.session)[1]))
        meant = f"; did you mean {nearest}?" if nearest else ""
        output.note(f"nobody on this channel ever used {who.session!r}{meant}")
        return who.session, False

    def _speaker(self, option: str | None) -> Identity:
        return self.use(as_given(self.paths, option, os.environ) or self.names().speaker())

    def again(self, *words: str) -> str:
        """See :meth:`Given.again`."""
        return self.given.again(*words)

    def use(self, identity: Identity) -> Identity:
        """Speak as this session until the verb ends."""
        return self.given.hold(identity)


@contextmanager
def typed() -> Iterator[None]:
    """Read values that were typed: one that cannot be is bad usage, not a bad file.

    :raise BadUsage: in place of ``BadConfig``.
    """
    try:
        yield
    except BadConfig as error:
        raise BadUsage(error.text, remedy=error.remedy, details=error.details) from error


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


def _here() -> str:
    """The current directory; the root where it was removed under our feet."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return "/"
