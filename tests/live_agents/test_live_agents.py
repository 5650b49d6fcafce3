"""Real agent programs talk through a real hub; only their models are played.

Off by default: ``pytest -m live_agents tests/live_agents`` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_twisted
from agent_home import AgentHome, Finished, configure_codex, start_claude, start_codex
from agent_programs import CLAUDE, CODEX, Program
from fake_model import FakeModel
from model_script import SHELL, Call, Say
from transcript import Transcript
from twisted.internet.threads import deferToThread

pytestmark = pytest.mark.live_agents

Installed = Callable[[Program], Path]
Make = Callable[..., FakeModel]
QUESTION = "May I change the schema of /orders?"
ANSWER = "Yes, but keep `total`; the tests read it."


class Shell:
    """A person at a shell, in a project of the same home."""

    def __init__(self, home: AgentHome, transcript: Transcript) -> None:
        self.home = home
        self.transcript = transcript
        self.project = home.project("shell")

    async def types(self, *words: str, stdin: str = "") -> str:
        """Run a command, and return what it prints as text."""
        done: Finished = await deferToThread(
            self.home.run,
            self.project,
            "intercom",
            *words,
            stdin=stdin,
            INTERCOM_SESSION="shell",
            INTERCOM_FORMAT="text",
        )
        printed = done.ok() + done.err
        shown = " ".join(("intercom", *words))
        self.transcript.hear("shell", f"echo '{stdin}' | {shown}" if stdin else shown, printed)
        return printed


@pytest.fixture
def shell(home: AgentHome, transcript: Transcript) -> Shell:
    return Shell(home, transcript)


def played(*models: FakeModel) -> None:
    """Every script came to its end, and nothing else was asked for."""
    for one in models:
        assert not one.script.mishaps
        assert one.script.over()


# -- by the shell -----------------------------------------------------------------------------

#: What the models are told to do with the person at the shell.
ASKS = f"intercom send --format text --to shell --strict <<'END'\n{QUESTION}\nEND"
WAITS = "intercom poll --format text --wait 20"
TASK = "Ask the person at the shell whether you may change the schema."
#: A connection to any socket of this machine, and what comes of it.
PROBE = (
    """python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/x")' 2>&1 | tail -n 1"""
)


async def answered(shell: Shell) -> str:
    """The person hears the question and answers it; return what she heard."""
    heard = await shell.types("poll", "--wait", "60")
    found = re.search(r"(msg_\w+) from (\S+),", heard)
    assert found, heard
    assert QUESTION in heard
    message, sender = found.groups()
    await shell.types("send", "--to", sender, "--reply-to", message, stdin=ANSWER)
    return message


def heard_the_answer(message: str, printed: str) -> None:
    """A poll has shown the answer to this message."""
    assert re.search(
        rf"from shell, [\w ]+, in reply to {message}\]\n\| {re.escape(ANSWER)}", printed
    )


@pytest_twisted.ensureDeferred
async def test_codex_talks_from_its_sandbox(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Its commands may use no socket; sent and read is through the files, and the hub knows."""
    home.add(CODEX, installed(CODEX))
    calls = [Call(SHELL, {"command": line}) for line in (PROBE, ASKS, WAITS)]
    codex = model("api", CODEX, *calls, Say("I may, but `total` stays."))
    configure_codex(home, codex.url)
    await shell.types("init", "--name", "shell")
    ended = start_codex(home, home.project("api"), TASK)
    message = await answered(shell)
    (await ended).ok()
    played(codex)
    probed, sent, polled = (result.text for result in codex.asked[-1].results)
    assert "Operation not permitted" in probed
    assert "stored in the inbox file of 'shell' instead" in sent
    assert f"{message} to shell: stored (disk)" in sent
    heard_the_answer(message, polled)
    assert "read" in await shell.types("status")


@pytest_twisted.ensureDeferred
async def test_claude_talks_by_its_shell(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Its commands may do what the person's may, and need one rule for all of ours."""
    home.add(CLAUDE, installed(CLAUDE))
    calls = [Call(SHELL, {"command": line}) for line in (ASKS, WAITS)]
    claude = model("web", CLAUDE, *calls, Say("I may, but `total` stays."))
    await shell.types("init", "--name", "shell")
    allowed = ("--allowedTools", "Bash(intercom *)")
    ended = start_claude(home, claude.url, home.project("web"), TASK, *allowed)
    message = await answered(shell)
    (await ended).ok()
    played(claude)
    sent, polled = claude.asked[-1].results
    assert (sent.failed, polled.failed) == (False, False)
    assert f"{message} to shell: stored (disk)" in sent.text
    heard_the_answer(message, polled.text)
    assert "read" in await shell.types("status")
