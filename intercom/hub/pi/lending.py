"""The places of the pi clients, while a hub serves them.

A hub takes them at its start, if it was told to, or because an ``intercom pi-broker`` asks for
it that found the channel led. Those that it was asked for it gives back when the last who
asked says so; one that dies says nothing, and the clients keep what they have.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from twisted.python.failure import Failure

from intercom.core.effects import ServePlaces
from intercom.errors import CannotCreate, IntercomError
from intercom.hub.doorway import DoorFactory
from intercom.hub.pi.bus import Bus
from intercom.hub.pi.doors import PiDoors
from intercom.messages import Fault, PlacesTaken, Reply
from intercom.pi.plan import Plan, parse_plan
from intercom.tuples import TYPE_CHECKING

if TYPE_CHECKING:
    from intercom.private import Warn


class Lending:
    """Takes places and gives them back.

    :param factory: serves who comes in there. :param state_id: the secret of the TCP port.
    :param say: tells the person who started the hub what was mended on the way.
    """

    _log = Logger()

    def __init__(
        self, reactor: Any, bus: Bus, factory: DoorFactory, state_id: str, say: Warn
    ) -> None:
        self._reactor = reactor
        self._bus = bus
        self._factory = factory
        self._state_id = state_id
        self._say = say
        self._doors: PiDoors | None = None
        self._taking: Deferred[None] | None = None
        self._askers: set[int] = set()
        self._own = False

    async def take(self, plan: Plan) -> None:
        """Take the places at the hub's start: they stay until it ends."""
        self._own = True
        await self._take(plan)

    async def _take(self, plan: Plan) -> None:
        """Take places: nobody is let in before what lies there is known.

        :raise IntercomError: they cannot be had, and nothing of ours is left there.
        """
        if self._doors is not None:
            if self._doors.plan.places != plan.places:
                raise CannotCreate(
                    f"the hub of this channel serves {self._doors.plan.places.directory} already",
                    remedy="choose another channel for other places: intercom --channel NAME "
                    "pi-broker",
                )
            return
        doors = PiDoors(self._reactor, plan, self._factory, self._state_id)
        doors.bind(self._say)
        self._doors = doors
        try:
            await self._bus.take(plan.places)
            self._bus.ask_within(plan.ask_ms)
            doors.open(plan.tcp)
        except BaseException:
            self._doors = None
            doors.close()
            raise
        self._log.info("serving {directory}", directory=plan.places.directory, tcp=plan.tcp)

    def serve(self, effect: ServePlaces, answer: Callable[[Reply], None]) -> None:
        """A connection asks for places, or gives them back."""
        if effect.plan is None:
            self._give_back(effect.connection)
            answer(PlacesTaken(None, os.getpid(), effect.message_id))
            return

        async def lend(told: dict[str, Any]) -> None:
            await self._take(parse_plan(told))
            self._askers.add(effect.connection)
            answer(PlacesTaken(None, os.getpid(), effect.message_id))

        def refused(failure: Failure) -> None:
            failure.trap(IntercomError)
            error: Any = failure.value
            text = f"{error.text}; {error.remedy}" if error.remedy else error.text
            answer(Fault(None, error.code, text, effect.message_id))

        before = self._taking or succeed(None)
        plan = effect.plan
        # One after the other: two that ask at once get the same places.
        self._taking = before.addCallback(lambda _: Deferred.fromCoroutine(lend(plan)))
        self._taking.addErrback(refused)
        self._taking.addErrback(lambda failure: self._log.failure("bug in the places", failure))

    def _give_back(self, connection: int) -> None:
        self._askers.discard(connection)
        if not (self._own or self._askers) and self._doors is not None:
            self._log.info("given back: {directory}", directory=self._doors.plan.places.directory)
            self.close().addErrback(lambda failure: self._log.failure("closing places", failure))
            self._bus.closing()

    def keep(self) -> None:
        """Put back what is gone of the places; about once a second."""
        if self._doors is not None:
            self._doors.keep()

    def close(self) -> Deferred[None]:
        """Let nobody in any more, and take all away that says where we are. Idempotent."""
        doors, self._doors = self._doors, None
        return succeed(None) if doors is None else doors.close()
