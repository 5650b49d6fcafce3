"""What the dead left behind."""

from __future__ import annotations

import contextlib
import os
import shlex
import stat
import time
from collections.abc import Iterator
from functools import partial

from intercom.client.doctor.cures import bury, recover, sweep
from intercom.client.doctor.findings import (
    NOTE,
    PROBLEM,
    WARNING,
    Cure,
    Finding,
    counted,
    sized,
)
from intercom.client.doctor.patient import Patient
from intercom.client.doctor.sight import holder, is_stopped
from intercom.client.erasing import asides_session
from intercom.errors import IntercomError
from intercom.spool.boots import boots
from intercom.spool.format import decode_name
from intercom.spool.known import ABANDONED
from intercom.spool.recovery import MARKER

#: A log is rotated at 5 MiB, and the last words of a hub are few; beyond this, something is odd.
MOST_LOG, MOST_WORDS = 16 << 20, 1 << 20
#: Seconds for which a command may hold the right to start a hub without being looked at twice.
STARTING = 0.3
_PAUSE = 0.03


def temporary(patient: Patient) -> Iterator[Finding]:
    """Temporary files too old to be in anybody's hands."""
    old = []
    for name in patient.names:
        if name.startswith(".tmp-"):
            found = patient.calls.stat(patient.paths.file(name))
            if found is not None and patient.world.now - found.st_mtime > ABANDONED:
                old.append(name)
    if old:
        text = f"{counted(len(old), 'temporary file')} of processes that died"
        yield _swept(patient, "temporary-files", text, old[0], len(old))


def of_dead_hub(patient: Patient) -> Iterator[Finding]:
    """Sockets, lists and pointers of a hub that is gone."""
    state, paths = patient.hub, patient.paths
    if state.led or state.kept or state.sight is not None or state.cause == "silent":
        return
    sockets = [name for name in patient.names if name.startswith(".hub")]
    if sockets:
        text = f"{counted(len(sockets), 'socket')} that a hub had bound, and died before it served"
        yield _swept(patient, "unpublished-sockets", text, sockets[0], len(sockets))
    found = patient.calls.stat(paths.socket)
    if found is not None and stat.S_ISSOCK(found.st_mode):
        yield _swept(patient, "stale-socket", "the socket of a hub that is gone", paths.socket)
    elif found is not None:
        text = f"{paths.socket} is no socket, so no hub can take its place"
        remedy = f"look at what it is, then: rm -r {shlex.quote(paths.socket)}"
        yield Finding(PROBLEM, "socket-occupied", text, remedy, paths.socket)
    if os.path.basename(paths.peers) in patient.names:
        text = "a list of who is here, of a hub that is gone"
        yield _swept(patient, "stale-peers", text, paths.peers)
    if os.path.basename(paths.socket_pointer) in patient.names:
        text = "the name of a socket, of a hub that is gone"
        yield _swept(patient, "stale-pointer", text, paths.socket_pointer)


def _swept(patient: Patient, code: str, text: str, name: str, count: int = 1) -> Finding:
    paths = patient.paths
    return Finding(
        NOTE,
        code,
        text,
        f"intercom {patient.where} cleanup --stale",
        paths.file(name),
        count=count,
        cure=Cure(f"sweep {paths.directory}", partial(sweep, paths)),
    )


def asides(patient: Patient) -> Iterator[Finding]:
    """Inboxes of forgotten sessions whose unread messages were perhaps never shown."""
    for name in patient.names:
        encoded = asides_session(name)
        if encoded is None:
            continue
        paths = patient.paths
        offset, made = (int(part) for part in name.rsplit(".", 3)[1:3])
        found = patient.calls.stat(paths.file(name))
        if found is None or patient.world.now - made / 1e9 < ABANDONED:
            continue
        session = decode_name(encoded) or encoded
        text = f"the inbox of the forgotten session {session!r} still lies aside"
        remedy = f"be rid of it: intercom {patient.where} forget {shlex.quote(session)}"
        if found.st_size > offset:
            text += f", {counted(found.st_size - offset, 'byte')} of it unread"
            remedy += ", which shows them first"
            span = ((offset, found.st_size),)
            yield Finding(WARNING, "forgotten-unread", text, remedy, paths.file(name), span)
        else:
            cure = Cure(f"bury {paths.file(name)}", partial(bury, paths, encoded))
            yield Finding(NOTE, "forgotten-aside", text, remedy, paths.file(name), cure=cure)


def spawning(patient: Patient) -> Iterator[Finding]:
    """The right to start a hub, held by a process that does not get on with it."""
    path = patient.paths.spawn_lock
    deadline = time.monotonic() + STARTING
    while _is_held(patient, path):
        pid = holder(path)
        if pid is not None and is_stopped(pid):
            text = f"pid {pid} holds the right to start a hub, and is stopped: nobody else can"
            remedy = f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}"
            yield Finding(PROBLEM, "spawn-stuck", text, remedy, path)
            return
        if time.monotonic() > deadline:
            who = "a command" if pid is None else f"pid {pid}"
            text = f"{who} is starting or replacing the hub at this moment"
            remedy = f"if that does not end, see which it is: fuser -v {shlex.quote(path)}"
            yield Finding(NOTE, "spawn-busy", text, remedy, path)
            return
        time.sleep(_PAUSE)


def _is_held(patient: Patient, path: str) -> bool:
    """Whether somebody holds a lock file, looked at for a moment."""
    try:
        fd = patient.calls.open(path, os.O_RDONLY)
    except (OSError, IntercomError):
        return False
    try:
        return not patient.calls.lock(fd, exclusive=False)
    finally:
        patient.calls.close(fd)


def journals(patient: Patient) -> Iterator[Finding]:
    """What a hub that died had promised, and a sync that failed."""
    paths, led = patient.paths, patient.hub.led
    marker = paths.file(MARKER)
    if MARKER in patient.names:
        text = "a sync of the disk has failed: what was stored may not survive a power cut"
        verb = "restart" if led else "start"
        remedy = (
            f"see what the kernel says of the disk: dmesg; then let a hub write anew what it "
            f"holds: intercom {patient.where} hub {verb}"
        )
        yield Finding(PROBLEM if led else WARNING, "sync-failed", text, remedy, marker)
    if led:
        return
    found: set[str] = set()
    with contextlib.suppress(IntercomError, UnicodeDecodeError):
        found = boots(paths, patient.calls)
    first = next((name for name in patient.names if name in ("journal.0", "journal.1")), "")
    if patient.power_cut:
        text = "the machine went down under a hub; inboxes may lack what its journal holds"
        remedy = f"any hub gives it back: intercom {patient.where} hub start"
        cure = Cure(f"recover {paths.directory}", partial(recover, paths, patient.world.boot))
        yield Finding(WARNING, "power-cut", text, remedy, paths.file(first), cure=cure)
    elif found:
        text = "a hub was killed and left its journal; all that it holds is in the inboxes"
        remedy = f"the next hub removes it: intercom {patient.where} hub start"
        yield Finding(NOTE, "journal-left", text, remedy, paths.file(first))


def logs(patient: Patient) -> Iterator[Finding]:
    """Logs that nobody rotates."""
    paths = patient.paths
    for path, most in ((paths.log, MOST_LOG), (paths.spawn_output, MOST_WORDS)):
        found = patient.calls.stat(path)
        if found is not None and found.st_size > most:
            text = f"{os.path.basename(path)} has grown to {sized(found.st_size)}"
            remedy = f"see what fills it: intercom {patient.where} hub logs -n 20; then empty it: "
            remedy += f"truncate -s 0 {shlex.quote(path)}"
            yield Finding(NOTE, "log-large", text, remedy, path)
