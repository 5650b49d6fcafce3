"""Which sessions a channel knows, by their files. Blocking, standard library only.

A session is known once it has an offset, meta or token file: somebody read as it, or took
the name. An inbox alone says only that somebody wrote to it.
"""

from __future__ import annotations

import os

from intercom.errors import UnsafePlace
from intercom.names import file_name
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.spool.calls import FileCalls
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Temporary files this old, in seconds, were left by somebody who died.
ABANDONED = 3600.0


class Extent(NamedTuple):
    """An inbox file as it was at a moment.

    :ivar stamp: what changes whenever its meta file is replaced; None while there is none.
    """

    identity: tuple[int, int]
    size: int
    stamp: tuple[int, int] | None = None


class Census(NamedTuple):
    """What a look through the channel's directory found.

    :ivar sessions: known sessions, each with the seconds since it last read (None: never).
    :ivar inboxes: every inbox file by its name in the directory.
    """

    sessions: dict[str, float | None]
    inboxes: dict[str, Extent]


def take_census(paths: ChannelPaths, calls: FileCalls, now: float) -> Census:
    """Look through the channel's directory, and sweep what dead writers left in it.

    :param now: epoch seconds.
    """
    from intercom.spool.format import split_name

    encoded: set[str] = set()
    inboxes: dict[str, Extent] = {}
    with os.scandir(paths.directory) as entries:
        for entry in entries:
            parts = split_name(entry.name)
            if parts is None:
                if entry.name.startswith(".tmp-"):
                    _sweep(calls, entry.path, now)
            elif parts[0] != "inbox":
                encoded.add(parts[1])
            elif (found := calls.stat(entry.path)) is not None:
                stamp = stamp_of(calls, paths.file(f"meta_{parts[1]}.json"))
                inboxes[entry.name] = Extent((found.st_dev, found.st_ino), found.st_size, stamp)
    return Census(sight(paths, calls, encoded, now), inboxes)


def stamp_of(calls: FileCalls, path: str) -> tuple[int, int] | None:
    """What changes whenever a small file is replaced; None while there is none."""
    found = calls.stat(path)
    return None if found is None else (found.st_ino, found.st_mtime_ns)


def sight(
    paths: ChannelPaths, calls: FileCalls, encoded: Iterable[str], now: float
) -> dict[str, float | None]:
    """The sessions of some encoded ids that are known, with the seconds since each read."""
    sessions: dict[str, float | None] = {}
    for name in encoded:
        session = session_of(paths, calls, name)
        if session is None:
            continue
        found = calls.stat(paths.offset(session))
        if found is not None:
            sessions[session] = max(0.0, now - found.st_mtime)
        elif is_known(paths, calls, session):
            sessions[session] = None
    return sessions


def forgotten(paths: ChannelPaths, calls: FileCalls, encoded: Iterable[str]) -> list[str]:
    """The sessions of some encoded ids that nothing shows to have been used (any more)."""
    from intercom.spool.format import decode_name

    sessions = [session for name in encoded if (session := decode_name(name)) is not None]
    return [session for session in sessions if not is_known(paths, calls, session)]


def is_known(paths: ChannelPaths, calls: FileCalls, session: str) -> bool:
    """Whether anybody ever used this session id."""
    return any(
        calls.stat(path) is not None
        for path in (paths.offset(session), paths.meta(session), paths.token(session))
    )


def session_of(paths: ChannelPaths, calls: FileCalls, encoded: str) -> str | None:
    """The session id of an encoded one; where only a hash is left, as its files tell it."""
    # Commands that only ask is_known do without.
    from intercom.spool.format import Damaged, decode_name, parse_meta, parse_offset

    session = decode_name(encoded)
    if session is not None:
        return session
    for kind, parse in (("meta", parse_meta), ("offset", parse_offset)):
        with suppress(OSError, UnsafePlace, Damaged):
            data = calls.small(paths.file(f"{kind}_{encoded}.json"))
            told = parse(data).session if data is not None else None
            if told is not None and file_name(told) == encoded:
                return told
    return None


def _sweep(calls: FileCalls, path: str, now: float) -> None:
    found = calls.stat(path)
    if found is not None and now - found.st_mtime > ABANDONED:
        with suppress(OSError):
            calls.unlink(path)
