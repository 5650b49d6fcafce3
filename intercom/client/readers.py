"""Reading a session's messages, one at a time: for commands. Standard library only.

The locks themselves are in :mod:`intercom.spool.turns`, which the hub uses, too.
"""

from __future__ import annotations

import os

from intercom.errors import IntercomError
from intercom.paths import ChannelPaths
from intercom.spool import turns
from intercom.spool.turns import Holder
from intercom.tuples import TYPE_CHECKING
from intercom.wire.envelope import format_timestamp

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any

    from intercom.client.parent import Parent

#: Seconds for which a ``listen`` waits for a turn: a ``poll`` has it for moments.
LISTEN_PATIENCE = 2.0


class Seat:
    """A place among a session's readers, and in its time the turn.

    As a context it ends with both given back. Not for several threads.

    :param program: what reads, for people: ``intercom poll``.
    :param now: epoch seconds.
    :param parent: who started us, where it matters whether it lives.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        session: str,
        program: str,
        now: float,
        parent: Parent | None = None,
    ) -> None:
        self._paths = paths
        self._session = session
        self._holder = Holder(os.getpid(), program, now)
        self._reader = turns.attend(paths, session, self._holder)
        self._turn: turns.Turn | None = None
        self._parent = parent

    def __enter__(self) -> Seat:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def take(self, patience: float = turns.PROBES) -> Holder | None:
        """Take the turn, waiting so many seconds for it.

        :return: None if it is ours now, else who has it.
        """
        if self._turn is None:
            self._turn = turns.take(self._paths, self._session, self._holder, patience)
        if self._turn is not None:
            return None
        # Between the two looks it may have become free: then nobody can be named.
        return turns.turn_of(self._paths, self._session) or Holder()

    def take_for_long(self, *, takeover: bool, patience: float = LISTEN_PATIENCE) -> None:
        """Take the turn to keep it.

        :param takeover: from whoever has it, even a stopped process.
        :raise IntercomError: ``SESSION_COLLISION``, saying who has it.
        """
        if takeover and self._turn is None:
            self._turn = turns.seize(self._paths, self._session, self._holder)
            return
        other = self.take(patience)
        if other is not None:
            raise collision(self._paths, self._session, other)

    def give_back(self) -> None:
        """Let others read; whoever wants to read again takes the turn again. Idempotent."""
        if self._turn is not None:
            self._turn.close()
            self._turn = None

    def check(self) -> None:
        """Make sure that the turn is still ours: to commit, under the inbox's lock.

        :raise IntercomError: ``TAKEN_OVER``.
        """
        if self._turn is not None:
            self._turn.check()

    def check_to_show(self) -> None:
        """Make sure that the turn is still ours, and that there is somebody who would see.

        :raise IntercomError: ``TAKEN_OVER``.
        :raise Orphaned: the program that started us has ended.
        """
        if self._parent is not None:
            self._parent.check()
        self.check()

    def close(self) -> None:
        """Leave. Idempotent."""
        self.give_back()
        self._reader.close()


def collision(paths: ChannelPaths, session: str, other: Holder) -> IntercomError:
    """The refusal of a second reader that would stay."""
    import shlex  # seldom needed, and not for nothing

    again = f"{paths.command} listen --takeover {shlex.join(['--session', session])}"
    return IntercomError(
        f"{session!r} is read by {described(other)}",
        code="SESSION_COLLISION",
        remedy=f"end that one, listen as another --session NAME, or take it over, even if it "
        f"is stopped: {again}",
        details={"session": session, "reading": fields(other)},
    )


def described(holder: Holder) -> str:
    """A reader in words."""
    return f"process {holder.pid} ({holder.program})" if holder.pid else holder.program


def fields(holder: Holder) -> dict[str, Any]:
    """A reader for programs."""
    since = None if holder.since is None else format_timestamp(holder.since)
    return {"pid": holder.pid, "program": holder.program, "since": since}
