"""How much may still be written: to an inbox, to a channel, to the file system it lies on.

What does not fit is refused before a byte of it is written. Sizes are known from the census
at the start and from each append and look since; the directory is walked again only before
something is refused, and the file system asked at most once a second, or for each mebibyte.
Blocking, for the writer's thread, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from intercom.errors import IntercomError
from intercom.names import HUB
from intercom.paths import ChannelPaths
from intercom.records import Entry, Refused
from intercom.settings.limits import MIB, Limits
from intercom.spool.calls import FileCalls
from intercom.spool.format import Damaged, parse_offset, split_name
from intercom.spool.inboxfile import Busy, InboxFile
from intercom.spool.known import Extent, session_of

#: Seconds for which what the file system says is believed, and bytes.
BELIEVED_S = 1.0
BELIEVED_BYTES = MIB
#: Seconds between two attempts to make room, which look at many files, and the share of the
#: time that they may take: who has just read does not have to wait long for it to count.
MAKE_ROOM_S = 1.0
_MAKE_ROOM_SHARE = 0.05
#: So many inboxes, the largest, are made smaller in one attempt.
_MOST = 256
_PLENTY = 1 << 60


class Room(NamedTuple):
    """So many bytes fit; the refusal of what does not (see ``records.Refused``)."""

    bytes: int
    code: str = ""
    text: str = ""
    noted: bool = True

    def refuse(self, entry: Entry) -> Refused:
        """What becomes of an entry that does not fit."""
        return Refused(entry.ticket, entry.inbox, self.code, self.text, noted=self.noted)


#: There is no end of it.
_AMPLE = Room(_PLENTY)


class Quota:
    """The bounds of one channel, and what is known of how far they are used.

    :param limits: what is allowed.
    :param clock: seconds of a monotonic clock.
    :ivar total: bytes of all inboxes together.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        calls: FileCalls,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.total = 0
        self._paths = paths
        self._calls = calls
        self._limits = limits
        self._clock = clock
        self._sizes: dict[str, int] = {}
        self._spare = self._spare_inodes = _PLENTY
        self._floor = 0
        self._since = 0
        self._asked: float | None = None
        self._make_room_at: float | None = None

    def begin(self, inboxes: Mapping[str, Extent]) -> None:
        """Take over what a census found."""
        self._sizes = {name: extent.size for name, extent in inboxes.items()}
        self.total = sum(self._sizes.values())

    def knows(self, name: str) -> bool:
        """Whether an inbox file of this name was there when it was last heard of."""
        return name in self._sizes

    def note(self, name: str, size: int | None) -> None:
        """An inbox file has so many bytes now; None if it is gone."""
        grown = (size or 0) - self._sizes.get(name, 0)
        self.total += grown
        if size is None:
            self._sizes.pop(name, None)
        else:
            self._sizes[name] = size
        if grown > 0:
            self._since += grown
            self._spare -= grown

    # -- what fits ----------------------------------------------------------------------------

    def newcomer(self, session: str, least: int) -> Room | None:
        """Why an inbox that may not exist cannot be made; None if it exists, or can be.

        :param least: it would be made for so many bytes.
        """
        path = self._paths.inbox(session)
        if os.path.basename(path) in self._sizes or self._calls.stat(path) is not None:
            return None
        most, own = self._limits.session_limit, os.path.basename(self._paths.inbox(HUB))
        made = len(self._sizes) - (own in self._sizes)  # the hub's own is no session's
        if made >= most and os.path.basename(path) != own:
            text = (
                f"this channel has {made} inboxes, and at most {most} are made; "
                f"remove what is not needed: intercom cleanup"
            )
            return Room(0, "INBOX_FULL", text)
        if self._ask(fresh=False) and self._spare_inodes < 1:
            self._ask(fresh=True)
            if self._spare_inodes < 1:
                text = "this would not leave enough inodes where the channel lies; free some: df -i"
                return Room(0, "DISK_FULL", text, noted=False)
        room = min(self._of_channel(least), self._of_disk(least))
        return room if room.bytes < least else None

    def room(self, session: str, size: int, wanted: int, read: Callable[[], int]) -> Room:
        """How much fits into an inbox, under its lock.

        :param size: its size; :param wanted: so many bytes are to be appended, at most.
        :param read: tells how many of its bytes are read; asked only where it matters.
        """
        own = self._of_inbox(session, size, wanted, read)
        if self._is_ample(wanted):
            return own
        return min([own, self._of_channel(wanted), self._of_disk(wanted)])

    def _is_ample(self, wanted: int) -> bool:
        """Whether channel and disk have room for so much, as nearly always."""
        most = self._limits.channel_size
        fits = most is None or self.total + wanted <= most
        return fits and (not self._ask(fresh=False) or wanted <= self._spare)

    def _of_inbox(self, session: str, size: int, wanted: int, read: Callable[[], int]) -> Room:
        most = self._limits.inbox_size
        if most is None or size + wanted <= most:
            return _AMPLE
        text = (
            f"the inbox of {session!r} takes {most} bytes of unread messages, and has no room for "
            f"this one; it has to be read first"
        )
        return Room(max(0, most - size + read()), "INBOX_FULL", text)

    def _of_channel(self, wanted: int) -> Room:
        most = self._limits.channel_size
        if most is None or self.total + wanted <= most:
            return _AMPLE
        text = (
            f"the inboxes of this channel may have {most} bytes, and there is no room for this "
            f"message; some have to be read, or removed: intercom cleanup"
        )
        return Room(max(0, most - self.total), "INBOX_FULL", text)

    def _of_disk(self, wanted: int) -> Room:
        if not self._ask(fresh=False) or wanted <= self._spare:
            return _AMPLE
        self._ask(fresh=True)
        text = (
            f"this would not leave {self._floor} bytes free where the channel lies; "
            f"free some space: df -h"
        )
        return Room(max(0, self._spare), "DISK_FULL", text, noted=False)

    def _ask(self, fresh: bool) -> bool:
        """Have the file system say how much may be written; False if nobody wants to know."""
        limits = self._limits
        if not (limits.free_space or limits.free_inodes):
            return False
        now = self._clock()
        believed = self._asked is not None and now - self._asked < BELIEVED_S
        if believed and self._since < BELIEVED_BYTES and not fresh:
            return True
        self._asked, self._since = now, 0
        self._spare = self._spare_inodes = _PLENTY
        with contextlib.suppress(OSError):
            found = self._calls.space(self._paths.directory)
            self._floor = min(limits.free_space, found.f_blocks * found.f_frsize // 10)
            if limits.free_space:
                self._spare = found.f_bavail * found.f_frsize - self._floor
            if found.f_files and limits.free_inodes:
                self._spare_inodes = found.f_favail - min(limits.free_inodes, found.f_files // 10)
        return True

    # -- making room --------------------------------------------------------------------------

    def make_room(self, wanted: int) -> None:
        """Where so much does not fit: see what is there, and take what is read out of inboxes.

        Not more often than every second, and seldom where it takes long. No inbox is locked
        by the caller.
        """
        if self._is_ample(wanted):
            return
        begun = self._clock()
        early = self._make_room_at is not None and begun < self._make_room_at
        if early or not self._short(wanted):
            return
        try:
            self._take_out_what_is_read(wanted)
        finally:
            took = self._clock() - begun
            self._make_room_at = begun + max(MAKE_ROOM_S, took / _MAKE_ROOM_SHARE)

    def _take_out_what_is_read(self, wanted: int) -> None:
        """Until so much fits, or nothing is left to be taken out."""
        with contextlib.suppress(OSError):
            self._recount()
        largest = sorted(self._sizes, key=lambda name: -self._sizes[name])[:_MOST]
        for name in largest:
            if not self._short(wanted):
                return
            with contextlib.suppress(OSError, IntercomError, Busy, Damaged):
                self._shrink(name)

    def _short(self, wanted: int) -> bool:
        return bool(self._of_channel(wanted).code or self._of_disk(wanted).code)

    def _recount(self) -> None:
        found: dict[str, Extent] = {}
        for name in _inbox_files(self._paths):
            stat = self._calls.stat(self._paths.file(name))
            if stat is not None:
                found[name] = Extent((stat.st_dev, stat.st_ino), stat.st_size)
        self.begin(found)

    def _shrink(self, name: str) -> None:
        """Take what is read out of one inbox, unless more than half of it would be rewritten."""
        parts = split_name(name)
        session = session_of(self._paths, self._calls, parts[1]) if parts else None
        offset = None if session is None else self._calls.small(self._paths.offset(session))
        if session is None or offset is None:
            return
        if 2 * parse_offset(offset).offset >= self._sizes[name] > 0:
            file = InboxFile(self._paths, session, self._calls)
            file.compact()
            self.note(name, file.size())


def sessions_with_inbox(paths: ChannelPaths, calls: FileCalls) -> list[str]:
    """Every session that has an inbox, as far as its files tell its name.

    :raise OSError: the channel's directory cannot be read.
    """
    names = [name.removeprefix("inbox_").removesuffix(".ndjson") for name in _inbox_files(paths)]
    return [found for name in names if (found := session_of(paths, calls, name)) is not None]


def _inbox_files(paths: ChannelPaths) -> list[str]:
    """The names of a channel's inbox files."""
    return [
        name
        for name in os.listdir(paths.directory)
        if (parts := split_name(name)) is not None and parts[0] == "inbox"
    ]
