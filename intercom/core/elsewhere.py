"""The sessions of other dialects, as the hub's core sees them. Pure.

They have connections, and receive what is put into their inboxes, by another core beside this
one (:class:`intercom.core.bus.broker.Broker`). Here they are named, listed and written to.
"""

from __future__ import annotations

from typing import Protocol

from intercom.messages import MemberRow


class Elsewhere(Protocol):
    """Who is here beside the sessions of this core."""

    def holds(self, session: str) -> bool:
        """Whether an id is one of theirs now, so that nobody here can have it."""

    def names(self) -> tuple[str, ...]:
        """The ids of those that are here, each also the name of its inbox."""

    def members(self) -> tuple[MemberRow, ...]:
        """The same as a listing shows them."""

    def find(self, name: str) -> str | None:
        """The id of the only one that is called so, whatever the case; None without one."""

    def ask_refusal(self, asker: str, target: str, message_id: str) -> str | None:
        """Why a session may not ask another now: a code of this dialect; None: it may."""

    def unfit(self, session: str, line: bytes) -> tuple[str, str]:
        """Why one of them cannot be sent a line, as code and text; both empty if it can."""


class Nobody:
    """There is no other dialect."""

    def holds(self, session: str) -> bool:
        """See :class:`Elsewhere`, as for all that follow."""
        return False

    def names(self) -> tuple[str, ...]:
        """None are here."""
        return ()

    def members(self) -> tuple[MemberRow, ...]:
        """None are here."""
        return ()

    def find(self, name: str) -> str | None:
        """None is called so."""
        return None

    def ask_refusal(self, asker: str, target: str, message_id: str) -> str | None:
        """Nobody keeps asks: a question is a message like any other."""
        return None

    def unfit(self, session: str, line: bytes) -> tuple[str, str]:
        """A line is a line."""
        return "", ""
