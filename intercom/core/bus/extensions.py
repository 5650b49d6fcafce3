"""Extensions: who owns a namespace, under which epoch, and what its state is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from intercom.core.bus.directory import Session
from intercom.core.bus.keys import Key

#: A namespace within a scope.
Space = tuple[str | None, str]


class Owner(NamedTuple):
    """Who owns a namespace; another connection is another owner, with another epoch."""

    key: Key
    number: int
    epoch: str


class State(msgspec.Struct):
    """The state of a namespace as it is on disk; revision 0: there is none.

    :ivar saving: a commit is under way.
    """

    revision: int
    payload: Any = None
    saving: bool = False


class Extensions:
    """Which extensions each connection has, and who owns them.

    The owner is the first that registered of those that may own; nobody gets ahead by what he
    says of himself.

    :param draw: draws epochs.
    """

    def __init__(self, draw: Callable[[], str]) -> None:
        self._draw = draw
        self._has: dict[int, dict[str, bool]] = {}
        self._owners: dict[Space, Owner] = {}
        self._states: dict[Space, State] = {}

    def advertise(self, number: int, namespaces: Iterable[tuple[str, bool]]) -> None:
        """A connection has these from now on, each with whether it may own it."""
        has: dict[str, bool] = {}
        for namespace, eligible in namespaces:
            has[namespace] = has.get(namespace, False) or eligible
        self._has[number] = has

    def forget(self, number: int) -> None:
        """A connection ended, or was replaced. Idempotent."""
        self._has.pop(number, None)

    def of(self, number: int) -> frozenset[str]:
        """The namespaces that a connection has."""
        return frozenset(self._has.get(number, ()))

    def has(self, session: Session, namespace: str) -> bool:
        """Whether a session has a namespace."""
        return namespace in self._has.get(session.number, ())

    def owner(self, scope: str | None, namespace: str) -> Owner | None:
        """Who owns a namespace now."""
        return self._owners.get((scope, namespace))

    def elect(self, sessions: Iterable[Session]) -> list[tuple[Space, Owner | None]]:
        """Find out who owns what; the changes, in their order.

        :param sessions: all that are connected.
        """
        first: dict[Space, Session | None] = dict.fromkeys(self._owners)
        for session in sessions:
            for namespace, eligible in self._has.get(session.number, {}).items():
                space = (session.key.scope, namespace)
                best = first.setdefault(space, None)
                if eligible and (best is None or session.order < best.order):
                    first[space] = session
        changes: list[tuple[Space, Owner | None]] = []
        for space, winner in first.items():
            known = self._owners.get(space)
            if winner is None:
                if self._owners.pop(space, None) is not None:
                    changes.append((space, None))
            elif known is None or (known.key, known.number) != (winner.key, winner.number):
                self._owners[space] = Owner(winner.key, winner.number, self._draw())
                changes.append((space, self._owners[space]))
        self._states = {
            space: state for space, state in self._states.items() if space in first or state.saving
        }
        return changes

    # -- state

    def state(self, scope: str | None, namespace: str) -> State | None:
        """The state of a namespace, None if it was not read yet."""
        return self._states.get((scope, namespace))

    def loaded(self, scope: str | None, namespace: str, revision: int, payload: Any) -> State:
        """It was read; what is known counts."""
        return self._states.setdefault((scope, namespace), State(revision, payload))
