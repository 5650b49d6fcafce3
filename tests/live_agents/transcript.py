"""What was said in a test with real agents, for people to read and for programs."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from model_script import Asked, Call, Turn

#: How the names of our tools begin, in scripts.
OURS = "intercom."


@dataclass
class Transcript:
    """The turns of all agents of one test, in the order in which they came.

    :ivar hide: what is written for paths that only this run has.
    """

    hide: dict[str, str]
    programs: dict[str, str] = field(default_factory=dict)
    entries: list[dict[str, Any]] = field(default_factory=list)

    def of(self, who: str, program: str) -> Callable[[Asked, Turn], None]:
        """What keeps the turns of one agent."""
        self.programs[who] = program
        seen = 0

        def note(asked: Asked, turn: Turn) -> None:
            nonlocal seen
            for result in asked.results[seen:]:
                self.entries.append({"agent": who, "got": result.text})
            seen = len(asked.results)
            tools = sorted(name for name in asked.tools if name.startswith(OURS))
            kind = "calls" if isinstance(turn, Call) else "says"
            what = asdict(turn) if isinstance(turn, Call) else turn.text
            self.entries.append({"agent": who, kind: what, "offered": tools})

        return note

    def hear(self, who: str, command: str, printed: str) -> None:
        """Add what somebody typed into a shell, and what came of it."""
        self.entries.append({"agent": who, "types": command})
        self.entries.append({"agent": who, "got": printed})

    def text(self) -> str:
        """All of it as text: who does what, and who gets what, behind a bar."""
        lines = [f"{who}: {program}" for who, program in self.programs.items()]
        for entry in self.entries:
            who = entry["agent"]
            if "got" in entry:
                lines += ["", f"{who} gets"]
                lines += [f"  | {line}".rstrip() for line in entry["got"].splitlines()]
            elif "calls" in entry:
                call = entry["calls"]
                arguments = json.dumps(call["arguments"], ensure_ascii=False)
                lines += ["", f"{who} calls {call['tool']} {arguments}"]
            elif "types" in entry:
                lines += ["", f"{who} types {entry['types']}"]
            else:
                lines += ["", f"{who} says {entry['says']}"]
        return self._hidden("\n".join(lines) + "\n")

    def leave(self, directory: Path, name: str) -> None:
        """Write ``NAME.txt`` and ``NAME.json``."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{name}.txt").write_text(self.text(), "utf-8")
        whole = {"programs": self.programs, "entries": self.entries}
        text = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
        (directory / f"{name}.json").write_text(self._hidden(text), "utf-8")

    def _hidden(self, text: str) -> str:
        for path, name in self.hide.items():
            text = text.replace(path, name)
        return text
