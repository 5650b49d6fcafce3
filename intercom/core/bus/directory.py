"""Who is here, who was, and whom an address means."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Literal

import msgspec

from intercom.core.bus.keys import Key

#: What a session speaks: one of the two pi clients, or lines.
Dialect = Literal["intercom", "subagents", "ndjson"]
INTERCOM: Final = "intercom"
SUBAGENTS: Final = "subagents"
NDJSON: Final = "ndjson"
#: For so long a session that left can be written to.
ABSENT_MS = 24 * 60 * 60 * 1000
#: So many of them are known, the latest.
MAX_ABSENT = 4096


class Identity(msgspec.Struct, frozen=True):
    """By what a session is known again under another id: an explicit name and a directory.

    :ivar name: in lower case; empty where there is none, or only a runtime's alias.
    :ivar place: the directory with links resolved; empty where it is not known.
    """

    name: str = ""
    place: str = ""

    def matches(self, other: Identity) -> bool:
        """Whether both are known, and the same."""
        return bool(self.name and self.place) and self == other


class Session(msgspec.Struct):
    """A session that is connected.

    :ivar number: its connection. :ivar dialect: which client it is.
    :ivar info: what others are shown of it, in its dialect's words; ``name`` and
        ``runtimeFallbackAlias`` mean the same in all of them.
    :ivar scope_name: as it was asked for. :ivar place: its directory, links resolved.
    :ivar order: registrations count from 1; a replacement keeps the number of what it replaces.
    :ivar since: when it registered. :ivar drawn: its id was drawn by the hub.
    :ivar topic_frames: it takes the short form of topics (subagents).
    """

    key: Key
    number: int
    dialect: Dialect
    info: dict[str, Any]
    scope_name: str | None
    place: str
    since: int
    order: int = 0
    drawn: bool = False
    topic_frames: bool = False

    @property
    def endpoint(self) -> str:
        """What a sender names that wants this connection of the session, and no later one."""
        return str(self.info.get("endpointEpoch") or f"{self.since}-{abs(self.number)}")

    @property
    def name(self) -> str:
        """By which it is addressed, in lower case; empty without one."""
        return str(self.info.get("name") or "").lower()

    @property
    def elsewhere(self) -> bool:
        """It speaks lines: others have its connection, and look after its inbox."""
        return self.dialect == NDJSON

    @property
    def identity(self) -> Identity:
        """By what it would be known again."""
        return (
            Identity() if self.info.get("runtimeFallbackAlias") else Identity(self.name, self.place)
        )


class Absent(msgspec.Struct):
    """A session that left.

    :ivar name: in lower case, a runtime's alias, too. :ivar left: when, epoch ms.
    :ivar drawn: its id was drawn by the hub.
    :ivar elsewhere: it spoke lines: others look after its inbox.
    """

    key: Key
    name: str
    identity: Identity
    left: int
    drawn: bool = False
    elsewhere: bool = False


class Known(msgspec.Struct, frozen=True):
    """What is written down of a session, so that a later hub knows it.

    :ivar explicit: its name was not a runtime's alias. :ivar left: None: it is here.
    :ivar elsewhere: it speaks lines: others look after its inbox.
    """

    id: str
    scope: str | None = None
    name: str = ""
    explicit: bool = False
    place: str = ""
    left: int | None = None
    drawn: bool = False
    elsewhere: bool = False

    def absent(self, now: int) -> Absent:
        """The session as a hub knows it that begins now: it is not here."""
        identity = Identity(self.name if self.explicit else "", self.place)
        left = now if self.left is None else min(self.left, now)
        key = Key(self.scope, self.id)
        return Absent(key, self.name, identity, left, self.drawn, self.elsewhere)


def _absent(one: Session, now: int) -> Absent:
    return Absent(one.key, one.name, one.identity, now, one.drawn, one.elsewhere)


def _known(one: Session | Absent, left: int | None) -> Known:
    explicit, place = bool(one.identity.name), one.identity.place
    drawn, elsewhere = one.drawn, one.elsewhere
    return Known(one.key.id, one.key.scope, one.name, explicit, place, left, drawn, elsewhere)


class Directory:
    """Sessions by key and by connection, in order of registration; replacements keep theirs."""

    def __init__(self) -> None:
        self._sessions: dict[Key, Session] = {}
        self._residents: dict[Key, Session] = {}  # those whose connections are ours
        self._absent: dict[Key, Absent] = {}
        self._keys: dict[int, Key] = {}
        self._order = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def count(self, dialect: Dialect) -> int:
        """How many sessions of a dialect are connected."""
        return sum(one.dialect == dialect for one in self._sessions.values())

    def get(self, key: Key) -> Session | None:
        """The connected session of this key."""
        return self._sessions.get(key)

    def absent(self, key: Key) -> Absent | None:
        """The session of this key that left."""
        return self._absent.get(key)

    def is_elsewhere(self, key: Key) -> bool:
        """Whether it is, or was, a session that others look after."""
        known = self._sessions.get(key) or self._absent.get(key)
        return known is not None and known.elsewhere

    def holder(self, number: int) -> Session | None:
        """The session that a connection speaks for; None if it has none, or was replaced."""
        key = self._keys.get(number)
        session = self._sessions.get(key) if key is not None else None
        return session if session is not None and session.number == number else None

    def everybody(self) -> Iterable[Session]:
        """All connected sessions."""
        return list(self._sessions.values())

    def of(self, scope: str | None) -> list[Session]:
        """The connected sessions of a scope."""
        return [one for one in self._sessions.values() if one.key.scope == scope]

    def residents(self, scope: str | None) -> list[Session]:
        """Those of them that are not elsewhere; of the others there may be thousands."""
        return [one for one in self._residents.values() if one.key.scope == scope]

    def join(self, session: Session) -> None:
        """A session registered; it takes the place of one with the same key."""
        previous = self._sessions.get(session.key)
        if previous is None:
            self._order += 1
            session.order = self._order
        else:
            session.order = previous.order
            session.drawn = previous.drawn
        left = self._absent.pop(session.key, None)
        was_drawn = left is not None and left.drawn and not session.elsewhere
        session.drawn = session.drawn or was_drawn
        self._sessions[session.key] = session
        if not session.elsewhere:
            self._residents[session.key] = session
        self._keys[session.number] = session.key

    def leave(self, number: int, now: int) -> Session | None:
        """A connection speaks for nobody any more; the session that it was, if it still was it."""
        session = self.holder(number)
        self._keys.pop(number, None)
        if session is not None:
            del self._sessions[session.key]
            self._residents.pop(session.key, None)
            self.remember(_absent(session, now))
        return session

    def remember(self, absent: Absent) -> None:
        """Somebody is known who is not here; nothing changes if it is."""
        if absent.key in self._sessions:
            return
        self._absent.pop(absent.key, None)
        self._absent[absent.key] = absent

    def prune(self, now: int) -> list[Absent]:
        """Forget who left too long ago; those."""
        old = [one for one in self._absent.values() if now - one.left > ABSENT_MS]
        surplus = len(self._absent) - len(old) - MAX_ABSENT
        for one in old:
            del self._absent[one.key]
        for key in list(self._absent)[: max(0, surplus)]:
            del self._absent[key]  # only its name is forgotten, not its mail
        return old

    def roll(self) -> list[Known]:
        """Who is known, here or not, as it is written down."""
        gone = [_known(one, one.left) for one in self._absent.values()]
        return gone + [_known(one, None) for one in self._sessions.values()]

    # -- addresses

    def find(self, to: str, scope: str | None, prefixes: bool = True) -> list[Session]:
        """Whom an address means: an id, else all of that name, else all ids that begin so.

        :param prefixes: False: the beginning of an id is no address (subagents).
        """
        by_id = self._sessions.get(Key(scope, to))
        if by_id is not None:
            return [by_id]
        here = self.of(scope)
        named = [one for one in here if "name" in one.info and one.name == to.lower()]
        if named or not prefixes:
            return named
        return [one for one in here if one.key.id.startswith(to)]

    def find_absent(self, to: str, scope: str | None) -> list[Absent]:
        """The same among those who left."""
        by_id = self._absent.get(Key(scope, to))
        if by_id is not None:
            return [by_id]
        gone = [one for one in self._absent.values() if one.key.scope == scope]
        named = [one for one in gone if one.name and one.name == to.lower()]
        return named or [one for one in gone if one.key.id.startswith(to)]

    def namesakes(self, scope: str | None, identity: Identity) -> list[Session]:
        """Who is here with an explicit name and directory like these."""
        return [one for one in self.of(scope) if identity.matches(one.identity)]

    def heir(self, absent: Absent, sender: Key) -> Session | None:
        """The one session that is what another was; never the sender itself."""
        found = [
            one for one in self.namesakes(absent.key.scope, absent.identity) if one.key != sender
        ]
        return found[0] if len(found) == 1 else None
