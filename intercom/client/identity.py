"""Who speaks: each caller of a project has a name of its own, the same in every command.

The order in which it is decided: ``--session``, ``$INTERCOM_SESSION``, and then what the
project's map says of the caller (:mod:`intercom.client.callers`). A caller that is new
takes the oldest name whose caller is gone, else a further one. No name is taken that
is in use on the channel, or claimed there by another project. Standard library only.
"""

from __future__ import annotations

import os
import time

from intercom.client import claims
from intercom.client.callers import Caller, find_caller, in_words
from intercom.client.claims import Claim, Hold
from intercom.client.namebook import Name, Namebook, Shelf
from intercom.client.processes import Table
from intercom.client.speaking import Identity as Identity
from intercom.client.speaking import as_given, given
from intercom.client.tree import root_inode
from intercom.errors import CannotCreate
from intercom.names import check_chosen
from intercom.paths import ChannelPaths
from intercom.plain import cached_property, contextmanager, suppress
from intercom.spool.calls import FileCalls
from intercom.spool.known import is_known
from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: Seconds without a sign of a caller after which it counts as gone, where its end cannot be
#: seen: longer than a night, so that an agent finds its name in the morning.
IDLE = 16 * 3600.0
#: Seconds between two notes that a name is used.
REFRESH = 600.0
#: Seconds to wait for the map to do so.
REFRESH_WITHIN = 0.2
#: A project's further names are numbered up to this.
MOST_NUMBERED = 99
_LONGEST_BASE = 120


class Row(NamedTuple):
    """A name of the project, for a list.

    :ivar caller: whose it is, None if nobody's.
    :ivar gone: whether its caller is known, or after so long presumed, to be gone.
    :ivar live: whether the name is in use on the channel at this moment.
    """

    session: str
    caller: str | None
    gone: bool
    live: bool
    used_at: float


class Names:
    """The names that a project gives its callers on one channel.

    :param table: the processes that are to be seen.
    :param now: epoch seconds.
    """

    def __init__(
        self,
        paths: ChannelPaths,
        project: str,
        environ: Mapping[str, str],
        *,
        table: Table | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._paths = paths
        self._project = project
        self._environ = environ
        self._shelf = Shelf(project, environ)
        self._table = table or Table()
        self._now = now

    @cached_property
    def caller(self) -> Caller:
        """Who calls."""
        return find_caller(self._environ, self._table)

    def given(self, option: str | None) -> tuple[str, str] | None:
        """The name that somebody has said, and where; None if nobody has.

        :raise ProtocolError: ``BAD_SESSION_ID``.
        """
        return given(option, self._environ)

    def speaker(self, option: str | None = None) -> Identity:
        """Who speaks: the name that was given, else the caller's own, which may be a new one.

        :raise ProtocolError: ``BAD_SESSION_ID``.
        :raise BadConfig: the project's map cannot be used.
        :raise CannotCreate: map or claim cannot be written.
        """
        said = as_given(self._paths, option, self._environ)
        if said is not None:
            return said
        book = self._shelf.look()
        name = book.of(self.caller.key, self._paths.directory) if book else None
        if book is not None and name is not None:
            hold = self._use(book, name.session)
            if hold is not None:
                self._refresh(name)
                return self._identity(name.session, True, hold)
        with self._shelf.change() as book:
            return self._settle(book)

    def draw_another(self) -> Identity:
        """Give the caller a name that the project did not have."""
        with self._shelf.change() as book:
            former = book.of(self.caller.key, self._paths.directory)
            hold = self._draw(book)
            self._release_all(book)
            self._enter(book, hold.claim.session, None)
            return self._identity(hold.claim.session, False, hold, former)

    def claim(self, session: str) -> Identity:
        """Give the caller the name that it wants.

        :raise ProtocolError: ``BAD_SESSION_ID``.
        :raise IntercomError: ``SESSION_COLLISION``: it is in use, or another project's.
        """
        check_chosen(session)
        with self._shelf.change() as book:
            mine = book.of(self.caller.key, self._paths.directory)
            if mine is not None and mine.session == session:
                hold = self._use(book, session)
                if hold is None:
                    raise claims.refusal(self._paths, session, book.tree)
                return self._identity(session, True, hold)
            former = None if mine is None else mine.copy()
            wanted = book.find(session, self._paths.directory)
            self._check_free(book, session, wanted)
            hold = claims.take(self._paths, self._claim(book, session))
            if hold is None:
                raise claims.refusal(self._paths, session, book.tree)
            if book.base is None or (mine is not None and mine.session == book.base):
                book.base = session
            if wanted is not None:
                self._release_all(book)
                self._assign(wanted)
            elif mine is not None and mine in book.names:
                mine.session, mine.channel = session, None
                self._assign(mine)
            else:
                self._enter(book, session, None)
            return self._identity(session, False, hold, former)

    def rows(self) -> list[Row]:
        """All names of the project that are used on this channel, the oldest first."""
        book = self._shelf.look()
        if book is None:
            return []
        return [
            Row(one.session, one.caller, self._is_gone(one), self.is_live(one.session), one.used_at)
            for one in book.names + book.elsewhere
            if one.channel in (None, self._paths.directory)
        ]

    @contextmanager
    def without(self, session: str) -> Iterator[None]:
        """Take a name out of the project's map when the block has ended without an error.

        Until then nobody else is given a name of this project.
        """
        book = self._shelf.look()
        if book is None or book.find(session, self._paths.directory) is None:
            yield
            return
        with self._shelf.change() as book:
            yield
            here = (None, self._paths.directory)
            book.names = [
                one for one in book.names if one.session != session or one.channel not in here
            ]
            if not book.names:
                book.base = None

    def own(self) -> str | None:
        """The caller's name as the map has it, None if it has none yet."""
        book = self._shelf.look()
        name = book.of(self.caller.key, self._paths.directory) if book else None
        return name.session if name else None

    def has(self, session: str) -> bool:
        """Whether a name is in the project's map."""
        book = self._shelf.look()
        return book is not None and session in book.sessions()

    def is_live(self, session: str) -> bool:
        """Whether somebody speaks as this session at this moment."""
        return session in self.connected or claims.is_used(self._paths, session)

    @cached_property
    def connected(self) -> frozenset[str]:
        """Sessions that are connected to the channel's hub, as it says and as it has published."""
        from intercom.client.presence import connected  # only where a name is to be found

        return connected(self._paths, self._environ)

    # -- a name for the caller --------------------------------------------------------------

    def _settle(self, book: Namebook) -> Identity:
        """Find a name for a caller that has none here; the map is held."""
        name = book.of(self.caller.key, self._paths.directory)
        if name is not None:
            hold = self._use(book, name.session)
            if hold is not None:  # another command of this caller was quicker
                return self._identity(name.session, True, hold)
            hold = self._draw(book)
            self._enter(book, hold.claim.session, self._paths.directory)
            return self._identity(hold.claim.session, False, hold)
        if book.lost:
            self._recover(book)
        for old in book.names:
            if old.channel in (None, self._paths.directory) and self._is_gone(old):
                hold = self._take(book, old.session)
                if hold is not None:
                    self._assign(old)
                    return self._identity(old.session, False, hold)
        hold = self._number(book) or self._draw(book)
        self._enter(book, hold.claim.session, None)
        book.base = book.base or hold.claim.session
        return self._identity(hold.claim.session, False, hold)

    def _use(self, book: Namebook, session: str) -> Hold | None:
        """Use a name that the map gives us; None if another project has claimed it here."""
        hold = claims.hold(self._paths, session)
        if hold.claim.tree is None:
            hold.close()
            # Where somebody speaks as our name by --session it cannot be claimed just now.
            taken = claims.take(self._paths, self._claim(book, session))
            hold = taken or claims.hold(self._paths, session)
        if hold.claim.tree in (None, book.tree):
            return hold
        hold.close()
        return None

    def _take(self, book: Namebook, session: str) -> Hold | None:
        """Take a name that nobody uses; None if somebody does, or another project has it."""
        if session in self.connected:
            return None
        return claims.take(self._paths, self._claim(book, session))

    def _number(self, book: Namebook) -> Hold | None:
        """The project's name with a number behind it, the lowest that was never used."""
        if book.base is None:
            return None
        base = book.base[:_LONGEST_BASE]
        for session in (base, *(f"{base}-{n}" for n in range(2, MOST_NUMBERED + 1))):
            hold = self._take_fresh(book, session)
            if hold is not None:
                return hold
        return None

    def _draw(self, book: Namebook) -> Hold:
        """A name of the roster that nobody ever used on the channel."""
        from intercom.client.roster import drawn_for  # for a new name only

        names = drawn_for(f"{os.uname().nodename}:{self._project}")
        for session in names:
            hold = self._take_fresh(book, session)
            if hold is not None:
                return hold
        for _ in range(100):
            hold = self._take_fresh(book, f"{names[0]}-{os.urandom(2).hex()}")
            if hold is not None:
                return hold
        raise CannotCreate(
            f"no name is free on channel {self._paths.name!r}", remedy="choose one: --session ID"
        )

    def _take_fresh(self, book: Namebook, session: str) -> Hold | None:
        """Take a name, but not one of which the channel has any file, or the project any use."""
        calls = FileCalls()
        if session in book.sessions() or is_known(self._paths, calls, session):
            return None
        if calls.stat(self._paths.inbox(session)) is not None:
            return None  # somebody wrote to somebody of that name
        return self._take(book, session)

    def _recover(self, book: Namebook) -> None:
        """Add to the new map of a tree that has lost its own what the channel knows of it."""
        found = claims.of_tree(self._paths, self._project, root_inode(self._project))
        for claim in found:
            book.tree = found[0].tree or book.tree
            if claim.tree == book.tree and claim.session not in book.sessions():
                at = claim.claimed_at
                book.names.append(Name(claim.session, None, at, at))
        book.base = book.base or (found[0].session if found else None)

    # -- the map ----------------------------------------------------------------------------

    def _enter(self, book: Namebook, session: str, channel: str | None) -> None:
        now = self._now()
        name = Name(session, None, now, now, channel)
        self._assign(name)
        book.names.append(name)

    def _assign(self, name: Name) -> None:
        """Make a name the caller's."""
        name.caller, name.process = self.caller.key, self.caller.process
        name.used_at = self._now()

    def _release_all(self, book: Namebook) -> None:
        """Take the caller's names from it; the next new caller may have them."""
        for one in book.names:
            if one.caller == self.caller.key:
                one.caller = one.process = None

    def _refresh(self, name: Name) -> None:
        """Note now and then that a name is used, and by which process; failing is no harm."""
        age = self._now() - name.used_at
        if 0 <= age < REFRESH and not self._is_succeeded(name):
            return
        with suppress(CannotCreate), self._shelf.change(REFRESH_WITHIN) as book:
            found = book.of(self.caller.key, self._paths.directory)
            if found is not None:
                found.used_at = self._now()
                if self._is_succeeded(found):
                    found.process = self.caller.process

    def _is_succeeded(self, name: Name) -> bool:
        """Whether the process that stands for the caller has ended, and we know another.

        A pane may start another shell; while the first lives, it is not replaced by
        one that is perhaps only a part of the caller.
        """
        now = self.caller.process
        if now is None or now == name.process:
            return False
        return name.process is None or self._table.has_ended(name.process) is not False

    def _is_alive(self, name: Name) -> bool:
        return name.process is not None and self._table.has_ended(name.process) is False

    def _is_gone(self, name: Name) -> bool:
        """Whether a name's caller has ended, or has not been seen for long and cannot be."""
        if name.caller is None:
            return True
        ended = None if name.process is None else self._table.has_ended(name.process)
        return self._now() - name.used_at > IDLE if ended is None else ended

    # -- small things -----------------------------------------------------------------------

    def _identity(
        self, session: str, sticky: bool, hold: Hold, former: Name | None = None
    ) -> Identity:
        before = former.session if former is not None else None
        return Identity(session, self.caller.kind, self.caller.key, sticky, hold, before)

    def _claim(self, book: Namebook, session: str) -> Claim:
        return Claim(session, book.tree, self._project, root_inode(self._project), self._now())

    def _check_free(self, book: Namebook, session: str, wanted: Name | None) -> None:
        """Refuse a name of this project whose caller is there, and one that is connected."""
        others = wanted is not None and wanted.caller not in (None, self.caller.key)
        if others and wanted is not None and self._is_alive(wanted):
            text = f"{session!r} is the name of {in_words(str(wanted.caller))}, still there"
            raise claims.collision(session, text)
        if session in self.connected:
            raise claims.refusal(self._paths, session, book.tree)
