"""The hosts whose hooks we answer, and their events: a row each.

A host gives its hook one JSON object on standard input, and takes one on standard output.
Another host, or another event, is another row here and a file of its outputs in the tests.
Pure.
"""

from __future__ import annotations

from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


class Event(NamedTuple):
    """A moment at which a host asks.

    :ivar name: as the host calls it, and as it wants it back.
    :ivar goes_on: whether the agent goes on because of what is said here, without anybody
        having asked it to: then the same message is never told of twice, and not without end.
    """

    name: str
    goes_on: bool = False

    @property
    def word(self) -> str:
        """What stands for it on a command line: ``user-prompt-submit``."""
        parts = "".join(f"-{c.lower()}" if c.isupper() else c for c in self.name)
        return parts.lstrip("-")

    def for_model(self, text: str) -> dict[str, Any]:
        """The answer that puts a text before the model."""
        return {"hookSpecificOutput": {"hookEventName": self.name, "additionalContext": text}}

    def for_user(self, text: str) -> dict[str, Any]:
        """The answer that shows a text to the user, and leaves the model alone."""
        return {"systemMessage": text}


class Host(NamedTuple):
    """A program that runs agents.

    :ivar kind: what its sessions are called among callers (``intercom.client.callers``).
    :ivar variable: holds the session's id in the environment of what it runs.
    :ivar directories: variables that may hold the project's directory.
    :ivar strangers: how variables begin by which another host is known that runs this one's
        hooks, too; ``familiar`` are those of them that say nothing of the kind.
    """

    name: str
    kind: str
    variable: str
    directories: tuple[str, ...]
    events: tuple[Event, ...]
    strangers: tuple[str, ...] = ()
    familiar: frozenset[str] = frozenset()

    def is_stranger(self, environ: Mapping[str, str]) -> bool:
        """Whether it is another host that calls."""
        return any(
            name.startswith(self.strangers) and name not in self.familiar for name in environ
        )

    def event(self, word: str) -> Event | None:
        """An event by its word or its own name."""
        return next((one for one in self.events if word in (one.word, one.name)), None)


HOSTS = {
    host.name: host
    for host in (
        Host(
            name="claude",
            kind="claude",
            variable="CLAUDE_CODE_SESSION_ID",
            directories=("CLAUDE_PROJECT_DIR",),
            events=(Event("UserPromptSubmit"), Event("Stop", goes_on=True)),
            # Cursor reads Claude Code's settings and runs its hooks. A terminal in Cursor's
            # window has the familiar one, and there Claude Code itself may run.
            strangers=("CURSOR_",),
            familiar=frozenset({"CURSOR_TRACE_ID"}),
        ),
    )
}
