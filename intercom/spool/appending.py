"""Writing what came for one inbox: new lines in one call, and what is to be said of each.

Blocking, for the writer's thread, under the inbox's lock.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from intercom.errors import IntercomError
from intercom.names import HUB
from intercom.records import Entry, Record, Refused, Written
from intercom.spool.calls import FileCalls, write_all
from intercom.spool.inboxfile import failure
from intercom.spool.journal import dump
from intercom.spool.quota import Room
from intercom.spool.recent import Key, RecentIds, Seen, key_of
from intercom.spool.synced import OpenFile
from intercom.spool.tracked import TrackedInbox
from intercom.spool.work import Claim
from intercom.wire.envelope import identify

_NOWHERE = Record(0, 0, b"")


class GroupWrite:
    """One group of entries, written to their inbox.

    :param stranger: nobody ever used the inbox's session.
    :param room: how much fits; what does not is refused, and what is smaller may still fit.
        The hub's own notices, which are few, always do.
    :ivar outcomes: for each entry, in order. What was to be told is mended if writing fails.
    """

    def __init__(
        self,
        calls: FileCalls,
        recent: RecentIds,
        inbox: TrackedInbox,
        file: OpenFile,
        group: list[Entry],
        stranger: bool,
        room: Room,
    ) -> None:
        self.outcomes: list[Written | Refused] = []
        self._calls = calls
        self._recent = recent
        self._inbox = inbox
        self._file = file
        self._group = group
        self._stranger = stranger
        self._room = room

    def write(self, size: int) -> None:
        """Append what is new; ``size`` is the file's. Never raises ``OSError``."""
        inbox, recent, outcomes = self._inbox, self._recent.get, self.outcomes
        session, generation = inbox.session, inbox.generation
        again: list[tuple[int, Entry, Seen]] = []
        fresh: dict[Key, Seen] = {}
        lines: list[bytes] = []
        end, last = size, size + self._room.bytes
        for entry in self._group:
            line = entry.line
            key = key_of(session, entry.sender, entry.message_id)
            seen = fresh.get(key) or recent(key)
            if seen is not None:
                again.append((len(outcomes), entry, seen))
            elif end + len(line) >= last and entry.sender != HUB:
                outcomes.append(self._room.refuse(entry))
                continue
            else:
                start, end = end, end + len(line) + 1
                fresh[key] = Seen(entry.digest, generation, start, end)
                lines.append(line)
            record = Record(start, end, line) if seen is None else _NOWHERE
            known = not (self._stranger and entry.ask_known)
            told = Written(entry.ticket, session, record, generation, seen is not None, known)
            outcomes.append(told)
        inbox.end, error = self._write_lines(size, lines, end)
        self._find_earlier(again)
        if error is not None:
            fresh = {key: seen for key, seen in fresh.items() if seen.end <= inbox.end}
            self._refuse_unwritten(error)
        self._recent.add(fresh)

    def claim(self, syncing: bool) -> Claim | None:
        """Who waits to hear that what was written is safe, and what makes it so."""
        levels: dict[str, list[int]] = {}
        records: list[bytes] = []
        for entry, outcome in zip(self._group, self.outcomes, strict=True):
            if type(outcome) is Written:
                try:
                    levels[entry.level].append(entry.ticket)
                except KeyError:
                    levels[entry.level] = [entry.ticket]
                if syncing and entry.level == "disk":
                    records.append(dump(entry, outcome.generation, outcome.record.start))
        return Claim(self._file, levels, records) if levels else None

    def _find_earlier(self, again: Iterable[tuple[int, Entry, Seen]]) -> None:
        """Say of messages that came again where they stand, or that their id was taken."""
        for index, entry, seen in again:
            outcome = self.outcomes[index]
            if seen.digest != entry.digest:
                text = f"the id {entry.message_id!r} was used for another message"
                refused = Refused(entry.ticket, entry.inbox, "MESSAGE_ID_REUSE", text)
                self.outcomes[index] = refused
            elif isinstance(outcome, Written):
                line = entry.line  # the same message, but perhaps for its time
                if seen.generation == outcome.generation and seen.end <= self._inbox.end:
                    with contextlib.suppress(OSError):
                        length = seen.end - seen.start - 1
                        there = self._calls.pread(self._file.fd, length, seen.start)
                        if identify(there) == (entry.sender, entry.message_id, seen.digest):
                            line = there  # else somebody has reset the inbox unnoticed
                record = Record(seen.start, seen.end, line)
                self.outcomes[index] = outcome._replace(record=record, generation=seen.generation)

    def _write_lines(self, size: int, lines: list[bytes], end: int) -> tuple[int, OSError | None]:
        """Append lines in one call, or none of them.

        :return: the byte up to which complete lines stand, and what went wrong.
        """
        if not lines:
            return size, None
        fd = self._file.fd
        try:
            write_all(self._calls, fd, b"\n".join([*lines, b""]))
        except OSError as error:
            try:
                self._calls.ftruncate(fd, size)
            except OSError:
                # What stands there whole is stored, whatever we would like; a torn rest
                # is ended before the next append.
                left = self._calls.fstat(fd).st_size
                for line in lines:
                    if size + len(line) + 1 > left:
                        break
                    size += len(line) + 1
            return size, error
        return end, None

    def _refuse_unwritten(self, error: OSError) -> None:
        """Take back what was to be told of entries that are not in the file."""
        code, text = reason(self._inbox.path, error)
        session, generation = self._inbox.session, self._inbox.generation
        for index, outcome in enumerate(self.outcomes):
            if (
                isinstance(outcome, Written)
                and outcome.generation == generation
                and outcome.record.end > self._inbox.end
            ):
                self.outcomes[index] = Refused(outcome.ticket, session, code, text)


def reason(path: str, error: Exception) -> tuple[str, str]:
    """Code and sentence of a refusal."""
    if isinstance(error, OSError):
        error = failure(path, error)
    assert isinstance(error, IntercomError)
    code = error.code if error.code == "DISK_FULL" else "SPOOL_FAILED"
    return code, f"{error.text}; {error.remedy}" if error.remedy else error.text
