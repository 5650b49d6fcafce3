"""One connection's life, as a state machine.

A connection is *locked* until it shows the channel's key (TCP only), then
*greeting* until its first line claims a session id. While the shell reads the
session's token and publishes who is live it is *admitting*, and what it says
meanwhile waits in order. *orphaned* is admitting without a peer: it hung up, yet
what it had said is still to be handled, since the original client sends and closes
without reading. *registered* it speaks for one session; *released* it gave its
id back and may claim again; *refused* it is told the same thing whatever it
says, until it goes; *gone* takes every late input silently.

Only the life cycle lives here. What a line means is the hub's business
(:mod:`intercom.core.hub`), so the per-message path of a registered connection
never passes through the machine.
"""

from __future__ import annotations

from typing import Protocol

from automat import TypeMachineBuilder

from intercom.core.feeds import Feed
from intercom.messages import Credentials, Fault, Message, Register


class Life(Protocol):
    """What can happen to a connection."""

    def unlock(self) -> None:
        """It showed the channel's key."""

    def claim(self, register: Register) -> None:
        """Its line asks for a session id; the answer needs the shell."""

    def welcome(self) -> None:
        """The claim was granted."""

    def refuse(self, fault: Fault) -> None:
        """It may go no further, for this reason."""

    def release(self) -> None:
        """It gave its session id back."""

    def lose(self) -> None:
        """The peer is gone."""

    def state(self) -> str:
        """Name of the present state."""


class Link:
    """What the hub knows about one connection.

    :ivar number: the shell's number for it.
    :ivar session: the id it speaks for; None unless registered.
    :ivar claimed: the session id it claims or holds.
    :ivar register: the registration being decided or in force.
    :ivar proven: it showed the session's token.
    :ivar sending_only: ``role: sender``: no pushes, and it does not count as present.
    :ivar features: what was granted to it.
    :ivar waiting: what it said while its claim was being decided, in order.
    :ivar feed: how its inbox reaches it; None where it takes no pushes.
    :ivar fault: why it was refused.
    :ivar heard: when it last said anything; ``pinged``: when we last asked it to.
    :ivar asked: we asked whether it is there, and it has not answered yet.
    :ivar stuck: it does not take what it is sent; nothing is added to that without need.
    """

    __slots__ = (
        "asked",
        "claimed",
        "credentials",
        "fault",
        "features",
        "feed",
        "heard",
        "life",
        "number",
        "opened",
        "pinged",
        "proven",
        "register",
        "sending_only",
        "session",
        "since",
        "stuck",
        "waiting",
    )

    def __init__(self, number: int, credentials: Credentials, now: float) -> None:
        self.number = number
        self.credentials = credentials
        self.session: str | None = None
        self.claimed: str | None = None
        self.register: Register | None = None
        self.proven = False
        self.sending_only = False
        self.features: frozenset[str] = frozenset()
        self.waiting: list[Message] = []
        self.feed: Feed | None = None
        self.fault: Fault | None = None
        self.opened = now
        self.since = now
        self.heard = now
        self.pinged = now
        self.asked = False
        self.stuck = False
        self.life: Life

    @property
    def asks_for_more(self) -> bool:
        """Whether it asked for anything beyond the original protocol, and so knows our errors."""
        return bool(self.features)


def _begin_claim(life: Life, link: Link, register: Register) -> None:
    """Remember what is claimed while the shell looks into it."""
    link.register = register


def _become_registered(life: Life, link: Link) -> None:
    """From now on the connection speaks for its session."""
    link.session = link.claimed


def _remember_fault(life: Life, link: Link, fault: Fault) -> None:
    """Keep what it is told from now on, and take its voice away."""
    link.fault = fault
    link.session = None


def _give_up_session(life: Life, link: Link) -> None:
    """It speaks for nobody any more."""
    link.session = link.claimed = link.register = None
    link.feed = None
    link.proven = link.sending_only = False
    link.features = frozenset()


def _build() -> TypeMachineBuilder[Life, Link]:
    """Write down every state and every input; a pair left out would be a bug, and raises."""
    builder = TypeMachineBuilder(Life, Link)
    locked = builder.state("locked")
    greeting = builder.state("greeting")
    admitting = builder.state("admitting")
    orphaned = builder.state("orphaned")
    registered = builder.state("registered")
    released = builder.state("released")
    refused = builder.state("refused")
    gone = builder.state("gone")

    locked.upon(Life.unlock).to(greeting).returns(None)
    greeting.upon(Life.claim).to(admitting)(_begin_claim)
    released.upon(Life.claim).to(admitting)(_begin_claim)
    admitting.upon(Life.welcome).to(registered)(_become_registered)
    orphaned.upon(Life.welcome).to(registered)(_become_registered)
    registered.upon(Life.release).to(released)(_give_up_session)

    for state in (locked, greeting, admitting, orphaned, registered, released):
        state.upon(Life.refuse).to(refused)(_remember_fault)
    refused.upon(Life.refuse).loop().returns(None)  # the first reason stands

    admitting.upon(Life.lose).to(orphaned).returns(None)
    orphaned.upon(Life.lose).loop().returns(None)
    for state in (locked, greeting, registered, released, refused):
        state.upon(Life.lose).to(gone)(_give_up_session)
    gone.upon(Life.lose).loop().returns(None)
    gone.upon(Life.refuse).loop().returns(None)  # a late refusal finds nobody

    for state in (locked, greeting, admitting, orphaned, registered, released, refused, gone):
        state.upon(Life.state).loop().returns(state.name)
    return builder


_machine = _build().build()


def open_link(number: int, credentials: Credentials, needs_key: bool, now: float) -> Link:
    """A fresh connection: locked if it must show the channel's key, else greeting."""
    link = Link(number, credentials, now)
    link.life = _machine(link)
    if not needs_key:
        link.life.unlock()
    return link
