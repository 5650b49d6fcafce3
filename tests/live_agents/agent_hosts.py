"""How each agent program is told of its model and of intercom, and how it is given a task.

What a person has to do for intercom is in `Host.lines` and `Host.files`, exactly as docs/agents.md
has it. Everything else here is the test's: the address of the fake model, no updates, no reports.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from agent_home import NOWHERE, AgentHome, Finished
from agent_programs import CLAUDE, CODEX, COPILOT, GEMINI, OPENCODE, PI, Program
from twisted.internet.defer import Deferred

NO_KEY = "none"
#: Runs a command in a terminal of its own.
_IN_TERMINAL = "import os, pty, sys; sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[1:])))"


@dataclass(frozen=True)
class Host:
    """One agent program, ready for a test.

    :ivar lines: what a person types once, so that the model gets our tools.
    :ivar instructs: it gives our server's instructions to its model.
    :ivar splits: its tools and its commands cannot be known to be of one session: it gives them
        no id, and to its commands no terminal.
    :ivar skills: where the host looks for skills, below the home.
    :ivar files: what a person writes, by its name below the home.
    :ivar allowing: words behind the command that let it use our tools, and our commands in its
        shell, without a question: nobody is there to answer.
    :ivar model_files: what the test writes to name the model, given the model's address.
    :ivar environ: what the test says to name the model, given its address.
    :ivar words: a task for the program as words of a command.
    """

    program: Program
    lines: tuple[str, ...]
    skills: str
    words: Callable[[str], list[str]]
    files: Mapping[str, str] = field(default_factory=dict)
    allowing: tuple[str, ...] = ()
    instructs: bool = True
    splits: bool = False
    model_files: Callable[[str, Path], Mapping[str, str]] = lambda url, project: {}
    environ: Callable[[str], Mapping[str, str]] = lambda url: {}

    def __str__(self) -> str:
        return self.program.command

    def settle(self, home: AgentHome, url: str, project: Path) -> None:
        """Write what the program needs to know of its model."""
        for name, text in self.model_files(url, project).items():
            home.write(name, text)

    def introduce(self, home: AgentHome, project: Path) -> None:
        """Do what a person does for intercom."""
        for name, text in self.files.items():
            home.write(name, text)
        for line in (*self.lines, *self.skill_lines):
            home.run(project, "sh", "-c", line, **self.environ(NOWHERE)).ok()

    @property
    def skill_lines(self) -> tuple[str, ...]:
        """What a person types once, so that the model knows our commands."""
        place = f"~/{self.skills}/intercom"
        return (f"mkdir -p {place} && intercom skill > {place}/SKILL.md",)

    def begin(
        self, home: AgentHome, url: str, project: Path, task: str, **more: str
    ) -> Deferred[Finished]:
        """Give it a task, in a terminal as people have them; it ends by itself.

        :param more: further variables.
        """
        command = (self.program.command, *self.words(task), *self.allowing)
        words = (sys.executable, "-c", _IN_TERMINAL, *command)
        return home.begin(project, *words, **self.environ(url), **more)


# -- Claude Code ------------------------------------------------------------------------------

CLAUDE_RULES = """\
{"permissions": {"allow": ["mcp__intercom", "Bash(intercom *)"]}}
"""

CLAUDE_CODE = Host(
    CLAUDE,
    lines=("claude mcp add --scope user intercom -- intercom mcp",),
    files={".claude/settings.json": CLAUDE_RULES},
    skills=".claude/skills",
    words=lambda task: ["-p", task, "--output-format", "stream-json", "--verbose"],
    environ=lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": NO_KEY,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
)

# -- Codex ------------------------------------------------------------------------------------

CODEX_MODEL = """\
model = "scripted"
model_provider = "scripted"
check_for_update_on_startup = false

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
"""

CODEX_CLI = Host(
    CODEX,
    lines=("codex mcp add intercom -- intercom mcp",),
    skills=".agents/skills",
    # the sandbox that it has by itself in a project that is trusted
    words=lambda task: ["exec", "--json", "--sandbox", "workspace-write", task],
    model_files=lambda url, project: {".codex/config.toml": CODEX_MODEL.format(url=url)},
    environ=lambda url: {"SCRIPTED_KEY": NO_KEY},
)

# -- Gemini CLI -------------------------------------------------------------------------------

GEMINI_RULES = """\
[[rule]]
toolName = "run_shell_command"
commandPrefix = "intercom"
decision = "allow"
priority = 100
allowRedirection = true
"""

GEMINI_CLI = Host(
    GEMINI,
    splits=True,
    lines=("gemini mcp add --scope user --trust intercom intercom mcp",),
    skills=".agents/skills",
    words=lambda task: ["-p", task, "-m", "scripted"],
    files={".gemini/policies/intercom.toml": GEMINI_RULES},
    model_files=lambda url, project: {
        ".gemini/settings.json": json.dumps(
            {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        ),
        ".gemini/trustedFolders.json": json.dumps({str(project): "TRUST_FOLDER"}),
    },
    environ=lambda url: {
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": NO_KEY,
        "GEMINI_TELEMETRY_ENABLED": "false",
    },
)

# -- pi ---------------------------------------------------------------------------------------

PI_AGENT = Host(
    PI,
    instructs=False,
    lines=("pi mcp add intercom --exposure direct -- intercom mcp",),
    skills=".agents/skills",
    words=lambda task: ["-p", "--mode", "json", "--model", "scripted/scripted", task],
    model_files=lambda url, project: {
        ".pi/agent/models.json": json.dumps(
            {
                "providers": {
                    "scripted": {
                        "baseUrl": url,
                        "api": "anthropic-messages",
                        "apiKey": NO_KEY,
                        "models": [{"id": "scripted"}],
                    }
                }
            }
        )
    },
    environ=lambda url: {"PI_OFFLINE": "1"},
)

# -- OpenCode ---------------------------------------------------------------------------------

OPEN_CODE = Host(
    OPENCODE,
    splits=True,
    lines=("opencode mcp add intercom -- intercom mcp",),
    skills=".agents/skills",
    words=lambda task: ["run", "--format", "json", task],
    model_files=lambda url, project: {
        ".config/opencode/opencode.json": json.dumps(
            {
                "model": "scripted/scripted",
                "autoupdate": False,
                "share": "disabled",
                "provider": {
                    "scripted": {
                        "npm": "@ai-sdk/anthropic",
                        "name": "scripted",
                        "options": {"baseURL": f"{url}/v1", "apiKey": NO_KEY},
                        "models": {"scripted": {"name": "scripted"}},
                    }
                },
            }
        )
    },
    environ=lambda url: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
)

# -- Copilot CLI ------------------------------------------------------------------------------

COPILOT_CLI = Host(
    COPILOT,
    instructs=False,
    lines=("copilot mcp add intercom -- intercom mcp",),
    skills=".copilot/skills",
    words=lambda task: ["-p", task],
    allowing=("--allow-tool", "intercom", "--allow-tool", "shell(intercom:*)"),
    environ=lambda url: {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_TYPE": "anthropic",
        "COPILOT_PROVIDER_BASE_URL": url,
        "COPILOT_PROVIDER_API_KEY": NO_KEY,
        "COPILOT_MODEL": "scripted",
    },
)

HOSTS = (CLAUDE_CODE, CODEX_CLI, GEMINI_CLI, PI_AGENT, OPEN_CODE, COPILOT_CLI)
