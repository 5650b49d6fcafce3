"""Which messages the inboxes hold or lately held, so that a retry is recognised. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Seen(NamedTuple):
    """A message that was stored: its content's hash, and where it stands or stood."""

    digest: bytes
    generation: int
    start: int
    end: int


#: Inbox, sender, message id.
Key = tuple[str, str, str]


class RecentIds:
    """The last messages of all inboxes together, at least ``least`` and at most twice as many.

    Two dictionaries take turns: when the younger is full the older is forgotten as a
    whole, which costs nothing per message. An inbox that is emptied or reset forgets
    nothing: a message that was stored there once is not stored there again.
    """

    def __init__(self, least: int = 32768) -> None:
        self._least = least
        self._young: dict[Key, Seen] = {}
        self._old: dict[Key, Seen] = {}

    def get(self, key: Key) -> Seen | None:
        """The message with this key, None if there is none or it is forgotten."""
        return self._young.get(key) or self._old.get(key)

    def add(self, fresh: dict[Key, Seen]) -> None:
        """Remember messages that are new in their inbox."""
        self._young.update(fresh)
        if len(self._young) >= self._least:
            self._old, self._young = self._young, {}

    def forget(self, inbox: str) -> None:
        """Forget all messages of an inbox whose session was forgotten."""
        for known in (self._young, self._old):
            for key in [key for key in known if key[0] == inbox]:
                del known[key]
