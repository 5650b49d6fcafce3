"""The real Claude Code runs our hooks, and its model is told of mail; only the model is played.

Off by default: ``pytest -m live_agents tests/live_agents/test_live_hooks.py`` runs it.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_twisted
from agent_home import AgentHome
from agent_hosts import CLAUDE_CODE, CLAUDE_RULES
from agent_programs import CLAUDE
from agent_scene import (
    ANSWER,
    QUESTION,
    TASK,
    Installed,
    Make,
    Shell,
    head,
    heard_the_answer,
    to_the_end,
)
from model_script import SHELL, Call, Say

pytestmark = pytest.mark.live_agents

ROOT = Path(__file__).resolve().parents[2]
SESSION = "5f0a1c9e-7d21-4b1f-8c33-0e9b8d7a6c54"
READS = "intercom poll --format text"
#: The agent reads its mail, and then more comes.
WORK = f"{READS} && intercom send --session ann --to api --text 'The second.'"


def settings() -> str:
    """Those of a person who has copied the lines of the page."""
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    (line,) = re.findall(r'^\{"hooks":.*\}$', page, re.MULTILINE)
    return json.dumps(json.loads(CLAUDE_RULES) | json.loads(line))


@pytest_twisted.ensureDeferred
async def test_claude_is_told_of_mail_at_a_prompt_and_once_at_the_end_of_a_turn(
    installed: Installed, home: AgentHome, model: Make
) -> None:
    """The end of the turn is told of the second message, goes on once, and ends then."""
    home.add(CLAUDE, installed)
    project = home.project("api")
    home.write(".claude/settings.json", settings())
    own = {"CLAUDE_CODE_SESSION_ID": SESSION}
    home.run(project, "intercom", "init", "--name", "api", **own).ok()
    first = ("send", "--session", "ann", "--to", "api", "--text", "The first.")
    home.run(project, "intercom", *first).ok()
    turns = Call(SHELL, {"command": WORK}), Say("It is read."), Say("There is more.")
    played = model("api", CLAUDE, *turns)
    words = (*CLAUDE_CODE.words("Read your mail."), "--session-id", SESSION)
    environ = CLAUDE_CODE.environ(played.url)
    (await home.begin(project, CLAUDE.command, *words, **environ)).ok()
    assert not played.script.mishaps
    told = ["\n".join(text for _who, text in one.told) for one in played.asked]
    mail = [text.count("1 unread message for api from ann") for text in told if READS in text]
    assert mail == [1, 1, 2]  # at the prompt; with the result; when the turn would have ended
    assert "The first." in played.asked[-1].results[0].text


#: As `intercom hook` begins.
BELL = "intercom: 1 unread message for"


@pytest_twisted.ensureDeferred
async def test_a_bridge_beside_it_keeps_no_hook_silent(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """What the bridge was pushed, and nobody asked it for, is told as the turn would end."""
    home.add(CLAUDE, installed)
    project = home.project("web")
    command = {"command": "intercom poll --peek --wait 20 >/dev/null"}
    played = model(
        "web",
        CLAUDE,
        Call("intercom.send", {"to": "shell", "text": QUESTION}),
        Call(SHELL, command),  # the answer has come, and it does not look
        Say("I have asked."),
        Call("intercom.inbox", {}),
        Say("I may, but `total` stays."),
    )
    CLAUDE_CODE.introduce(home, project)
    home.write(".claude/settings.json", settings())
    await shell.types("init", "--name", "shell")
    ended = CLAUDE_CODE.begin(home, played.url, project, TASK)
    message, sender = head(await shell.types("poll", "--wait", "60"))
    await shell.types("send", "--to", sender, "--reply-to", message, stdin=ANSWER)
    (await ended).ok()
    belled, heard = played.asked[3], played.asked[4]
    assert BELL not in played.asked[2].told_as("user")
    assert BELL in belled.told_as("user")
    heard_the_answer(message, heard.results[-1].text)
    to_the_end(played)


@pytest_twisted.ensureDeferred
async def test_a_session_that_is_resumed_has_its_name_its_mail_and_its_hooks(
    installed: Installed, home: AgentHome, model: Make, shell: Shell
) -> None:
    """Claude Code gives its bridge the id of a new session then; commands get the old one."""
    home.add(CLAUDE, installed)
    project = home.project("web")
    names = Call(SHELL, {"command": "intercom name --id-only --format text"})
    played = model(
        "web",
        CLAUDE,
        Call("intercom.send", {"to": "shell", "text": QUESTION}),
        Say("I have asked."),
        Call("intercom.inbox", {}),
        names,
        Say("I may, but `total` stays."),
    )
    CLAUDE_CODE.introduce(home, project)
    home.write(".claude/settings.json", settings())
    await shell.types("init", "--name", "shell")
    # an older name, whose session is over: it must not be taken for the one that is resumed
    gone = {"CLAUDE_CODE_SESSION_ID": SESSION}
    home.run(project, "intercom", "init", "--name", "older", **gone).ok()
    (await CLAUDE_CODE.begin(home, played.url, project, TASK)).ok()
    message, sender = head(await shell.types("poll"))
    await shell.types("send", "--to", sender, "--reply-to", message, stdin=ANSWER)
    resumed = replace(CLAUDE_CODE, allowing=("--continue",))
    (await resumed.begin(home, played.url, project, "Go on.")).ok()
    to_the_end(played)
    assert BELL in "\n".join(text for _, text in played.asked[2].told)
    heard_the_answer(message, played.asked[3].results[-1].text)
    assert played.asked[4].results[-1].text.strip() == sender
