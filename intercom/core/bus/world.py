"""What the broker's modules share: the parts of the bus, the time, and what is to be done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from intercom.core.bus.afar import Afar
from intercom.core.bus.asks import Ask, Asks
from intercom.core.bus.directory import NDJSON, SUBAGENTS, Directory, Session
from intercom.core.bus.effects import Close, Effect, RemoveAsk, Say, Wake
from intercom.core.bus.extensions import Extensions
from intercom.core.bus.limits import Limits
from intercom.core.bus.mailbox import Mailbox
from intercom.core.bus.outcomes import Outcomes
from intercom.core.bus.presence import Presence
from intercom.core.bus.routes import Routes
from intercom.core.bus.turns import Turns
from intercom.core.effects import Note
from intercom.wire.pi.fields import Record
from intercom.wire.pi.forms import intercom_row
from intercom.wire.pi.frames import FrameTooLarge, dump_frame
from intercom.wire.pi.replies import KNOWN


class World:
    """The parts, and the list to which effects of the input at hand are added.

    :param limits: the bounds. :param draw: draws a uuid. :param level: durability of mail.
    :param resolve: finds out what directory a path leads to (absolute, links resolved).
    :param channel: its name, for envelopes.
    :ivar now: of the input at hand, epoch ms; it never goes back.
    :ivar ask_ms: until an ask is given up. :ivar paused: connections that do not drain.
    :ivar claimed: whether an id is being claimed for a session that speaks lines.
    :ivar storing: inboxes whose position is on its way to the disk, with the last ticket;
        ``commits`` are all such tickets.
    :ivar idle_at: when the hub may go if nobody is here; None: not before somebody leaves.
    """

    def __init__(
        self,
        limits: Limits,
        draw: Callable[[], str],
        resolve: Callable[[str], str],
        channel: str,
        level: str,
    ) -> None:
        self.limits = limits
        self.ask_ms = limits.ask_ms
        self.draw = draw
        self.resolve = resolve
        self.channel = channel
        self.level = level
        self.directory = Directory()
        self.asks = Asks()
        self.outcomes = Outcomes()
        self.routes = Routes()
        self.afar = Afar()
        self.mailbox = Mailbox(limits)
        self.extensions = Extensions(draw)
        self.presence = Presence()
        self.turns = Turns()
        self.now = 0
        self.out: list[Effect] = []
        self.claimed: Callable[[str], bool] = lambda _session_id: False
        self.paused: set[int] = set()
        self.storing: dict[str, int] = {}
        self.commits: dict[int, str] = {}
        self.idle_at: int | None = None
        self._last_ticket = 0

    def ticket(self) -> int:
        """A number for something that is answered; negative, for those of the hub are not."""
        self._last_ticket -= 1
        return self._last_ticket

    def do(self, effect: Effect) -> None:
        """The shell is to do something."""
        self.out.append(effect)

    # -- frames

    def say(self, number: int, frame: Record) -> bool:
        """Say something to a connection; False, and nothing said, if it is over the size limit."""
        data = fitted(frame)
        if data is None:
            self.do(Note("frame_too_large", {"connection": number, "type": frame["type"]}))
            return False
        self.do(Say(number, data))
        return True

    def say_data(self, number: int, frame: bytes) -> None:
        """Say a frame that is written already."""
        self.do(Say(number, frame))

    def tell(self, sessions: Iterable[Session], frame: Record) -> None:
        """Say the same to several; written once."""
        sessions = list(sessions)
        if sessions:
            self.tell_data(sessions, self.fit([frame]))

    def fit(self, frames: Iterable[Record]) -> bytes | None:
        """The first of these that is not over the size limit, as it is written."""
        kind = ""
        for frame in frames:
            data = fitted(frame)
            if data is not None:
                return data
            kind = frame["type"]
        self.do(Note("frame_too_large", {"type": kind}))
        return None

    def tell_data(self, sessions: Iterable[Session], frame: bytes | None) -> None:
        """Say a frame that is written already to several; nothing if there is none."""
        if frame is not None:
            for session in sessions:
                self.do(Say(session.number, frame))

    def audience(self, scope: str | None, kind: str, but: Collection[int] = ()) -> list[Session]:
        """Who of a scope takes frames of this kind: a client leaves at one that it does not."""
        return [
            one
            for one in self.directory.residents(scope)
            if one.dialect != NDJSON and kind in KNOWN[one.dialect] and one.number not in but
        ]

    def row(self, session: Session) -> Record:
        """A session as pi-intercom clients take it, whatever it speaks itself."""
        return {**intercom_row(session.info, session.since), "endpointEpoch": session.endpoint}

    def touch(self, session: Session, mail: bool = False) -> None:
        """A subagents session was heard of; ``mail``: it sent or got a message, too."""
        if session.dialect == SUBAGENTS:
            seen = {"lastSeen": self.now}
            if mail:
                seen["lastIntercomActivity"] = self.now
            session.info = {**session.info, **seen}

    def close(self, number: int, after_flush: bool = True) -> None:
        """End a connection."""
        self.do(Close(number, after_flush))

    # -- what several modules do

    def remove_ask(self, ask: Ask) -> tuple[str, int]:
        """An ask is over, and its file goes; the name of the answer, for who waits for it."""
        self.asks.remove(ask)
        return self.remove_ask_file(ask)

    def remove_ask_file(self, ask: Ask) -> tuple[str, int]:
        """The file of an ask goes; the name of the answer."""
        ticket = self.ticket()
        self.do(RemoveAsk(ticket, ask.asker.scope, ask.message_id))
        return ("saved", ticket)

    def own_ask(self, session: Session, message_id: str) -> Ask | None:
        """The pending ask of this id, if this session asked it."""
        ask = self.asks.get(session.key.scope, message_id)
        return ask if ask is not None and ask.asker == session.key else None

    def prune_asks(self) -> None:
        """Give up the asks whose time is over."""
        for ask in self.asks.prune(self.now):
            self.remove_ask_file(ask)

    def arm_idle(self) -> None:
        """The hub may go in a while, if nobody comes; a time that runs is not begun anew."""
        if self.idle_at is None:
            self.idle_at = self.now + self.limits.idle_ms
            self.do(Wake(self.idle_at))


def fitted(frame: Record) -> bytes | None:
    """A frame as it is written; None where it is over the size limit."""
    try:
        return dump_frame(frame)
    except FrameTooLarge:
        return None
