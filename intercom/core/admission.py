"""Who may speak for a session: claims, collisions, tokens, take-overs.

A claim of a free id is granted. An id that a live connection holds can be
joined (``role: sender``) or taken over only with the session's token, and only
if that connection showed the token too, so that one held by an original client,
which knows no tokens, cannot be stolen. Decisions that need the token or a published
list wait for the shell (:class:`~intercom.core.effects.Admit`).
"""

from __future__ import annotations

import hmac
from functools import lru_cache

from intercom.core.effects import (
    Admit,
    Answer,
    Close,
    Drop,
    Effect,
    EnrolSession,
    MemberJoined,
    MemberLeft,
    Note,
    PublishPeers,
)
from intercom.core.feeds import Feed
from intercom.core.roster import Roster
from intercom.core.routing import feed_news
from intercom.core.session import Link
from intercom.messages import FEATURES, Auth, Fault, Message, Register, Welcome
from intercom.names import ANONYMOUS, check_session
from intercom.settings.limits import DEFAULTS


@lru_cache(maxsize=256)
def _granted(asked: tuple[str, ...]) -> frozenset[str]:
    """What is granted of the features asked for; one object for all who ask the same."""
    return frozenset(FEATURES).intersection(asked)


class Admission:
    """Decides claims and ends them.

    :param roster: shared with the hub.
    :param key: what connections over TCP must show; None lets none of them in.
    :param most: sessions that the channel may know.
    """

    def __init__(self, roster: Roster, key: str | None, most: int = DEFAULTS.session_limit) -> None:
        self._roster = roster
        self._key = key
        self._most = most

    def unlock(self, link: Link, message: Message) -> list[Effect]:
        """First line over TCP: the key, or the door."""
        shown = message.key if isinstance(message, Auth) else None
        if (
            shown is not None
            and self._key is not None
            and hmac.compare_digest(shown.encode(), self._key.encode())
        ):
            link.life.unlock()
            return []
        return self.no_key(link)

    def no_key(self, link: Link) -> list[Effect]:
        """Nothing more is read from a stranger: a web page's request executes nothing."""
        text = "the first line must be of type auth and carry the channel's key"
        fault = Fault(None, "UNAUTHORIZED", text)
        link.life.refuse(fault)
        return [
            Answer(link.number, fault),
            Drop(link.number, "no key"),
            Note("unauthorized", {"connection": link.number}),
        ]

    def claim(self, link: Link, register: Register) -> list[Effect]:
        """A line claims an id for ``link``; its decoder has checked the id's grammar."""
        session = check_session(register.speaker if register.speaker is not None else ANONYMOUS)
        if self._roster.elsewhere.holds(session):
            return self.refuse(link, self._another_kind(session, register))
        holder = self._roster.holder(session)
        asks_token = register.token is not None
        taken = holder is not None and not (register.takeover or _gives_way(holder, register))
        taken = taken and register.role != "sender"
        if taken or (not asks_token and (register.role == "sender" or holder is not None)):
            return self.refuse(link, self._collision(session, register))
        if holder is None and not self._roster.has_room_for(session, self._most):
            return self.refuse(link, self._too_many(session, register))
        link.life.claim(register)
        link.claimed = session
        publish = None
        if register.role != "sender" and holder is None:
            self._roster.hold(session, link)
            publish = self._roster.held_names()
        return [Admit(link.number, session if asks_token else None, publish)]

    def admit(self, link: Link, token: str | None, now: float) -> list[Effect]:
        """The shell has read the token and published who is here: grant the claim or refuse it."""
        register, session = link.register, link.claimed
        assert register is not None
        assert session is not None
        link.proven = (
            register.token is not None
            and token is not None
            and hmac.compare_digest(register.token.encode(), token.encode())
        )
        holder = self._roster.holder(session)
        mine = holder is link
        sender = register.role == "sender"
        if register.token is not None and token is not None and not link.proven:
            fault = Fault(
                session,
                "UNAUTHORIZED",
                f"the token shown is not that of session {session!r}; it lies in the channel's "
                f"directory, and the session's own commands read it there",
                register.id,
            )
            return self.refuse(link, fault, now)
        may_share = link.proven and (holder is None or mine or holder.proven)
        if (sender or not mine) and not may_share:
            return self.refuse(link, self._collision(session, register), now)
        effects: list[Effect] = []
        if not sender and not mine and holder is not None:
            effects += self._take_over(holder, session, link, now)
        elif not sender and holder is None:
            self._roster.hold(session, link)  # the one to be taken over had left meanwhile
            effects.append(PublishPeers(self._roster.held_names()))
        return effects + self._grant(link, session, register, now)

    def _grant(self, link: Link, session: str, register: Register, now: float) -> list[Effect]:
        """Welcome it; a receiver's pushes begin."""
        link.sending_only = register.role == "sender"
        link.features = _granted(register.features)
        link.since = now
        link.life.welcome()
        effects: list[Effect] = [self.welcome(link, register.id)]
        if not link.sending_only:
            if self._roster.saw(session, None):
                effects.append(EnrolSession(session))
            effects += self._start_feed(link, session)
            effects.append(MemberJoined(session, link.credentials.pid))
        effects.append(Note("registered", {"session": session, "role": register.role, **who(link)}))
        return effects

    def renew(self, link: Link, register: Register) -> list[Effect]:
        """The same id registers again on its connection: welcome, with what it asks for now."""
        assert link.session is not None
        if register.features:
            link.features = _granted(register.features)
        effects: list[Effect] = [self.welcome(link, register.id)]
        had_cursor = link.feed is not None and link.feed.cursor
        if not link.sending_only and had_cursor != ("cursor" in link.features):
            effects += self._start_feed(link, link.session)
        return effects

    def _start_feed(self, link: Link, session: str) -> list[Effect]:
        """Begin the pushes of a receiver; with a cursor, at its stored position."""
        link.feed = Feed(session, "cursor" in link.features)
        return feed_news(link)

    def welcome(self, link: Link, reply_to: str | None) -> Answer:
        """The first line of a session."""
        session = link.session or ANONYMOUS
        peers = self._roster.others(session)
        features = tuple(name for name in FEATURES if name in link.features)
        return Answer(link.number, Welcome(session, peers, features, reply_to))

    def leave(self, link: Link, now: float) -> list[Effect]:
        """``link`` speaks for its id no longer: set the id free."""
        session = link.claimed
        if session is None or not self._roster.let_go(session, link, now):
            return []
        return [
            PublishPeers(self._roster.held_names()),
            MemberLeft(session),
            Note("left", {"session": session, **who(link)}),
        ]

    def refuse(self, link: Link, fault: Fault, now: float = 0.0) -> list[Effect]:
        """``link`` may go no further: tell it why, close it, answer the rest of its input alike."""
        effects: list[Effect] = [Answer(link.number, fault), Close(link.number)]
        effects += self.leave(link, now)
        link.life.refuse(fault)
        effects.append(Note("refused", {"session": fault.session, "code": fault.code, **who(link)}))
        return effects

    def _take_over(self, holder: Link, session: str, link: Link, now: float) -> list[Effect]:
        """``link`` has shown the token and wants the id: the holder is told, and closed."""
        fault = Fault(
            session,
            "TAKEN_OVER",
            f"session {session!r} was taken over by another connection that showed its token",
        )
        effects: list[Effect] = [Answer(holder.number, fault), Close(holder.number)]
        self._roster.hold(session, link)
        holder.life.refuse(fault)
        holder.feed = None
        effects.append(Note("taken_over", {"session": session, **who(link)}))
        return effects

    def _another_kind(self, session: str, register: Register) -> Fault:
        text = f"session {session!r} is connected as a client of pi; choose another name"
        return Fault(session, "SESSION_COLLISION", text, register.id)

    def _too_many(self, session: str, register: Register) -> Fault:
        """Why no further session can be had."""
        text = (
            f"this channel knows {self._most} sessions and takes no more; use one of them, or "
            f"remove what is not needed (intercom cleanup, intercom name --help)"
        )
        return Fault(session, "TOO_MANY_SESSIONS", text, register.id)

    def _collision(self, session: str, register: Register) -> Fault:
        """Why the id cannot be had, and what would help."""
        holder = self._roster.holder(session)
        if holder is None:
            text = f"to send as {session!r} beside its session, show the session's token"
        elif register.role == "sender" and register.token is None:
            text = f"session {session!r} is connected; to send as it, show its token"
        elif register.role == "sender" or register.takeover:
            text = (
                f"session {session!r} is held by a connection that showed no token, "
                f"so it can be neither joined nor taken over"
                if not holder.proven
                else f"session {session!r} is held by another connection; show its token"
            )
        else:
            text = (
                f"session {session!r} is connected already; choose another name, "
                f"or take it over with its token (takeover)"
            )
        return Fault(session, "SESSION_COLLISION", text, register.id)


def _gives_way(holder: Link, register: Register) -> bool:
    """Whether one that is only present makes room for one that would show what comes."""
    return "turns" in holder.features and "turns" not in register.features


def misspoken(link: Link, message: Message) -> list[Effect]:
    """A connection speaks for its own id only."""
    if isinstance(message, Register):
        text = (
            f"this connection is registered as {link.session!r}; "
            f"unregister first, or open another for {message.speaker!r}"
        )
        return [Answer(link.number, Fault(link.session, "ALREADY_REGISTERED", text, message.id))]
    text = (
        f"this connection speaks for {link.session!r}, not for {message.speaker!r}; "
        f"the message was not sent"
    )
    return [
        Answer(link.number, Fault(link.session, "FROM_MISMATCH", text, message.id)),
        Note("from_mismatch", {"session": link.session, **who(link)}),
    ]


def who(link: Link) -> dict[str, int | None]:
    """Ids for the log."""
    return {
        "connection": link.number,
        "pid": link.credentials.pid,
        "uid": link.credentials.uid,
    }
