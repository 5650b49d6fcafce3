"""How one session's inbox reaches its connection: live pushes, and the spool as buffer.

A feed is *following* while each message that is written can be pushed at once.
Over the peer's limit it falls *behind*: nothing is pushed, memory does not grow,
and the inbox file is the buffer. A feed with a cursor then *reads* on from where
it stopped until it has caught up, and begins its life that way, from the stored
position, so that backlog and live messages meet with no gap and none twice. A
feed without a cursor (the original clients') has live pushes only; where it
fell behind it goes on with what comes next and may be told ``LAGGED``.
"""

from __future__ import annotations

from intercom.records import Batch, Position, Record, Shifted

#: Bytes of one read when catching up: enough to amortise the thread's hand-over, small
#: enough that a thousand catching up at once stay within memory.
READ_LIMIT = 256 * 1024

FOLLOWING, READING, BEHIND, BROKEN = "following", "reading", "behind", "broken"


class Feed:
    """Pure bookkeeping of one connection's pushes; it is told what happens and says what to push.

    :ivar inbox: the session whose inbox this is.
    :ivar cursor: whether the peer is told positions and starts with its backlog.
    :ivar next: all before this was pushed; None until the stored position was read.
    :ivar state: one of ``following``, ``reading``, ``behind``, ``broken`` (a read failed).
    :ivar outstanding: a read is under way; its result is still good after a pause, since
        ``next`` moves only by results and by pushes.
    :ivar lagged: without a cursor: offset where pushes stopped, None if they did not.
    """

    __slots__ = (
        "_generation",
        "_pushed",
        "_shift",
        "_since",
        "_until",
        "cursor",
        "end",
        "inbox",
        "lagged",
        "next",
        "outstanding",
        "state",
        "told",
    )

    def __init__(self, inbox: str, cursor: bool) -> None:
        self.inbox = inbox
        self.cursor = cursor
        self.state = READING if cursor else FOLLOWING
        self.next: Position | None = None
        self.end: Position | None = None
        self.told: Position | None = None
        self.lagged: int | None = None
        self.outstanding = False
        # Stretches of bytes pushed since they were last taken; the one that still grows is
        # three numbers, so that a push costs no object.
        self._pushed: list[tuple[int, int, int]] = []
        self._generation = self._since = 0
        self._shift: Shifted | None = None
        self._until = -1

    @property
    def live(self) -> bool:
        """Connected and taking what it is pushed."""
        return self.state in (FOLLOWING, READING)

    def wrote(self, generation: int, record: Record, fresh: bool = True) -> bool:
        """A line was written to the inbox; return whether to push it now.

        :param fresh: False if its message was pushed before and stands there once more.
        """
        position = Position(generation, record.end)
        if not self.cursor:
            if self.state == FOLLOWING:
                return fresh and self._push(generation, record)
            if self.lagged is None:
                self.lagged = record.start
            return False
        if self.end is None or position > self.end:
            self.end = position
        if self.state != FOLLOWING:
            return False
        if self.next == (generation, record.start):
            self.next = position
            return fresh and self._push(generation, record)
        if self.next is None or self.next < position:
            # Something lies between (a damaged line, a new generation): let the file say what.
            self.state = READING
        return False

    def wants_read(self) -> bool:
        """Whether a read from ``next`` must begin now; the caller begins it. One at a time."""
        if self.state != READING or self.outstanding:
            return False
        self.outstanding = True
        return True

    def read(self, batch: Batch) -> list[Record]:
        """Take the result of a read; return the lines to push. Afterwards see ``wants_read``."""
        self.outstanding = False
        if self.state != READING:
            # It fell behind meanwhile. What was read is read again later, from ``next``.
            if self.next is None:
                self.next = batch.start
            return []
        self.next = batch.next
        if batch.at_end and (self.end is None or self.end <= batch.next):
            self.state = FOLLOWING
        for record in batch.records:
            self._push(batch.next.generation, record)
        return batch.records

    def _push(self, generation: int, record: Record) -> bool:
        """Count a line as pushed."""
        if record.start == self._until and generation == self._generation:
            self._until = record.end
            return True
        if self._until >= 0:
            self._pushed.append((self._generation, self._since, self._until))
        self._generation, self._since, self._until = generation, record.start, record.end
        return True

    def take_pushed(self) -> list[tuple[int, int, int]]:
        """Return what was pushed since the last call: generation, first byte, byte behind."""
        if self._until < 0:
            return []
        taken = [*self._pushed, (self._generation, self._since, self._until)]
        self._pushed.clear()
        self._until = -1
        return taken

    def shifted(self, shift: Shifted) -> None:
        """The inbox was compacted: what was pushed of it has other places now."""
        self._shift = shift
        if self.next is not None:
            self.next = shift.place(self.next)
        if self.end is not None:
            self.end = shift.place(self.end)

    def place(self, position: Position) -> Position:
        """Where a position is now that the peer may know from before a compaction."""
        return position if self._shift is None else self._shift.place(position)

    def outdated(self, generation: int) -> None:
        """The inbox is in a later generation than was pushed: let the file say what it holds."""
        behind = self.next is not None and self.next.generation < generation
        if self.cursor and behind and self.state == FOLLOWING:
            self.state = READING

    def failed(self) -> None:
        """Note that a read failed; it is tried again at :meth:`retry`."""
        self.outstanding = False
        if self.state == READING:
            self.state = BROKEN

    def retry(self) -> None:
        """Try a failed read again."""
        if self.state == BROKEN:
            self.state = READING

    def pause(self) -> None:
        """Push no more: the peer does not drain."""
        self.state = BEHIND

    def drained(self) -> None:
        """Go on: the peer has taken everything."""
        if self.state == BEHIND:
            self.state = READING if self.cursor else FOLLOWING

    def news(self) -> Position | None:
        """Return the position to tell the peer, None if it knows it already."""
        if not self.cursor or self.next is None or self.next == self.told:
            return None
        self.told = self.next
        return self.next
