"""Real agent programs talk through a real hub; only their models are played.

Off by default: ``pytest -m live_agents tests/live_agents`` runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import pytest_twisted
from agent_home import AgentHome, Finished
from agent_hosts import CODEX_CLI, HOSTS, Host
from agent_programs import CODEX, Program
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


def to_the_end(*models: FakeModel) -> None:
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


@pytest.mark.parametrize("host", HOSTS, ids=str)
@pytest_twisted.ensureDeferred
async def test_an_agent_talks_by_its_shell(
    host: Host, installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """A question and its answer by two commands; the hub knows that the answer was read."""
    home.add(host.program, installed)
    project = home.project("api")
    calls = [Call(SHELL, {"command": line}) for line in (ASKS, WAITS)]
    played = model("api", host.program, *calls, Say("I may, but `total` stays."))
    host.settle(home, played.url, project)
    host.introduce(home, project)
    await shell.types("init", "--name", "shell")
    ended = host.begin(home, played.url, project, TASK)
    message = await answered(shell)
    (await ended).ok()
    to_the_end(played)
    sent, polled = (result.text for result in played.asked[-1].results)
    assert f"{message} to shell: stored (disk)" in sent
    heard_the_answer(message, polled)
    assert "read" in await shell.types("status")


@pytest_twisted.ensureDeferred
async def test_codex_talks_from_its_sandbox(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Its commands may use no socket: they send and read through the files, and say so."""
    home.add(CODEX, installed)
    project = home.project("api")
    calls = [Call(SHELL, {"command": line}) for line in (PROBE, ASKS, WAITS)]
    played = model("api", CODEX, *calls, Say("I may, but `total` stays."))
    CODEX_CLI.settle(home, played.url, project)
    await shell.types("init", "--name", "shell")
    ended = CODEX_CLI.begin(home, played.url, project, TASK)
    message = await answered(shell)
    (await ended).ok()
    to_the_end(played)
    probed, sent, polled = (result.text for result in played.asked[-1].results)
    assert "Operation not permitted" in probed
    assert "stored in the inbox file of 'shell' instead" in sent
    heard_the_answer(message, polled)
