"""Mail that waits, and whether anybody is there to read it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import suppress

from intercom.client import control
from intercom.client.doctor.findings import NOTE, WARNING, Finding, counted, duration
from intercom.client.doctor.inboxes import Scan, scan
from intercom.client.doctor.patient import Patient
from intercom.client.doctor.sight import is_stopped
from intercom.names import HUB, nearest
from intercom.paths import ChannelPaths
from intercom.spool import turns
from intercom.spool.format import decode_name

#: Seconds for which mail may lie without anybody noticing: who polls comes by sooner.
PATIENCE = 600.0
#: So many other channels are looked through.
MOST_CHANNELS = 200


def waiting(patient: Patient) -> Iterator[Finding]:
    """Sessions without a reader for which mail lies unread."""
    present = _connected(patient)
    for one in patient.scans:
        session = one.session
        if session is None or one.busy or not one.content.unread:
            continue
        reader = turns.reader_of(patient.paths, session)
        if reader is not None:
            yield from _stopped(patient, one, session, reader)
        elif session not in present and not (session == HUB and patient.hub.led):
            yield _unread(patient, one, session)


def _connected(patient: Patient) -> set[str]:
    """Who is connected: as the hub says, or else as it has published."""
    state = patient.hub
    if state.sight is not None:
        return set(state.sight.names)
    if not state.led:
        return set()
    names = control.published(patient.paths).get("active_sessions")
    return {str(name) for name in names} if isinstance(names, list) else set()


def _stopped(patient: Patient, one: Scan, session: str, reader: turns.Holder) -> Iterator[Finding]:
    """Of mail whose reader is there: whether that is stopped."""
    if reader.pid is None or not is_stopped(reader.pid):
        return
    takeover = f"intercom {patient.where} listen --takeover --session {shlex.quote(session)}"
    yield Finding(
        WARNING,
        "reader-stopped",
        f"process {reader.pid} ({reader.program}), which reads for {session!r}, is stopped: "
        f"{counted(one.content.unread, 'message')} unread",
        f"resume it: kill -CONT {reader.pid}; or read in its place: {takeover}",
        one.path,
        count=one.content.unread,
        session=session,
    )


def _unread(patient: Patient, one: Scan, session: str) -> Finding:
    now, oldest = patient.world.now, one.content.oldest
    waits = 0.0 if oldest is None else max(0.0, now - oldest)
    most = "more than " if one.content.begin > one.offset else ""
    count = f"{most}{counted(one.content.unread, 'message')} unread"
    age = "" if oldest is None else f", the oldest {duration(waits)} old"
    name = shlex.quote(session)
    code, read = "unread-without-reader", _last_read(patient, session, now)
    text = f"nobody reads for {session!r}: {count}{age}; {read}"
    remedy = (
        f"see them: intercom {patient.where} poll --peek --session {name}; or let somebody "
        f"read: intercom {patient.where} listen --session {name}"
    )
    if session == HUB:
        text = f"{count}{age}, left for the hub by commands that could not reach it"
        remedy = f"start one: intercom {patient.where} hub start"
    elif not any(patient.has_file(kind, session) for kind in ("offset", "meta")) and (
        not patient.has_file("token", session, "")
    ):
        known = {other.session for other in patient.scans if other.session and other.view}
        near = " or ".join(map(repr, nearest(session, known - {session, HUB})))
        code, text = "unread-for-stranger", f"nobody ever used the name {session!r}: {count}{age}"
        text += f"; was {near} meant?" if near else ""
    return Finding(
        WARNING if waits > PATIENCE else NOTE,
        code,
        text,
        remedy,
        one.path,
        count=one.content.unread,
        session=session,
    )


def _last_read(patient: Patient, session: str, now: float) -> str:
    try:
        at = os.lstat(patient.paths.offset(session)).st_mtime
    except OSError:
        return "never read"
    return f"last read {duration(now - at)} ago"


def elsewhere(patient: Patient) -> Iterator[Finding]:
    """Unread mail for the same names in other channels of the base directory."""
    if not patient.others:
        return
    wanted = {f"inbox_{one.encoded}.ndjson": one.encoded for one in patient.scans if one.session}
    for paths in channels(patient.paths.base)[:MOST_CHANNELS]:
        if paths.directory == patient.paths.directory:
            continue
        with suppress(OSError):
            for name in sorted(wanted.keys() & set(os.listdir(paths.directory))):
                yield from _unread_there(patient, paths, wanted[name])


def _unread_there(patient: Patient, paths: ChannelPaths, encoded: str) -> Iterator[Finding]:
    one = scan(paths, encoded, patient.calls)
    if not one.content.unread or one.session in (None, HUB):
        return
    there = f"intercom {control.where(paths)} poll --peek --session {shlex.quote(str(one.session))}"
    yield Finding(
        NOTE,
        "unread-elsewhere",
        f"{counted(one.content.unread, 'message')} for {one.session!r} unread in another "
        f"channel, {paths.name!r}",
        f"see them: {there}",
        one.path,
        count=one.content.unread,
        session=one.session,
    )


def channels(base: str) -> list[ChannelPaths]:
    """The channels in a base directory: its directories that are ours and named as one is.

    :raise OSError: it cannot be read.
    """
    found = []
    with os.scandir(base) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = decode_name(entry.name)
            info = entry.stat(follow_symlinks=False)
            if name is None or not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
                continue
            paths = ChannelPaths(base, name)
            if paths.directory == os.path.join(base, entry.name):
                found.append(paths)
    return found
