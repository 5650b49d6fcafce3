"""The hub's shell: performs the core's effects on peers, spool and registry.

It decides nothing. Inputs arrive from connections, from the spool and from the
clock; each is given to the core at once, and the effects it returns are performed
in their order before anything else happens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from twisted.internet.defer import Deferred, TimeoutError
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import LoopingCall
from twisted.logger import Logger
from twisted.python.failure import Failure
from zope.interface import implementer

from intercom.core import effects as fx
from intercom.core.limits import too_many
from intercom.errors import IntercomError, ProtocolError
from intercom.hub.admissions import Admissions
from intercom.hub.attendance import Attendance
from intercom.hub.errands import Errands
from intercom.hub.pi.bus import Bus
from intercom.hub.pi.lending import Lending
from intercom.hub.publishing import Publisher
from intercom.hub.retention import Retention
from intercom.hub.transports import is_strange
from intercom.hub.turn import TurnEnd, until
from intercom.interfaces import IHub, IPeer, IRegistry, IRouter, ISpool, ISpoolListener
from intercom.messages import Cursor, Fault, Message
from intercom.names import RESERVED
from intercom.records import Entry, Moved, Outcome, Record, Remembered
from intercom.settings.limits import DEFAULTS, Limits
from intercom.wire.envelope import identify

#: How often the core is told that time has passed, seconds.
TICK_S = 1.0
#: After how many of these it is looked anew who reads without locks of its own.
GUARD_TICKS = 2
#: At shutdown: how long receipts under way, then peers, then the spool are waited for.
RECEIPTS_WITHIN_S, PEERS_WITHIN_S, SPOOL_WITHIN_S = 0.3, 0.7, 0.8
#: For so many receivers, at most, that hold no locks of their own, the hub holds two each.
MOST_GUARDED = 1024


@implementer(IHub, ISpoolListener)
class Hub:
    """Runs one channel's core.

    :param core: the state machine.
    :param spool: where messages are kept; this opens and closes it.
    :param registry: who is live, and tokens.
    :param clock: times and timers, monotonic.
    :param decode: reads a line that was left in the hub's own inbox (an NDJSON
        ``Decoder.decode``); None leaves that inbox alone.
    :param limits: how many connections there may be, and how long mail is kept.
    :param guarded: for how many receivers, at most, locks are held.
    :param leave: called with a reason when the hub can no longer keep its promises.
    :param bus: serves the pi clients, with the same ``attendance``; ``lending`` their places.
    """

    _log = Logger()

    def __init__(
        self,
        core: IRouter,
        spool: ISpool,
        registry: IRegistry,
        clock: IReactorTime,
        leave: Callable[[str], None] | None = None,
        decode: Callable[[bytes], Message] | None = None,
        limits: Limits = DEFAULTS,
        guarded: int = MOST_GUARDED,
        attendance: Attendance | None = None,
        bus: Bus | None = None,
    ) -> None:
        self.clock = clock
        self._core = core
        self._spool = spool
        self._registry = registry
        self._leave = leave
        self._decode = decode
        self._turn = TurnEnd(clock)
        self._peers: dict[int, IPeer] = {}
        own = Attendance(limits.connections, clock.seconds())
        self.attendance = own if attendance is None else attendance
        self.bus = bus
        self.lending: Lending | None = None
        self._desk: int | None = None
        self._guarded = guarded
        self._publisher = Publisher(registry, self._turn, self._log_error)
        self._retention = Retention(clock, spool, self._expired, limits)
        self._ticking = LoopingCall(self._tick)
        self._ticking.clock = clock
        self._ticks = 0
        self._performers = self._each_effect()

    def _each_effect(self) -> dict[type, Callable[[Any], None]]:
        """Who performs what."""
        errands = Errands(self._spool, self._core, self._feed)
        admissions = Admissions(
            self._peers, self._registry, self._publisher, self._core, self._feed
        )
        return {
            fx.Push: self._push,
            fx.Answer: self._answer,
            fx.Admit: admissions.admit,
            fx.PublishPeers: lambda effect: self._publisher.soon(effect.sessions),
            fx.EnrolSession: errands.enrol,
            fx.ReadInbox: errands.read,
            fx.CommitPosition: errands.commit,
            fx.NotePushed: errands.pushed,
            fx.MakeRoom: lambda effect: self._retention.hurry(effect.inbox),
            fx.ServePlaces: self._serve_places,
            fx.Close: self._close,
            fx.Drop: self._drop,
            fx.Note: self._note,
            **self._beside(),
        }

    def _beside(self) -> dict[type, Callable[[Any], None]]:
        """What the sessions of other dialects are told of those here."""
        if self.bus is not None:
            self.bus.bridge.meet(self._core, self._feed)
            return self.bus.bridge.performers()
        return {
            **dict.fromkeys([fx.MemberJoined, fx.MemberLeft], lambda _effect: None),
            fx.TakeBack: lambda back: self._feed(self._core.taken_back, back, False),
        }

    # -- life

    async def _start(self) -> None:
        await self._spool.open(self)
        await self._registry.publish(())
        self.attendance.restart(self.clock.seconds())
        self._ticking.start(TICK_S, now=False)
        if self._decode is not None:
            self._desk = self.attendance.number()
            self._feed(self._core.open_desk, self._desk)
        self._retention.start()
        if self.bus is not None:
            await self.bus.start()

    def start(self) -> Deferred[None]:
        """Open the spool, publish that nobody is here yet, begin to tick."""
        return Deferred.fromCoroutine(self._start())

    def shut_down(self) -> Deferred[None]:
        """Leave in good order, within two seconds whatever peers and disks do: receipts under way
        are said, peers told and closed, stragglers aborted, the spool synced, the list withdrawn.
        """
        return Deferred.fromCoroutine(self._shut_down())

    async def _shut_down(self) -> None:
        await until(self.clock, lambda: not self._pending, RECEIPTS_WITHIN_S)
        self._perform(self._core.closing(self.clock.seconds()))
        if self.bus is not None:
            self.bus.closing()
            await until(self.clock, lambda: not self._pending, RECEIPTS_WITHIN_S)
        await until(self.clock, lambda: not self.attendance, PEERS_WITHIN_S)
        for peer in list(self._peers.values()):
            peer.abort()
        self._retention.stop()
        if self._ticking.running:
            self._ticking.stop()
        closings = [("spool", self._spool.close()), ("registry", self._registry.withdraw())]
        if self.bus is not None:
            closings.append(("bus", self.bus.stop()))
        for what, closing in closings:
            try:
                await closing.addTimeout(SPOOL_WITHIN_S, self.clock)
            except (TimeoutError, IntercomError, OSError) as error:
                self._log.error("{what} did not close: {error}", what=what, error=str(error))

    @property
    def _pending(self) -> int:
        return self._core.pending + (0 if self.bus is None else self.bus.pending)

    @property
    def peer_count(self) -> int:
        """Connections attached now."""
        return len(self.attendance)

    @property
    def line_peers(self) -> int:
        """Those of them that speak NDJSON."""
        return len(self._peers)

    def idle_for(self, now: float) -> float:
        """Seconds since the last connection left, or the start; 0.0 while any is attached."""
        return self.attendance.idle_for(now)

    # -- IHub

    def room(self) -> int:
        """See :meth:`IHub.room`."""
        return self.attendance.room()

    def attach(self, peer: IPeer, needs_key: bool = False) -> int:
        """See :meth:`IHub.attach`. Another user's process is turned away."""
        number = self.attendance.arrive()
        self._peers[number] = peer
        if is_strange(peer.credentials):
            uid = peer.credentials.uid
            self._log.warn("refused a process of uid {uid}", uid=uid, pid=peer.credentials.pid)
            text = f"this hub serves uid {os.geteuid()} only, and you are uid {uid}"
            peer.answer(Fault(None, "UNAUTHORIZED", text))
            peer.abort()
            return number
        if self.room() < 0:
            peer.answer(too_many())
            peer.abort()
            return number
        self._feed(self._core.connected, number, peer.credentials, needs_key)
        return number

    def begun(self, connection: int) -> None:
        """See :meth:`IHub.begun`."""
        self._feed(self._core.begun, connection)

    def receive(self, connection: int, messages: Iterable[Message | IntercomError]) -> None:
        """See :meth:`IHub.receive`."""
        now, entries, core = self.clock.seconds(), list[Entry](), self._core
        for message in messages:
            try:
                garbled = isinstance(message, IntercomError)
                handle: Any = core.garbled if garbled else core.submit
                self._gather(handle(connection, message, now), entries)
            except Exception:
                self._internal(connection)
        if entries:
            self._spool.append(entries)

    def detach(self, connection: int) -> None:
        """See :meth:`IHub.detach`."""
        if self._peers.pop(connection, None) is None:
            return
        self.attendance.leave(connection, self.clock.seconds())
        self._feed(self._core.disconnected, connection)
        if self.bus is not None and not self._peers:
            self.bus.arm()

    def pause(self, connection: int) -> None:
        """See :meth:`IHub.pause`."""
        self._feed(self._core.paused, connection)

    def resume(self, connection: int) -> None:
        """See :meth:`IHub.resume`."""
        self._feed(self._core.drained, connection)

    def session_of(self, connection: int) -> str | None:
        """See :meth:`IHub.session_of`."""
        return self._core.claim_of(connection)

    # -- ISpoolListener

    def written(self, outcomes: Sequence[Outcome]) -> None:
        """See :meth:`ISpoolListener.written`."""
        self._feed(self._core.written, outcomes)
        if self.bus is not None:
            self.bus.written(outcomes)

    def stored(self, tickets: Sequence[int], level: str) -> None:
        """See :meth:`ISpoolListener.stored`."""
        self._feed(self._core.stored, tickets, level)
        if self.bus is not None:
            self.bus.stored(tickets)

    def unsynced(self, tickets: Sequence[int], text: str) -> None:
        """See :meth:`ISpoolListener.unsynced`.

        After a failed sync the kernel may call lost pages clean, so no later sync proves
        anything: nobody is told "stored", and the hub leaves. Senders without a
        receipt send again, to a hub that reads the files anew.
        """
        self._log.critical("sync failed: {text}", text=text, messages=len(tickets))
        if self._leave is not None:
            self._leave(f"a sync of the inbox files failed: {text}")

    def remembered(self, messages: Iterable[Remembered]) -> None:
        """See :meth:`ISpoolListener.remembered`."""
        self._feed(self._core.remembered, messages)

    def moved(self, moves: Sequence[Moved]) -> None:
        """See :meth:`ISpoolListener.moved`."""
        self._feed(self._core.moved, moves)
        if self.bus is not None:
            self.bus.bridge.moved(moves)

    def seen(self, sessions: dict[str, float | None]) -> None:
        """See :meth:`ISpoolListener.seen`."""
        self._feed(self._core.seen, sessions)

    def forgotten(self, sessions: Sequence[str]) -> None:
        """See :meth:`ISpoolListener.forgotten`."""
        self._feed(self._core.forgotten, sessions)

    # -- effects

    def _tick(self) -> None:
        self._feed(self._core.tick)
        if self.bus is not None:
            self.bus.tick()
        self._ticks += 1
        if self._ticks % GUARD_TICKS == 0:
            receivers = self._core.receivers(self.clock.seconds())[: self._guarded]
            self._registry.guard(receivers).addErrback(self._log_error, "a reader lock")

    def _feed(self, receive: Callable[..., list[fx.Effect]], *args: Any) -> None:
        """Give the core one input and perform what it answers; a bug there ends nothing."""
        try:
            self._perform(receive(*args, self.clock.seconds()))
        except Exception:
            self._log.failure("bug in the hub, while handling {what}", what=receive.__name__)

    def _internal(self, connection: int) -> None:
        """Tell a peer of a bug that its line met; the connection and the hub go on."""
        self._log.failure("bug in the hub, while handling a line")
        peer = self._peers.get(connection)
        if peer is not None:
            text = "the hub failed on this line; its log says why"
            peer.answer(Fault(self.session_of(connection), "INTERNAL", text))

    def _perform(self, effects: list[fx.Effect]) -> None:
        entries: list[Entry] = []
        self._gather(effects, entries)
        if entries:
            self._spool.append(entries)

    def _gather(self, effects: list[fx.Effect], entries: list[Entry]) -> None:
        """Perform all but appends, which are added to ``entries``."""
        for effect in effects:
            if type(effect) is fx.AppendEntry:
                entries.append(effect.entry)
            else:
                self._performers[type(effect)](effect)

    def _push(self, effect: fx.Push) -> None:
        peer = self._peers.get(effect.connection)
        if peer is not None:
            peer.push(effect.line)
        elif effect.connection == self._desk:
            self._take_in(effect.line)

    def _answer(self, effect: fx.Answer) -> None:
        peer = self._peers.get(effect.connection)
        if peer is not None:
            peer.answer(effect.reply)
        elif effect.connection == self._desk and isinstance(effect.reply, Cursor):
            self._feed(self._core.desk_read, effect.reply.position)

    def _take_in(self, line: bytes) -> None:
        """Handle a line that somebody left in the hub's own inbox."""
        assert self._decode is not None
        try:
            self._feed(self._core.filed, self._decode(line))
        except ProtocolError as error:
            self._log.warn("a line in the hub's inbox is refused: {code}", code=error.code)
            found = identify(line)
            if found is not None and found.sender not in RESERVED:
                self._feed(self._core.misfiled, found.sender, found.message_id, error)

    def _log_error(self, failure: Failure, what: str) -> None:
        """An expected failure is one line in the log, a bug a traceback."""
        if failure.check(IntercomError, OSError):
            why = failure.getErrorMessage()
            self._log.error("{what} could not be written: {why}", what=what, why=why)
        else:
            self._log.failure("bug while writing {what}", failure, what=what)

    def _serve_places(self, effect: fx.ServePlaces) -> None:
        peer = self._peers.get(effect.connection)
        if peer is not None and self.lending is not None:
            self.lending.serve(effect, peer.answer)
        elif peer is not None:
            text = "this hub takes no places"
            peer.answer(Fault(None, "UNKNOWN_TYPE", text, effect.message_id))

    def _expired(self, inbox: str, records: list[Record]) -> None:
        self._feed(self._core.expired, inbox, records)

    def _close(self, effect: fx.Close) -> None:
        peer = self._peers.get(effect.connection)
        if peer is not None:
            peer.close()

    def _drop(self, effect: fx.Drop) -> None:
        peer = self._peers.get(effect.connection)
        if peer is not None:
            fields = {"connection": effect.connection, "reason": effect.reason}
            self._log.info("dropped {connection}: {reason}", **fields)
            peer.abort()

    def _note(self, effect: fx.Note) -> None:
        self._log.info("{event}", event=effect.event, **effect.fields)
