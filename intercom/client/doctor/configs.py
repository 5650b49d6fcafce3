"""Settings: files and variables that cannot be read, or hold what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from intercom.client.doctor.findings import NOTE, PROBLEM, Finding
from intercom.client.doctor.patient import Patient, World
from intercom.errors import BadConfig, IntercomError, UnsafePlace
from intercom.settings.files import ChannelFile, UserFile, unknown_keys, user_path
from intercom.settings.table import SETTINGS


def of_format(patient: Patient) -> Iterator[Finding]:
    """Files that a newer version has written: nothing in the channel is touched then."""
    paths = patient.paths
    try:
        ChannelFile(paths).check_format()
    except BadConfig as error:
        yield Finding(PROBLEM, "format-newer", error.text, error.remedy, paths.settings)
    except UnsafePlace:
        return  # a finding by itself


def of_channel(patient: Patient) -> Iterator[Finding]:
    """The channel's own file."""
    path = patient.paths.settings
    yield from _file(ChannelFile(patient.paths).read, path, channel=True)


def of_user(world: World) -> Iterator[Finding]:
    """The user's file, and the variables of the environment."""
    path = user_path(world.environ)
    yield from _file(UserFile(path).read, path, channel=False)
    for row in SETTINGS.values():
        for name in row.variables:
            text = world.environ.get(name)
            if text:
                try:
                    row.of_text(text, name)
                except IntercomError as error:
                    yield Finding(PROBLEM, "settings-unusable", error.text, error.remedy)


def _file(read: Callable[[], Mapping[str, Any]], path: str, *, channel: bool) -> Iterator[Finding]:
    try:
        found = read()
    except IntercomError as error:
        yield Finding(PROBLEM, "settings-unreadable", error.text, error.remedy, path)
        return
    for key, value in found.items():
        row = SETTINGS.get(key)
        if row is not None and (row.channel if channel else row.user):
            try:
                row.of_file(value, path)
            except IntercomError as error:
                yield Finding(PROBLEM, "settings-unusable", error.text, error.remedy, path)
    for text in unknown_keys(found, path, channel=channel):
        yield Finding(NOTE, "settings-unknown", text, "see what there is: intercom config", path)
