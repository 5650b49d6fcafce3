"""Commands, hubs and files of different versions: what is said, and what is refused."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from intercom import __version__
from intercom.settings.files import FORMAT

Agent = Any  # see the root's conftest.py
Make = Callable[[str], Agent]
OlderOrNot = Callable[[Any, str], Any]


@pytest.fixture
def bob(agent: Make) -> Agent:
    """An agent whose commands may not start a hub."""
    made = agent("bob")
    made.environ["INTERCOM_NO_SPAWN"] = "1"
    return made


COMMANDS = [
    ("send", "--to", "ann", "--text", "hi"),
    ("peers",),
    ("listen", "--timeout", "1"),
]


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_a_command_newer_than_its_hub_says_so_once(
    bob: Agent, other_hub: OlderOrNot, words: tuple[str, ...]
) -> None:
    """With both versions, the process, and the command that changes it. It works all the same."""
    other_hub(bob.paths, "0.0.9")
    ended = bob.run(*words)
    assert ended.status == 0, ended.err
    assert ended.err.count("older") == 1
    assert f"(0.0.9, pid {os.getpid()}) is older than this command ({__version__})" in ended.err
    assert f"--dir {bob.base} --channel default hub restart" in ended.err


@pytest.mark.parametrize("version", [__version__, "9.0", "0.10.0", "", "app"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_nothing_is_said_of_a_hub_that_is_not_older(
    bob: Agent, other_hub: OlderOrNot, words: tuple[str, ...], version: str
) -> None:
    """Nor of one that has no version that could be compared. 0.10 is newer than 0.9."""
    other_hub(bob.paths, version)
    ended = bob.run(*words)
    assert ended.status == 0, ended.err
    assert "older" not in ended.err


# -- asking -----------------------------------------------------------------------------------


def test_the_version_is_told_with_what_it_stands_on(bob: Agent) -> None:
    """No hub is started for it, and no directory made."""
    result = bob.run("version").ok()
    assert result["version"] == __version__
    assert result["protocol"] == "intercom/1"
    assert result["format"] == FORMAT
    assert result["python"] == platform.python_version()
    assert result["twisted"] == metadata.version("twisted")
    assert os.path.isfile(os.path.join(result["program"], "cli", "version.py"))
    assert (result["channel"], result["hub"]) == ("default", None)
    text = bob.run("--format", "text", "version").out.decode()
    assert text.endswith("\nno hub runs on channel default\n")
    assert os.listdir(bob.base) == []


def test_the_version_of_the_hub_that_runs_is_told(agent: Make, other_hub: OlderOrNot) -> None:
    """Of a real one, and of one that is older."""
    ann = agent("ann")
    ann.run("peers").ok()
    hub = ann.run("version").ok()["hub"]
    assert hub == {"pid": ann.hub_pid(), "version": __version__}
    text = ann.run("--format", "text", "version").out.decode()
    assert text.startswith(f"intercom {__version__} (intercom/1, Python ")
    assert f"is intercom {__version__}, pid {hub['pid']}" in text
    other = agent("bob")
    other.environ["INTERCOM_CHANNEL"] = other.paths.name = "other"
    other.paths.directory = os.path.join(other.paths.base, "other")
    other_hub(other.paths, "0.0.9")
    assert other.run("version").ok()["hub"]["version"] == "0.0.9"


def test_a_hub_that_does_not_answer_is_named_in_time(
    agent: Make, stopped: Callable[[int], None]
) -> None:
    """The command's own version is told all the same."""
    ann = agent("ann")
    ann.run("peers").ok()
    stopped(ann.hub_pid())
    ended = ann.run("version")
    assert ended.ok()["version"] == __version__
    assert ended.result["hub"] is None
    assert f"(pid {ann.hub_pid()}) accepts connections but does not answer" in ended.err
    text = ann.run("--format", "text", "version").out.decode()
    assert text.endswith("\nthe hub of channel default does not answer\n")


def test_the_option_answers_in_one_line_without_loading_twisted() -> None:
    """As every program does; it looks up Twisted's version without importing it."""
    code = (
        "import sys\n"
        "from intercom.cli.main import run\n"
        "try: run(['--channel', 'x', '--version'])\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'twisted' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == (
        f"intercom {__version__} (intercom/1, Python {platform.python_version()}, "
        f"Twisted {metadata.version('twisted')})\n"
    )


# -- files of a newer version -------------------------------------------------------------------


@pytest.fixture
def newer_files(agent: Make) -> Agent:
    """A channel that a newer version has left, its hub gone."""
    ann = agent("ann")
    ann.paths.prepare()
    content = {"format": FORMAT + 1, "version": "9.1", "durability": "stone"}
    Path(ann.paths.settings).write_text(json.dumps(content))
    return ann


@pytest.mark.parametrize(
    "words",
    [
        ("init",),
        ("send", "--to", "bob", "--text", "x"),
        ("poll",),
        ("listen", "--timeout", "1"),
        ("peers",),
        ("ack", "--all"),
        ("daemon",),
        ("config",),
        ("config", "durability", "disk"),
    ],
    ids=" ".join,
)
def test_no_command_touches_the_files_of_a_newer_version(
    newer_files: Agent, words: tuple[str, ...]
) -> None:
    """Nor does a hub start on them. Both versions are named, and both formats."""
    ended = newer_files.run(*words)
    assert (ended.status, ended.result["code"]) == (78, "BAD_CONFIG")
    assert f"was written by intercom 9.1, format {FORMAT + 1}" in ended.err
    assert f"this is intercom {__version__}, format {FORMAT}" in ended.err
    assert set(os.listdir(newer_files.paths.directory)) == {"channel.json"}


@pytest.mark.parametrize("program", ["twistd", "twist"])
def test_twisted_s_programs_refuse_them_too(newer_files: Agent, program: str) -> None:
    """With the same status and words."""
    options = ["-n"] if program == "twistd" else []
    code = {
        "twistd": "from twisted.scripts.twistd import run; run()",
        "twist": "from twisted.application.twist._twist import Twist; Twist.main()",
    }[program]
    newer_files.program = [sys.executable, "-c", code]
    ended = newer_files.run(*options, "intercom")
    assert ended.status == 78, ended.err
    assert f"was written by intercom 9.1, format {FORMAT + 1}" in ended.err
    assert set(os.listdir(newer_files.paths.directory)) == {"channel.json"}


def test_what_only_shows_where_things_are_still_does(newer_files: Agent) -> None:
    """Or nobody could find out which version is where."""
    assert newer_files.run("version").ok()["hub"] is None
    ended = newer_files.run("paths")
    assert ended.ok()["places"]["settings"]["exists"]
    assert "was written by intercom 9.1" in ended.err


def test_every_hub_stamps_its_channel(agent: Make) -> None:
    """So that the next version knows which one was there."""
    ann = agent("ann")
    ann.run("peers").ok()
    assert json.loads(Path(ann.paths.settings).read_text()) == {
        "format": FORMAT,
        "version": __version__,
    }
