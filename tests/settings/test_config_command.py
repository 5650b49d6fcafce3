"""``intercom config``: what is set, who says so, and how it is changed."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.settings.table import SETTINGS

Agent = Any  # see the root's conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def bob(agent: Make, tmp_path: Path) -> Agent:
    """An agent whose user has a directory for settings of his own."""
    made = agent("bob")
    made.environ["XDG_CONFIG_HOME"] = str(tmp_path / "x")
    return made


def channel_file(of: Agent) -> dict[str, Any]:
    """What the channel's file holds."""
    found = json.loads(Path(of.paths.settings).read_text())
    assert isinstance(found, dict)
    return found


def user_file(of: Agent) -> Path:
    """Where the user's file is."""
    return Path(of.environ["XDG_CONFIG_HOME"]) / "intercom" / "config.toml"


def rows(of: Agent, **environ: str) -> dict[str, dict[str, Any]]:
    """All settings, as they are listed."""
    return {row["key"]: row for row in of.run("config", **environ).ok()["settings"]}


# -- looking ----------------------------------------------------------------------------------


def test_every_setting_is_listed_with_who_says_so(bob: Agent) -> None:
    """And nothing is made by looking."""
    listed = rows(bob)
    assert list(listed) == list(SETTINGS)
    assert os.listdir(bob.base) == []
    assert not user_file(bob).parent.exists()
    for key, row in listed.items():
        assert row["help"] == SETTINGS[key].help
    assert (listed["dir"]["value"], listed["dir"]["where"]) == (str(bob.base), "INTERCOM_DIR")
    assert (listed["durability"]["value"], listed["durability"]["source"]) == ("disk", "default")
    bob.run("config", "durability", "process").ok()
    row = rows(bob)["durability"]
    assert (row["value"], row["source"], row["where"]) == (
        "process",
        "channel",
        bob.paths.settings,
    )
    row = rows(bob, INTERCOM_DURABILITY="memory")["durability"]
    assert (row["value"], row["source"], row["where"]) == (
        "memory",
        "environment",
        "INTERCOM_DURABILITY",
    )


def test_for_a_person_it_is_a_table(bob: Agent) -> None:
    bob.run("config", "listen", "tcp:0:interface=127.0.0.1", "unix:/x/y").ok()
    text = bob.run("--format", "text", "config").out.decode()
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    assert ["durability", "disk", "default"] in lines
    assert f"listen          tcp:0:interface=127.0.0.1 unix:/x/y  {bob.paths.settings}" in text
    one = bob.run("--format", "text", "config", "idle_exit").out.decode()
    assert one.startswith("idle_exit = 600  (default; a hub started by hand stays)\n")
    assert "INTERCOM_IDLE_EXIT" in one


def test_one_setting_can_be_asked_for(bob: Agent) -> None:
    """Also in the spelling of its option."""
    row = bob.run("config", "idle-exit").ok()
    assert (row["key"], row["value"], row["wanted"]) == (
        "idle_exit",
        600,
        SETTINGS["idle_exit"].kind.wanted,
    )


def test_a_value_that_cannot_be_is_shown_as_such_with_all_the_others(bob: Agent) -> None:
    """Status 78, so that a program that asks for all notices, too; and it can be mended."""
    bob.run("config", "idle_exit", "5").ok()
    content = channel_file(bob) | {"durability": "paper"}
    Path(bob.paths.settings).write_text(json.dumps(content))
    ended = bob.run("config")
    assert ended.status == 78
    listed = {row["key"]: row for row in ended.result["settings"]}
    assert listed["idle_exit"]["value"] == 5
    assert f'{bob.paths.settings}: durability cannot be "paper"' in listed["durability"]["problem"]
    assert "one of memory, process, disk" in ended.err
    assert bob.run("config", "durability").status == 78
    text = bob.run("--format", "text", "config").out.decode()
    assert f"unusable, from {bob.paths.settings}" in text
    bob.run("config", "durability", "process").ok()
    assert rows(bob)["durability"]["value"] == "process"


def test_what_nobody_knows_is_named_and_kept(bob: Agent) -> None:
    """In both files, once."""
    bob.run("config", "idle_exit", "5").ok()
    Path(bob.paths.settings).write_text(json.dumps(channel_file(bob) | {"later": [1]}))
    bob.run("config", "--user", "format", "json").ok()
    with user_file(bob).open("a") as file:
        file.write('soon = "x"\n')
    ended = bob.run("config")
    assert ended.status == 0
    assert ended.err.count("'later' is no setting") == 1
    assert ended.err.count("'soon' is no setting") == 1
    bob.run("config", "idle_exit", "6").ok()
    bob.run("config", "--user", "format", "auto").ok()
    assert channel_file(bob)["later"] == [1]
    assert tomllib.loads(user_file(bob).read_text()) == {"format": "auto", "soon": "x"}
    for words in (["poll"], ["hub", "stop"]):
        ended = bob.run(*words)
        assert ended.ok()
        assert ended.err.count("'soon' is no setting") == 1
    assert "later" not in ended.err, "a command that needs no hub does not read the hub's settings"


# -- changing ---------------------------------------------------------------------------------


def test_a_setting_is_kept_for_the_channel_until_it_is_taken_back(bob: Agent) -> None:
    done = bob.run("config", "idle-exit", "never").ok()
    assert done == {
        "status": "set",
        "key": "idle_exit",
        "value": "never",
        "file": bob.paths.settings,
        "takes_effect": "next hub",
        "hub_runs": False,
    }
    assert channel_file(bob)["idle_exit"] == "never"
    assert rows(bob, INTERCOM_CHANNEL="other")["idle_exit"]["value"] == 600
    assert bob.run("config", "--unset", "idle_exit").ok()["status"] == "unset"
    assert "idle_exit" not in channel_file(bob)
    assert rows(bob)["idle_exit"]["source"] == "default"
    assert bob.run("config", "--unset", "idle_exit").ok()["status"] == "unset"


def test_a_user_s_setting_holds_on_all_channels(bob: Agent, tmp_path: Path) -> None:
    """A relative directory is meant from here, and kept whole."""
    done = bob.run("config", "--user", "dir", "mesh").ok()
    assert (done["value"], done["takes_effect"]) == (str(bob.project / "mesh"), "next command")
    assert done["file"] == str(user_file(bob))
    assert bob.run("config", "dir", INTERCOM_DIR="").ok()["value"] == str(bob.project / "mesh")
    bob.run("config", "--user", "channel", "team").ok()
    assert bob.run("poll").ok()["channel"] == "team"
    bob.run("config", "--user", "no_spawn", "yes").ok()
    ended = bob.run("peers")
    assert ended.status == 69
    assert f"no_spawn in {user_file(bob)}" in ended.result["remedy"]
    bob.run("config", "--user", "transport", "spool").ok()
    ended = bob.run("peers")
    assert f"transport in {user_file(bob)} forbids" in ended.result["message"]
    bob.run("config", "--user", "--unset", "transport").ok()
    assert tomllib.loads(user_file(bob).read_text()) == {
        "dir": str(bob.project / "mesh"),
        "channel": "team",
        "no_spawn": True,
    }


def test_what_wins_over_a_change_is_said(bob: Agent) -> None:
    """For then it changes nothing."""
    ended = bob.run("config", "durability", "process", INTERCOM_DURABILITY="disk")
    assert ended.ok()
    assert "but INTERCOM_DURABILITY says disk, and wins here" in ended.err
    ended = bob.run("config", "--user", "durability", "memory")
    assert f"but {bob.paths.settings} says process, and wins here" in ended.err
    assert "wins" not in bob.run("config", "durability", "disk").err


def test_where_a_hub_runs_it_is_said_how_to_have_the_change_now(bob: Agent) -> None:
    """The hub that runs goes on as it is."""
    bob.run("peers").ok()
    ended = bob.run("config", "durability", "process", "--channel", "default")
    assert ended.ok()["hub_runs"]
    assert "intercom --channel default hub restart" in ended.err
    assert bob.run("peers").ok()["hub"]["durability"] == "disk"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["durabilty"], "did you mean durability?"),
        (["xyz", "1"], "there are dir, channel"),
        (["durability", "disk", "process"], "one value, not 2"),
        (["--unset"], "--unset KEY"),
        (["--frob"], "no such option: --frob"),
        (["durability", "--usr", "disk"], "no such option: --usr"),
        (["--unset", "durability", "disk"], "--unset KEY"),
        (["--user"], "--user goes with"),
        (["--user", "durability"], "--user goes with"),
        (["--user", "listen", "tcp:1"], "leave --user out"),
        (["dir", "/x"], "add --user"),
        (["session", "bob"], "set INTERCOM_SESSION instead"),
        (["--user", "session", "bob"], "set INTERCOM_SESSION instead"),
    ],
)
def test_words_that_do_not_go_together_are_refused_with_those_that_do(
    bob: Agent, words: list[str], said: str
) -> None:
    ended = bob.run("config", *words)
    assert (ended.status, ended.result["code"]) == (2, "USAGE")
    assert said in ended.result["message"]
    assert not user_file(bob).exists()
    assert os.listdir(bob.base) == []


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["durability", "paper"], "durability"),
        (["idle_exit", "0"], "idle_exit"),
        (["--user", "no_spawn", "perhaps"], "no_spawn"),
        (["idle_exit", "-5"], "idle_exit"),
        (["listen", "tcp:1", ""], "listen"),
        (["listen", "tcp:1", "tcp:65536"], "listen"),
        (["listen", "tcp6:interface=\\:\\:1:port=-1"], "listen"),
        (["listen", "ssl:79999"], "listen"),
        (["listen", "tcp:http"], "listen"),
    ],
)
def test_a_value_that_cannot_be_is_never_written(bob: Agent, words: list[str], key: str) -> None:
    ended = bob.run("config", *words)
    assert (ended.status, ended.result["code"]) == (2, "USAGE")
    assert ended.result["message"] == f"{key} cannot be {words[-1]!r}"
    assert ended.result["remedy"].startswith(f"give {SETTINGS[key].kind.wanted}; see")
    assert not user_file(bob).exists()
    assert not os.path.exists(bob.paths.settings)


def test_an_endpoint_that_twisted_does_not_know_is_never_written(bob: Agent) -> None:
    """It is named; with it no hub could start."""
    ended = bob.run("config", "listen", "tcp:0", "nonsense:1")
    assert (ended.status, ended.result["code"]) == (2, "USAGE")
    assert "'nonsense:1'" in ended.result["message"]
    assert not os.path.exists(bob.paths.settings)
    assert bob.run("config", "listen", "tcp:65535", "tcp6:port=0:interface=\\:\\:1").ok()


def test_a_variable_that_cannot_be_is_named_by_whoever_needs_it(bob: Agent) -> None:
    """And by nobody else."""
    ended = bob.run("peers", INTERCOM_TRANSPORT="pigeon")
    assert (ended.status, ended.result["code"]) == (78, "BAD_CONFIG")
    assert ended.result["message"] == "INTERCOM_TRANSPORT cannot be 'pigeon'"
    assert bob.run("poll", INTERCOM_TRANSPORT="pigeon").ok()
    assert bob.run("send", "--to", "x", "--text", "x", INTERCOM_TRANSPORT="pigeon").status == 78


def test_a_user_s_file_that_cannot_be_read_is_named_by_every_command(bob: Agent) -> None:
    """With its line; a message that went elsewhere than its user wants would be worse."""
    user_file(bob).parent.mkdir(parents=True)
    user_file(bob).write_text('dir = "/x"\nchannel\n')
    for words in (("poll",), ("config",), ("send", "--to", "x", "--text", "x"), ("paths",)):
        ended = bob.run(*words)
        assert (ended.status, ended.result["code"]) == (78, "BAD_CONFIG")
        assert str(user_file(bob)) in ended.err
        assert "line 2" in ended.err
