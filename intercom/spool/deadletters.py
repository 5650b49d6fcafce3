"""Messages that their recipient will never see: a list of them, for people to look at.

One JSON object a line in ``dead.ndjson``, see ``docs/files.md``. Whoever lists a message
does so, synced, before it goes. Blocking, standard library only.
"""

from __future__ import annotations

import os
import time

from intercom import plainjson as json
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.locking import open_locked
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

#: A list longer than so many bytes becomes the older one, and a new one begins.
LONGEST = 8 << 20
#: Bytes of messages that one call keeps; of what is beyond only the fact is listed.
KEPT = 1 << 20
#: How far back in the older list a repetition is recognised, in bytes.
_TAIL = 4 << 20


class Letter(NamedTuple):
    """A message to be listed.

    :ivar why: ``expired``, ``skipped`` or ``refused``.
    :ivar inbox: whose it was, or would have been.
    :ivar line: the message's bytes without line feed.
    :ivar code: an error's code, where there was one.
    """

    why: str
    inbox: str
    line: bytes
    code: str = ""


class DeadLetters:
    """The dead letters of one channel.

    :param clock: epoch seconds.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._directory = paths.directory
        self._path = paths.file("dead.ndjson")
        self._older = paths.file("dead.1.ndjson")
        self._calls = calls or FileCalls()
        self._clock = clock

    def add(self, letters: Iterable[Letter]) -> int:
        """List messages, synced; those that are listed already (lately) are not listed again.

        What the messages say is kept as far as they have :data:`KEPT` bytes together.

        :return: how many were new.
        :raise Busy: another writes the list at this moment.
        :raise OSError: the system refuses; perhaps some are listed.
        """
        letters = list(letters)
        if not letters:
            return 0
        fd = self._locked()
        try:
            size = self._calls.fstat(fd).st_size
            lines = self._fresh(letters, self._listed())
            if size > 0 and self._calls.pread(fd, 1, size - 1) != b"\n":
                lines.insert(0, b"")  # whoever died here must not swallow our line
            write_all(self._calls, fd, b"".join(line + b"\n" for line in lines))
            self._calls.sync(fd)
            if size == 0:
                self._calls.sync_names(self._directory)
            return len([line for line in lines if line])
        finally:
            self._calls.close(fd)

    def read(self, newest: int) -> list[dict[str, Any]]:
        """The last so many letters, the newest last. What is unreadable is passed over.

        :raise OSError: a list cannot be read.
        """
        found = _parse(self._content(self._path))
        if len(found) < newest:
            found = _parse(self._content(self._older)) + found
        return found[-newest:] if newest > 0 else []

    # -----------------------------------------------------------------------------------------

    def _locked(self) -> int:
        """The list, locked; a new one where it has become too long."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
        while True:
            fd = open_locked(self._calls, self._path, flags, exclusive=True)
            assert fd is not None
            try:
                if self._calls.fstat(fd).st_size <= LONGEST:
                    return fd
                self._calls.rename(self._path, self._older)
            except BaseException:
                self._calls.close(fd)
                raise
            self._calls.close(fd)

    def _listed(self) -> set[tuple[str, str]]:
        # What one call lists stands in one file, however much it is.
        data = self._content(self._older)[-_TAIL:] + self._content(self._path)
        return {_key(fields) for fields in _parse(data)}

    def _fresh(self, letters: list[Letter], listed: set[tuple[str, str]]) -> list[bytes]:
        """The lines of those letters that are not listed."""
        lines: list[bytes] = []
        room, now = KEPT, self._clock()
        for letter in letters:
            fields = _fields(letter, now)
            key = _key(fields)
            if key in listed:
                continue
            listed.add(key)
            room -= len(letter.line)
            if room < 0:
                room += len(letter.line)
                fields["message"] = None
            lines.append(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
        return lines

    def _content(self, path: str) -> bytes:
        try:
            fd = self._calls.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return self._calls.pread(fd, self._calls.fstat(fd).st_size, 0)
        finally:
            self._calls.close(fd)


def _fields(letter: Letter, now: float) -> dict[str, Any]:
    message: Any = None
    with suppress(ValueError, RecursionError):
        message = json.loads(letter.line.decode("utf-8", "replace"))
    envelope = message if isinstance(message, dict) else {}
    fields: dict[str, Any] = {"at": now, "why": letter.why, "inbox": letter.inbox}
    if letter.code:
        fields["code"] = letter.code
    for name, key in (("id", "id"), ("from", "from_session"), ("timestamp", "timestamp")):
        value = envelope.get(key)
        fields[name] = value if isinstance(value, str) else None
    return fields | {"message": message}


def _key(fields: dict[str, Any]) -> tuple[str, str]:
    """By what a letter is known: its inbox, and its message's sender and id or all it says."""
    known: Any = (fields.get("from"), fields.get("id"))
    if fields.get("id") is None:
        known = fields.get("message")
    return str(fields.get("inbox")), json.dumps([fields.get("why"), known])


def _parse(data: bytes) -> list[dict[str, Any]]:
    letters = []
    for line in data.split(b"\n"):
        with suppress(ValueError, RecursionError):
            fields = json.loads(line)
            if isinstance(fields, dict) and isinstance(fields.get("why"), str):
                letters.append(fields)
    return letters
