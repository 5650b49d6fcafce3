"""The twin of the bus's small files without files, for tests and for embedders who keep nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed

from intercom.core.bus.directory import Known
from intercom.errors import SpoolError
from intercom.hub.pi.files import Found
from intercom.pi.places import Places
from intercom.records import Entry


class MemoryBusFiles:
    """Asks, states and the roll, in memory.

    :ivar asks: by the hash of the scope and message id. :ivar states: by namespace.
    :ivar failing: why nothing can be kept, or an empty string.
    """

    def __init__(self) -> None:
        self.asks: dict[tuple[str | None, str], dict[str, Any]] = {}
        self.states: dict[str, tuple[int, Any]] = {}
        self.roll: list[Known] = []
        self.staged: dict[int | str, Entry] = {}
        self.failing = ""

    def start(self) -> Deferred[Found]:
        """See :class:`BusFiles`, as for all that follow."""
        asks = [(scope, record) for (scope, _), record in self.asks.items()]
        return succeed(Found(asks, list(self.roll), [], []))

    def take(self, places: Places) -> Deferred[Found]:
        """There is nothing to bring anywhere."""
        return self.start()

    def quit(self) -> Deferred[None]:
        """Nothing is to be finished."""
        return succeed(None)

    def save_ask(self, scope: str | None, record: dict[str, Any]) -> Deferred[None]:
        """Keep a pending ask."""
        if self.failing:
            return fail(SpoolError(self.failing))
        self.asks[scope, record["messageId"]] = record
        return succeed(None)

    def remove_ask(self, scope: str | None, message_id: str) -> Deferred[None]:
        """Remove it."""
        self.asks.pop((scope, message_id), None)
        return succeed(None)

    def load_state(self, namespace: str) -> Deferred[tuple[int, Any]]:
        """Revision and payload."""
        return succeed(self.states.get(namespace, (0, None)))

    def save_state(self, namespace: str, revision: int, payload: Any) -> Deferred[None]:
        """Replace a state."""
        if self.failing:
            return fail(SpoolError(self.failing))
        self.states[namespace] = (revision, payload)
        return succeed(None)

    def save_staged(self, mark: int, entry: Entry) -> Deferred[None]:
        """Remember a message that was accepted."""
        self.staged[mark] = entry
        return succeed(None)

    def drop_staged(self, mark: int | str) -> Deferred[None]:
        """Remember it no longer."""
        self.staged.pop(mark, None)
        return succeed(None)

    def save_roll(self, roll: Sequence[Known]) -> Deferred[None]:
        """Write down who is known."""
        self.roll = list(roll)
        return succeed(None)

    def resolve(self, directory: str) -> Deferred[str]:
        """There are no links."""
        return succeed(posixpath.normpath(directory))
