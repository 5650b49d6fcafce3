"""Between the sessions of pi clients and those that speak lines: one mesh.

What is stored meets in the inboxes. Here each side learns who is on the other, and what became
of what it wrote there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from intercom.core import effects as core_fx
from intercom.core.bus import effects as fx
from intercom.core.bus.broker import Broker
from intercom.hub.pi.members import Members
from intercom.interfaces import IRouter
from intercom.records import Moved, Written


class Bridge:
    """One for each bus.

    :param feed: gives the broker one input, with the time, and performs what it answers.
    :ivar members: the sessions of pi clients, as the hub's own core sees them.
    """

    def __init__(
        self,
        broker: Broker,
        feed: Callable[..., None],
        now: Callable[[], int],
    ) -> None:
        self.members = Members(broker, now)
        self._broker = broker
        self._feed = feed
        self._core: IRouter | None = None
        self._tell: Callable[..., None]

    def meet(self, core: IRouter, tell: Callable[..., None]) -> None:
        """Get to know the hub beside which the bus runs.

        :param tell: gives its core one input, with the time, and performs what it answers.
        """
        self._core, self._tell = core, tell
        self._broker.claimed_by(core.claims)

    # -- what the hub's core says

    def performers(self) -> dict[Any, Callable[[Any], None]]:
        """Who performs the effects of the hub's core that concern the other side."""
        return {
            core_fx.MemberJoined: self._joined,
            core_fx.MemberLeft: lambda one: self._feed(self._broker.left_elsewhere, one.session),
            core_fx.TakeBack: lambda back: self._feed(self._broker.cancelled_elsewhere, back),
        }

    def _joined(self, one: core_fx.MemberJoined) -> None:
        info: dict[str, Any] = {"name": one.session}
        if one.pid is not None:
            info["pid"] = one.pid
        self._feed(self._broker.joined_elsewhere, one.session, info)

    def moved(self, moves: Sequence[Moved]) -> None:
        """See :meth:`ISpoolListener.moved`."""
        self._feed(self._broker.moved, moves)

    def listen_to(self, written: Written) -> None:
        """Asks and answers between sessions that speak lines are the broker's to keep, too."""
        line = written.record.line
        answers = self._broker.asks_pending and b'"reply_to":null' not in line
        if answers or b'"expects_reply"' in line:
            self._feed(self._broker.line_stored, written.inbox, line)

    # -- what the broker says

    def changed(self) -> None:
        """The sessions of pi clients are others, or called otherwise."""
        if self._core is not None:
            self._tell(self._core.elsewhere_changed)

    def took_back(self, effect: fx.TookBack) -> None:
        """It was, or it was not: then its receiver may be one of ours."""
        if self._core is not None:
            self._tell(self._core.taken_back, effect.back, effect.found)

    def notice(self, effect: fx.Notice) -> None:
        """Something is to be told to one of ours."""
        if self._core is not None:
            said = (effect.session, effect.text, effect.about, effect.details)
            self._tell(self._core.notice, *said)

    def pushed(self, effect: fx.Pushed) -> None:
        """A line was written to one of them."""
        if self._core is not None:
            place = (effect.inbox, effect.generation, effect.start, effect.end)
            self._tell(self._core.pushed_elsewhere, *place)
