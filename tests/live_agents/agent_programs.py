"""The agent programs, at the versions that were tried, as npm installs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

INSTALL_S = 900


@dataclass(frozen=True)
class Program:
    """A program of the npm registry.

    :ivar command: what its package puts into ``node_modules/.bin``.
    """

    title: str
    package: str
    version: str
    command: str

    @property
    def named(self) -> str:
        """As a reader knows it."""
        return f"{self.title} {self.version}"

    def install(self, cache: Path) -> Path:
        """Install it below a directory, unless it is there, and return its command.

        :raises AssertionError: with npm's last words, or because another version came.
        """
        place = cache / f"{self.command}-{self.version}"
        found = place / "node_modules" / ".bin" / self.command
        if not found.exists():
            place.mkdir(parents=True, exist_ok=True)
            words = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place)]
            done = subprocess.run(
                [*words, f"{self.package}@{self.version}"],
                capture_output=True,
                text=True,
                timeout=INSTALL_S,
                cwd=place,
                check=False,
            )
            assert done.returncode == 0, done.stderr[-2000:]
        said = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            env={"PATH": os.environ["PATH"], "HOME": str(place)},
            check=True,
        )
        assert self.version in said.stdout, said.stdout
        return found


CLAUDE = Program("Claude Code", "@anthropic-ai/claude-code", "2.1.332", "claude")
CODEX = Program("Codex", "@openai/codex", "0.171.0", "codex")


def missing() -> str:
    """Why nothing can be installed here; empty if it can."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not found: the agent programs come from npm" if absent else ""
