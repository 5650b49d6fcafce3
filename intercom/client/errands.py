"""What a listening session sends over the connection it listens on. Standard library only."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Protocol

from intercom.client.blocking import HubConnection, Received, refusal
from intercom.client.inlet import Inlet, Order
from intercom.client.offline import settled_before, store_offline
from intercom.client.outbox import (
    PATIENCE,
    Letter,
    Outcome,
    compose,
    outcome_of,
)
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths


class Reports(Protocol):
    """Who wants to know what became of errands."""

    def report(self, letter: Letter | None, result: Outcome | IntercomError) -> None:
        """What became of one (no letter: the order could not be read)."""


@dataclass(slots=True)
class _Pending:
    """A message given to a hub, its receipt not yet come."""

    letter: Letter
    deadline: float


class Errands:
    """Reads orders from standard input, sends each, and reports on each exactly once.

    A message whose receipt has not come is given to the next hub again; where no hub
    is to be had, to its recipient's inbox file.
    """

    def __init__(
        self, paths: ChannelPaths, session: str, reports: Reports, orders: int | None
    ) -> None:
        self._paths = paths
        self._session = session
        self._reports = reports
        self._inlet = Inlet(orders)
        self._pending: dict[str, _Pending] = {}
        self._unsent: deque[Letter] = deque()

    @property
    def fd(self) -> int | None:
        """The descriptor to wait for, None once it has ended."""
        return self._inlet.fd

    def take(self, hub: HubConnection | None, trouble: IntercomError | None) -> None:
        """Deal with the orders that have come.

        :param trouble: why there is no hub, if there is none.
        :raise ConnectionLost: the hub hung up; what it has not answered is kept.
        """
        for order in self._inlet.read():
            if isinstance(order, IntercomError):
                self._reports.report(None, order)
                continue
            try:
                self._unsent.append(self._letter(order))
            except IntercomError as error:
                self._reports.report(None, error)
        if hub is not None:
            self._send_on(hub)
        elif trouble is not None:
            self.give_up(trouble)

    def _letter(self, order: Order) -> Letter:
        return compose(
            self._paths,
            self._session,
            order.to,
            order.payload,
            reply_to=order.reply_to,
            message_id=order.message_id,
            strict=order.strict,
        )

    def renew(self, hub: HubConnection) -> None:
        """A new connection: send again what the last one did not answer, then the rest."""
        for pending in list(self._pending.values()):
            hub.send_line(pending.letter.line)
        self._send_on(hub)

    def _send_on(self, hub: HubConnection) -> None:
        """Send what was not sent yet, in order."""
        while self._unsent:
            letter = self._unsent[0]
            if "receipts" not in hub.features:
                self._give_to_original(hub, letter)
                self._unsent.popleft()
                continue
            self._unsent.popleft()
            self._pending[letter.message_id] = _Pending(letter, time.monotonic() + PATIENCE)
            hub.send_line(letter.line)

    def _give_to_original(self, hub: HubConnection, letter: Letter) -> None:
        """Give a message to an original hub: it is written, and no more is known.

        :raise ConnectionLost: the hub hung up, or takes nothing.
        """
        try:
            outcome = settled_before(self._paths, letter)
        except HubUnavailable as error:
            return self._store(letter, error)
        except IntercomError as error:
            return self._reports.report(letter, error)
        if outcome is None:
            hub.send_line(letter.line)
        return self._reports.report(letter, outcome or Outcome("sent"))

    def told(self, received: Received) -> bool:
        """The hub answered something; True if it was a message of ours."""
        about = received.envelope and received.envelope["reply_to"]
        pending = self._pending.pop(str(about), None)
        if pending is None:
            return False
        try:
            if received.type == "error":
                raise refusal(received.payload)
            self._reports.report(pending.letter, outcome_of(received.payload))
        except IntercomError as error:
            self._reports.report(pending.letter, error)
        return True

    def expire(self, now: float) -> None:
        """Take back what the hub has not answered for too long, and store it in the files."""
        late = [key for key, pending in self._pending.items() if pending.deadline < now]
        trouble = HubUnavailable("the hub gave no receipt in time", details={"cause": "silent"})
        for key in late:
            self._store(self._pending.pop(key).letter, trouble)

    def give_up(self, trouble: IntercomError) -> None:
        """No hub is to be had: everything under way goes to the files."""
        letters = [pending.letter for pending in self._pending.values()] + list(self._unsent)
        self._pending.clear()
        self._unsent.clear()
        for letter in letters:
            self._store(letter, trouble)

    def _store(self, letter: Letter, trouble: IntercomError) -> None:
        try:
            self._reports.report(letter, store_offline(self._paths, letter, trouble))
        except IntercomError as error:
            self._reports.report(letter, error)
