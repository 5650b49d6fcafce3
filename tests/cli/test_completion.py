"""What a shell is offered: verbs, options, and the names that are used on the channel."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from intercom.spool.files import Inbox

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def ann(agent: Make) -> Agent:
    """An agent on a channel where several names were used."""
    made = agent("ann")
    made.paths.prepare()
    for name in ("seven-of-nine", "seven", "nyota", "日本", "a b", "x;reboot", "$(reboot)", "-rf"):
        with Inbox(made.paths, name) as inbox:
            inbox.enrol()
    return made


def offered(agent: Agent, *words: str, shell: str = "bash") -> list[str]:
    """What a shell is offered for the last of the words."""
    line = ["intercom", *words]
    environ = {
        "_INTERCOM_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "\n".join(line),
        "COMP_CWORD": str(len(line) - 1) if shell != "fish" else line[-1],
    }
    ended = agent.run(**environ)
    assert (ended.status, ended.err) == (0, "")
    lines = list(filter(None, ended.out.decode().split("\n")))
    if shell == "zsh":  # kind, value, help
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


def test_verbs_and_options_are_offered(ann: Agent) -> None:
    """Of groups, too, and common ones as well as a verb's own."""
    assert offered(ann, "po") == ["poll"]
    assert {"init", "send", "hub", "cleanup", "config"} <= set(offered(ann, ""))
    assert offered(ann, "hub", "st") == ["start", "status", "stop"]
    assert offered(ann, "send", "--s") == ["--session", "--strict"]
    assert offered(ann, "hub", "status", "--ch") == ["--channel"]
    assert offered(ann, "hub", "start", "--du") == ["--durability"]
    assert offered(ann, "poll", "--format", "") == ["text", "json"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_names_of_the_channel_are_offered(ann: Agent, shell: str) -> None:
    """To whom, and as whom; from the files, without a hub."""
    assert offered(ann, "send", "--to", "se", shell=shell) == ["seven", "seven-of-nine"]
    assert offered(ann, "poll", "--session", "ny", shell=shell) == ["nyota"]
    assert not [name for name in os.listdir(ann.paths.directory) if name.startswith("hub")]


def test_a_name_that_a_shell_would_read_otherwise_is_not_offered(ann: Agent) -> None:
    """Completing must never put a command on the line."""
    assert offered(ann, "send", "--to", "") == ["nyota", "seven", "seven-of-nine", "日本"]


def test_the_channel_is_the_one_that_the_line_names(ann: Agent) -> None:
    """Wherever it stands on it; nothing is made for it."""
    ann.environ["INTERCOM_DIR"] = "/nowhere"
    assert offered(ann, "send", "--to", "se") == []
    place = ("--dir", str(ann.base))
    assert len(offered(ann, *place, "send", "--to", "se")) == 2
    assert len(offered(ann, "send", *place, "--to", "se")) == 2
    assert offered(ann, *place, "--channel", "other", "send", "--to", "se") == []
    assert os.listdir(ann.base) == ["default"]


def test_damaged_settings_are_no_matter_for_a_shell(ann: Agent) -> None:
    """It is told nothing then, and nothing is printed into its line."""
    assert offered(ann, "--format", "xml", "send", "--to", "ny") == ["nyota"]
    ann.environ["INTERCOM_FORMAT"] = "xml"
    assert offered(ann, "send", "--to", "ny") == ["nyota"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_is_given_a_script_that_it_can_read(ann: Agent, shell: str) -> None:
    """The one that the README has installed; checked by the shell where there is one."""
    ended = ann.run(_INTERCOM_COMPLETE=f"{shell}_source")
    assert ended.status == 0
    assert b"_INTERCOM_COMPLETE" in ended.out
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n", "-c", ended.out.decode()], check=True, timeout=60)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_a_name(ann: Agent) -> None:
    """With the script itself, as the shell calls it."""
    program = ann.project / "intercom"
    program.write_text(f'#!/bin/sh\nexec {ann.program[0]} -m intercom "$@"\n')
    program.chmod(0o755)
    script = """
        eval "$(_INTERCOM_COMPLETE=bash_source intercom)"
        COMP_WORDS=(intercom send --to ny); COMP_CWORD=3
        _intercom_completion intercom
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=ann.environ | {"PATH": f"{ann.project}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("nyota\n", "")
