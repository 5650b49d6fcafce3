"""What a registered connection may say, and who carries it out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intercom.core.admission import Admission
from intercom.core.effects import Answer, Effect
from intercom.core.limits import Lobby
from intercom.core.receiving import acknowledge, take_back, take_places
from intercom.core.roster import Roster
from intercom.core.routing import Routing
from intercom.core.session import Link
from intercom.messages import (
    Ack,
    Auth,
    Beat,
    Cancel,
    Envelope,
    Fault,
    Heartbeat,
    ListSessions,
    Register,
    Sessions,
    TakePlaces,
    Unknown,
    Unregister,
)
from intercom.names import ANONYMOUS


class Verbs:
    """The verbs, by the kind of message.

    :ivar table: each takes a connection, its message, and the time.
    """

    def __init__(
        self, admission: Admission, routing: Routing, roster: Roster, lobby: Lobby
    ) -> None:
        self._admission = admission
        self._routing = routing
        self._roster = roster
        self._lobby = lobby
        self.table: dict[type, Callable[[Link, Any, float], list[Effect]]] = {
            Envelope: routing.submit,
            Register: self._register_again,
            Heartbeat: self._heartbeat,
            Ack: lambda link, message, _now: acknowledge(link, message),
            ListSessions: self.listing,
            Unregister: self._unregister,
            Auth: lambda _link, _message, _now: [],
            Cancel: take_back,
            TakePlaces: take_places,
            Unknown: self._unknown,
        }

    def _register_again(self, link: Link, message: Register, now: float) -> list[Effect]:
        effects = self._admission.renew(link, message)
        if "progress" not in link.features:
            self._routing.watchers.forget(link.number)
        return effects

    def _heartbeat(self, link: Link, message: Heartbeat, now: float) -> list[Effect]:
        if link.asked:
            link.asked = False  # the answer to ours; answering that would never end
            return []
        return [Answer(link.number, Beat(link.session, message.id))]

    def listing(self, link: Link, message: ListSessions, now: float) -> list[Effect]:
        """Who is here, also for one that is nobody."""
        session = link.session or ANONYMOUS
        reply = Sessions(session, self._roster.rows(now), self._roster.absent(), message.id)
        return [Answer(link.number, reply)]

    def _unregister(self, link: Link, message: Unregister, now: float) -> list[Effect]:
        effects = self._admission.leave(link, now)
        self._routing.watchers.forget(link.number)
        link.life.release()
        self._lobby.enter(link, spoke=True)
        return effects

    def _unknown(self, link: Link, message: Unknown, now: float) -> list[Effect]:
        text = f"this hub knows no type {message.type[:64]!r}"
        return [Answer(link.number, Fault(link.session, "UNKNOWN_TYPE", text, message.id))]
