"""Where sessions stand in their inboxes, and small files that do not say so rightly."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from functools import partial

from intercom.client.doctor.cures import settle
from intercom.client.doctor.findings import NOTE, WARNING, Cure, Finding, counted
from intercom.client.doctor.inboxes import Scan
from intercom.client.doctor.patient import KEEP, Patient
from intercom.client.doctor.sight import holder, is_stopped
from intercom.errors import IntercomError
from intercom.names import file_name
from intercom.spool.book import View
from intercom.spool.format import Damaged, Meta, Stored
from intercom.spool.trail import parse

#: So many bytes of a trail are looked at, the last ones.
_TAIL = 1 << 18


def standing(patient: Patient) -> Iterator[Finding]:
    """Positions that are damaged, past the end, inside a line, of another generation."""
    if patient.power_cut:
        return  # inboxes lack what the journal holds: first things first
    for one in patient.scans:
        if one.session is not None and one.view is not None and not one.busy:
            yield from _of_one(patient, one, one.session, one.view)


def _of_one(patient: Patient, one: Scan, session: str, view: View) -> Iterator[Finding]:
    paths = patient.paths
    offset, meta = paths.offset(session), paths.meta(session)
    if isinstance(view.stored, Damaged):
        text = f"the position of {session!r} is damaged ({view.stored}): it reads from the start"
        yield _finding(patient, session, "offset-damaged", text, offset)
    if isinstance(view.meta, Damaged):
        text = f"the generation of the inbox of {session!r} is damaged ({view.meta})"
        yield _finding(patient, session, "meta-damaged", text, meta)
    if view.unfinished or (isinstance(view.meta, Meta) and view.meta.mark is not None):
        text = f"the inbox of {session!r} was being emptied when whoever did it died"
        yield _finding(patient, session, "emptying-unfinished", text, meta)
    elif (keep := KEEP + file_name(session)) in patient.names:
        text = f"a copy of the inbox of {session!r} was left by an emptying that never began"
        yield _finding(patient, session, "keep-left", text, paths.file(keep))
    elif not one.exists:
        yield from _without_inbox(patient, session, view)
    else:
        yield from _disagreeing(patient, one, session, view)


def _without_inbox(patient: Patient, session: str, view: View) -> Iterator[Finding]:
    """A position whose inbox is gone: it might pass over messages to come."""
    paths = patient.paths
    if isinstance(view.stored, Stored) and view.stored.offset:
        text = (
            f"{session!r} has the position {view.stored.offset} in an inbox that is gone; once a "
            f"new one is as long, its first messages would be passed over"
        )
        yield _finding(patient, session, "position-without-inbox", text, paths.offset(session))
    elif view.stored is not None or view.meta is not None:
        kind = "offset" if view.stored is not None else "meta"
        path = paths.file(f"{kind}_{file_name(session)}.json")
        text = f"{session!r} is known, and has no inbox; the next message makes one"
        cure = _cure(patient, session)
        yield Finding(NOTE, "inbox-missing", text, file=path, session=session, cure=cure)


def _disagreeing(patient: Patient, one: Scan, session: str, view: View) -> Iterator[Finding]:
    """A position that is whole, and not where its inbox has it."""
    stored, truth, path = view.stored, view.truth, patient.paths.offset(session)
    if not isinstance(stored, Stored):
        return
    generation = truth.position.generation
    if truth.raised:
        text = (
            f"the position of {session!r} is byte {stored.offset}, past the end of its inbox at "
            f"{one.size}: somebody has reset that"
        )
        yield _finding(patient, session, "offset-past-end", text, path)
        return
    written = view.meta.generation if isinstance(view.meta, Meta) else generation
    if stored.generation not in (None, generation) or written < generation:
        text = (
            f"the files of {session!r} disagree: the position is of generation "
            f"{stored.generation}, the inbox of {written}"
        )
        yield _finding(patient, session, "generations-disagree", text, path)
    elif stored.offset != truth.position.offset:
        text = (
            f"the position of {session!r}, byte {stored.offset}, is inside a line that begins at "
            f"{truth.position.offset}"
        )
        span = (truth.position.offset, stored.offset)
        yield _finding(patient, session, "offset-inside-line", text, one.path, (span,))


def _finding(
    patient: Patient,
    session: str,
    code: str,
    text: str,
    file: str,
    spans: tuple[tuple[int, int], ...] = (),
) -> Finding:
    return Finding(
        WARNING,
        code,
        text,
        f"intercom {patient.where} doctor --fix; no unread message is passed over",
        file,
        spans,
        session=session,
        cure=_cure(patient, session),
    )


def _cure(patient: Patient, session: str) -> Cure:
    paths = patient.paths
    return Cure(f"settle {paths.directory} {session}", partial(settle, paths, session))


def locked(patient: Patient) -> Iterator[Finding]:
    """Inboxes that some process keeps locked, or that cannot be read."""
    for one in patient.scans:
        if one.trouble is not None:
            text = f"the inbox of {one.session or one.encoded!r} cannot be read: {one.trouble}"
            remedy = f"see what it is: ls -l {shlex.quote(one.path)}"
            if isinstance(one.trouble, IntercomError):
                remedy = one.trouble.remedy or remedy
            yield Finding(WARNING, "inbox-unreadable", text, remedy, one.path, session=one.session)
        elif one.busy:
            pid = holder(one.path)
            who = "some process" if pid is None else f"pid {pid}"
            remedy = f"see which: fuser -v {shlex.quote(one.path)}"
            if pid is not None and is_stopped(pid):
                who += ", which is stopped,"
                remedy = f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}"
            text = f"{who} keeps the inbox of {one.session!r} locked: nothing can be stored there"
            yield Finding(WARNING, "inbox-locked", text, remedy, one.path, session=one.session)


def trails(patient: Patient) -> Iterator[Finding]:
    """Trails with lines that are none, lately. They only inform: nothing depends on them."""
    for name in patient.names:
        if not (name.startswith("trail_") and name.endswith(".ndjson")):
            continue
        path = patient.paths.file(name)
        try:
            data = _tail(patient, path)
        except (OSError, IntercomError):
            continue  # it is gone, or its file is a finding by itself
        bad = sum(1 for line in data.split(b"\n") if line) - len(parse(data, ""))
        if bad > 0:
            text = (
                f"{counted(bad, 'line')} of {os.path.basename(path)} cannot be read; when those "
                f"messages were shown or read is not known"
            )
            yield Finding(NOTE, "trail-damaged", text, file=path, count=bad)


def _tail(patient: Patient, path: str) -> bytes:
    """The whole lines at the end of a file."""
    calls = patient.calls
    fd = calls.open(path, os.O_RDONLY)
    try:
        size = calls.fstat(fd).st_size
        start = max(0, size - _TAIL)
        data = calls.pread(fd, size - start, start)
    finally:
        calls.close(fd)
    begin = data.find(b"\n") + 1 if start else 0
    return data[begin : data.rfind(b"\n") + 1]
