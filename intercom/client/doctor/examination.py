"""One look at everything, and curing what it brought to light."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from intercom.client.doctor import (
    configs,
    contents,
    ground,
    hubs,
    identities,
    litter,
    places,
    positions,
    readers,
)
from intercom.client.doctor.findings import PROBLEM, SEVERITIES, WARNING, Finding
from intercom.client.doctor.patient import Patient, World
from intercom.errors import IntercomError
from intercom.paths import ChannelPaths

_T = TypeVar("_T")
Check = Callable[[_T], Iterable[Finding]]

#: What is the same for every channel.
OF_WORLD: tuple[Check[World], ...] = (ground.sandbox, configs.of_user, identities.books)
#: What is looked at in a channel whose directory can be trusted; what must be cured first
#: stands first.
OF_CHANNEL: tuple[Check[Patient], ...] = (
    places.files,
    places.socket_place,
    places.room,
    ground.durability,
    ground.file_system,
    ground.exclusion,
    configs.of_channel,
    hubs.serving,
    litter.journals,
    litter.spawning,
    litter.temporary,
    litter.of_dead_hub,
    litter.asides,
    litter.logs,
    positions.locked,
    positions.standing,
    positions.trails,
    contents.torn,
    contents.bad,
    contents.repeated,
    contents.clock,
    readers.waiting,
    readers.elsewhere,
    identities.claimed,
)
#: Curing may bring more to light, such as a torn line that is a bad one once it has an end.
ROUNDS = 3


class Cured(NamedTuple):
    """What came of curing.

    :ivar done: each thing that was done, in words.
    :ivar failed: what could not be done, and why.
    :ivar findings: what a look afterwards found.
    """

    done: list[str]
    failed: list[Finding]
    findings: list[Finding]


def examine_world(world: World) -> list[Finding]:
    """What is found outside of any channel, the worst first."""
    return _sorted(found for check in OF_WORLD for found in _run(check, world))


def examine(paths: ChannelPaths, world: World, *, others: bool = True) -> list[Finding]:
    """What is found in a channel, the worst first. Nothing is changed, whatever is found.

    :param others: look for mail in other channels, too.
    """
    patient = Patient(paths, world, others=others)
    found = list(_run(places.directory, patient)) + list(_run(configs.of_format, patient))
    closed = any(one.severity == PROBLEM for one in found)
    if not closed and os.path.lexists(paths.directory):
        try:
            _ = patient.names
        except OSError as error:
            text = f"the channel's directory cannot be read: {error.strerror}"
            remedy = f"see what it is: ls -ld {paths.directory}"
            found.append(Finding(PROBLEM, "directory-unreadable", text, remedy, paths.directory))
        else:
            found += [one for check in OF_CHANNEL for one in _run(check, patient)]
    return _sorted(found)


def cure(paths: ChannelPaths, world: World, *, others: bool = True) -> Cured:
    """Cure what is safe to cure, then look again.

    Unread mail is never removed, nor is a position moved past it.
    """
    done: list[str] = []
    tried: set[str] = set()
    failed: list[Finding] = []
    findings = examine(paths, world, others=others)
    for _ in range(ROUNDS):
        cures = {one.cure.key: one for one in findings if one.cure is not None}
        if not cures.keys() - tried:
            break
        for key in (key for key in cures if key not in tried):
            tried.add(key)
            _cure_one(cures[key], done, failed)
        findings = examine(paths, world, others=others)
    return Cured(done, failed, findings)


def _cure_one(finding: Finding, done: list[str], failed: list[Finding]) -> None:
    assert finding.cure is not None
    try:
        done += finding.cure.work()
    except (IntercomError, OSError) as error:
        text, remedy = _said(error)
        text = f"not cured, {finding.code}: {text}"
        failed.append(Finding(WARNING, "cure-failed", text, remedy, finding.file))


def _run(check: Check[_T], subject: _T) -> Iterator[Finding]:
    """What a check finds; that it could not look is a finding, too."""
    try:
        yield from check(subject)
    except (IntercomError, OSError) as error:
        text, remedy = _said(error)
        name = f"{check.__module__.rpartition('.')[2]}.{check.__name__}"
        yield Finding(
            WARNING, "not-examined", f"could not look at everything ({name}): {text}", remedy
        )


def _said(error: IntercomError | OSError) -> tuple[str, str]:
    if isinstance(error, IntercomError):
        return error.text, error.remedy
    name = f"{error.filename}: " if error.filename else ""
    return f"{name}{error.strerror or error}", ""


def _sorted(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first, else as they were found."""
    return sorted(findings, key=lambda one: -SEVERITIES.index(one.severity))
