"""``intercom paths``: where everything is, who says so, and what that promises."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import file_level

Agent = Any  # see the root's conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def bob(agent: Make, tmp_path: Path) -> Agent:
    """An agent with a home of its own."""
    made = agent("bob")
    made.environ |= {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "x")}
    return made


def everything_below(*places: Path) -> set[str]:
    """All files and directories."""
    return {str(path) for place in places for path in place.rglob("*")}


def test_everything_is_shown_and_nothing_is_made(bob: Agent, tmp_path: Path) -> None:
    """Not even who would speak is decided by it."""
    del bob.environ["INTERCOM_SESSION"]
    before = everything_below(tmp_path, bob.base)
    result = bob.run("paths", "--channel", "Team").ok()
    assert everything_below(tmp_path, bob.base) == before
    directory = f"{bob.base}/team"
    expected = {
        "base": str(bob.base),
        "channel": directory,
        "socket": f"{directory}/hub.sock",
        "lock": f"{directory}/hub.lock",
        "log": f"{directory}/hub.log",
        "settings": f"{directory}/channel.json",
        "project": str(bob.project),
        "identity": f"{bob.project}/.intercom/session.json",
        "user_settings": f"{tmp_path}/x/intercom/config.toml",
    }
    assert {name: place["path"] for name, place in result["places"].items()} == expected
    there = {name for name, place in result["places"].items() if place["exists"]}
    assert there == {"base", "project"}
    assert result["session"] is None
    assert not [name for name, place in result["places"].items() if "problem" in place]


def test_who_says_so_is_told(bob: Agent, tmp_path: Path) -> None:
    """Option, variable, the user's file, or nobody."""

    def said(*words: str, **environ: str) -> tuple[str, str]:
        places = bob.run("paths", *words, **environ).ok()["places"]
        return places["base"]["from"], places["channel"]["from"]

    assert said("--dir", str(bob.base), INTERCOM_CHANNEL="x") == ("--dir", "INTERCOM_CHANNEL")
    assert said("--channel", "x") == ("INTERCOM_DIR", "--channel")
    assert said(INTERCOM_DIR="", AGY_IPC_DIR=str(bob.base)) == ("AGY_IPC_DIR", "default")
    config = tmp_path / "x" / "intercom" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'dir = "{bob.base}/mine"\nchannel = "x"\n')
    assert said(INTERCOM_DIR="") == (str(config), str(config))
    places = bob.run("paths", INTERCOM_DIR="").ok()["places"]
    assert places["channel"]["path"] == f"{bob.base}/mine/x"
    assert places["user_settings"]["exists"]


def test_once_it_runs_all_of_it_exists(bob: Agent) -> None:
    """And the inbox is the one that commands here read."""
    bob.run("send", "--to", "bob", "--text", "x").ok()
    result = bob.run("paths").ok()
    assert result["session"] == "bob"
    assert result["places"]["inbox"]["path"] == bob.paths.inbox("bob")
    missing = {name for name, place in result["places"].items() if not place["exists"]}
    assert missing == {"identity", "user_settings"}
    del bob.environ["INTERCOM_SESSION"]
    own = bob.run("poll").ok()["session"]
    result = bob.run("paths").ok()
    assert result["session"] == own
    assert result["places"]["identity"]["exists"]
    assert bob.run("paths", "--session", "ann").ok()["session"] == "ann"


def test_a_socket_that_had_to_move_is_shown_where_it_is(bob: Agent) -> None:
    """With the file that says so."""
    deep = f"{bob.base}/{'d' * 90}"
    place = bob.run("paths", "--dir", deep).ok()["places"]["socket"]
    assert place["path"].startswith(f"/tmp/intercom-{os.geteuid()}/")
    assert f"{deep}/default/hub.sock.at" in place["from"]


def test_a_place_that_others_could_have_touched_is_marked(bob: Agent, tmp_path: Path) -> None:
    """Here it is only shown; commands that would use it refuse."""
    bad = tmp_path / "bad"
    bad.mkdir()
    bad.chmod(0o777)
    places = bob.run("paths", "--dir", str(bad)).ok()["places"]
    assert places["base"]["problem"] == f"uid {os.geteuid()}, mode 0777"
    link = tmp_path / "link"
    link.symlink_to(bob.base)
    places = bob.run("paths", "--dir", str(link)).ok()["places"]
    assert places["base"]["problem"].startswith("a symbolic link")


def test_a_place_that_every_command_refuses_promises_nothing(bob: Agent, tmp_path: Path) -> None:
    """The reason and the remedy are those of the commands; nothing is made."""
    for name in ("open", "file", "link", "file/below"):
        place = tmp_path / name
        if name == "open":
            place.mkdir()
            place.chmod(0o777)
        elif name == "file":
            place.write_text("x")
        elif name == "link":
            place.symlink_to(bob.base)
        refused = bob.run("poll", "--dir", str(place))
        assert refused.status in (73, 77)
        promise = bob.run("paths", "--dir", str(place)).ok()["durability"]
        assert (promise["level"], promise["reachable"]) == (None, None)
        assert promise["reason"] == refused.result["message"]
        assert promise["remedy"] == refused.result["remedy"]
        text = bob.run("--format", "text", "paths", "--dir", str(place)).out.decode()
        assert f"cannot be used: {promise['reason']}\n  {promise['remedy']}\n" in text
        assert "durability" not in text
        looked = bob.run("hub", "status", "--dir", str(place))
        assert (looked.status, looked.result["message"]) == (refused.status, promise["reason"])
    assert os.listdir(bob.base) == []


@pytest.mark.skipif(not os.path.ismount("/dev/shm"), reason="not run: no file system in memory")
def test_a_place_in_memory_promises_less_and_says_why(bob: Agent) -> None:
    """With the way to more. Nothing is made for it."""
    place = f"/dev/shm/ic-{os.getpid()}-absent"
    promise = bob.run("paths", "--dir", place).ok()["durability"]
    assert (promise["asked"], promise["reachable"], promise["level"]) == (
        "disk",
        "process",
        "process",
    )
    assert promise["reason"] == "/dev/shm is a file system in memory (tmpfs)"
    assert "intercom config --user dir" in promise["remedy"]
    text = bob.run("--format", "text", "paths", "--dir", place).out.decode()
    assert "durability process: " in text
    assert "not a restart of the machine" in text
    assert "/dev/shm is a file system in memory (tmpfs)" in text
    assert not os.path.exists(place)


def test_what_a_channel_asks_for_is_what_it_gets_where_that_can_be_had(bob: Agent) -> None:
    """The level is that of receipts."""
    reachable = file_level(str(bob.base))
    bob.run("config", "durability", "memory").ok()
    promise = bob.run("paths").ok()["durability"]
    assert (promise["asked"], promise["reachable"], promise["level"]) == (
        "memory",
        reachable,
        "memory",
    )
    text = bob.run("--format", "text", "paths").out.decode()
    assert "durability memory: what was called stored may be lost" in text


def test_a_damaged_file_hides_no_place(bob: Agent) -> None:
    """It is named beside."""
    bob.paths.prepare()
    Path(bob.paths.settings).write_text("{")
    ended = bob.run("paths")
    assert ended.ok()["places"]["settings"]["exists"]
    assert f"{bob.paths.settings} is not JSON" in ended.err
    (bob.project / ".intercom").mkdir()
    (bob.project / ".intercom" / "session.json").write_text("{")
    del bob.environ["INTERCOM_SESSION"]
    ended = bob.run("paths")
    assert ended.ok()["session"] is None
    assert "is no session file" in ended.err
