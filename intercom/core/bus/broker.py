"""The broker of both pi clients, pure: inputs in, effects out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from intercom.core.bus.asks import ask_of
from intercom.core.bus.carrier import Carrier
from intercom.core.bus.delivering import Delivering
from intercom.core.bus.directory import SUBAGENTS, Absent, Identity, Known, Session
from intercom.core.bus.effects import Effect, Leave
from intercom.core.bus.entrance import Entrance
from intercom.core.bus.foreign import Foreign
from intercom.core.bus.handling import Handling
from intercom.core.bus.handover import Handover
from intercom.core.bus.judging import Judge
from intercom.core.bus.keys import inbox_of
from intercom.core.bus.limits import Limits
from intercom.core.bus.lines import End
from intercom.core.bus.passing import Passing
from intercom.core.bus.posting import Posting
from intercom.core.bus.publishing import Publishing
from intercom.core.bus.recalling import Recalling
from intercom.core.bus.reception import Reception
from intercom.core.bus.sharing import Sharing
from intercom.core.bus.world import World
from intercom.core.effects import TakeBack
from intercom.records import Appeared, Batch, Entry, Moved, Outcome, Refused, Shifted, Written
from intercom.wire.pi.fields import Record


class Broker:
    """The broker. Every input returns what is to be done, in order; ``now`` is epoch ms.

    No input raises on what a peer does. Before connections come: :meth:`restored_asks` and
    :meth:`restored_roll`, then :meth:`found` for each of :attr:`inboxes`, whole; then
    :meth:`opened`.

    :param draw: draws a uuid. :param resolve: finds out what directory a path leads to; where
        that fails it gives the cleaned path, and it never raises.
    :param channel: its name. :param level: durability level of mail.
    :param state_id: what connections that are not local must show.
    """

    def __init__(
        self,
        *,
        draw: Callable[[], str],
        resolve: Callable[[str], str],
        channel: str,
        level: str = "disk",
        state_id: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        world = self._world = World(limits or Limits(), draw, resolve, channel, level)
        handover = self._handover = Handover(world)
        self._carrier = Carrier(world, handover)
        sharing = Sharing(world)
        entrance = Entrance(world, self._carrier, sharing)
        delivering = Delivering(world, self._carrier, handover)
        posting = Posting(world, Judge(world, self._carrier, handover), delivering)
        self._foreign = Foreign(world, entrance, self._carrier, handover)
        passing = Passing(world, delivering)
        recalling = self._recalling = Recalling(world, handover, self._carrier)
        parts = (posting, passing, Publishing(world, passing), recalling, sharing)
        self._staging = passing.staging
        handling = Handling(world, entrance, *parts)
        self._reception = Reception(world, entrance, handling, self._staging, state_id)
        self._lines = self._reception.lines

    @property
    def pending(self) -> int:
        """Answers of the shell that are waited for."""
        return self._world.turns.pending

    @property
    def sessions(self) -> int:
        """Sessions that are connected, those that speak lines included."""
        return len(self._world.directory)

    @property
    def roll(self) -> list[Known]:
        """Who is known, to be written down; see :class:`~intercom.core.bus.effects.SaveRoll`."""
        return self._world.directory.roll()

    @property
    def inboxes(self) -> Collection[str]:
        """The inboxes of sessions of this dialect, as far as they are known."""
        return self._carrier.inboxes

    # -- at first

    def restored_asks(
        self, records: Iterable[tuple[str | None, dict[str, Any]]], now: int
    ) -> list[Effect]:
        """Pending asks of an earlier hub: the hash of each one's scope, and its good file.

        Their askers can be answered, whether they come back or not.
        """
        world = self._at(now)
        for scope, record in records:
            ask = ask_of(scope, record)
            world.asks.add(ask)
            for key, who in ((ask.asker, "asker"), (ask.target, "target")):
                name = (record[who].get("name") or "").lower()
                world.directory.remember(Absent(key, name, Identity(), now))
        world.prune_asks()
        return world.out

    def restored_roll(self, roll: Iterable[Known], now: int) -> list[Effect]:
        """Sessions that an earlier hub knew; nothing changes for those that are here."""
        world = self._at(now)
        for known in roll:
            absent = known.absent(world.now)
            if world.directory.get(absent.key) is not None:
                continue
            world.directory.remember(absent)
            if absent.elsewhere:
                self._carrier.release(inbox_of(absent.key))
            else:
                self._carrier.own(absent.key)
        return world.out

    def restored_staged(self, staged: Iterable[tuple[str, Entry]], now: int) -> list[Effect]:
        """Messages that an earlier hub had accepted and put into no inbox, with their marks.

        They are put there; those that are there already stay as they are.
        """
        world = self._at(now)
        for mark, entry in staged:
            world.turns.start(self._carrier.put_in(mark, entry), lambda: None)
        return world.out

    def ask_within(self, milliseconds: int) -> None:
        """Asks that come from now on wait so long for their reply."""
        self._world.ask_ms = milliseconds

    def opened(self, now: int) -> list[Effect]:
        """Connections may come; if none does, the hub goes."""
        world = self._at(now)
        world.arm_idle()
        return world.out

    # -- connections

    def connected(self, number: int, trusted_local: bool, now: int) -> list[Effect]:
        """A connection was accepted; ``number`` is used for no other, ever."""
        world = self._at(now)
        self._lines.open(number, trusted_local)
        return world.out

    def received(self, number: int, frame: Record, now: int) -> list[Effect]:
        """A connection sent a frame, as the frame cutter gives it."""
        world = self._at(now)
        if number not in world.paused:
            self._take(number)
        self._lines.said(number, frame)
        return world.out

    def garbled(self, number: int, now: int) -> list[Effect]:
        """A connection sent what is no frame: it ends, when all before that was handled."""
        return self._said(number, "garbled", now)

    def gone(self, number: int, now: int) -> list[Effect]:
        """A connection sends no more, or is lost. Idempotent.

        Its session ends when all that it sent was handled, and then the connection is closed.
        """
        return self._said(number, "gone", now)

    def paused(self, number: int, now: int) -> list[Effect]:
        """A connection does not drain: no mail is written to it. Idempotent."""
        world = self._at(now)
        if number in self._lines:
            world.paused.add(number)
        return world.out

    def drained(self, number: int, now: int) -> list[Effect]:
        """A connection has taken all that was written to it."""
        world = self._at(now)
        if number in world.paused:
            world.paused.discard(number)
            self._carrier.resume(number)
        return world.out

    def taken(self, number: int, now: int) -> list[Effect]:
        """The peer of a connection has read all that was written to it so far. Idempotent.

        To be called after a :class:`~intercom.core.bus.effects.Watch`, and once more before
        ``gone``, if that is found out then; not while written bytes wait in the shell. So the
        position of a subagents session moves, whose client sends no receipts; where nothing can
        be found out it moves at the session's next frame, unless the connection is paused.
        """
        world = self._at(now)
        self._take(number)
        return world.out

    # -- sessions that speak lines

    def joined_elsewhere(self, session_id: str, info: Record, now: int) -> list[Effect]:
        """A session that speaks lines (NDJSON) is here, or has changed what it says of itself.

        Pi clients see it in the unnamed scope, and can write to it and ask it: what they send
        is kept in its inbox, and brought to it by the hub core, which is told by the outcome.
        An id that :meth:`holds` is not to be given to it.

        :param info: what is known of it, in the words of pi-intercom's SessionInfo (``name``,
            ``cwd``, ``model``, ``status``, ``pid``, ...); the rest is shown as unknown.
        """
        world = self._at(now)
        self._foreign.joined(session_id, info)
        return world.out

    def left_elsewhere(self, session_id: str, now: int) -> list[Effect]:
        """A session that speaks lines is not here any more. Idempotent."""
        world = self._at(now)
        number = self._foreign.number(session_id)
        if number is not None:
            self._reception.leave(number)
        return world.out

    def holds(self, session_id: str) -> bool:
        """Whether an inbox of this name is that of a pi session that is here."""
        return self._carrier.resident(session_id) is not None

    def line_stored(self, inbox: str, line: bytes, now: int) -> list[Effect]:
        """A line was stored for a session that speaks lines, which may ask or answer another."""
        world = self._at(now)
        self._foreign.heard(inbox, line)
        return world.out

    def moved(self, moves: Sequence[Moved], now: int) -> list[Effect]:
        """Readers have shown, read or skipped lines of inboxes; senders among the pi sessions
        get receipts for what they wrote to sessions that speak lines.
        """
        world = self._at(now)
        for move in moves:
            self._recalling.moved(move)
        return world.out

    def cancelled_elsewhere(self, back: TakeBack, now: int) -> list[Effect]:
        """A session that speaks lines takes a message back; ``TookBack`` tells of it.

        Its ask ends in any case.
        """
        world = self._at(now)
        world.turns.start(self._recalling.cancel_line(back), lambda: None)
        return world.out

    def named(self, name: str) -> str | None:
        """The inbox of the only pi session of the unnamed scope that is called so."""
        found = [one for one in self._here if one.name and one.name == name.lower()]
        return inbox_of(found[0].key) if len(found) == 1 else None

    def claimed_by(self, claimed: Callable[[str], bool]) -> None:
        """Who says whether an id is being claimed for a session that speaks lines."""
        self._world.claimed = claimed

    @property
    def asks_pending(self) -> bool:
        """Whether anybody waits for an answer."""
        return len(self._world.asks) > 0

    def ask_refusal(self, asker: str, target: str, message_id: str) -> str | None:
        """Why a session that speaks lines may not ask another; a code of its dialect.

        To be looked at before such a line is stored. It is pending once the target's inbox was
        read that far, after the line ``appeared`` there; likewise an answer ends an ask.
        """
        return self._foreign.ask_refusal(asker, target, message_id)

    @property
    def _here(self) -> list[Session]:
        return self._world.directory.residents(None)

    def unfit(self, session_id: str, line: bytes) -> tuple[str, str]:
        """Why a pi session that is here cannot be sent a line: code and text, or nothing."""
        return self._foreign.unfit(session_id, line)

    @property
    def members(self) -> list[tuple[str, Session]]:
        """The pi sessions of the unnamed scope, each with its inbox, by whose name it is known
        to those that speak lines. They may have changed whenever ``SaveRoll`` comes that is not
        of others (``elsewhere``).
        """
        return [(inbox_of(one.key), one) for one in self._here]

    # -- what the shell has done

    def written(self, outcomes: Sequence[Outcome], now: int) -> list[Effect]:
        """What the spool's writer reports, per inbox in file order.

        Of entries of this dialect (their tickets are negative) ``Written`` and ``Refused``,
        whosever inbox it is; of :attr:`inboxes` also ``Shifted``, and ``Appeared`` for all
        lines that came from elsewhere, those of the hub core among them.
        """
        world = self._at(now)
        for outcome in outcomes:
            if isinstance(outcome, Appeared):
                self._carrier.appeared(outcome.inbox)
            elif isinstance(outcome, Shifted):
                world.mailbox.shifted(outcome)
            elif isinstance(outcome, Written | Refused):
                world.turns.answer(("written", outcome.ticket), outcome)
                if isinstance(outcome, Refused):
                    world.turns.answer(("stored", outcome.ticket))
        return world.out

    def stored(self, tickets: Sequence[int], now: int) -> list[Effect]:
        """Written entries are as safe as was asked.

        Is a sync reported failed instead, nobody is told anything, and the hub leaves.
        """
        world = self._at(now)
        for ticket in tickets:
            world.turns.answer(("stored", ticket))
        return world.out

    def saved(self, ticket: int, ok: bool, now: int) -> list[Effect]:
        """A file of an ask or a state was written or removed, or that failed.

        Or a position was stored, or a line struck off.
        """
        world = self._at(now)
        inbox = world.commits.pop(ticket, None)
        if inbox is not None and world.storing[inbox] == ticket:
            del world.storing[inbox]
        world.turns.answer(("saved", ticket), ok)
        return world.out

    def loaded(self, ticket: int, revision: int, payload: Any, now: int) -> list[Effect]:
        """A state was read; revision 0 if there is none."""
        world = self._at(now)
        world.turns.answer(("loaded", ticket), (revision, payload))
        return world.out

    def found(self, inbox: str, batch: Batch, now: int) -> list[Effect]:
        """An inbox was read; without the lines that a ``Skip`` told of."""
        world = self._at(now)
        self._carrier.found(inbox, batch)
        return world.out

    def unreadable(self, inbox: str, now: int) -> list[Effect]:
        """An inbox could not be read; it is tried again."""
        world = self._at(now)
        self._carrier.unreadable(inbox)
        return world.out

    def tick(self, now: int) -> list[Effect]:
        """Time has passed: to be called at each ``Wake``, and about once a second."""
        world = self._at(now)
        self._lines.tick()
        self._staging.tick()
        world.prune_asks()
        world.routes.prune(world.now)
        self._carrier.upkeep()
        if world.idle_at is not None and world.now >= world.idle_at:
            world.idle_at = None
            if not world.directory:
                world.do(Leave())
        return world.out

    def closing(self, now: int) -> list[Effect]:
        """The hub is going: every connection ends. Nothing that is pending is given up.

        What waits to be replaced is put into its inbox: the effects of this input and of the
        answers to them are still to be done, until :attr:`pending` is 0.
        """
        world = self._at(now)
        self._staging.flush()
        self._lines.end_all()
        return world.out

    def _at(self, now: int) -> World:
        world = self._world
        world.now, world.out = max(now, world.now), []
        return world

    def _said(self, number: int, what: Record | End, now: int) -> list[Effect]:
        world = self._at(now)
        self._lines.said(number, what)
        return world.out

    def _take(self, number: int) -> None:
        session = self._world.directory.holder(number) if number in self._lines else None
        if session is not None and session.dialect == SUBAGENTS:
            self._handover.taken(number)
