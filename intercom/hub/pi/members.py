"""The sessions of the pi clients, as the hub's own core sees them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from intercom.core.bus.broker import Broker
from intercom.messages import MemberRow


class Members:
    """See :class:`intercom.core.elsewhere.Elsewhere`.

    :param now: milliseconds, as the broker has them.
    """

    def __init__(self, broker: Broker, now: Callable[[], int]) -> None:
        self._broker = broker
        self._now = now

    def holds(self, session: str) -> bool:
        """Whether an id is one of theirs now."""
        return self._broker.holds(session)

    def names(self) -> tuple[str, ...]:
        """The ids of those that are here."""
        return tuple(inbox for inbox, _session in self._broker.members)

    def members(self) -> tuple[MemberRow, ...]:
        """The same as a listing shows them."""
        now = self._now()
        return tuple(
            MemberRow(
                session=inbox,
                since=max(0, now - session.since) / 1000,
                dialect=f"pi-{session.dialect}",
                name=_text(session.info, "name"),
                cwd=_text(session.info, "cwd"),
                model=_text(session.info, "model"),
                status=_text(session.info, "status"),
                pid=_pid(session.info),
            )
            for inbox, session in self._broker.members
        )

    def find(self, name: str) -> str | None:
        """The id of the only one that is called so."""
        return self._broker.named(name)

    def ask_refusal(self, asker: str, target: str, message_id: str) -> str | None:
        """Why a session may not ask another now."""
        return self._broker.ask_refusal(asker, target, message_id)

    def unfit(self, session: str, line: bytes) -> tuple[str, str]:
        """Why one of them cannot be sent a line."""
        return self._broker.unfit(session, line)


def _text(info: dict[str, Any], name: str) -> str | None:
    """A text that a client said, as far as a line can hold it."""
    said = info.get(name)
    if not isinstance(said, str):
        return None
    return said.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _pid(info: dict[str, Any]) -> int | None:
    said = info.get("pid")
    return said if isinstance(said, int) and not isinstance(said, bool) and said > 0 else None
