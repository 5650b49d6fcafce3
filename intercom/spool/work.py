"""What comes of one piece of the store's work. Plain data."""

from __future__ import annotations

from typing import NamedTuple

from intercom.names import HUB
from intercom.records import Entry, Outcome, Refused, Span
from intercom.spool.history import History
from intercom.spool.synced import OpenFile
from intercom.spool.tracked import News


class Push(NamedTuple):
    """Lines of an inbox were written to a live connection, at ``at`` epoch seconds."""

    inbox: str
    generation: int
    start: int
    end: int
    at: float


class GivenUp(NamedTuple):
    """An entry that nobody tries to write any more, and what its sender is told."""

    entry: Entry
    outcome: Refused


class Claim(NamedTuple):
    """What was written to one file.

    :ivar levels: who waits to hear that it is safe: tickets by the level asked for.
    :ivar records: what of it the journal is to hold.
    """

    file: OpenFile
    levels: dict[str, list[int]]
    records: list[bytes]


class Work:
    """What came of one piece of the store's work.

    :ivar outcomes: for the listener, per inbox in file order.
    :ivar busy: entries whose inbox was locked, or has more news than one look takes: try again.
    :ivar busy_looks: the same for looks.
    :ivar claims: for each file that was written to, who waits to hear that it is safe.
    :ivar trouble: why the history could not be written, or an empty string.
    :ivar damaged: lines of others that are no messages.
    :ivar torn: inboxes in which an unfinished line was ended.
    """

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.busy: list[Entry] = []
        self.busy_looks: list[str] = []
        self.claims: list[Claim] = []
        self.trouble = ""
        self.damaged: list[tuple[str, Span]] = []
        self.torn: list[str] = []

    def tell(self, news: News, history: History) -> None:
        """Add what a look brought, in its order."""
        for met in news.met:
            if met.inbox != HUB:  # what lies there was sent to nobody yet
                history.appeared(met.inbox, met.generation, met.identity, met.start, met.end)
        self.outcomes += news.appeared
        self.damaged += news.damaged
        self.torn += news.torn
