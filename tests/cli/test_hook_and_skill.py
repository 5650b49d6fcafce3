"""``intercom hook`` and ``intercom skill`` as an agent's host runs them."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.cli.skill import SKILL
from intercom.showing.blocks import TRUST

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
TEXT = Path(SKILL).read_text("utf-8")


@pytest.fixture
def claude(agent: Make) -> Agent:
    """A session of Claude Code, which has taken a name."""
    made = agent("web")
    for name in [name for name in made.environ if name.startswith(("CURSOR_", "CLAUDE"))]:
        del made.environ[name]
    del made.environ["INTERCOM_SESSION"]
    made.environ["CLAUDE_CODE_SESSION_ID"] = "0198-web"
    made.session = made.run("init").ok()["session_id"]
    return made


def said(agent: Agent, event: str = "Stop", **more: object) -> bytes:
    """What the host says of an event."""
    fields = {"session_id": "0198-web", "cwd": str(agent.project), "hook_event_name": event}
    return json.dumps({**fields, **more}).encode()


def test_a_stopped_hub_keeps_no_prompt_waiting(
    claude: Agent, stopped: Callable[[int], None]
) -> None:
    """Once there is mail, and once there is none; the agent reads it by the command it is told."""
    claude.run("send", "--session", "ann", "--to", claude.session, "--text", "SECRET").ok()
    stopped(claude.hub_pid())
    for _ in range(2):
        told = claude.run("hook", "claude", "user-prompt-submit", stdin=said(claude))
        assert (told.status, told.err) == (0, "")
        text = told.result["hookSpecificOutput"]["additionalContext"]
        assert f"1 unread message for {claude.session} from ann; " in text
        assert "SECRET" not in text
    stop = said(claude, stop_hook_active=False)
    assert claude.run("hook", "claude", "stop", stdin=stop).out == b""
    command = text.partition("in a shell: intercom ")[2].split()
    assert b"SECRET" in claude.run(*command).out
    assert claude.run("hook", "claude", "user-prompt-submit", stdin=said(claude)).out == b""
    os.kill(claude.hub_pid(), signal.SIGCONT)


def test_without_a_hub_none_is_started(claude: Agent) -> None:
    """Nor anything made."""
    os.kill(claude.hub_pid(), signal.SIGTERM)
    claude.wait_until(lambda: not os.path.exists(claude.paths.socket))
    before = set(os.listdir(claude.paths.directory))  # of which a hub that ends takes some away
    ended = claude.run("hook", "claude", "stop", stdin=said(claude))
    assert (ended.status, ended.out, ended.err) == (0, b"", "")
    assert set(os.listdir(claude.paths.directory)) <= before


#: Words behind ``hook``, what the host says, what is set, and what of it is on standard error.
MISHAPS: list[tuple[list[str], bytes, dict[str, str], str]] = [
    (["claude", "stop"], b"{", {}, ""),
    (["claude", "stop"], b"", {"INTERCOM_DIR": "/nowhere"}, ""),
    (["claude", "stop"], b"", {"INTERCOM_SESSION": "all"}, "reserved"),
    (["claude", "stop"], b"", {"INTERCOM_FORMAT": "xml", "XDG_CONFIG_HOME": "/"}, ""),
    (["claude", "begin"], b"", {}, "claude user-prompt-submit, claude stop"),
    (["nobody", "stop"], b"", {}, "none of ours"),
    (["claude"], b"", {}, "EVENT"),
    ([], b"", {}, "HOST"),
    (["claude", "stop", "--bogus"], b"", {}, "--bogus"),
    (["claude", "stop", "--dir", "/nowhere"], b"", {}, ""),
]


def test_whatever_happens_its_status_is_0(agent: Make) -> None:
    """A host takes any other for an order. What went wrong is on standard error."""
    bob = agent("bob")
    for words, stdin, environ, word in MISHAPS:
        ended = bob.run("hook", *words, stdin=stdin, **environ)
        assert (words, ended.status, ended.out) == (words, 0, b"")
        assert word in ended.err
        assert bool(ended.err) == bool(word), ended.err
    assert not os.path.exists(bob.paths.directory)


def test_a_place_of_others_is_told_on_standard_error_only(claude: Agent) -> None:
    """One that others can write, or own; nothing in it is looked at."""
    claude.run("send", "--session", "ann", "--to", claude.session, "--text", "x").ok()
    base = str(claude.base)
    spoilt = [(lambda: os.chmod(base, 0o777), "others can write")]
    if os.geteuid() == 0:
        spoilt.append((lambda: os.chown(base, 65001, -1), "belongs to uid 65001"))
    for spoil, word in spoilt:
        spoil()
        ended = claude.run("hook", "claude", "stop", stdin=said(claude))
        os.chmod(base, 0o700)
        os.chown(base, os.geteuid(), -1)
        assert (ended.status, ended.out) == (0, b"")
        assert word in ended.err


def test_options_lead_to_another_channel(claude: Agent) -> None:
    """The command that reads the mail there says so, too."""
    words = ("--channel", "other")
    claude.run("send", *words, "--session", "ann", "--to", "bob", "--text", "x").ok()
    ended = claude.run("hook", "claude", "stop", *words, stdin=said(claude), INTERCOM_SESSION="bob")
    text = ended.ok()["hookSpecificOutput"]["additionalContext"]
    assert text.endswith("intercom --channel other poll --format text")


# -- the skill ----------------------------------------------------------------------------------


def test_the_skill_is_short_and_says_what_every_session_is_told(agent: Make) -> None:
    """Its head is what hosts read of every skill; the sentence about trust is the one of all."""
    assert agent("bob").run("skill").out.decode() == TEXT
    assert len(TEXT.splitlines()) < 60
    head = re.match(r"---\nname: intercom\ndescription: (.+)\n---\n", TEXT)
    assert head is not None
    assert len(head[1]) <= 1024
    assert TRUST in TEXT


def test_every_command_in_the_skill_works(agent: Make) -> None:
    """As it stands there, in a shell, against a hub; a question is asked and answered."""
    bob, api = agent("bob"), agent("api-agent")
    api.run("init").ok()
    blocks = re.findall(r"^```sh\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3
    assert " ".join(blocks).count("intercom ") == TEXT.count("\nintercom ")
    begun = time.monotonic()
    first = shell(bob, blocks[0])
    assert "channel default, hub pid" in first
    assert "nothing unread" in first
    assert len(re.findall(r"^msg_\w{12} to api-agent: stored ", first, re.MULTILINE)) == 1
    read = api.run("poll", "--format", "text").out.decode()
    assert '\nAny text, `with` $(whatever) "in" it.\n' in read
    reply = re.search(r"reply: intercom (send --to bob --reply-to msg_\w{12})\n", read)
    assert reply is not None
    api.run(*reply[1].split(), stdin=b"Yes.").ok()
    assert "to api-agent: stored" in shell(bob, blocks[1])
    answer = shell(bob, blocks[2])
    assert "from api-agent" in answer
    assert "\nYes.\n" in answer
    assert time.monotonic() - begun < 45  # nobody waited in vain


def shell(agent: Agent, script: str) -> str:
    """What a script prints, each command of it having succeeded."""
    there = agent.project / "bin"
    there.mkdir(exist_ok=True)
    program = there / "intercom"
    program.write_text(f'#!/bin/sh\nexec {" ".join(agent.program)} "$@"\n')
    program.chmod(0o755)
    made = type(agent)(agent.base, agent.project, agent.session)
    made.program = ["sh", "-e", "-c", script]
    made.environ = {**agent.environ, "PATH": f"{there}:{os.environ['PATH']}"}
    ended = made.run()
    assert ended.status == 0, ended.err
    return str(ended.out.decode())
