"""The hub's own log: one JSON object a line in the channel's ``hub.log``.

Ids, never bodies: bytes are logged as their length, long text is cut. The log is
written by whoever leads the channel and by nobody else, since two processes that
rotate one file lose lines; events from before the election are kept until then.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
from collections import deque
from datetime import UTC, datetime
from typing import Any

from twisted.logger import ILogObserver, LogEvent, LogLevel, formatEvent, globalLogPublisher
from twisted.python.failure import Failure
from twisted.python.logfile import LogFile
from zope.interface import implementer

from intercom.paths import ChannelPaths, open_private

ROTATE_AT = 5 << 20
KEPT = 3

_MAX_TEXT = 2000
_MAX_EARLY = 100
#: What Twisted's older logging adds to events, all of it said elsewhere in the line.
_LEGACY = frozenset({"isError", "message", "time", "system", "format", "why", "failure"})


@implementer(ILogObserver)
class ChannelLog:
    """Writes what Twisted's log hears to ``hub.log``: rotated at 5 MiB, three old ones kept.

    :param paths: the channel.
    """

    def __init__(self, paths: ChannelPaths) -> None:
        self._path = paths.log
        self._file: _CrashLog | None = None
        self._early: deque[bytes] = deque(maxlen=_MAX_EARLY)

    def listen(self) -> None:
        """Hear the log from now on; the last hundred events wait for :meth:`open`."""
        globalLogPublisher.addObserver(self)

    def open(self) -> None:
        """Begin to write, since this process leads the channel now.

        A process that dies of a fault of its own (SIGSEGV ...) leaves its Python stacks
        here, too, unless the program that we are part of has them written elsewhere.

        :raise OSError: the file cannot be opened.
        :raise UnsafePlace: it is not ours.
        """
        os.close(open_private(self._path, os.O_RDWR | os.O_CREAT))
        self._file = _CrashLog(
            os.path.basename(self._path), os.path.dirname(self._path), ROTATE_AT, 0o600, KEPT
        )
        if not faulthandler.is_enabled():
            self._file.catch_crashes()
        while self._early:
            self._file.write_line(self._early.popleft())

    def close(self) -> None:
        """Hear and write no more. Idempotent."""
        globalLogPublisher.removeObserver(self)
        file, self._file = self._file, None
        if file is not None:
            file.finish()

    def __call__(self, event: LogEvent) -> None:
        """Write an event, from any thread."""
        if event.get("log_level") is LogLevel.debug:
            return
        line = format_line(event)
        if self._file is None:
            self._early.append(line)
        else:
            self._file.write_line(line)


@implementer(ILogObserver)
class Silence:
    """An observer that writes nothing, for programs whose log is the channel's own."""

    def __call__(self, event: LogEvent) -> None:
        """Take the event and do nothing."""


class _CrashLog(LogFile):
    """A rotated file to which the interpreter's own crashes may be written as well."""

    _catching = False

    def catch_crashes(self) -> None:
        """Have Python's stacks written here, through every rotation."""
        self._catching = True
        faulthandler.enable(self._file)

    def write_line(self, line: bytes) -> None:
        """Write, from any thread; a full disk is no reason to stop serving, nor to say so."""
        with contextlib.suppress(OSError):
            self.write(line)

    def finish(self) -> None:
        """Close the file."""
        if self._catching:
            faulthandler.disable()
        self.close()

    def _openFile(self) -> None:
        super()._openFile()
        if self._catching:
            faulthandler.enable(self._file)


def format_line(event: LogEvent) -> bytes:
    """One event as a line: ``time``, ``level``, ``namespace``, ``text``, then its own fields.

    A failure adds ``traceback``. Never raises, whatever the event holds.
    """
    level = event.get("log_level")
    moment = datetime.fromtimestamp(event.get("log_time", 0.0), UTC)
    line: dict[str, Any] = {
        "time": moment.isoformat(timespec="milliseconds"),
        "level": level.name if level is not None else "info",
        "namespace": str(event.get("log_namespace", "")),
        "text": formatEvent(event)[:_MAX_TEXT],
    }
    for key, value in event.items():
        if not key.startswith("log_") and key not in _LEGACY and key not in line:
            line[key] = _plain(value)
    failure = event.get("log_failure")
    if isinstance(failure, Failure):
        line["traceback"] = failure.getTraceback()
    # A lone surrogate (file names have them) becomes \udcxx, which is how JSON says it.
    return (json.dumps(line, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def _plain(value: object) -> object:
    """A value as JSON has it: numbers and short text as they are, the rest described."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, str):
        return value[:_MAX_TEXT]
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item) for item in list(value)[:100]]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in list(value.items())[:100]}
    try:
        return repr(value)[:200]
    except Exception:  # whatever a broken __repr__ raises
        return f"<{type(value).__name__}>"
