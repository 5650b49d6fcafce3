"""The hub: whether one leads, whether it is well, and whether it is the one that it should be."""

from __future__ import annotations

import contextlib
import os
import shlex
import time
from collections.abc import Iterator

from intercom import __version__
from intercom.client.control import Sight
from intercom.client.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding
from intercom.client.doctor.patient import Patient
from intercom.client.doctor.sight import holder, is_stopped
from intercom.election.locks import is_original


def serving(patient: Patient) -> Iterator[Finding]:
    """Who leads, and who answers at the socket."""
    state = patient.hub
    if state.sight is not None:
        yield from _answering(patient, state.sight)
    elif state.led:
        yield _not_answering(patient)
    elif state.kept:
        yield _replaced(patient)
    elif state.cause == "silent":
        yield _foreign(patient, "another program listens at the hub's socket and does not answer")
    elif state.cause not in ("absent", "refused", "denied", "forbidden"):
        assert state.trouble is not None
        text, remedy = state.trouble.text, state.trouble.remedy
        yield Finding(PROBLEM, "hub-foreign", text, remedy, patient.paths.socket)
    else:
        text = "no hub runs; the first command that needs one starts it"
        yield Finding(OK, "no-hub", text, file=patient.paths.lock)


def _answering(patient: Patient, sight: Sight) -> Iterator[Finding]:
    """Of a hub that answers: whether it leads, and what it says of itself."""
    state, paths, named = patient.hub, patient.paths, patient.leader_pid
    if not state.led:
        if state.kept:
            yield _replaced(patient, sight.pid)
        else:
            yield _foreign(
                patient, f"pid {sight.pid} listens at the hub's socket and leads nothing"
            )
        return
    if sight.pid and named not in (None, sight.pid, sight.told.get("pid")):
        text = f"pid {sight.pid} listens at the hub's socket, but pid {named} leads the channel"
        yield _foreign(patient, text, sight.pid)
        return
    yield Finding(OK, "hub", f"a hub runs: {_described(sight)}", file=paths.lock)
    if sight.original:
        text = "the hub is one of the original mesh: no receipts, positions or secrets"
        remedy = f"end it, and the next command starts one of ours: kill {sight.pid}"
        yield Finding(NOTE, "hub-original", text, remedy, paths.socket)
        return
    version = str(sight.told.get("version"))
    if version != __version__:
        text = f"the hub is intercom {version}, this command {__version__}"
        remedy = f"replace it: intercom {patient.where} hub restart"
        yield Finding(WARNING, "hub-version", text, remedy, paths.socket)


def _described(sight: Sight) -> str:
    """Pid, version, owner and start of a hub."""
    words = f"pid {sight.pid}"
    if sight.told.get("version"):
        words += f", intercom {sight.told['version']}"
    with contextlib.suppress(OSError):  # another process namespace, or a system without /proc
        words += f", uid {os.stat(f'/proc/{sight.pid}').st_uid}"
    started = sight.told.get("started")
    if isinstance(started, int | float):
        words += time.strftime(", since %Y-%m-%d %H:%M:%S", time.localtime(started))
    return f"{words}, {len(sight.sessions)} connected"


def _not_answering(patient: Patient) -> Finding:
    """Of a hub that leads and does not answer: why."""
    state, paths = patient.hub, patient.paths
    trouble = state.trouble
    assert trouble is not None
    told = trouble.details.get("pid")
    pid = told if isinstance(told, int) else holder(paths.lock) or patient.leader_pid
    who = "the hub" if pid is None else f"the hub (pid {pid})"
    if state.cause in ("denied", "forbidden"):
        text = f"{who} leads; it cannot be asked from here: {trouble.text}"
        return Finding(OK, "hub-unasked", text, file=paths.lock)
    if trouble.code == "TOO_MANY_SESSIONS":
        text = f"{who} has as many connections as it may, and turns others away"
        remedy = f"end some; or have it serve more: intercom {patient.where} config connections "
        remedy += f"NUMBER, then: intercom {patient.where} hub restart"
        return Finding(PROBLEM, "hub-full", text, remedy, paths.socket)
    if state.cause == "silent":
        stopped = pid is not None and is_stopped(pid)
        code, said = ("hub-stopped", "is stopped") if stopped else ("hub-silent", "does not answer")
        remedy = f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}" if pid else trouble.remedy
        text = f"{who} takes connections and {said}"
        return Finding(PROBLEM, code, text, remedy, paths.socket)
    if state.cause not in ("absent", "refused"):
        return Finding(PROBLEM, "hub-foreign", trouble.text, trouble.remedy, paths.socket)
    if not state.kept and not is_original(paths):
        holds = "some program" if pid is None else f"pid {pid}"
        text = f"{holds} holds the lock of the hub and is none: nobody can lead the channel"
    else:
        text = f"{who} leads, but nobody listens at its socket"
    remedy = f"end it, and the next command starts another: kill {pid}"
    if pid is None:
        remedy = f"see who holds the lock: fuser -v {shlex.quote(paths.lock)}; then: kill PID"
    elif is_stopped(pid):
        text += f"; pid {pid} is stopped"
        remedy = f"resume it: kill -CONT {pid}; or end it: kill -9 {pid}"
    return Finding(PROBLEM, "hub-unreachable", text, remedy, paths.lock)


def _replaced(patient: Patient, pid: int | None = None) -> Finding:
    """The channel's directory is locked and its lock file is not: that was made anew."""
    paths = patient.paths
    pid = pid or holder(paths.directory)
    who = "a hub" if pid is None else f"the hub (pid {pid})"
    text = f"{who} holds a lock file that was removed; it leaves as soon as it notices"
    if os.path.lexists(paths.lock):
        who = "some process" if pid is None else f"pid {pid}"
        text = (
            f"{who} keeps the channel's directory locked, and not its lock file, so no hub can "
            f"start: a hub whose lock file was replaced, or another program"
        )
        if pid is not None and is_stopped(pid):
            text += "; it is stopped"
    return Finding(
        PROBLEM,
        "lock-replaced",
        text,
        f"if it does not leave, end it: kill {pid or 'PID'}"
        + ("" if pid else f"; see which: fuser -v {shlex.quote(paths.directory)}"),
        paths.lock,
    )


def _foreign(patient: Patient, text: str, pid: int | None = None) -> Finding:
    """Somebody else listens where clients look for the hub."""
    sight = patient.hub.sight
    pid = pid or (sight.pid if sight is not None else None)
    path = patient.paths.socket
    remedy = f"see what it is: ps -fp {pid}; then end it: kill {pid}"
    if not pid:
        remedy = f"see what it is: fuser -v {shlex.quote(path)}; then end it: kill PID"
    return Finding(PROBLEM, "hub-foreign", text, remedy, path)
