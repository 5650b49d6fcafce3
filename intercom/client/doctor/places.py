"""Whose the channel's directory and files are, where its socket is, and what room there is."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from functools import partial

from intercom.client.doctor.cures import close_to_others
from intercom.client.doctor.findings import (
    NOTE,
    OK,
    PROBLEM,
    WARNING,
    Cure,
    Finding,
    sized,
)
from intercom.client.doctor.patient import Patient
from intercom.errors import CannotCreate, UnsafePlace
from intercom.paths import MAX_SOCKET_PATH, ChannelPaths, open_private, read_private
from intercom.spool.format import split_name

#: Below so many free bytes, or free inodes, the next messages may find no room.
FREE_BYTES = 64 << 20
FREE_INODES = 1000
#: Files of the channel beside those of sessions.
_OWN = frozenset({"channel.json", "channel.key", "peers.json", "hub.sock.at"})
_OWN_KINDS = (
    "hub.l",
    "hub.out",
    "spawn.",
    "journal.",
    "history.",
    "dead.",
    "name_",
    "reader_",
    "turn_",
)


def directory(patient: Patient) -> Iterator[Finding]:
    """Owner, mode, links, and everything above; read by others is open, written is unsafe."""
    paths = patient.paths
    try:
        paths.check()
    except UnsafePlace as error:
        yield Finding(PROBLEM, "directory-unsafe", error.text, error.remedy, paths.directory)
        return
    except CannotCreate as error:
        yield Finding(PROBLEM, "directory-impossible", error.text, error.remedy, paths.directory)
        return
    wrong = list(_open_directories(paths))
    yield from wrong
    if not os.path.lexists(paths.directory):
        text = f"channel {paths.name!r} does not exist yet; the first command makes it"
        yield Finding(OK, "directory", text, file=paths.directory)
    elif not wrong:
        yield Finding(OK, "directory", "the directory is yours alone", file=paths.directory)


def _open_directories(paths: ChannelPaths) -> Iterator[Finding]:
    for path in dict.fromkeys((paths.base, paths.directory, os.path.dirname(paths.socket))):
        try:
            mode = stat.S_IMODE(os.lstat(path).st_mode)
        except FileNotFoundError:
            continue
        if mode & 0o077:
            yield Finding(
                WARNING,
                "directory-open",
                f"other users can look into {path} (mode {mode:04o})",
                f"chmod 700 {shlex.quote(path)}",
                path,
                cure=Cure(f"mode {path}", partial(close_to_others, path)),
            )


def files(patient: Patient) -> Iterator[Finding]:
    """Files that are not ours alone, or that hold a secret and are open to others."""
    paths = patient.paths
    for name in patient.names:
        parts = split_name(name)
        secret = name == "channel.key" or (parts is not None and parts[0] == "token")
        if parts is None and name not in _OWN and not name.startswith(_OWN_KINDS):
            continue
        path = paths.file(name)
        try:
            fd = open_private(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except UnsafePlace as error:
            yield Finding(PROBLEM, "file-unsafe", error.text, error.remedy, path)
            continue
        except OSError as error:
            remedy = f"see what it is: ls -l {shlex.quote(path)}"
            text = f"{path} cannot be read: {error.strerror}"
            yield Finding(PROBLEM, "file-unreadable", text, remedy, path)
            continue
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        os.close(fd)
        if secret and mode & 0o077:
            yield Finding(
                WARNING,
                "secret-open",
                f"{path} holds a secret, and its mode is {mode:04o}",
                f"chmod 600 {shlex.quote(path)}",
                path,
                cure=Cure(f"mode {path}", partial(close_to_others, path)),
            )


def socket_place(patient: Patient) -> Iterator[Finding]:
    """A path that is too long for a socket, and the file that then says where it is."""
    paths = patient.paths
    wanted = paths.file("hub.sock")
    if paths.socket == wanted:
        return
    length = len(os.fsencode(wanted))
    yield Finding(
        NOTE,
        "socket-moved",
        f"the path of the socket would have {length} bytes, and a system takes {MAX_SOCKET_PATH}; "
        f"so it is at {paths.socket}, which clients of the original mesh do not find",
        "choose a shorter place: --dir DIR, or INTERCOM_DIR",
        paths.socket,
    )
    told = (read_private(paths.socket_pointer) or b"").rstrip(b"\n")
    if patient.hub.led and told != os.fsencode(paths.socket):
        yield Finding(
            WARNING,
            "socket-pointer",
            f"{paths.socket_pointer} should name the hub's socket {paths.socket}, and "
            + ("names another" if told else "is missing"),
            f"let a new hub write it: intercom {patient.where} hub restart",
            paths.socket_pointer,
        )


def room(patient: Patient) -> Iterator[Finding]:
    """Free space and free inodes where the channel is."""
    paths = patient.paths
    found = patient.world.statvfs(paths.directory)
    free = found.f_bavail * found.f_frsize
    where = f"see: df -h {shlex.quote(paths.directory)}"
    if free < FREE_BYTES:
        text = f"only {sized(free)} are free on the disk of the channel"
        yield Finding(WARNING, "disk-low", text, f"make room; {where}", paths.directory)
    if found.f_files and found.f_favail < FREE_INODES:
        text = f"only {found.f_favail} more files can be made on the disk of the channel"
        remedy = f"remove files there; see: df -i {shlex.quote(paths.directory)}"
        yield Finding(WARNING, "inodes-low", text, remedy, paths.directory)
    elif free >= FREE_BYTES:
        text = f"{sized(free)} are free on the disk"
        yield Finding(OK, "room", text, file=paths.directory)
