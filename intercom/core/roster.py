"""Who is here, who was here, and who listens without being connected.

Three kinds of presence: a session is *held* by the one connection that receives
for it; it may also have *sending* connections; and a session that has no
connection at all is still *reading* if its position moved within half an hour,
since agents that poll are as present as agents that listen.
"""

from __future__ import annotations

from collections.abc import Iterator

from intercom.core.elsewhere import Elsewhere, Nobody
from intercom.core.session import Link
from intercom.messages import MemberRow, SessionRow
from intercom.names import nearest
from intercom.records import Receiver

#: A session that read or polled within this many seconds still gets broadcasts.
READING_WINDOW_S = 1800.0
#: The original client's ``send`` registers as a receiver would, yet is gone sooner than this.
SETTLED_S = 1.0
#: Names remembered for "did you mean" and for ``known``; beyond it the files are asked.
MAX_KNOWN = 100_000


class Roster:
    """The sessions of one channel. Times are the core's ``now``.

    :ivar elsewhere: those of other dialects, which are here, too, and held by others.
    """

    def __init__(self, elsewhere: Elsewhere | None = None) -> None:
        self.elsewhere = elsewhere or Nobody()
        self._holders: dict[str, Link] = {}
        self._known: dict[str, float | None] = {}

    def holder(self, session: str) -> Link | None:
        """The connection that holds or is claiming this id."""
        return self._holders.get(session)

    def hold(self, session: str, link: Link) -> None:
        """Reserve the id for ``link``; whoever asks from now on collides with it."""
        self._holders[session] = link

    def let_go(self, session: str, link: Link, now: float) -> bool:
        """End ``link``'s hold; return False if another had taken over already."""
        if self._holders.get(session) is not link:
            return False
        del self._holders[session]
        if link.feed is not None and link.feed.cursor:
            self._known[session] = now
        return True

    def is_known(self, session: str) -> bool:
        """Whether the core itself knows that this id was ever used; if not, ask the files."""
        return session in self._holders or session in self._known or self.elsewhere.holds(session)

    def is_here(self, session: str) -> bool:
        """Whether somebody receives as this session, or is about to."""
        return session in self._holders or self.elsewhere.holds(session)

    def address(self, name: str) -> str:
        """The session that a sender means: of this id, else the only one that is called so."""
        if self.is_known(name):
            return name
        return self.elsewhere.find(name) or name

    def has_room_for(self, session: str, most: int) -> bool:
        """Whether an id is known, or may be the last of so many that are."""
        if self.is_known(session):
            return True
        if len(self._known) + len(self._holders) < most:
            return True
        return len(self._known.keys() | self._holders.keys()) < most

    def saw(self, session: str, read_at: float | None) -> bool:
        """Note that an id is in use, and when it last read (None: not known to have).

        :return: True if the id is new to us.
        """
        new = session not in self._known
        before = self._known.get(session)
        if read_at is None or (before is not None and before > read_at):
            read_at = before
        if not new or len(self._known) < MAX_KNOWN:
            self._known[session] = read_at
        return new

    def forget(self, session: str) -> None:
        """Know an id no longer; one that is held stays."""
        self._known.pop(session, None)

    def nearest(self, name: str, more: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Known names most like ``name``."""
        return tuple(nearest(name, {*self._known, *self._holders, *more}))

    def present(self) -> Iterator[tuple[str, Link]]:
        """Held sessions with their connections, in order of arrival."""
        return ((name, link) for name, link in self._holders.items() if link.session is not None)

    def held_names(self) -> tuple[str, ...]:
        """Ids held or being claimed, sorted: what ``peers.json`` shows."""
        others = self.elsewhere.names()
        return tuple(sorted({*self._holders, *others} if others else self._holders))

    def takes_pushes(self, session: str) -> bool:
        """Whether a session is connected and taking what it is pushed."""
        holder = self._holders.get(session)
        if holder is None:
            return self.elsewhere.holds(session)
        return holder.feed is not None and holder.feed.live

    def others(self, session: str) -> tuple[str, ...]:
        """Ids of everybody present but ``session``, sorted."""
        present = self._holders.items()
        names = {name for name, link in present if link.session is not None and name != session}
        return tuple(sorted(names.union(self.elsewhere.names()) - {session}))

    def audience(self, sender: str, now: float) -> list[str]:
        """Who gets a broadcast: the present and the recently reading, but its sender."""
        names = {name for name, _link in self.present()}
        names.update(self.elsewhere.names())
        names.update(
            name
            for name, read_at in self._known.items()
            if read_at is not None and now - read_at <= READING_WINDOW_S
        )
        names.discard(sender)
        return sorted(names)

    def rows(self, now: float) -> tuple[SessionRow | MemberRow, ...]:
        """The present, as a listing shows them."""
        rows = self._own_rows(now)
        return rows + self.elsewhere.members()

    def _own_rows(self, now: float) -> tuple[SessionRow | MemberRow, ...]:
        return tuple(
            SessionRow(
                session=name,
                since=round(now - link.since, 3),
                features=tuple(sorted(link.features)),
                uid=link.credentials.uid,
                pid=link.credentials.pid,
            )
            for name, link in sorted(self.present())
        )

    def receivers(self, now: float) -> list[Receiver]:
        """The present that have been so for a while; see :meth:`IRouter.receivers`."""
        own = [
            Receiver(name, link.credentials.pid)
            for name, link in self.present()
            if now - link.since >= SETTLED_S and "turns" not in link.features
        ]
        return own + [Receiver(one.session, one.pid) for one in self.elsewhere.members()]

    def absent(self) -> tuple[str, ...]:
        """Known ids that nobody holds, sorted."""
        here = {*self._holders, *self.elsewhere.names()}
        return tuple(sorted(name for name in self._known if name not in here))
