"""Real agent programs talk through a real hub; only their models are played.

Off by default: ``pytest -m live_agents tests/live_agents`` runs them.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import pytest_twisted
from agent_home import AgentHome
from agent_hosts import CLAUDE_CODE, CODEX_CLI, HOSTS, Host
from agent_programs import CODEX
from agent_scene import (
    ANSWER,
    QUESTION,
    TASK,
    Installed,
    Make,
    Shell,
    answered,
    head,
    heard_the_answer,
    to_the_end,
)
from model_script import SHELL, Call, Result, Say, Turn

pytestmark = pytest.mark.live_agents

# -- by the shell -----------------------------------------------------------------------------

#: What the models are told to do with the person at the shell.
ASKS = f"intercom send --format text --to shell --strict <<'END'\n{QUESTION}\nEND"
WAITS = "intercom poll --format text --wait 20"
#: A connection to any socket of this machine, and what comes of it.
PROBE = (
    """python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/x")' 2>&1 | tail -n 1"""
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


# -- by the tools -----------------------------------------------------------------------------

#: Claude Code tells its model the names of most tools only; it has to ask for the rest of them.
LOAD = Call("ToolSearch", {"query": "select:mcp__intercom__peers,mcp__intercom__ask"})


#: How the instructions of our server begin, and the description of our skill.
INSTRUCTIONS = "Messages between the agent sessions of this machine"
SKILL = "Send messages to the other coding agents and people on this machine"


def ready(host: Host, *turns: Turn) -> tuple[Turn, ...]:
    """A script, in which the model of Claude Code first asks for what it will need."""
    return (LOAD, *turns) if host is CLAUDE_CODE else turns


@pytest.mark.parametrize("host", HOSTS, ids=str)
@pytest_twisted.ensureDeferred
async def test_an_agent_talks_by_our_tools(
    host: Host, installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Its model sees who is there, sends, and is shown the answer; all without a question.

    What it does by commands is of the same session.
    """
    home.add(host.program, installed)
    project = home.project("api")
    calls = [
        Call("intercom.peers", {"all": True}),
        Call("intercom.send", {"to": "shell", "text": QUESTION}),
        Call("intercom.inbox", {"wait_s": 30}),
        Call(SHELL, {"command": "intercom name --id-only --format text"}),
    ]
    played = model("api", host.program, *ready(host, *calls, Say("I may, but `total` stays.")))
    host.settle(home, played.url, project)
    host.introduce(home, project)
    await shell.types("init", "--name", "shell")
    said = {"INTERCOM_SESSION": "api-agent"} if host.splits else {}
    ended = host.begin(home, played.url, project, TASK, **said)
    message = await answered(shell)
    (await ended).ok()
    to_the_end(played)
    peers, sent, shown, name = (result.text for result in played.asked[-1].results[-4:])
    found = re.search(r"you are ([\w-]+) on channel default", peers)
    assert found
    assert re.search(rf"\b{found[1]}\b(?!-)", name)
    assert "shell (says repo shell): not connected" in peers
    assert f"sent {message} to shell: stored (disk), not connected now" in sent
    heard_the_answer(message, shown)
    assert "read" in await shell.types("status")
    told = "\n".join(text for _, text in played.asked[-1].told)
    assert (INSTRUCTIONS in told) is host.instructs
    assert SKILL in told


@pytest_twisted.ensureDeferred
async def test_two_agents_exchange_a_question_and_an_answer(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Claude Code asks, and waits; Codex is shown the question, and answers it."""
    asks, answers = CLAUDE_CODE, CODEX_CLI
    web, api = home.project("web"), home.project("api")

    def peer(results: tuple[Result, ...]) -> dict[str, Any]:
        found = re.search(r"^([\w-]+) \(says codex, repo api\): connected", results[-1].text, re.M)
        assert found, results[-1].text
        return {"to": found[1], "text": QUESTION, "wait_s": 45}

    def reply(results: tuple[Result, ...]) -> dict[str, Any]:
        message, sender = head(results[-1].text)
        return {"to": sender, "text": ANSWER, "reply_to": message}

    answering = model(
        "api",
        answers.program,
        Call("intercom.peers", {}),
        Call("intercom.inbox", {"wait_s": 45}),
        Call("intercom.send", reply),
        Say("I have answered."),
    )
    asking = model(
        "web",
        asks.program,
        LOAD,
        Call("intercom.peers", {}),
        Call("intercom.ask", peer),
        Say("I may, but `total` stays."),
    )
    for host, project, played in ((answers, api, answering), (asks, web, asking)):
        home.add(host.program, installed)
        host.settle(home, played.url, project)
        host.introduce(home, project)
    await shell.types("init", "--name", "shell")
    waiting = answers.begin(home, answering.url, api, "Answer what you are asked.")
    await shell.until_somebody_is_here()
    asked = asks.begin(home, asking.url, web, "Ask the session in api about the schema.")
    (await asked).ok()
    (await waiting).ok()
    to_the_end(asking, answering)
    assert QUESTION in answering.asked[-1].results[1].text
    assert ANSWER in asking.asked[-1].results[2].text
