"""What a fake model is to do, and what it was asked, in words of no vendor.

A program of agents sends its whole conversation with every request. So the model needs no
memory: a request tells how many turns were played, and one that is repeated gets the same turn
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

#: The tool that runs a command, in a script.
SHELL = "shell"
#: What hosts call it.
_SHELLS = frozenset({"Bash", "bash", "exec_command", "run_shell_command"})
#: How hosts name the tools of our server; in a script they are ``intercom.send`` and so on.
_OURS = re.compile(r"(?:mcp_{1,2})?intercom(?:__|[_-])(\w+)")


def known_as(name: str) -> str:
    """A tool's name in scripts, from that which its host gives it."""
    if name in _SHELLS:
        return SHELL
    ours = _OURS.fullmatch(name)
    return f"intercom.{ours[1]}" if ours else name


@dataclass(frozen=True)
class Tool:
    """What a host offers to its model.

    :ivar name: as the host has it.
    """

    name: str
    description: str


def toolbox(tools: Iterable[Tool]) -> dict[str, Tool]:
    """Tools by their names in scripts."""
    return {known_as(tool.name): tool for tool in tools}


@dataclass(frozen=True)
class Result:
    """What a tool gave back.

    :ivar failed: the host says so; None where its dialect has no place for it.
    """

    text: str
    failed: bool | None = None


@dataclass(frozen=True)
class Asked:
    """One request, as far as a script or a test looks at it.

    :ivar tools: what the model may call, by the names that a script uses.
    :ivar told: everything that it was told in this conversation, with the role: instructions,
        prompts, what the host puts between them.
    :ivar results: what its calls gave back, the oldest first.
    :ivar turns: how often it has said or called something.
    """

    dialect: str
    model: str
    tools: dict[str, Tool]
    told: tuple[tuple[str, str], ...]
    results: tuple[Result, ...]
    turns: int

    def told_as(self, role: str) -> str:
        """All that came under one role."""
        return "\n".join(text for who, text in self.told if who == role)


@dataclass(frozen=True)
class Say:
    """The model says something, and its turn is over."""

    text: str


@dataclass(frozen=True)
class Call:
    """The model calls a tool.

    :ivar tool: as a script says; what a model sends is the host's name for it.
    :ivar arguments: them, or what computes them from the results so far.
    """

    tool: str
    arguments: dict[str, Any] | Callable[[tuple[Result, ...]], dict[str, Any]]


Turn = Say | Call


class OffScript(Exception):
    """The conversation went where the script does not go."""


@dataclass
class Script:
    """The turns of one conversation.

    :ivar played: the turns that were given, with the arguments as they were sent.
    :ivar mishaps: what kept the script from going on; a test wants this to be empty.
    """

    turns: list[Turn]
    played: dict[int, Turn] = field(default_factory=dict)
    mishaps: list[str] = field(default_factory=list)

    def answer(self, asked: Asked) -> Turn:
        """The turn for a request; where there is none, words that say why."""
        at = asked.turns
        try:
            turn = self._turn(at, asked)
        except Exception as error:
            self.mishaps.append(f"turn {at}: {type(error).__name__}: {error}")
            return Say(f"The script cannot go on: {error}")
        self.played[at] = turn
        return turn

    def _turn(self, at: int, asked: Asked) -> Turn:
        if at >= len(self.turns):
            raise OffScript(f"there are {len(self.turns)} turns")
        turn = self.turns[at]
        if isinstance(turn, Say):
            return turn
        if turn.tool not in asked.tools:
            raise OffScript(f"{turn.tool!r} is not among the tools {sorted(asked.tools)}")
        arguments = turn.arguments
        return Call(
            turn.tool, arguments if isinstance(arguments, dict) else arguments(asked.results)
        )

    def over(self) -> bool:
        """Whether the last turn was given."""
        return len(self.turns) - 1 in self.played
