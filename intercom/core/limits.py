"""How fast a connection may speak, and how many may wait without having spoken. Pure.

Neither loses a message: who is too fast is read from more slowly, and who is turned away
has said nothing.
"""

from __future__ import annotations

from intercom.core.session import Link
from intercom.messages import Fault
from intercom.settings.limits import DEFAULTS, Limits

#: So many seconds' worth may be said at once.
BURST_S = 2.0
#: What waits is let go on in portions of about so many seconds.
PORTION_S = 0.05
#: No pause is shorter, and so much of a line is taken for a whole one: sums of fractions are
#: not exact.
_SHORTEST_S = 0.001
_SLACK = 1e-6
#: Seconds in which a connection over TCP shows the channel's key, its whole first line.
KEY_WITHIN_S = 5.0
#: A connection is thought silent only after the hub has come round so many times: what it
#: said at once may lie in the kernel while the hub is busy, or stopped.
ROUNDS = 2


def too_many() -> Fault:
    """What a connection is told that is one too many."""
    text = "this hub has as many connections as it can serve; end some, or try again later"
    return Fault(None, "TOO_MANY_SESSIONS", text)


class Pace:
    """How much one connection may say now: two buckets that fill with time.

    :param lines: a second; :param octets: a second.
    :param now: seconds of any monotonic clock, as everywhere here.
    """

    __slots__ = ("_line_rate", "_lines", "_octet_rate", "_octets", "_then")

    def __init__(self, lines: float, octets: float, now: float) -> None:
        self._line_rate = lines
        self._octet_rate = octets
        self._lines = lines * BURST_S
        self._octets = octets * BURST_S
        self._then = now

    def take(self, lines: int, octets: int) -> bool:
        """Whether all of these may be said, even if no time had passed; then they are counted.

        If not, :meth:`admit` knows what the time has brought.
        """
        if lines > self._lines or octets > self._octets:
            return False
        self._lines -= lines
        self._octets -= octets
        return True

    def admit(self, lines: int, octets: int, now: float) -> int:
        """How many of so many lines may go on now; all of the octets have been read already.

        Each line is asked for until it was admitted, octets are told once.
        """
        passed, self._then = now - self._then, now
        self._lines = min(self._lines + passed * self._line_rate, self._line_rate * BURST_S)
        full = self._octet_rate * BURST_S
        self._octets = min(self._octets + passed * self._octet_rate, full) - octets
        if self._lines >= lines:
            self._lines -= lines
            return lines
        allowed = int(self._lines + _SLACK)
        self._lines = max(0.0, self._lines - allowed)
        return allowed

    @property
    def owes(self) -> bool:
        """Whether more octets were read than might be said."""
        return self._octets < 0

    def pause(self, waiting: int) -> float:
        """Seconds until some of the ``waiting`` lines may go on, and the octets are paid for."""
        pause = max(_SHORTEST_S, -self._octets / self._octet_rate)
        if waiting:
            portion = min(waiting, max(1.0, self._line_rate * PORTION_S))
            pause = max(pause, (portion - self._lines) / self._line_rate)
        return pause


class _Waiting:
    """One of the lobby.

    :ivar rounds: how often the hub came round since it arrived, or last said something.
    :ivar begun: a part of its first line is here; ``spoke``: it has said something.
    :ivar locked: its first line must be the channel's key.
    """

    __slots__ = ("begun", "link", "locked", "rounds", "spoke")

    def __init__(self, link: Link, locked: bool, spoke: bool) -> None:
        self.link = link
        self.locked = locked
        self.rounds = 0
        self.begun = False
        self.spoke = spoke


class Lobby:
    """The connections that speak for no session (yet, or any more), the oldest first.

    One that never says anything is sent away after a while. Over a number of them, those that
    were silent for longest make room; a storm of newcomers that have only just arrived is none
    of them, and never turned away for it.
    """

    def __init__(self, limits: Limits = DEFAULTS) -> None:
        self._limits = limits
        self._waiting: dict[int, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, link: Link, *, locked: bool = False, spoke: bool = False) -> None:
        """It arrived, or (``spoke``) it had a session and gave it back."""
        self._waiting[link.number] = _Waiting(link, locked, spoke)

    def leave(self, number: int) -> None:
        """It speaks for a session now, or is gone. Idempotent."""
        self._waiting.pop(number, None)

    def heard(self, number: int) -> None:
        """It said something, though not who it is."""
        one = self._waiting.get(number)
        if one is not None:
            one.rounds, one.spoke = 0, True

    def begun(self, number: int) -> None:
        """A part of its first line is here."""
        one = self._waiting.get(number)
        if one is not None:
            one.begun = True

    def surplus(self) -> list[tuple[Link, Fault]]:
        """Who makes room for the others, with what it is told."""
        most = self._limits.unregistered
        over = len(self._waiting) - most
        if over <= 0:
            return []
        text = (
            f"more than {most} connections have not said who they are, and this one has been "
            f"silent for longest; connect again, and register at once"
        )
        silent = [one.link for one in self._waiting.values() if one.rounds >= ROUNDS]
        return [(link, Fault(None, "TOO_MANY_SESSIONS", text)) for link in silent[:over]]

    def overdue(self, now: float) -> list[tuple[Link, Fault]]:
        """Who has taken too long for its first line; call it about once a second."""
        late = []
        for one in self._waiting.values():
            one.rounds += 1
            if now - one.link.opened >= self._patience(one):
                what = "the first line did not end" if one.begun else "nothing was said"
                text = f"{what} in time; connect again, and register at once"
                late.append((one.link, Fault(None, "TOO_MANY_SESSIONS", text)))
        return late

    def _patience(self, one: _Waiting) -> float:
        """Seconds from its arrival for which one may wait."""
        if one.locked and not one.spoke:
            return KEY_WITHIN_S
        if one.spoke or one.rounds < ROUNDS:
            return float("inf")
        return self._limits.line_within if one.begun else self._limits.register_within
