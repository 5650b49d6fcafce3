"""Connections, and what each one says, one after the other.

While something that a connection said is under way all that follows waits, the news of its end
included. Who speaks too fast is slowed, and cut off when that does not help.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from intercom.core.bus.effects import Hold, Release, Wake
from intercom.core.bus.limits import Bucket, Limits, Lobby
from intercom.core.bus.turns import Work
from intercom.core.bus.world import World
from intercom.core.effects import Note
from intercom.wire.pi.fields import Record, Variant
from intercom.wire.pi.replies import error

#: Ends of what a connection says: it will say no more, or it said what is no frame.
End = Literal["gone", "garbled"]
#: Time for what lies in the kernel, before a connection that seems silent is ended.
_LOOK_AGAIN_MS = 20
#: Frames that wait while something is under way, until no more is read: to stop and start for
#: each one would cost more than they do.
_ENOUGH = 8


class Connection:
    """One connection.

    :ivar trusted: it is local. :ivar registered: it has, or had, a session.
    :ivar queue: what it said and was not handled yet. :ivar busy: something is under way.
    :ivar held: no more is read from it.
    """

    __slots__ = ("bucket", "busy", "held", "number", "queue", "registered", "trusted", "variant")

    def __init__(self, number: int, trusted: bool, bucket: Bucket) -> None:
        self.number = number
        self.trusted = trusted
        self.bucket = bucket
        self.queue: deque[Record | End] = deque()
        self.busy = False
        self.held = False
        self.registered = False
        self.variant: Variant | None = None

    @property
    def is_metered(self) -> bool:
        """How fast it may speak is limited; pi-subagents' own broker has no such limit."""
        return self.variant != "subagents"


class Lines:
    """All connections.

    :param handle: carries out a frame; returns what is left to do of it, if it takes time.
    :param left: is told that a connection ended, before it is closed.
    """

    def __init__(
        self,
        world: World,
        handle: Callable[[Connection, Record], Work | None],
        left: Callable[[int], None],
    ) -> None:
        self._world = world
        self._handle = handle
        self._left = left
        self._limits: Limits = world.limits
        self._connections: dict[int, Connection] = {}
        self._slow: set[int] = set()
        self.lobby = Lobby(world.limits)

    def __contains__(self, number: int) -> bool:
        return number in self._connections

    def open(self, number: int, trusted: bool) -> None:
        """A connection was made; it waits for its session."""
        bucket = Bucket(self._limits, self._world.now)
        self._connections[number] = Connection(number, trusted, bucket)
        self.wait(number)

    def said(self, number: int, what: Record | End) -> None:
        """A connection said something; it is handled when it is its turn."""
        world, connection = self._world, self._connections.get(number)
        if connection is None:
            return
        waiting = len(connection.queue) + 1
        metered = connection.is_metered and not isinstance(what, str)
        if metered and connection.bucket.is_flood(waiting, world.now):
            world.say(number, error("Intercom broker rate limit exceeded"))
            world.do(Note("flood", {"connection": number}))
            self.end(number)
            return
        connection.queue.append(what)
        self._advance(connection)
        if connection.busy and len(connection.queue) >= _ENOUGH:
            connection.held = True
            world.do(Hold(number))

    def _advance(self, connection: Connection) -> None:
        """Handle what a connection said, as far as it goes now."""
        world, queue, number = self._world, connection.queue, connection.number
        while queue and not connection.busy:
            what = queue[0]
            metered = connection.is_metered and not isinstance(what, str)
            if metered and not connection.bucket.take(world.now):
                if number not in self._slow:
                    self._slow.add(number)
                    world.do(Wake(connection.bucket.next_at(world.now)))
                return
            queue.popleft()
            if connection.held and not queue:
                connection.held = False
                world.do(Release(number))
            if isinstance(what, str):
                self.end(number)
                return
            work = self._handle(connection, what)
            if work is not None:
                self._start(connection, work)

    def _start(self, connection: Connection, work: Work) -> None:
        number, connection.busy = connection.number, True
        if self._world.turns.start(work, lambda: self._go_on(number)):
            connection.busy = False

    def _go_on(self, number: int) -> None:
        connection = self._connections.get(number)
        if connection is not None:
            connection.busy = False
            self._advance(connection)

    def wait(self, number: int) -> None:
        """A connection has no session: it may wait for a while, if there are not too many."""
        self._world.do(Wake(self.lobby.enter(number, self._world.now)))
        for surplus in self.lobby.surplus():
            self.end(surplus, after_flush=False)

    def end(self, number: int, after_flush: bool = True) -> None:
        """A connection ends; the others hear that its session left before it is closed."""
        connection = self._connections.pop(number)
        connection.queue.clear()
        self._slow.discard(number)
        self.lobby.leave(number)
        self._left(number)
        self._world.paused.discard(number)
        self._world.close(number, after_flush)

    def tick(self) -> None:
        """Time has passed: the silent ones go, the slowed ones go on."""
        world = self._world
        late, again = self.lobby.overdue(world.now)
        for number in late:
            self.end(number, after_flush=False)
        if again:
            world.do(Wake(world.now + _LOOK_AGAIN_MS))
        slow, self._slow = self._slow, set()
        for number in sorted(slow):
            if number in self._connections:
                self._advance(self._connections[number])

    def end_all(self) -> None:
        """Every connection ends, and nothing more is said of it."""
        for number in self._connections:
            self.lobby.leave(number)
            self._world.close(number)
        self._connections.clear()
        self._slow.clear()
