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
    :ivar node: a later Node than the oldest that is supported has to be there: this one.
    """

    title: str
    package: str
    version: str
    command: str
    node: Program | None = None

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
                env=_environ(place),
                check=False,
            )
            assert done.returncode == 0, done.stderr[-2000:]
        environ = _environ(place)
        if self.node is not None:
            environ["PATH"] = f"{self.node.install(cache).parent}:{environ['PATH']}"
        said = subprocess.run(
            [found, "--version"],
            capture_output=True,
            text=True,
            timeout=120,
            env=environ,
            check=True,
        )
        assert self.version in said.stdout, said.stdout
        return found


def _environ(place: Path) -> dict[str, str]:
    """For npm, and for programs that are run as they are installed: a home beside them.

    npm's own settings and its cache stay those of whoever runs the test.
    """
    home = os.path.expanduser("~")
    own = {
        "HOME": str(place),
        "NPM_CONFIG_USERCONFIG": os.environ.get("NPM_CONFIG_USERCONFIG", f"{home}/.npmrc"),
        "NPM_CONFIG_CACHE": os.environ.get("NPM_CONFIG_CACHE", f"{home}/.npm"),
    }
    passed = {key: value for key, value in os.environ.items() if not key.startswith("XDG_")}
    return passed | own


NODE_22 = Program("Node", "node", "22.23.3", "node")
CLAUDE = Program("Claude Code", "@anthropic-ai/claude-code", "2.1.332", "claude")
CODEX = Program("Codex", "@openai/codex", "0.171.0", "codex")
GEMINI = Program("Gemini CLI", "@google/gemini-cli", "0.61.0", "gemini")
PI = Program("pi", "@earendil-works/pi-coding-agent", "1.6.0", "pi", NODE_22)
OPENCODE = Program("OpenCode", "opencode-ai", "1.18.33", "opencode")
COPILOT = Program("Copilot CLI", "@github/copilot", "1.0.102", "copilot")


def missing() -> str:
    """Why nothing can be installed here; empty if it can."""
    absent = [name for name in ("node", "npm") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not found: the agent programs come from npm" if absent else ""
