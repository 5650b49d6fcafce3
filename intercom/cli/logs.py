"""Reading a hub's log, which is one JSON object a line, in files that are rotated."""

from __future__ import annotations

import json
import os
import select
import time
from datetime import datetime
from typing import Any

from intercom.cli import output
from intercom.client.control import where
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths, open_private
from intercom.showing.blocks import BAR
from intercom.showing.text import escape

#: As many old files a hub keeps.
KEPT = 3
#: Seconds between two looks for more.
INTERVAL = 0.1
_CHUNK = 1 << 20
#: What is shown in its own way, or is for programs.
_SAID = frozenset({"time", "level", "namespace", "text", "traceback"})


def show(paths: ChannelPaths, count: int, *, follow: bool, raw: bool) -> None:
    """Print the last lines of the log, and with ``follow`` each that is written from now on.

    :param raw: print the lines as they are.
    :raise HubUnavailable: there is no log, for no hub has led the channel.
    """
    fd = _open(paths.log)
    if fd is None:
        raise HubUnavailable(
            f"channel {paths.name!r} has no log {paths.log}: no hub ever led it",
            remedy=f"start one: intercom {where(paths)} hub start",
            details={"cause": "absent"},
        )
    with _Log(paths.log, fd) as log:
        lines = _older(paths, fd, log.lines(), count)
        _print(lines[max(0, len(lines) - count) :], raw)
        while follow:
            time.sleep(INTERVAL)
            _raise_if_alone()
            _print(log.lines(), raw)


class _Log:
    """The log that is being written, through rotations.

    :param fd: the file, open; this closes it.
    """

    def __init__(self, path: str, fd: int) -> None:
        self._path = path
        self._fd = fd
        self._begun = b""

    def __enter__(self) -> _Log:
        return self

    def __exit__(self, *_exc: object) -> None:
        os.close(self._fd)

    def lines(self) -> list[bytes]:
        """The complete lines behind what was read."""
        found = []
        while True:
            replaced = not self._is_in_place()  # looked at first: what is read now is its all
            *lines, self._begun = (self._begun + _rest(self._fd)).split(b"\n")
            found += lines
            fresh = _open(self._path) if replaced else None
            if fresh is None:
                return found
            os.close(self._fd)
            self._fd = fresh

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.fstat(self._fd), os.lstat(self._path))
        except FileNotFoundError:
            return False


def _open(path: str) -> int | None:
    try:
        return open_private(path, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _older(paths: ChannelPaths, newest: int, lines: list[bytes], count: int) -> list[bytes]:
    """As many lines as are wanted, from older files too where the newest has not enough."""
    for number in range(1, KEPT + 1):
        if len(lines) >= count:
            break
        fd = _open(f"{paths.log}.{number}")
        if fd is None:
            break
        try:
            if not os.path.samestat(os.fstat(fd), os.fstat(newest)):  # rotated just now
                lines = _rest(fd).splitlines() + lines  # of JSON, so that only \n ends one
        finally:
            os.close(fd)
    return lines


def _rest(fd: int) -> bytes:
    """What is in a file behind what was read."""
    parts = []
    while part := os.read(fd, _CHUNK):
        parts.append(part)
    return b"".join(parts)


def _raise_if_alone() -> None:
    """Notice that nobody reads our output any more, though there is nothing to write."""
    poller = select.poll()
    poller.register(output.STDOUT, 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _fd, events in poller.poll(0)):
        raise BrokenPipeError


def _print(lines: list[bytes], raw: bool) -> None:
    if raw:
        output.write(b"".join(line + b"\n" for line in lines))
    else:
        output.write_text("".join(readable(line) + "\n" for line in lines))


def readable(line: bytes) -> str:
    """A line of the log for people: local time, level, text; a traceback behind a bar.

    What is no JSON, such as the last words of an interpreter that crashed, is shown as it
    is. Nothing in it can move a cursor.
    """
    try:
        event: Any = json.loads(line)
        said = f"{_moment(event['time'])} {event['level']:5} {event['text']}"
        text = [" ".join([said, *_fields(event)])]
        text += [BAR + part for part in str(event.get("traceback", "")).splitlines()]
    except (ValueError, TypeError, KeyError, RecursionError):
        text = [line.decode("utf-8", "backslashreplace")]
    return "\n".join(map(escape, text))


def _fields(event: dict[str, Any]) -> list[str]:
    """What an event has beside its text, and the text does not say."""
    return [
        f"{key}={value}"
        for key, value in event.items()
        if key not in _SAID and value is not None and str(value) not in event["text"]
    ]


def _moment(written: str) -> str:
    return datetime.fromisoformat(written).astimezone().strftime("%Y-%m-%d %H:%M:%S")
