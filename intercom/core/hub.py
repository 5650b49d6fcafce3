"""The hub: composes the parts of the core; every input returns a list of effects.

See :class:`intercom.interfaces.IRouter` for what each input means. Nothing here
knows a dialect, a file or a clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zope.interface import implementer

from intercom.core.admission import Admission, misspoken
from intercom.core.deliveries import Deliveries, message_key
from intercom.core.desk import Desk
from intercom.core.effects import (
    Answer,
    Close,
    Effect,
    Note,
    NotePushed,
    PublishPeers,
    TakeBack,
)
from intercom.core.elsewhere import Elsewhere
from intercom.core.limits import Lobby
from intercom.core.liveness import look_after
from intercom.core.receiving import (
    drained,
    paused,
    refused,
    take_places,
)
from intercom.core.roster import Roster
from intercom.core.routing import Digest, Identify, Notice, Routing, feed_news
from intercom.core.session import Link, open_link
from intercom.core.telling import expired, misfiled, taken_back, unfileable
from intercom.core.verbs import Verbs
from intercom.errors import IntercomError
from intercom.interfaces import IRouter
from intercom.messages import (
    Auth,
    Credentials,
    Envelope,
    Fault,
    ListSessions,
    Message,
    Register,
    TakePlaces,
)
from intercom.names import RESERVED
from intercom.records import (
    Batch,
    Moved,
    Outcome,
    Position,
    Receiver,
    Record,
    Remembered,
)
from intercom.settings.limits import DEFAULTS, Limits


@implementer(IRouter)
class HubCore:
    """One channel's hub, pure.

    :param durability: level asked of the spool for every message.
    :param digest: hashes a message's content (``wire.envelope.digest``).
    :param identify: reads sender, id and hash of a stored line (``wire.envelope.identify``).
    :param notice: writes a message of the hub's own (``wire.notices.NoticeWriter``).
    :param key: what TCP connections must show first; None lets none of them in.
    :param limits: how many sessions and connections, and how long they may wait.
    :param elsewhere: the sessions of other dialects.
    """

    def __init__(
        self,
        durability: str,
        digest: Digest,
        identify: Identify,
        notice: Notice,
        key: str | None = None,
        limits: Limits = DEFAULTS,
        elsewhere: Elsewhere | None = None,
    ) -> None:
        self._links: dict[int, Link] = {}
        self._lobby = Lobby(limits)
        self._roster = Roster(elsewhere)
        self._deliveries = Deliveries()
        self._identify = identify
        self._admission = Admission(self._roster, key, limits.session_limit)
        self._routing = Routing(
            self._links, self._roster, self._deliveries, durability, digest, identify, notice
        )
        self._closing: Fault | None = None
        self._verbs = Verbs(self._admission, self._routing, self._roster, self._lobby)

    @property
    def pending(self) -> int:
        """Entries given to the spool of which the last word has not been heard."""
        return self._deliveries.pending

    def claim_of(self, connection: int) -> str | None:
        """See :meth:`IRouter.claim_of`."""
        link = self._links.get(connection)
        return None if link is None else link.claimed

    def claims(self, session: str) -> bool:
        """See :meth:`IRouter.claims`."""
        return self._roster.holder(session) is not None

    def receivers(self, now: float) -> list[Receiver]:
        """See :meth:`IRouter.receivers`."""
        return self._roster.receivers(now)

    # -- connections

    def connected(
        self, connection: int, credentials: Credentials, needs_key: bool, now: float
    ) -> list[Effect]:
        """See :meth:`IRouter.connected`."""
        link = self._links[connection] = open_link(connection, credentials, needs_key, now)
        self._lobby.enter(link, locked=needs_key)
        return self._send_away(self._lobby.surplus(), now)

    def begun(self, connection: int, now: float) -> list[Effect]:
        """See :meth:`IRouter.begun`."""
        self._lobby.begun(connection)
        return []

    def _send_away(self, leaving: Iterable[tuple[Link, Fault]], now: float) -> list[Effect]:
        """Let these wait no longer."""
        effects: list[Effect] = []
        for link, fault in leaving:
            self._lobby.leave(link.number)
            locked = link.life.state() == "locked"
            admission = self._admission
            effects += admission.no_key(link) if locked else admission.refuse(link, fault, now)
        return effects

    def disconnected(self, connection: int, now: float) -> list[Effect]:
        """See :meth:`IRouter.disconnected`."""
        link = self._links.get(connection)
        if link is None:
            return []
        if link.life.state() in ("admitting", "orphaned"):
            link.life.lose()  # what it said is still to be handled
            return []
        del self._links[connection]
        self._lobby.leave(connection)
        self._routing.watchers.forget(connection)
        effects = self._admission.leave(link, now)
        link.life.lose()
        return effects

    def admitted(self, connection: int, token: str | None, now: float) -> list[Effect]:
        """See :meth:`IRouter.admitted`."""
        link = self._links.get(connection)
        if link is None or link.register is None:
            return []
        state = link.life.state()
        if state not in ("admitting", "orphaned"):
            return []
        effects = self._admission.admit(link, token, now)
        waiting, link.waiting = link.waiting, []
        for message in waiting:
            effects += self.submit(connection, message, now)
        if state == "orphaned":
            effects += self.disconnected(connection, now)
        return effects

    # -- what they say

    def submit(self, connection: int, message: Message, now: float) -> list[Effect]:
        """See :meth:`IRouter.submit`."""
        link = self._links.get(connection)
        if link is None:
            return []
        link.heard = now
        if link.session is None:
            effects = self._unregistered(link, message, now)
            waits = link.claimed is None and link.fault is None
            waits = waits and not isinstance(message, TakePlaces)  # it stays, and is nobody
            (self._lobby.heard if waits else self._lobby.leave)(connection)
            return effects
        if message.speaker is not None and message.speaker != link.session:
            return misspoken(link, message)
        if self._closing is not None and link.asks_for_more:
            return [Answer(connection, _addressed(self._closing, link, message.id))]
        return self._verbs.table[type(message)](link, message, now)

    def _unregistered(self, link: Link, message: Message, now: float) -> list[Effect]:
        """A line from a connection that speaks for nobody (yet, or any more)."""
        state = link.life.state()
        if state in ("admitting", "orphaned"):
            link.waiting.append(message)
            return []
        if state == "refused":
            assert link.fault is not None
            return [
                Answer(link.number, _addressed(link.fault, link, message.id)),
                Note("unheard", {"connection": link.number, "code": link.fault.code}),
            ]
        if state == "locked":
            return self._admission.unlock(link, message)
        if self._closing is not None and isinstance(message, Register) and message.features:
            fault = _addressed(self._closing, link, message.id)
            return self._admission.refuse(link, fault, now)
        if isinstance(message, Register):
            return self._admission.claim(link, message)
        if state == "released":
            text = "this connection gave its session back; register before anything else"
            return [Answer(link.number, Fault(None, "NOT_REGISTERED", text, message.id))]
        if isinstance(message, Auth):
            return []  # a key where none is needed does no harm and claims nothing
        if isinstance(message, ListSessions) and message.speaker is None:
            # Whoever only wants to look in is nobody.
            return self._verbs.listing(link, message, now)
        if isinstance(message, TakePlaces) and message.speaker is None:
            return take_places(link, message, now)
        # Any first line registers, as the original hub has it.
        effects = self._admission.claim(link, Register(message.id, message.speaker))
        if link.fault is None:
            link.waiting.append(message)
        return effects

    def garbled(self, connection: int, error: IntercomError, now: float) -> list[Effect]:
        """See :meth:`IRouter.garbled`."""
        link = self._links.get(connection)
        if link is None:
            return []
        link.heard = now
        self._lobby.heard(connection)
        if link.life.state() == "locked":
            return self._admission.no_key(link)
        message_id = getattr(error, "message_id", None)
        if link.fault is not None:
            return [Answer(connection, _addressed(link.fault, link, message_id))]
        fault = Fault(link.session, error.code, error.text, message_id, error.details)
        return [Answer(connection, fault)]

    # -- what the spool says

    def written(self, outcomes: Sequence[Outcome], now: float) -> list[Effect]:
        """See :meth:`IRouter.written`."""
        return self._routing.written(outcomes, now)

    def stored(self, tickets: Sequence[int], level: str, now: float) -> list[Effect]:
        """See :meth:`IRouter.stored`."""
        return self._routing.stored(tickets, level, now)

    def seen(self, sessions: dict[str, float | None], now: float) -> list[Effect]:
        """See :meth:`IRouter.seen`."""
        for session, age in sessions.items():
            if session in RESERVED:
                continue  # our own inbox
            self._roster.saw(session, None if age is None else now - age)
        return []

    def remembered(self, messages: Iterable[Remembered], now: float) -> list[Effect]:
        """See :meth:`IRouter.remembered`."""
        return self._routing.remembered(messages, now)

    def moved(self, moves: Sequence[Moved], now: float) -> list[Effect]:
        """See :meth:`IRouter.moved`."""
        return self._routing.moved(moves, now)

    def elsewhere_changed(self, now: float) -> list[Effect]:
        """See :meth:`IRouter.elsewhere_changed`."""
        return [PublishPeers(self._roster.held_names())]

    def pushed_elsewhere(
        self, inbox: str, generation: int, start: int, end: int, now: float
    ) -> list[Effect]:
        """See :meth:`IRouter.pushed_elsewhere`."""
        told = self._routing.watchers.pushed(inbox, generation, start, end)
        return [NotePushed(inbox, generation, start, end), *told]

    def taken_back(self, back: TakeBack, found: bool, now: float) -> list[Effect]:
        """See :meth:`IRouter.taken_back`."""
        sent = self._deliveries.recall(message_key(back.session, back.message_id)) is not None
        known = sent or (back.to_session is not None and self._roster.is_known(back.to_session))
        return taken_back(self._routing, back, found, known, now)

    def notice(
        self, to: str, text: str, about: str, details: dict[str, Any], now: float
    ) -> list[Effect]:
        """See :meth:`IRouter.notice`."""
        known = self._roster.is_known(to)
        return self._routing.notify(to, text, about, details, now) if known else []

    def forgotten(self, sessions: Sequence[str], now: float) -> list[Effect]:
        """See :meth:`IRouter.forgotten`."""
        for session in sessions:
            self._roster.forget(session)
        return []

    def inbox_read(self, connection: int, batch: Batch, now: float) -> list[Effect]:
        """See :meth:`IRouter.inbox_read`."""
        link = self._links.get(connection)
        if link is None or link.feed is None:
            return []
        effects = self._routing.backlog(link, batch)
        if batch.warning:
            effects.append(
                Note("position_repaired", {"session": link.session, "warning": batch.warning})
            )
        return effects

    def inbox_unreadable(self, connection: int, error: IntercomError, now: float) -> list[Effect]:
        """See :meth:`IRouter.inbox_unreadable`."""
        link = self._links.get(connection)
        if link is None or link.feed is None:
            return []
        link.feed.failed()
        return [Note("inbox_unreadable", {"session": link.session, "code": error.code})]

    def commit_refused(
        self, connection: int, error: IntercomError, message_id: str | None, now: float
    ) -> list[Effect]:
        """See :meth:`IRouter.commit_refused`."""
        link = self._links.get(connection)
        if link is None or link.session is None:
            return []
        return refused(link, error, message_id)

    # -- the hub's own inbox

    def open_desk(self, connection: int, now: float) -> list[Effect]:
        """See :meth:`IRouter.open_desk`."""
        desk = self._routing.desk = Desk(connection, now)
        self._links[connection] = desk.link
        return feed_news(desk.link)

    def filed(self, message: Message, now: float) -> list[Effect]:
        """See :meth:`IRouter.filed`."""
        if isinstance(message, Envelope):
            return self._routing.file(message, now)
        return unfileable(self._routing, message, now)

    def misfiled(
        self, sender: str, message_id: str, error: IntercomError, now: float
    ) -> list[Effect]:
        """See :meth:`IRouter.misfiled`."""
        return misfiled(self._routing, sender, message_id, error, now)

    def desk_read(self, position: Position, now: float) -> list[Effect]:
        """See :meth:`IRouter.desk_read`."""
        desk = self._routing.desk
        return [] if desk is None else desk.handled(position)

    def expired(self, inbox: str, records: Sequence[Record], now: float) -> list[Effect]:
        """See :meth:`IRouter.expired`."""
        return expired(self._routing, self._roster, self._identify, inbox, records, now)

    # -- flow and time

    def paused(self, connection: int, now: float) -> list[Effect]:
        """See :meth:`IRouter.paused`."""
        link = self._links.get(connection)
        return [] if link is None else paused(link)

    def drained(self, connection: int, now: float) -> list[Effect]:
        """See :meth:`IRouter.drained`."""
        link = self._links.get(connection)
        return [] if link is None else drained(link)

    def tick(self, now: float) -> list[Effect]:
        """See :meth:`IRouter.tick`."""
        self._deliveries.forget_old(now)
        effects = self._send_away(self._lobby.overdue(now), now)
        return effects + look_after(self._links.values(), now)

    def closing(self, now: float) -> list[Effect]:
        """See :meth:`IRouter.closing`.

        Those who asked for nothing are closed without a word they would not know, and
        what they had sent is still taken; the others are told, and try elsewhere.
        """
        text = "this hub is leaving; connect again, and send again what has no receipt"
        self._closing = Fault(None, "SHUTTING_DOWN", text)
        effects: list[Effect] = []
        for link in self._links.values():
            if link.session is not None and link.asks_for_more:
                effects.append(Answer(link.number, _addressed(self._closing, link, None)))
            effects.append(Close(link.number))
        return effects


def _addressed(fault: Fault, link: Link, reply_to: str | None) -> Fault:
    """The same fault, to this connection, about this line."""
    session = link.session or fault.session
    return Fault(session, fault.code, fault.text, reply_to, fault.details)
