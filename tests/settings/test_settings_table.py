"""The table of settings: what can be given, where it may stand, and who wins."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import EX_CONFIG, BadConfig
from intercom.paths import ChannelPaths
from intercom.settings.files import ChannelFile, user_path
from intercom.settings.hub import HubSettings, hub_settings
from intercom.settings.lookup import Settings
from intercom.settings.table import SETTINGS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    """A channel, its directory made."""
    found = ChannelPaths(str(channel_dir), "default")
    found.prepare()
    return found


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user who has a directory for settings of his own."""
    (tmp_path / "home" / ".config" / "intercom").mkdir(parents=True)
    return {"HOME": str(tmp_path / "home")}


def write_user(home: dict[str, str], text: str) -> None:
    """Fill the user's file."""
    Path(user_path(home)).write_text(text)


# -- the rows ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("durability", "process", "process"),
        ("idle_exit", "600", 600),
        ("idle_exit", "0.5", 0.5),
        ("idle_exit", "never", "never"),
        ("no_spawn", "1", True),
        ("no_spawn", "YES", True),
        ("no_spawn", "0", False),
        ("no_spawn", "off", False),
        ("transport", "spool", "spool"),
        ("format", "text", "text"),
        ("dir", "here/and/there", "here/and/there"),
        ("channel", "My Team", "My Team"),
        ("listen", "tcp:1", ["tcp:1"]),
    ],
)
def test_a_word_is_read_as_a_person_means_it(key: str, text: str, value: Any) -> None:
    """And what is kept of it in a file is read as the same."""
    found = SETTINGS[key].of_text(text, "X")
    assert found == value
    assert type(found) is type(value)
    if key != "dir":  # in a file it must not depend on where the reader is
        assert SETTINGS[key].of_file(found, "f") == value


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("durability", "Disk"),
        ("idle_exit", "0"),
        ("idle_exit", "-1"),
        ("idle_exit", "inf"),
        ("idle_exit", "nan"),
        ("idle_exit", "soon"),
        ("no_spawn", "perhaps"),
        ("transport", "pigeon"),
        ("format", "xml"),
        ("listen", ""),
    ],
)
def test_a_word_that_is_none_is_refused_with_what_there_is(key: str, text: str) -> None:
    """Naming who said it, and the setting."""
    with pytest.raises(BadConfig) as caught:
        SETTINGS[key].of_text(text, "INTERCOM_THING")
    assert caught.value.exit_code == EX_CONFIG
    assert caught.value.text == f"INTERCOM_THING cannot be {text!r}"
    assert SETTINGS[key].kind.wanted in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("durability", None, "null"),
        ("durability", ["disk"], '["disk"]'),
        ("idle_exit", True, "true"),
        ("idle_exit", "600", '"600"'),
        ("idle_exit", 0, "0"),
        ("no_spawn", "yes", '"yes"'),
        ("dir", "relative", '"relative"'),
        ("dir", 5, "5"),
        ("channel", "", '""'),
        ("listen", "tcp:1", '"tcp:1"'),
        ("listen", ["tcp:1", 2], '["tcp:1", 2]'),
    ],
)
def test_a_value_in_a_file_has_the_right_type(key: str, value: Any, shown: str) -> None:
    """File, key, what is wrong, and what to give."""
    with pytest.raises(BadConfig) as caught:
        SETTINGS[key].of_file(value, "/x/file")
    assert caught.value.text == f"/x/file: {key} cannot be {shown}"
    assert caught.value.remedy.startswith("give ")


@given(st.text())
def test_no_word_makes_a_setting_raise_anything_but_its_error(text: str) -> None:
    """Whatever an environment holds."""
    for row in SETTINGS.values():
        for read in (row.of_text, row.of_file):
            try:
                read(text, "X")
            except BadConfig:
                continue


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists))
def test_no_value_makes_a_setting_raise_anything_but_its_error(value: Any) -> None:
    """Whatever a file holds."""
    for row in SETTINGS.values():
        try:
            row.of_file(value, "X")
        except BadConfig:
            continue


def test_the_page_for_those_who_run_hubs_has_every_setting() -> None:
    """With its default, its variables, and the files that may hold it."""
    page = (ROOT / "docs" / "operations.md").read_text("utf-8")
    table = page.partition("## Settings")[2].partition("\n## ")[0]
    rows = {
        cells[0].strip("`"): cells
        for line in table.splitlines()
        if line.startswith("| `")
        for cells in [[cell.strip() for cell in line.strip("|").split("|")]]
    }
    assert rows.keys() == SETTINGS.keys()
    for key, row in SETTINGS.items():
        cells = rows[key]
        assert re.findall(r"`(\w+)`", cells[2]) == list(row.variables), key
        assert cells[3] == ("yes" if row.channel else ""), key
        assert cells[4] == ("yes" if row.user else ""), key
        if isinstance(row.default, str | int) and not isinstance(row.default, bool):
            assert f"`{row.default}`" in cells[1], key


# -- who wins ---------------------------------------------------------------------------------


def test_option_then_environment_then_channel_then_user_then_default(
    paths: ChannelPaths, home: dict[str, str]
) -> None:
    """Each is told by its name."""
    file = ChannelFile(paths)

    def durability(option: str | None = None, **variables: str) -> tuple[Any, ...]:
        return tuple(Settings(home | variables, {"durability": option}, file).find("durability"))

    assert durability() == ("disk", "default", "")
    write_user(home, 'durability = "memory"\n')
    assert durability() == ("disk", "default", ""), "a process keeps what it was started with"
    home["XDG_CONFIG_HOME"] = home["HOME"] + "/./.config"
    assert durability() == ("memory", "user", user_path(home))
    file.change({"durability": "process"})
    assert durability() == ("process", "channel", file.path)
    assert durability(INTERCOM_DURABILITY="") == ("process", "channel", file.path)
    found = durability(INTERCOM_DURABILITY="disk")
    assert found == ("disk", "environment", "INTERCOM_DURABILITY")
    found = durability("memory", INTERCOM_DURABILITY="disk")
    assert found == ("memory", "option", "--durability")


def test_the_channel_s_file_decides_nothing_that_is_not_the_channel_s(
    paths: ChannelPaths, home: dict[str, str]
) -> None:
    """And the user's nothing that is not the user's. Both are said, and neither is an error."""
    file = ChannelFile(paths)
    file.change({"dir": "/elsewhere", "from_the_future": 1})
    write_user(home, 'listen = ["tcp:1"]\nsession = "me"\n[later]\nx = 1\n')
    settings = Settings(home, None, file)
    for key in ("dir", "listen", "session"):
        assert settings.find(key).source == "default"
    said = settings.unknown()
    assert [re.findall(r"'(\w+)'", text) for text in said] == [
        ["listen"],
        ["session"],
        ["later"],
        ["dir"],
        ["from_the_future"],
    ]
    assert all(text.startswith((file.path, user_path(home))) for text in said)


def test_a_value_is_checked_only_where_it_is_needed(
    paths: ChannelPaths, home: dict[str, str]
) -> None:
    """So a hub's broken setting stops no command that needs no hub."""
    write_user(home, 'durability = "paper"\nchannel = "team"\n')
    settings = Settings(home, {"dir": paths.base})
    assert settings.paths().name == "team"
    with pytest.raises(BadConfig, match='durability cannot be "paper"'):
        settings.find("durability")


def test_where_channels_live_is_said_by_several_in_their_order(home: dict[str, str]) -> None:
    write_user(home, 'dir = "~/mesh"\n')
    variables = {"INTERCOM_DIR": "/i", "AGY_IPC_DIR": "/a"}
    assert Settings(home | variables, {"dir": "/o"}).paths().base == "/o"
    assert Settings(home | variables, {"dir": ""}).paths().base == "/i"
    assert Settings(home | {"AGY_IPC_DIR": "/a"}).paths().base == "/a"
    assert Settings(home).paths().base == os.path.expanduser("~/mesh")


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"XDG_CONFIG_HOME": "/x"}, "/x/intercom/config.toml"),
        ({"XDG_CONFIG_HOME": "x", "HOME": "/h"}, "/h/.config/intercom/config.toml"),
        ({"HOME": "/h"}, "/h/.config/intercom/config.toml"),
    ],
)
def test_the_user_s_file_is_where_such_files_are(variables: dict[str, str], place: str) -> None:
    assert user_path(variables) == place


# -- a hub's own ------------------------------------------------------------------------------


def test_a_hub_takes_from_its_channel_what_its_starter_does_not_say(
    paths: ChannelPaths, home: dict[str, str]
) -> None:
    """What he does say is to be kept, and only that."""
    ChannelFile(paths).change({"durability": "process", "idle_exit": 5, "listen": ["tcp:1"]})
    found = hub_settings(paths, {"durability": None, "idle_exit": "never"}, home)
    assert (found.durability, found.idle_exit, found.listen) == ("process", None, ("tcp:1",))
    assert found.kept == {"idle_exit": "never"}
    assert found.paths.directory == paths.directory


@pytest.mark.parametrize(
    ("on_demand", "said", "seconds"),
    [
        (False, None, None),
        (True, None, 600),
        (False, 7, 7),
        (True, 7, 7),
        (True, "never", None),
    ],
)
def test_a_hub_that_a_command_needed_leaves_and_one_started_by_hand_stays(
    paths: ChannelPaths, home: dict[str, str], on_demand: bool, said: Any, seconds: Any
) -> None:
    """Unless the channel says otherwise."""
    ChannelFile(paths).change({"idle_exit": said})
    assert hub_settings(paths, {}, home, on_demand=on_demand).idle_exit == seconds


def test_a_hub_says_what_it_does_not_know(paths: ChannelPaths, home: dict[str, str]) -> None:
    ChannelFile(paths).change({"from_the_future": 1})
    said: list[str] = []
    assert hub_settings(paths, {}, home, warn=said.append) == HubSettings(paths.base, "default")
    assert len(said) == 1
    assert "'from_the_future'" in said[0]
