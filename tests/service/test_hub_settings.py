"""What a hub can be told."""

from __future__ import annotations

import pytest

from intercom.errors import EX_CONFIG, BadConfig
from intercom.settings.hub import HubSettings


def test_a_hub_told_nothing_is_durable_stays_and_listens_at_its_socket_only() -> None:
    settings = HubSettings("/base")
    assert settings.paths.directory == "/base/default"
    assert settings.durability == "disk"
    assert settings.idle_exit is None
    assert settings.listen == ()
    assert not settings.needs_key


def test_the_channel_may_be_typed_as_people_type() -> None:
    assert HubSettings("/base", "My Room!").paths.directory == "/base/myroom"


@pytest.mark.parametrize("level", ["", "Disk", "paper"])
def test_an_unknown_level_is_a_configuration_error_that_names_the_known_ones(level: str) -> None:
    with pytest.raises(BadConfig) as caught:
        HubSettings("/base", durability=level)
    assert caught.value.exit_code == EX_CONFIG
    assert "memory, process, disk" in caught.value.remedy


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_an_idle_time_that_is_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(BadConfig):
        HubSettings("/base", idle_exit=seconds)


@pytest.mark.parametrize(
    ("listen", "needed"),
    [
        (("unix:/run/x.sock",), False),
        (("tcp:0:interface=127.0.0.1",), True),
        (("unix:/run/x.sock", "systemd:domain=INET:index=0"), True),
    ],
)
def test_a_key_is_needed_where_files_do_not_say_who_may_connect(
    listen: tuple[str, ...], needed: bool
) -> None:
    assert HubSettings("/base", listen=listen).needs_key is needed
