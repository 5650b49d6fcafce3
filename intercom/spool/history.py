"""What became of the channel's last messages: one file, written by the hub, read by everybody.

One JSON object a line (``docs/files.md``, "The history"): a message that was stored, with
its places; one that was refused; bytes of an inbox that were pushed. A hub that starts
learns from it which ids are spent; ``intercom status`` what to say of a message. Nothing
waits for it: it reaches the disk before the journal forgets. Standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii as quote
from typing import Any

from intercom.errors import UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Entry, Moved, Refused
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.synced import Directory, OpenFile

#: Messages in a file before the next is begun; that one and the one before are kept.
MESSAGES = 100_000
#: Bytes after which it is begun in any case, for pushes are lines as well.
BYTES = 64 << 20
#: Bytes that may wait for a disk that takes none; what is older is given up.
WAITING = 4 << 20
#: Bytes of it, from its end, in which messages are looked for that lie unread.
RECENT = 16 << 20
_WINDOW = 256 << 10

_NAME, _OLDER = "history.ndjson", "history.1.ndjson"


class History:
    """The writer's side, for the thread that appends.

    What is told gathers until :meth:`write`, which is one call for a whole batch.

    :param directory: the channel's.
    :ivar file: the open file, to be synced with the inboxes; None until something is written.
    :ivar syncing: whether it is to be synced; False where the place forgets everything.
    """

    def __init__(self, paths: ChannelPaths, directory: Directory, calls: FileCalls) -> None:
        self.file: OpenFile | None = None
        self.syncing = True
        self._path = paths.file(_NAME)
        self._older = paths.file(_OLDER)
        self._directory = directory
        self._calls = calls
        self._messages: dict[tuple[str, str], list[str]] = {}
        self._late: dict[tuple[str, str], list[str]] = {}
        self._lines: list[str] = []
        self._waiting = b""
        self._size = 0
        self._count = 0
        self._boot = ""

    def go_on(self, count: int, boot: str) -> None:
        """Begin where an earlier hub ended.

        :param count: how many messages the file holds.
        :param boot: names this boot of the machine; it is noted, since what stands here may
            survive a power cut that its message in the inbox did not.
        """
        self._count = count
        self._boot = boot

    def _open(self) -> None:
        fd = self._calls.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        found = self._calls.fstat(fd)
        self.file = OpenFile(fd, self._path, (found.st_dev, found.st_ino), self._directory)
        self._size = found.st_size

    def stored(self, entry: Entry, generation: int, start: int, end: int) -> None:
        """A message stands in an inbox; of one message all places of a batch share a line."""
        place = f"[{quote(entry.inbox)},{generation},{start},{end}]"
        key = (entry.sender, entry.message_id)
        known = self._messages.get(key)
        if known is not None:
            known.append(place)
        else:
            digest, left = entry.digest.hex(), '"left":true,' if entry.left else ""
            self._messages[key] = [
                f'"digest":"{digest}","level":"{entry.level}",{left}"to":[{place}'
            ]

    def waiting(self, entry: Entry) -> None:
        """A message that stands in other inboxes by now is still to reach this one."""
        known = self._messages.get((entry.sender, entry.message_id))
        if known is not None:
            self._late.setdefault((entry.sender, entry.message_id), []).append(quote(entry.inbox))

    def appeared(
        self, inbox: str, generation: int, key: tuple[str, str, bytes], start: int, end: int
    ) -> None:
        """Somebody else stored a message (its sender, id and hash) in an inbox."""
        place = f"[{quote(inbox)},{generation},{start},{end}]"
        known = self._messages.get(key[:2])
        if known is not None:
            known.append(place)
        else:
            said = f'"digest":"{key[2].hex()}","level":null,"to":[{place}'
            self._messages[key[:2]] = [said]

    def refused(self, entry: Entry, outcome: Refused, now: float) -> None:
        """A message was refused for one inbox, not for its id."""
        why = f"[{quote(outcome.inbox)},{quote(outcome.code)},{quote(outcome.text)}]"
        self._lines.append(
            f'{{"at":{now!r},"id":{quote(entry.message_id)},"from":{quote(entry.sender)},'
            f'"refused":[{why}]}}\n'
        )

    def pushed(self, inbox: str, generation: int, start: int, end: int, at: float) -> None:
        """Lines of an inbox were written to a live connection."""
        place = f"[{quote(inbox)},{generation},{start},{end}]"
        self._lines.append(f'{{"at":{at!r},"pushed":{place}}}\n')

    def write(self, now: float) -> str:
        """Append what has gathered. Never raises.

        :param now: epoch seconds.
        :return: why it could not be written, or an empty string. What could not is tried
            again with what comes next.
        """
        if not (self._messages or self._lines or self._waiting):
            return ""
        data = self._waiting + self._gathered(now)
        self._waiting = b""
        try:
            if self.file is None:
                self._open()
                head = f'{{"at":{now!r},"boot":{quote(self._boot)}}}\n'
                data = self._torn() + head.encode() + data
            self._append(data)
        except (OSError, UnsafePlace) as error:
            self._waiting = data if len(data) <= WAITING else b"\n"
            return str(error)
        return ""

    def close(self) -> None:
        """Let go of the file, synced. Idempotent."""
        if self.file is not None:
            self.file.sync(self._calls)
            self.file.close(self._calls)
            self.file = None

    def _torn(self) -> bytes:
        """What ends a line that a dead hub left unfinished."""
        assert self.file is not None
        if self._size and self._calls.pread(self.file.fd, 1, self._size - 1) != b"\n":
            return b"\n"
        return b""

    def _gathered(self, now: float) -> bytes:
        """The lines of what was told, and nothing is left of it."""
        at = f'{{"at":{now!r},"id":'
        lines = self._lines
        for (sender, message_id), parts in self._messages.items():
            late = self._late.get((sender, message_id)) if self._late else None
            end = "" if late is None else f',"waiting":[{",".join(late)}]'
            said = ",".join(parts)
            lines.append(f'{at}{quote(message_id)},"from":{quote(sender)},{said}]{end}}}\n')
        self._count += len(self._messages)
        self._messages = {}
        self._late = {}
        self._lines = []
        return "".join(lines).encode()

    def _append(self, data: bytes) -> None:
        """Write it whole or not at all, and begin a new file if this one is full."""
        assert self.file is not None
        fd = self.file.fd
        try:
            write_all(self._calls, fd, data)
        except OSError:
            self._calls.ftruncate(fd, self._size)
            raise
        self._size += len(data)
        self.file.written += self.syncing
        if self._count >= MESSAGES or self._size >= BYTES:
            self.close()
            self._calls.rename(self._path, self._older)
            self._count = 0


# -- reading ----------------------------------------------------------------------------------


def lookup(paths: ChannelPaths, message_id: str, sender: str | None = None) -> list[dict[str, Any]]:
    """The lines about a message, the oldest first; see the module's head for their form.

    :param sender: None for whoever used the id.
    """
    found = []
    for line in _lines_with(paths, f'"id":{quote(message_id)},'.encode()):
        told = line.get("id") == message_id and sender in (None, line.get("from"))
        if told and ("to" in line or "refused" in line):
            found.append(line)
    return found


def recent(paths: ChannelPaths, left: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """The lines about the storing of messages, by sender and id, the newest first.

    Only :data:`RECENT` bytes are looked at, and no more than is needed.

    :param left: whom to look for; take out what needs no further line.
    """
    looked = 0
    for name in (_NAME, _OLDER):
        for window in _windows(paths.file(name), RECENT - looked):
            looked += len(window)
            for sender, message_id in tuple(left):
                wanted = f'"id":{quote(message_id)},"from":{quote(sender)},'.encode()
                yield from _lines_in(window, wanted)
            if not left:
                return


def _windows(path: str, most: int) -> Iterator[bytes]:
    """A file's last bytes in pieces of whole lines, the last piece first."""
    calls = FileCalls()
    try:
        fd = calls.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        end = calls.fstat(fd).st_size
        first = max(0, end - most)
        rest = b""
        while end > first:
            start = max(first, end - _WINDOW)
            data = calls.pread(fd, end - start, start) + rest
            cut = data.find(b"\n") + 1 if start else 0
            rest, end = data[:cut], start
            yield data[cut:]
    finally:
        calls.close(fd)


def _lines_in(data: bytes, wanted: bytes) -> Iterator[dict[str, Any]]:
    """The readable lines of stored messages that hold some bytes, the last first."""
    end = len(data)
    while (at := data.rfind(wanted, 0, end)) >= 0:
        start = data.rfind(b"\n", 0, at) + 1
        with contextlib.suppress(ValueError, RecursionError):
            told = json.loads(data[start : data.find(b"\n", at) + 1])
            if isinstance(told, dict) and "to" in told:
                yield told
        end = start


def pushes(paths: ChannelPaths, inbox: str) -> list[Moved]:
    """What of an inbox was pushed, and when, the oldest first."""
    found = []
    for line in _lines_with(paths, f'"pushed":[{quote(inbox)},'.encode()):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            name, generation, start, end = line["pushed"]
            found.append(Moved(name, "pushed", generation, start, end, float(line["at"])))
    return found


def newest(paths: ChannelPaths, sender: str, count: int) -> list[dict[str, Any]]:
    """The last lines about messages of one sender, the oldest first."""
    wanted = f',"from":{quote(sender)},'.encode()
    lines = [line for line in _lines_with(paths, wanted) if line.get("from") == sender]
    return lines[-count:]


def _lines_with(paths: ChannelPaths, wanted: bytes) -> Iterator[dict[str, Any]]:
    """The readable lines that hold some bytes, the oldest first, each once.

    The younger file is read first: if it becomes the older one meanwhile, what it held is
    met twice rather than not at all.
    """
    young, old = (_content(paths.file(name)) for name in (_NAME, _OLDER))
    seen = set()
    for data in (old, young):
        at = data.find(wanted)
        while at >= 0:
            start, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
            if end < 0:
                break
            line = data[start:end]
            at = data.find(wanted, end)
            if line in seen:
                continue
            seen.add(line)
            with contextlib.suppress(ValueError, RecursionError):
                told = json.loads(line)
                if isinstance(told, dict):
                    yield told


def _content(path: str) -> bytes:
    """All of a file, nothing if there is none."""
    calls = FileCalls()
    try:
        fd = calls.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return b""
    try:
        return calls.pread(fd, calls.fstat(fd).st_size, 0)
    finally:
        calls.close(fd)
