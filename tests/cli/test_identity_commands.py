"""``init`` and ``name``: who one is, from the command line."""

from __future__ import annotations

import json
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.client.roster import ROSTER

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]
NO_SOCKETS = Path(__file__).resolve().parents[1] / "transport" / "no_sockets.py"
#: By how their names begin: what would make a caller of this test's own surroundings.
SURROUNDINGS = ("CLAUDE", "CODEX", "KIMI", "COPILOT", "TMUX", "ZELLIJ", "STY", "WEZTERM", "KITTY")


@pytest.fixture
def project(agent: Make) -> Make:
    """Make projects whose commands have no name yet, and come from no agent and no pane."""

    def make(name: str) -> Agent:
        made = agent(name)
        made.environ = {
            name: value
            for name, value in made.environ.items()
            if not name.startswith(("INTERCOM_SESSION", *SURROUNDINGS))
        }
        made.environ["XDG_STATE_HOME"] = str(made.project.parent / "state")
        made.environ["INTERCOM_NO_SPAWN"] = "1"
        return made

    return make


@pytest.fixture
def api(project: Make) -> Agent:
    """One such project."""
    return project("api")


@contextmanager
def connected(agent: Agent, session: str) -> Iterator[None]:
    """A program of another kind that is connected, and knows nothing of claims."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(agent.paths.socket)
        sock.sendall(json.dumps({"type": "register", "from_session": session}).encode() + b"\n")
        sock.recv(1000)
        yield


def test_a_place_is_taken_under_a_name_of_the_roster(api: Agent) -> None:
    """Who that is stands beside; the second time it is the name that one had."""
    ready = api.run("init").ok()
    assert (ready["name"], ready["title"], ready["ship"]) in {one[1:] for one in ROSTER}
    assert ready["is_sticky"] is False
    assert (ready["status"], ready["project_dir"]) == ("ready", str(api.project))
    again = api.run("init").ok()
    assert again["is_sticky"] is True
    assert again["session_id"] == ready["session_id"]
    text = api.run("init", "--format", "text").out.decode()
    assert ready["name"] in text
    assert ready["ship"] in text


def test_any_command_gives_a_name_to_one_who_has_none(api: Agent) -> None:
    """And all of them use it from then on."""
    name = api.run("poll").ok()["session"]
    assert name in {one.slug for one in ROSTER}
    assert api.run("send", "--to", "x", "--text", "x").ok()["envelope"]["from_session"] == name
    assert api.run("init").ok()["session_id"] == name
    assert api.run("name").ok()["session_id"] == name


def test_another_name_can_be_had(api: Agent) -> None:
    """What lies unread under the old one is said."""
    name = api.run("init").ok()["session_id"]
    api.run("send", "--to", name, "--text", "x").ok()
    ended = api.run("init", "--force-new")
    another = ended.ok()["session_id"]
    assert another != name
    assert ended.result["is_sticky"] is False
    assert f"1 unread under the name that you had, {name}" in ended.err
    assert f"poll --session {name}" in ended.err
    assert api.run("poll").ok()["session"] == another


def test_the_directory_within_a_project_does_not_matter_and_the_project_does(
    project: Make,
) -> None:
    """A stray ``cd`` makes nobody else of one."""
    api, web = project("api"), project("web")
    below = api.project / "src" / "deep"
    below.mkdir(parents=True)
    names = [api.run("name", "--id-only").out]
    names.append(
        subprocess.run(
            api.command("name", "--id-only"), cwd=below, env=api.environ, capture_output=True,
            check=True,
        ).stdout
    )  # fmt: skip
    assert len(set(names)) == 1
    other = api.run("name", "--id-only", "--project-dir", str(web.project)).out
    assert other not in names
    assert web.run("name", "--id-only").out == other


def test_callers_of_one_project_are_told_apart(api: Agent) -> None:
    """Two agents' sessions, a pane, and whoever is none of these."""
    names = [
        api.run("name", "--id-only", **environ).out.decode().strip()
        for environ in (
            {"CLAUDE_CODE_SESSION_ID": "a"},
            {"CODEX_THREAD_ID": "a"},
            {"TMUX": "/t,1,0", "TMUX_PANE": "%1"},
            {},
            {"CLAUDE_CODE_SESSION_ID": "a"},
        )
    ]
    assert names == [names[0], f"{names[0]}-2", f"{names[0]}-3", f"{names[0]}-4", names[0]]


def test_it_is_told_who_one_is_and_why(api: Agent) -> None:
    """For programs and people."""
    told = api.run("name", CLAUDE_CODE_SESSION_ID="abc").ok()
    assert (told["source"], told["caller"]) == ("claude", "claude:abc")
    assert told["channel"] == "default"
    text = api.run("name", "--format", "text", CLAUDE_CODE_SESSION_ID="abc").out.decode()
    assert text.startswith(f"{told['session_id']}: {told['name']}, {told['title']}, ")
    assert "this claude session" in text
    told = api.run("name", INTERCOM_SESSION="me").ok()
    assert (told["session_id"], told["source"], told["caller"]) == ("me", "INTERCOM_SESSION", None)
    assert (told["name"], told["title"], told["ship"]) == ("me", "", "")
    text = api.run("name", "--format", "text", INTERCOM_SESSION="me").out.decode()
    assert "because INTERCOM_SESSION says so" in text


def test_one_who_has_asked_for_his_name_is_known(project: Make) -> None:
    """Whoever writes to him is not told that there is nobody."""
    api, web = project("api"), project("web")
    name = api.run("name", "--id-only").out.decode().strip()
    assert web.run("send", "--to", name, "--text", "x").ok()["known"] is True


def test_the_names_of_the_project_are_listed(api: Agent) -> None:
    """The list itself takes none."""
    assert api.run("name", "--all").ok()["names"] == []
    assert "no names yet" in api.run("name", "--all", "--format", "text").out.decode()
    first = api.run("name", CODEX_THREAD_ID="a").ok()["session_id"]
    second = api.run("name").ok()["session_id"]
    with api.start("listen") as ear:
        api.wait_until(lambda: api.run("name", "--all").ok()["names"][1]["live"])
        rows = api.run("name", "--all", CODEX_THREAD_ID="a").ok()["names"]
        text = api.run("name", "--all", "--format", "text").out.decode()
        ear.kill()
    assert [(row["session_id"], row["yours"], row["live"], row["gone"]) for row in rows] == [
        (first, True, False, False),
        (second, False, True, False),
    ]
    assert f"{second} (you): in use, the name of commands without a terminal" in text
    assert api.run("name", "--all", "--id-only").out.decode().split() == [first, second]


def test_a_name_can_be_claimed_and_another_projects_not(project: Make) -> None:
    """Status 77, and whose it is."""
    api, web = project("api"), project("web")
    assert api.run("name", "--claim", "api-agent").ok()["session_id"] == "api-agent"
    assert api.run("poll").ok()["session"] == "api-agent"
    assert web.run("init", "--name", "web-agent").ok()["session_id"] == "web-agent"
    for words in (("name", "--claim", "api-agent"), ("init", "--name", "api-agent")):
        ended = web.run(*words)
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        assert str(api.project) in ended.result["message"]
        assert ended.result["remedy"]
    assert web.run("poll").ok()["session"] == "web-agent"


def test_a_name_that_is_given_is_said_to_go_before(api: Agent) -> None:
    """And none can be drawn in spite of it."""
    for words in (("name", "--claim"), ("init", "--name")):
        ended = api.run(*words, "chosen", INTERCOM_SESSION="given")
        assert ended.ok()["session_id"] == "chosen"
        assert "still speak as 'given'" in ended.err
    assert api.run("name").ok()["session_id"] == "chosen"
    assert api.run("init", "--force-new", INTERCOM_SESSION="given").status == 2
    assert api.run("init", "--force-new", "--name", "x").status == 2
    assert api.run("name", "--all", "--claim", "x").status == 2


def test_a_name_that_a_foreign_program_is_connected_as_is_left_to_it(project: Make) -> None:
    """The hub is asked; it need not be one of ours that is connected."""
    api = project("api")
    del api.environ["INTERCOM_NO_SPAWN"]
    name = api.run("init", CODEX_THREAD_ID="a").ok()["session_id"]
    with connected(api, f"{name}-2"):
        assert api.run("name", CODEX_THREAD_ID="b").ok()["session_id"] == f"{name}-3"
        ended = api.run("name", "--claim", f"{name}-2", CODEX_THREAD_ID="c")
        assert (ended.status, ended.result["code"]) == (77, "SESSION_COLLISION")
        # Where the hub may not be asked its published list says the same.
        ended = api.run("name", "--claim", f"{name}-2", INTERCOM_TRANSPORT="spool")
        assert ended.status == 77
    # A list that a dead hub has left says nothing.
    pid = api.hub_pid()
    os.kill(pid, 9)
    api.wait_until(lambda: not os.path.exists(f"/proc/{pid}"))
    Path(api.paths.peers).write_text(json.dumps({"active_sessions": ["ghost"], "version": "1"}))
    assert api.run("name", "--claim", "ghost", CODEX_THREAD_ID="c").ok()["session_id"] == "ghost"


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64"), reason="the filter is written for these"
)
def test_a_sandbox_without_sockets_gets_a_name_that_is_nobody_elses(project: Make) -> None:
    """Claims, locks and what the hub has published are files."""
    api, web = project("api"), project("web")
    del web.environ["INTERCOM_NO_SPAWN"]
    theirs = web.run("init").ok()["session_id"]
    name = api.run("name", CODEX_THREAD_ID="free").ok()["session_id"]
    api.program = [sys.executable, str(NO_SOCKETS), *api.program]
    assert api.run("name", CODEX_THREAD_ID="free").ok()["session_id"] == name
    with connected(web, f"{name}-2"):
        found = api.run("init", CODEX_THREAD_ID="boxed")
        assert (found.ok()["session_id"], found.ok()["transport"]) == (f"{name}-3", "spool")
    assert api.run("name", "--claim", theirs).status == 77
    assert api.run("forget", theirs).ok()["unread"] == 0


def test_a_stopped_hub_does_not_keep_a_name_from_being_found(
    project: Make, stopped: Callable[[int], None]
) -> None:
    """What it had published has to do."""
    api = project("api")
    del api.environ["INTERCOM_NO_SPAWN"]
    name = api.run("init", CODEX_THREAD_ID="a").ok()["session_id"]
    with connected(api, f"{name}-2"):
        stopped(api.hub_pid())
        assert api.run("name", CODEX_THREAD_ID="b").ok()["session_id"] == f"{name}-3"


def test_a_known_caller_is_named_without_asking_anybody(api: Agent) -> None:
    """No hub is looked for, nothing is imported for it, nothing is written."""
    api.run("poll").ok()
    before = {path: path.stat().st_mtime_ns for path in api.project.rglob("*")}
    code = (
        "import os, sys; from intercom.client.identity import Names;"
        "from intercom.paths import ChannelPaths;"
        "paths = ChannelPaths(os.environ['INTERCOM_DIR'], 'default');"
        "names = Names(paths, os.getcwd(), os.environ);"
        "print(names.speaker().sticky,"
        " [m for m in sys.modules if m in ('socket', 'subprocess', 'intercom.client.presence')])"
    )
    told = subprocess.run(
        [sys.executable, "-c", code],
        cwd=api.project,
        env=api.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        start_new_session=True,
        check=True,
    ).stdout
    assert told == "True []\n"
    assert {path: path.stat().st_mtime_ns for path in api.project.rglob("*")} == before
