"""The bus of the pi clients in the hub's shell: performs the broker's effects.

It decides nothing. Effects of one input are performed in their order, and inputs that are
caused while some are performed are handled behind them. See
:class:`intercom.core.bus.broker.Broker` for what each input means.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall, IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.core.bus import effects as fx
from intercom.core.bus.broker import Broker
from intercom.core.effects import Note
from intercom.hub.attendance import Attendance
from intercom.hub.pi.bridge import Bridge
from intercom.hub.pi.files import BusFiles, Found
from intercom.hub.pi.keeping import Keeping
from intercom.hub.pi.mail import Mail
from intercom.hub.pi.memory import MemoryBusFiles
from intercom.hub.pi.watching import Watches
from intercom.hub.transports import is_strange
from intercom.interfaces import ISpool
from intercom.messages import Credentials
from intercom.pi.places import Places
from intercom.records import Appeared, Outcome, Refused, Shifted, Written
from intercom.wire.pi.fields import Record

#: So many directories of clients are known by where they lead; beyond it they are asked anew.
MOST_DIRECTORIES = 4096


class Peer(Protocol):
    """One connection, as the bus sees it (:class:`intercom.hub.pi.protocol.PiProtocol`)."""

    credentials: Credentials

    def say(self, frame: bytes) -> None:
        """Write a whole frame."""

    def end(self, after_flush: bool) -> None:
        """End the connection."""

    def is_taken(self) -> bool | None:
        """Whether all that was said to it was read at the other end; None: nobody can say."""

    def hold(self) -> None:
        """Hand over no more frames until :meth:`release`."""

    def release(self) -> None:
        """Go on."""


class Bus:
    """Runs one channel's broker of pi clients.

    :param clock: times and timers, monotonic. :param wall: milliseconds since 1970 at a
        reading of the clock of 0.
    :param leave: nobody has been here for a while; told each time that this is found.
    :ivar directories: where directories of clients lead, for the broker to ask.
    :ivar bridge: leads to the sessions that speak lines.
    """

    _log = Logger()

    def __init__(
        self,
        broker: Broker,
        spool: ISpool,
        files: BusFiles | MemoryBusFiles,
        clock: IReactorTime,
        wall: float,
        attendance: Attendance,
        directories: dict[str, str],
        leave: Callable[[], None],
    ) -> None:
        self.clock = clock
        self._broker = broker
        self._spool = spool
        self._files = files
        self._wall = wall
        self._attendance = attendance
        self._directories = directories
        self._leave = leave
        self._mail = Mail(spool, self._feed, broker)
        self._keeping = Keeping(files, broker, clock, self._feed)
        self._peers: dict[int, Peer] = {}
        self._watches = Watches(clock, self._is_taken, self._taken)
        self.bridge = Bridge(broker, self._feed, self._now)
        self._resolving: dict[int, list[Callable[[], None]]] = {}
        self._todo: deque[fx.Effect] = deque()
        self._performing = False
        self._waking: IDelayedCall | None = None
        self._wishes: list[int] = []
        self._performers = self._each_effect()

    def _each_effect(self) -> dict[type, Callable[[Any], None]]:
        """Who performs what."""
        mail, keeping = self._mail, self._keeping
        return {
            fx.Say: self._say,
            fx.Close: self._close,
            fx.Watch: lambda effect: self._watches.watch(effect.number),
            fx.Hold: self._hold,
            fx.Release: self._release,
            fx.Keep: lambda effect: self._spool.append([effect.entry]),
            fx.Read: mail.read,
            fx.Commit: mail.commit,
            fx.Hurry: lambda effect: self._spool.hurry(effect.inbox),
            fx.Skip: mail.skip,
            fx.Discard: mail.discard,
            fx.SaveAsk: keeping.save_ask,
            fx.RemoveAsk: keeping.remove_ask,
            fx.SaveState: keeping.save_state,
            fx.LoadState: keeping.load_state,
            fx.SaveStaged: keeping.save_staged,
            fx.DropStaged: keeping.drop_staged,
            fx.SaveRoll: self._roll_changed,
            fx.Pushed: self.bridge.pushed,
            fx.Notice: self.bridge.notice,
            fx.TookBack: self.bridge.took_back,
            fx.Wake: self._wake,
            fx.Leave: lambda _effect: self._leave(),
            Note: self._note,
        }

    # -- life

    async def start(self) -> None:
        """Take in what earlier hubs left; afterwards connections may come. The spool is open."""
        await self._restore(await self._files.start())
        self._feed(self._broker.opened)

    async def take(self, places: Places) -> None:
        """Keep asks and states in the directory of these places from now on.

        :raise IntercomError: it cannot be done, and nothing has changed.
        """
        await self._restore(await self._files.take(places))

    def ask_within(self, milliseconds: int) -> None:
        """Asks that come from now on wait so long for their reply."""
        self._broker.ask_within(milliseconds)

    async def _restore(self, found: Found) -> None:
        for trouble in found.troubles:
            self._log.warn("not restored: {trouble}", trouble=trouble)
        self._feed(self._broker.restored_asks, found.asks)
        known = set(self._broker.inboxes)
        self._feed(self._broker.restored_roll, found.roll)
        for inbox in sorted(set(self._broker.inboxes) - known):
            await self._mail.restore(inbox)
        if found.staged:
            self._feed(self._broker.restored_staged, found.staged)

    @property
    def pending(self) -> int:
        """Answers of the shell that are waited for."""
        return self._broker.pending

    def closing(self) -> None:
        """The hub is going: everybody is closed, when what was said to them has left."""
        self._watches.look_at_all()
        self._feed(self._broker.closing)

    def stop(self) -> Deferred[None]:
        """Close at once whoever is still here, and finish with the small files."""
        for peer in list(self._peers.values()):
            peer.end(after_flush=False)
        self._watches.stop()
        if self._waking is not None and self._waking.active():
            self._waking.cancel()
        self._keeping.close()
        return self._files.quit()

    def tick(self) -> None:
        """Time has passed; about once a second."""
        self._feed(self._broker.tick)

    def arm(self) -> None:
        """Nobody else is left: begin to wait for somebody, as after the last one left."""
        self._feed(self._broker.opened)

    # -- connections

    def attach(self, peer: Peer, local: bool) -> int:
        """A connection was made; the number to name it by. Another user's is turned away.

        :param local: the kernel says who is at the other end.
        """
        number = self._attendance.arrive()
        self._peers[number] = peer
        if is_strange(peer.credentials):
            uid = peer.credentials.uid
            self._log.warn("refused a process of uid {uid}", uid=uid, pid=peer.credentials.pid)
            peer.end(after_flush=False)
            return number
        self._feed(self._broker.connected, number, local)
        return number

    def receive(self, number: int, frame: Record) -> None:
        """A connection sent a frame; one that claims a session is first asked where it is."""
        self._in_turn(number, lambda: self._receive(number, frame))

    def _receive(self, number: int, frame: Record) -> None:
        session = frame.get("session") if frame["type"] == "register" else None
        cwd = session.get("cwd") if isinstance(session, dict) else None
        if isinstance(cwd, str) and cwd not in self._directories:
            self._resolve(number, cwd, frame)
        else:
            self._feed(self._broker.received, number, frame)

    def _resolve(self, number: int, cwd: str, frame: Record) -> None:
        """Find out where a directory leads before its session registers."""
        self._resolving[number] = []
        self._hold(fx.Hold(number))

        def go_on(found: str | Failure) -> None:
            if isinstance(found, str):
                if len(self._directories) >= MOST_DIRECTORIES:
                    self._directories.clear()
                self._directories[cwd] = found
            waiting = self._resolving.pop(number)
            self._feed(self._broker.received, number, frame)
            for action in waiting:
                self._in_turn(number, action)
            self._release(fx.Release(number))

        self._files.resolve(cwd).addBoth(go_on).addErrback(self._bug)

    def _in_turn(self, number: int, action: Callable[[], None]) -> None:
        """Do something about a connection when all before it was done."""
        waiting = self._resolving.get(number)
        if waiting is None:
            action()
        else:
            waiting.append(action)

    def garbled(self, number: int) -> None:
        """A connection sent what is no frame."""
        self._in_turn(number, lambda: self._feed(self._broker.garbled, number))

    def gone(self, number: int) -> None:
        """A connection says no more; what it has not read by now may be lost with it."""
        self._watches.look(number)
        self._watches.forget(number)
        self._in_turn(number, lambda: self._feed(self._broker.gone, number))

    def detach(self, number: int) -> None:
        """A connection is lost. Idempotent."""
        if self._peers.pop(number, None) is not None:
            self._attendance.leave(number, self.clock.seconds())
            self.gone(number)

    def pause(self, number: int) -> None:
        """A connection does not drain."""
        self._feed(self._broker.paused, number)

    def resume(self, number: int) -> None:
        """A connection has taken everything that was written to it."""
        self._feed(self._broker.drained, number)

    # -- what the spool reports

    def written(self, outcomes: Sequence[Outcome]) -> None:
        """See :meth:`ISpoolListener.written`; what concerns no session of ours is passed over."""
        ours = self._broker.inboxes
        news: list[Outcome] = []
        for outcome in outcomes:
            if isinstance(outcome, Written) and outcome.ticket >= 0:
                if outcome.duplicate:
                    continue
                if outcome.inbox in ours:
                    # Another dialect's message to one of ours: the file says what it is.
                    news.append(Appeared(outcome.inbox, outcome.generation, [outcome.record]))
                else:
                    self.bridge.listen_to(outcome)
            elif isinstance(outcome, (Written, Refused)):
                if outcome.ticket < 0:
                    news.append(outcome)
            elif outcome.inbox in ours:
                if isinstance(outcome, Shifted):
                    self._mail.shifted(outcome)
                news.append(outcome)
        if news:
            self._feed(self._broker.written, news)

    def stored(self, tickets: Sequence[int]) -> None:
        """See :meth:`ISpoolListener.stored`."""
        ours = [ticket for ticket in tickets if ticket < 0]
        if ours:
            self._feed(self._broker.stored, ours)

    def _roll_changed(self, effect: fx.SaveRoll) -> None:
        self._keeping.save_roll(effect)
        if not effect.elsewhere:
            self.bridge.changed()

    def _is_taken(self, number: int) -> bool | None:
        peer = self._peers.get(number)
        return None if peer is None else peer.is_taken()

    def _taken(self, number: int) -> None:
        self._feed(self._broker.taken, number)

    # -- effects

    def _now(self) -> int:
        return round(self._wall + self.clock.seconds() * 1000)

    def _feed(self, receive: Callable[..., list[fx.Effect]], *args: Any) -> None:
        """Give the broker one input and perform what it answers; a bug there ends nothing."""
        try:
            self._perform(receive(*args, self._now()))
        except Exception:
            self._log.failure("bug in the bus, while handling {what}", what=receive.__name__)

    def _perform(self, effects: Iterable[fx.Effect]) -> None:
        self._todo.extend(effects)
        if self._performing:
            return
        self._performing = True
        try:
            while self._todo:
                effect = self._todo.popleft()
                try:
                    self._performers[type(effect)](effect)
                except Exception:
                    self._log.failure("bug in the bus, at {what}", what=type(effect).__name__)
        finally:
            self._performing = False

    def _say(self, effect: fx.Say) -> None:
        peer = self._peers.get(effect.number)
        if peer is not None:
            peer.say(effect.frame)

    def _close(self, effect: fx.Close) -> None:
        peer = self._peers.get(effect.number)
        if peer is not None:
            peer.end(effect.after_flush)

    def _hold(self, effect: fx.Hold) -> None:
        peer = self._peers.get(effect.number)
        if peer is not None:
            peer.hold()

    def _release(self, effect: fx.Release) -> None:
        peer = self._peers.get(effect.number)
        if peer is not None and effect.number not in self._resolving:
            peer.release()

    def _wake(self, effect: fx.Wake) -> None:
        """Tick at a time; every wish is granted, some by one tick."""
        if effect.at not in self._wishes:
            heapq.heappush(self._wishes, effect.at)
            self._set_alarm()

    def _set_alarm(self) -> None:
        """See to it that the earliest wish is granted."""
        if not self._wishes:
            return
        at = self.clock.seconds() + max(0.0, (self._wishes[0] - self._now()) / 1000)
        if self._waking is not None and self._waking.active():
            if self._waking.getTime() <= at:
                return
            self._waking.cancel()
        self._waking = self.clock.callLater(at - self.clock.seconds(), self._ring)

    def _ring(self) -> None:
        now = self._now()
        while self._wishes and self._wishes[0] <= now:
            heapq.heappop(self._wishes)
        self.tick()
        self._set_alarm()

    def _note(self, effect: Note) -> None:
        self._log.info("{event}", event=effect.event, **effect.fields)

    def _bug(self, failure: Failure) -> None:
        self._log.failure("bug in the bus", failure)
