"""``intercom skill``: what an agent has to know of intercom, as a skill file."""

from __future__ import annotations

import os

import click

from intercom.cli import output

#: The skill, as hosts of agents take it.
SKILL = os.path.join(os.path.dirname(__file__), "SKILL.md")


@click.command
def skill() -> None:
    """Print what an agent has to know of this: a SKILL.md for its host's directory of skills.

    \b
    mkdir -p ~/.claude/skills/intercom
    intercom skill > ~/.claude/skills/intercom/SKILL.md
    """  # noqa: D301  the backspace tells click to keep the lines
    with open(SKILL, "rb") as file:
        output.write(file.read())
