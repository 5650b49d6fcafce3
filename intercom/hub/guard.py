"""The locks of those who read through the hub and hold none themselves. Blocking.

A client of the original mesh, or a program that embeds one of ours, shows messages as they
are pushed, and knows nothing of reader and turn locks (:mod:`intercom.spool.turns`). The hub
holds both for it, so that others see that somebody reads. Our own ``listen`` has taken its
turn before it connects: there is nothing to hold for it, and nothing in its way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from typing import NamedTuple

from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.records import Receiver
from intercom.spool import turns


class _Held(NamedTuple):
    turn: turns.Turn
    reader: turns.Reader

    def close(self) -> None:
        self.turn.close()
        self.reader.close()


class Guard:
    """Holds locks for receivers of one channel. For one thread; never waits for a lock."""

    def __init__(self, paths: ChannelPaths) -> None:
        self._paths = paths
        self._held: dict[str, _Held] = {}

    def keep(self, receivers: Sequence[Receiver], now: float) -> None:
        """Hold the locks of these whose turn nobody has, and let go of all others.

        One whose turn was taken over meanwhile is theirs who took it.

        :param now: epoch seconds.
        """
        self.only([receiver.session for receiver in receivers])
        for session, pid in receivers:
            held = self._held.get(session)
            if held is not None and not _is_ours(held.turn):
                self._held.pop(session).close()
                held = None
            if held is None:
                self._take(session, turns.Holder(pid, turns.STEWARD, now))

    def only(self, sessions: Collection[str]) -> None:
        """Let go of what is held for sessions that are not among these."""
        names = set(sessions)
        for session in [name for name in self._held if name not in names]:
            self._held.pop(session).close()

    def close(self) -> None:
        """Let go of everything. Idempotent."""
        self.only(())

    def _take(self, session: str, holder: turns.Holder) -> None:
        # Names that cannot be a file's, or are not ours: nothing is held for them.
        with contextlib.suppress(IntercomError, OSError):
            turn = turns.take(self._paths, session, holder, patience=0.0)
            if turn is not None:
                reader = turns.attend(self._paths, session, holder, patience=0.0)
                self._held[session] = _Held(turn, reader)


def _is_ours(turn: turns.Turn) -> bool:
    """Whether nobody has taken the turn over."""
    with contextlib.suppress(IntercomError):
        turn.check()
        return True
    return False
