"""The settings that bound a hub: what can be given, and what a hub makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import BadConfig
from intercom.paths import ChannelPaths
from intercom.settings.files import ChannelFile
from intercom.settings.hub import hub_settings
from intercom.settings.limits import DEFAULTS, GIB, KIB, MIB, Limits
from intercom.settings.table import LIMITS, SETTINGS

SIZES = ("inbox_size", "channel_size", "retention_size")


def test_every_bound_has_a_setting_and_every_setting_its_bound() -> None:
    assert [row.key for row in LIMITS] == list(Limits._fields)
    for row in LIMITS:
        assert row.variables == (f"INTERCOM_{row.key.upper()}",)
        assert row.channel
        assert row.user


def test_the_defaults_are_those_of_a_hub_that_nobody_told_anything(channel_dir: Path) -> None:
    paths = ChannelPaths(str(channel_dir), "default")
    assert hub_settings(paths, {}, {"HOME": "/nonexistent"}).limits == DEFAULTS == Limits()
    assert DEFAULTS.inbox_size == 64 * MIB
    assert DEFAULTS.channel_size == GIB
    assert (DEFAULTS.free_space, DEFAULTS.connections, DEFAULTS.unregistered) == (
        64 * MIB,
        2048,
        64,
    )
    assert (DEFAULTS.retention_age, DEFAULTS.retention_size) == (None, None)


@pytest.mark.parametrize("key", SIZES)
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4096", 4096),
        ("64MiB", 64 * MIB),
        ("64 mb", 64 * MIB),
        ("64M", 64 * MIB),
        ("2g", 2 * GIB),
        ("8KiB", 8 * KIB),
        ("none", "none"),
    ],
)
def test_a_size_is_written_as_people_do(key: str, text: str, value: Any) -> None:
    """Units count in 1,024s, whatever they are called; a file may hold a number or such a text."""
    assert SETTINGS[key].of_text(text, "X") == value
    assert SETTINGS[key].of_file(value, "f") == value
    assert SETTINGS[key].of_file(text, "f") == value


@pytest.mark.parametrize(
    "text", ["4095", "0", "-1", "1.5M", "64 MM", "many", "", "9" * 19, "never"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    for key in SIZES:
        with pytest.raises(BadConfig, match=key):
            SETTINGS[key].of_file(text, "f")


@pytest.mark.parametrize(
    ("key", "least", "most"),
    [
        ("connections", 1, 65_536),
        ("unregistered", 1, 1 << 53),
        ("session_limit", 1, 1 << 53),
        ("message_rate", 1, 1 << 53),
        ("free_inodes", 0, 1 << 53),
        ("byte_rate", 64 * KIB, 1 << 53),
        ("free_space", 0, 1 << 53),
    ],
)
def test_a_number_has_its_bounds(key: str, least: int, most: int) -> None:
    row = SETTINGS[key]
    for value in (least, least + 1, most - 1, most):
        assert row.of_text(str(value), "X") == row.of_file(value, "f") == value
    for value in (least - 1, most + 1):
        with pytest.raises(BadConfig):
            row.of_text(str(value), "X")
        with pytest.raises(BadConfig):
            row.of_file(value, "f")
    for wrong in (True, 5.5, None, [5], "1e3"):
        with pytest.raises(BadConfig):
            row.of_file(wrong, "f")


def test_a_hub_takes_them_from_wherever_they_stand(channel_dir: Path) -> None:
    """``none`` and ``never`` are no bound at all."""
    paths = ChannelPaths(str(channel_dir), "default")
    paths.prepare()
    ChannelFile(paths).change(
        {
            "inbox_size": "none",
            "channel_size": "2GiB",
            "retention_age": 86400,
            "register_within": "never",
            "connections": 7,
        }
    )
    home = {"HOME": "/nonexistent", "INTERCOM_CONNECTIONS": "8", "INTERCOM_RETENTION_SIZE": "1MiB"}
    assert hub_settings(paths, {}, home).limits == Limits(
        inbox_size=None,
        channel_size=2 * GIB,
        retention_age=86400,
        retention_size=MIB,
        register_within=float("inf"),
        connections=8,
    )
    Path(paths.settings).write_text(json.dumps({"format": 1, "inbox_size": "tiny"}))
    with pytest.raises(BadConfig, match='inbox_size cannot be "tiny"'):
        hub_settings(paths, {}, home)
