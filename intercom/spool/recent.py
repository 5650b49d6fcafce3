"""Which messages the inboxes hold or lately held, so that a retry is recognised. Pure."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple


class Seen(NamedTuple):
    """A message that was stored: its content's hash, and where it stands or stood."""

    digest: bytes
    generation: int
    start: int
    end: int


#: What names a message in an inbox, see :func:`key_of`.
Key = str

_PLACE = Struct("<QQQ")


def key_of(inbox: str, sender: str, message_id: str) -> Key:
    """What names a message in an inbox; NUL is in no session id."""
    return f"{inbox}\0{sender}\0{message_id}"


class RecentIds:
    """The last messages of all inboxes together, at least ``least`` and at most twice as many.

    Two dictionaries take turns: when the younger is full the older is forgotten as a
    whole, which costs nothing per message. A message is one string and one packed place,
    about 250 bytes in all. An inbox that is emptied or reset forgets nothing: a message that
    was stored there once is not stored there again.
    """

    def __init__(self, least: int = 50_000) -> None:
        self._least = least
        self._young: dict[Key, bytes] = {}
        self._old: dict[Key, bytes] = {}

    def get(self, key: Key) -> Seen | None:
        """The message with this key, None if there is none or it is forgotten."""
        packed = self._young.get(key) or self._old.get(key)
        if packed is None:
            return None
        return Seen(packed[_PLACE.size :], *_PLACE.unpack_from(packed))

    def add(self, fresh: dict[Key, Seen]) -> None:
        """Remember messages that are new in their inbox."""
        young, pack = self._young, _PLACE.pack
        for key, (digest, generation, start, end) in fresh.items():
            young[key] = pack(generation, start, end) + digest
        if len(young) >= self._least:
            self._old, self._young = young, {}

    def forget(self, inbox: str) -> None:
        """Forget all messages of an inbox whose session was forgotten."""
        begun = f"{inbox}\0"
        for known in (self._young, self._old):
            for key in [key for key in known if key.startswith(begun)]:
                del known[key]
