"""Messages that were accepted and are in no inbox yet: a log beside the inboxes, against crashes.

One JSON object a line: what is to be appended, or that it is not needed any more. It is never
synced, for such a message waits a second and a half; and it is emptied whenever nothing waits.
Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any

from intercom.paths import ChannelPaths
from intercom.pi.calls import Calls, content
from intercom.records import Entry
from intercom.spool.calls import write_all

#: No log is longer: it is read whole, whatever was accepted.
_LONGEST = 1 << 62


class StagedFile:
    """The log of one channel, for one thread."""

    def __init__(self, paths: ChannelPaths, calls: Calls) -> None:
        self._path = paths.file("pi_staged.ndjson")
        self._calls = calls
        self._waiting: set[str] = set()

    def load(self) -> list[tuple[str, Entry]]:
        """What earlier hubs had accepted, with its marks; torn and foreign lines are passed over.

        :raise OSError: the file cannot be read; also ``UnsafePlace``.
        """
        found: dict[str, Entry] = {}
        data = content(self._calls, self._path, _LONGEST)
        for line in (data or b"").split(b"\n"):
            with contextlib.suppress(
                ValueError, LookupError, TypeError, AttributeError, RecursionError
            ):
                fields = json.loads(line)
                if fields.get("dropped"):
                    found.pop(fields["mark"], None)
                else:
                    found[str(fields["mark"])] = _entry(fields)
        self._waiting = set(found)
        return list(found.items())

    def save(self, mark: str, entry: Entry) -> None:
        """Remember a message."""
        fields = {
            "mark": mark,
            "inbox": entry.inbox,
            "sender": entry.sender,
            "id": entry.message_id,
            "digest": entry.digest.hex(),
            "level": entry.level,
            "line": entry.line.decode(),
        }
        self._waiting.add(mark)
        self._append(fields)

    def drop(self, mark: str) -> None:
        """Remember it no longer; nothing happens if it is not remembered."""
        if mark not in self._waiting:
            return
        self._waiting.discard(mark)
        if self._waiting:
            self._append({"mark": mark, "dropped": True})
        else:
            self._empty()

    def _append(self, fields: dict[str, Any]) -> None:
        # The line feed before it is for what a crash may have left there, half a line
        data = b"\n" + json.dumps(fields).encode() + b"\n"
        fd = self._calls.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(self._calls, fd, data)
        finally:
            self._calls.close(fd)

    def _empty(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._calls.unlink(self._path)


def _entry(fields: dict[str, Any]) -> Entry:
    """What a line says is to be appended; KeyError, TypeError, ValueError where it says nothing."""
    texts = [fields[name] for name in ("inbox", "line", "sender", "id", "digest", "level")]
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    inbox, line, sender, message_id, digest, level = texts
    return Entry(0, inbox, line.encode(), sender, message_id, bytes.fromhex(digest), level)
