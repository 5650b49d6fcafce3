"""``intercom doctor``: what is wrong with a channel, what to do, and doing what is safe."""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

import click

from intercom.cli import options, output
from intercom.client.doctor import examination
from intercom.client.doctor.findings import (
    NOTE,
    OK,
    PROBLEM,
    WARNING,
    Finding,
    worst,
)
from intercom.client.doctor.patient import World
from intercom.client.doctor.readers import channels
from intercom.client.tree import project_directory
from intercom.errors import EX_TEMPFAIL, IntercomError
from intercom.paths import ChannelPaths, base_directory
from intercom.settings.lookup import Settings
from intercom.settings.table import SETTINGS
from intercom.showing.text import escape
from intercom.showing.words import counted

#: Exit status where something is worse than a note.
EX_FOUND = EX_TEMPFAIL
_INDENT = " " * 9


class _Report(NamedTuple):
    """What there is to say of a channel, or (without one) of what surrounds them all."""

    paths: ChannelPaths | None
    findings: list[Finding]
    done: list[str]


class _Place(NamedTuple):
    """Where to look."""

    paths: ChannelPaths
    project: str
    as_json: bool
    trouble: IntercomError | None = None


@click.command
@click.option("--fix", is_flag=True, help="Cure what is safe to cure; unread mail is not touched.")
@click.option("--all-channels", is_flag=True, help="Look at every channel of the directory.")
@click.pass_context
def doctor(ctx: click.Context, fix: bool, all_channels: bool) -> int:
    """Look for what is wrong with the channel, and say what to do about it.

    Changes, makes and starts nothing, unless --fix says so. Exit status 0: nothing is
    worse than a note; 75: there are warnings or problems.
    """
    place = _place(ctx)
    world = World(now=time.time(), environ=os.environ, project=place.project)
    reports = [_around(place, world)]
    for paths in _channels(place.paths, all_channels):
        if fix:
            cured = examination.cure(paths, world, others=not all_channels)
            findings = [*cured.failed, *cured.findings]
            reports.append(_Report(paths, findings, cured.done))
        else:
            findings = examination.examine(paths, world, others=not all_channels)
            reports.append(_Report(paths, findings, []))
    level = worst(found for report in reports for found in report.findings)
    if place.as_json:
        output.write(output.to_json(_fields(reports, level)) + b"\n")
    else:
        output.write_text(_text(reports))
        if not fix and any(found.cure for report in reports for found in report.findings):
            words = ["--all-channels"] if all_channels else []
            again = options.again(ctx, "doctor", "--fix", *words)
            output.write_text(f"some of it can be cured: {again}\n")
    return 0 if level in (OK, NOTE) else EX_FOUND


def _place(ctx: click.Context) -> _Place:
    """The channel that is meant, even where settings cannot be read: then as without them."""
    try:
        scope = options.look(ctx)
    except IntercomError as error:
        settings = options.settings(ctx)
        paths = ChannelPaths(
            base_directory(_or_default(settings, "dir")), _or_default(settings, "channel")
        )
        as_json = output.wants_json(_or_default(settings, "format"))
        return _Place(paths, project_directory(None, os.getcwd()), as_json, error)
    return _Place(scope.paths, scope.project, scope.as_json)


def _or_default(settings: Settings, key: str) -> Any:
    """What holds for a setting, the default where that cannot be told."""
    try:
        return settings.value(key)
    except IntercomError:
        return SETTINGS[key].default


def _around(place: _Place, world: World) -> _Report:
    """What is found outside of channels."""
    findings = examination.examine_world(world)
    trouble = place.trouble
    if trouble is not None and trouble.text not in [found.text for found in findings]:
        found = Finding(PROBLEM, "settings-unusable", trouble.text, trouble.remedy)
        findings.insert(0, found)
    return _Report(None, findings, [])


def _channels(paths: ChannelPaths, every: bool) -> list[ChannelPaths]:
    """The channels to look at: the one that is meant first."""
    if not every:
        return [paths]
    try:
        return channels(paths.base) or [paths]
    except OSError:  # of which the look at the one channel tells
        return [paths]


# -- for programs -----------------------------------------------------------------------------


def _fields(reports: list[_Report], level: str) -> dict[str, Any]:
    findings, done = [], []
    for report in reports:
        channel = None if report.paths is None else report.paths.name
        findings += [{"channel": channel} | found.fields() for found in report.findings]
        done += [{"channel": channel, "message": text} for text in report.done]
    return {"status": level, "findings": findings, "fixed": done}


# -- for people -------------------------------------------------------------------------------


def _text(reports: list[_Report]) -> str:
    lines: list[str] = []
    for report in reports:
        if report.paths is not None:
            lines.append(escape(f"channel {report.paths.name} in {report.paths.directory}"))
        lines += [f"  {'done':<8} {escape(text)}" for text in report.done]
        for found in report.findings:
            lines += _lines(found)
    lines.append(_summary([found for report in reports for found in report.findings]))
    return "".join(line + "\n" for line in lines)


def _lines(found: Finding) -> list[str]:
    """One finding: what, where, and what to do."""
    lines = [f"  {found.severity:<8} {escape(found.text)} ({found.code})"]
    if found.severity == OK:
        return [f"  {found.severity:<8} {escape(found.text)}"]
    if found.spans:
        places = ", ".join(f"{start}-{end}" for start, end in found.spans)
        more = found.count - len(found.spans)
        bytes_ = f"bytes {places}{f' and {more} more' if more > 0 else ''}"
        lines.append(f"{_INDENT}  {escape(found.file)}, {bytes_}")
    elif found.file and found.file not in found.text:
        lines.append(f"{_INDENT}  {escape(found.file)}")
    if found.remedy:
        lines.append(f"{_INDENT}  {escape(found.remedy)}")
    return lines


def _summary(findings: list[Finding]) -> str:
    counts = [
        counted(count, name)
        for name in (PROBLEM, WARNING, NOTE)
        if (count := sum(found.severity == name for found in findings))
    ]
    return ", ".join(counts) if counts else "nothing is wrong"
