"""The tools put together: whose call it is, and what carries it out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock
from twisted.logger import Logger

from intercom.bridge import listing, reading, sending, words
from intercom.bridge.bell import Bell, Threads
from intercom.bridge.place import Place, Taken, caller_of, name_now, take_place
from intercom.bridge.server import Call, Host, Said
from intercom.bridge.session import Session
from intercom.errors import IntercomError

#: Seconds for which ``initialize`` waits for the session's name.
NAME_WITHIN = 0.4
#: Seconds between two looks whether a session is called so still.
LOOK_EVERY = 1.0
#: Sessions of one host; one of them is the rule.
MOST_SESSIONS = 32

_TOOLS: Mapping[str, Callable[[Session, Call], Awaitable[Said]]] = {
    "send": sending.send,
    "inbox": reading.inbox,
    "ask": sending.ask,
    "peers": listing.peers,
}


class Bridge:
    """What a host's calls reach: see :class:`intercom.bridge.server.Toolbox`.

    :param reactor: times, timers, sockets.
    """

    _log = Logger()

    def __init__(self, reactor: Any, threads: Threads, place: Place) -> None:
        self._reactor = reactor
        self._threads = threads
        self._place = place
        self._sessions: dict[str, Session] = {}
        self._opening = DeferredLock()
        self._news = Bell(reactor)
        self._closed = False

    async def opened(self, host: Host) -> str:
        """A host has begun: take the session's place, if it is known whose call this is."""
        if not self._place.waits(host.name):
            opening = Deferred.fromCoroutine(self._open_early())
            if not opening.called:
                await self._news.wait(NAME_WITHIN)
        session = self._sessions.get("")
        if session is None:
            return words.instructions()
        return words.instructions(session.name, session.paths.name)

    async def _open_early(self) -> None:
        """Take the place; what is in the way is said with the first call."""
        try:
            await self._session("")
        except (IntercomError, OSError):
            pass
        except Exception:
            self._log.failure("taking the session's place failed")
        finally:
            self._news.ring()

    async def call(self, name: str, call: Call) -> Said:
        """Carry out a call; what goes wrong is said in words, with what helps."""
        session = None
        try:
            session = await self._session(self._caller(call))
            return await _TOOLS[name](session, call)
        except IntercomError as error:
            text = words.failure(error)
        except OSError as error:
            text = words.of_system(error)
        return await _failure(session, text)

    async def refuse(self, call: Call, text: str) -> Said:
        """Say that a call makes no sense; the session's place is not taken for that."""
        error = IntercomError(text, code="BAD_ENVELOPE")
        return await _failure(self._sessions.get(self._caller(call)), words.failure(error))

    def _caller(self, call: Call) -> str:
        """Whose call it is, as far as that makes a difference."""
        return "" if self._place.is_named else caller_of(call.meta)

    def close(self) -> None:
        """Leave the channel. Idempotent."""
        self._closed = True
        for session in self._sessions.values():
            session.close()

    async def _session(self, caller: str) -> Session:
        """The session of a caller, whose place is taken if this is its first call.

        :raise IntercomError: it cannot be had; the next call tries again.
        """
        session = self._sessions.get(caller)
        if session is not None and not await self._is_renamed(session, caller):
            return session
        await self._opening.acquire()
        try:
            if self._sessions.get(caller) is session:
                taken = await self._threads.call(take_place, self._place, caller)
                if session is not None:
                    Deferred.fromCoroutine(session.retire())
                self._sessions[caller] = self._begin(taken)
            return self._sessions[caller]
        finally:
            self._opening.release()

    async def _is_renamed(self, session: Session, caller: str) -> bool:
        """Whether a caller is called otherwise by now; that is looked at now and then."""
        now = self._reactor.seconds()
        if now - session.looked_at < LOOK_EVERY:
            return False
        session.looked_at = now
        name = await self._threads.call(name_now, self._place, caller)
        return name is not None and name != session.name

    def _begin(self, taken: Taken) -> Session:
        """Be that session from now on.

        :raise IntercomError: the host has too many, or is gone.
        """
        if self._closed or len(self._sessions) >= MOST_SESSIONS:
            taken.close()
            raise IntercomError(
                f"one host has at most {MOST_SESSIONS} sessions",
                code="TOO_MANY_SESSIONS",
                remedy="start another intercom mcp",
            )
        session = Session(self._reactor, self._threads, taken, self._place.note)
        session.keeper.start()
        return session


async def _failure(session: Session | None, text: str) -> Said:
    """A result that says what went wrong, and what waits, if it is known for whom."""
    count = await session.unread() if session is not None else None
    return Said(words.with_unread(text, count), failed=True)
