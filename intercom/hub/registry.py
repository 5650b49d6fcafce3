"""What a hub publishes beside the inboxes, and the secrets that sessions keep there."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence

from twisted.internet.defer import Deferred, succeed
from twisted.logger import Logger
from zope.interface import implementer

from intercom import __version__
from intercom.errors import UnsafePlace
from intercom.hub.guard import Guard
from intercom.interfaces import IRegistry, IWorker
from intercom.paths import ChannelPaths, read_private, write_atomic
from intercom.records import Receiver


@implementer(IRegistry)
class FileRegistry:
    """``peers.json`` and the token files of one channel.

    ``peers.json`` has the original hub's four fields (``channel``, ``hub_pid``,
    ``active_sessions``, ``updated_at``), and ours: ``version`` and ``started``.

    :param worker: does all file work, in the order of the calls; the caller ends it.
    :param paths: the channel.
    :param pid: this hub's process id, published for people.
    :param now: epoch seconds, for the times published.
    """

    _log = Logger()

    def __init__(
        self, worker: IWorker, paths: ChannelPaths, pid: int, now: Callable[[], float]
    ) -> None:
        self._worker = worker
        self._paths = paths
        self._pid = pid
        self._now = now
        self._started = now()
        self._withdrawn = False
        self._guard = Guard(paths)

    def publish(self, sessions: Sequence[str]) -> Deferred[None]:
        """See :meth:`IRegistry.publish`."""
        if self._withdrawn:
            return succeed(None)
        return self._worker.do(self._write, list(sessions), self._now())

    def guard(self, receivers: Sequence[Receiver]) -> Deferred[None]:
        """See :meth:`IRegistry.guard`."""
        if self._withdrawn:
            return succeed(None)
        return self._worker.do(self._guard.keep, list(receivers), self._now())

    def token(self, session: str) -> Deferred[str | None]:
        """See :meth:`IRegistry.token`; an unsafe file is logged."""
        return self._worker.do(self._read_token, session)

    def withdraw(self) -> Deferred[None]:
        """See :meth:`IRegistry.withdraw`; what a successor has published is left alone."""
        if self._withdrawn:
            return succeed(None)
        self._withdrawn = True
        return self._worker.do(self._remove_own)

    def _write(self, sessions: list[str], now: float) -> None:
        self._guard.only(sessions)  # at once: whoever polls now finds the turn free
        text = {
            "channel": self._paths.name,
            "hub_pid": self._pid,
            "active_sessions": sessions,
            "updated_at": now,
            "version": __version__,
            "started": self._started,
        }
        write_atomic(self._paths.peers, json.dumps(text).encode())

    def _read_token(self, session: str) -> str | None:
        try:
            data = read_private(self._paths.token(session))
            return data.decode().strip() or None if data is not None else None
        except (UnsafePlace, OSError, UnicodeDecodeError) as error:
            self._log.warn(
                "no trust in the token of {session}: {reason}", session=session, reason=str(error)
            )
            return None

    def _remove_own(self) -> None:
        self._guard.close()
        try:
            found = json.loads(read_private(self._paths.peers) or b"null")
        except (UnsafePlace, OSError, ValueError, RecursionError):
            return
        if (
            isinstance(found, dict)
            and found.get("hub_pid") == self._pid
            and found.get("started") == self._started
        ):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._paths.peers)


@implementer(IRegistry)
class MemoryRegistry:
    """A channel's registry in memory.

    :ivar sessions: what is published now, None for nothing.
    :ivar guarded: for whom reader locks would be held.
    :ivar tokens: the secret of each session that has one; fill it as you like.
    """

    def __init__(self) -> None:
        self.sessions: tuple[str, ...] | None = None
        self.guarded: tuple[Receiver, ...] = ()
        self.tokens: dict[str, str] = {}
        self._withdrawn = False

    def publish(self, sessions: Sequence[str]) -> Deferred[None]:
        """See :meth:`IRegistry.publish`."""
        if not self._withdrawn:
            self.sessions = tuple(sessions)
            self.guarded = tuple(one for one in self.guarded if one.session in self.sessions)
        return succeed(None)

    def guard(self, receivers: Sequence[Receiver]) -> Deferred[None]:
        """See :meth:`IRegistry.guard`."""
        if not self._withdrawn:
            self.guarded = tuple(receivers)
        return succeed(None)

    def token(self, session: str) -> Deferred[str | None]:
        """See :meth:`IRegistry.token`."""
        return succeed(self.tokens.get(session))

    def withdraw(self) -> Deferred[None]:
        """See :meth:`IRegistry.withdraw`."""
        self.sessions, self.guarded = None, ()
        self._withdrawn = True
        return succeed(None)
