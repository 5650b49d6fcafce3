"""How far a message has come with one recipient, derived from what files say. Pure.

The rules (``docs/cli.md``, "What became of a message"): what lies behind the stored
position is unread, whatever was noted before; what lies before it is read, or skipped if
that was noted; so are lines that were taken out of the inbox since, if it was noted how far
that was read then. Nothing skipped is ever called read. Standard library only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from intercom.records import Moved, Position

#: A note may be this many seconds older than the one about the storing: whoever reads the
#: file may be quicker than the hub that writes its history.
SLACK = 5.0


class Spot(NamedTuple):
    """Where a line stands, or stood: bytes ``start`` to ``end`` of a generation."""

    generation: int
    start: int
    end: int


class Death(NamedTuple):
    """What the dead letters say: ``why`` (expired, skipped, refused), when, and with what code."""

    why: str
    at: float | None
    code: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the channel's files say of one message and one recipient.

    All times are epoch seconds, None where nobody noted them.

    :ivar stored: where it was put, None if nothing says that it was stored.
    :ivar stored_at: when; ``level``: how safely it was asked to be kept (None: not known).
    :ivar refused: code and sentence of a refusal, and ``refused_at``.
    :ivar here: where the line stands now, None if it is not in the inbox any more.
    :ivar position: how far the inbox is read, None if that could not be found out.
    :ivar position_at: when the position was last written.
    :ivar cut: the byte up to which the generation in which it was stored was read when that
        ended; None if it has not ended, or nobody noted it.
    :ivar moves: what was noted of the inbox, per state in its order.
    :ivar another_at: when the message was written that now stands in this one's place.
    :ivar death: see :class:`Death`.
    """

    stored: Spot | None = None
    stored_at: float | None = None
    level: str | None = None
    refused: tuple[str, str] | None = None
    refused_at: float | None = None
    here: Spot | None = None
    position: Position | None = None
    position_at: float | None = None
    cut: int | None = None
    moves: Sequence[Moved] = ()
    another_at: float | None = None
    death: Death | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """The furthest state that is true, and every time that is known (epoch seconds).

    :ivar state: ``stored``, ``pushed``, ``shown``, ``read``, ``skipped``, ``refused``, or
        ``expired``: given up unread, because it was too old or its inbox too large.
    :ivar times: by state; one that is not reached is not there, None is "not noted".
    :ivar before: of a reading that nobody noted: it was before this.
    :ivar gone: the line is not in the inbox any more, and nobody noted that it was read.
    """

    state: str
    times: dict[str, float | None] = field(default_factory=dict)
    level: str | None = None
    before: float | None = None
    gone: bool = False
    code: str = ""
    text: str = ""


def derive(facts: Facts) -> Standing:
    """Work out how far the message has come."""
    if facts.stored is None and facts.here is None:
        return _never_seen(facts)
    noted = _noted(facts)
    times: dict[str, float | None] = {"stored": facts.stored_at}
    for state in ("pushed", "shown"):
        if noted[state]:
            times[state] = noted[state][0].at
    last, before = _ending(facts, noted["read"] + noted["skipped"])
    if last is not None:
        times[last[0]] = last[1]
        if last[0] == "read":
            times.setdefault("shown", last[1])
    gone = facts.here is None and last is None
    return Standing(_furthest(times), times, facts.level, before, gone)


def _never_seen(facts: Facts) -> Standing:
    """Of a message that stands nowhere, and of which nobody noted where it did."""
    if facts.refused is not None:
        code, text = facts.refused
        return Standing("refused", {"refused": facts.refused_at}, code=code, text=text)
    if facts.death is None:
        raise ValueError("nothing is known of this message")
    why, at, code = facts.death
    return Standing(why, {why: at}, code=code)


def _furthest(times: dict[str, float | None]) -> str:
    """The last state that was reached."""
    order = ("stored", "pushed", "shown", "read", "skipped", "expired")
    return max(times, key=order.index)


def _spots(facts: Facts) -> list[Spot]:
    """Every place of the line of which notes may speak."""
    spots = [] if facts.here is None else [facts.here]
    was = facts.stored
    # One generation has one place: where the line was found to be is the true one.
    if was is not None and (facts.here is None or facts.here.generation != was.generation):
        spots.append(was)
    return spots


def _noted(facts: Facts) -> dict[str, list[Moved]]:
    """What was noted of the line itself, by state, the oldest first.

    An original program empties an inbox without a new generation: what was noted of the
    same bytes before this line stood there, or after another did, is not about it.
    """
    noted: dict[str, list[Moved]] = {"pushed": [], "shown": [], "read": [], "skipped": []}
    spots = _spots(facts)
    # Where others appended the line, the time is that at which the hub found it.
    since = None if facts.level is None else facts.stored_at
    for move in facts.moves:
        early = since is not None and move.at < since - SLACK
        late = facts.another_at is not None and move.at >= facts.another_at
        if not early and not late and any(_covers(move, spot) for spot in spots):
            noted[move.state].append(move)
    for moves in noted.values():
        moves.sort(key=lambda move: move.at)
    return noted


def _covers(move: Moved, spot: Spot) -> bool:
    return move.generation == spot.generation and move.start <= spot.start and spot.end <= move.end


def _ending(
    facts: Facts, passed: list[Moved]
) -> tuple[tuple[str, float | None] | None, float | None]:
    """What ended the message's waiting (None: it waits), and before when if not known better."""
    here, position = facts.here, facts.position
    if here is not None and position is not None and position.generation == here.generation:
        if position.offset < here.end:
            return None, None
        known = _passing(passed, facts.death)
        return (known, None) if known else (("read", None), facts.position_at)
    known = _passing(passed, facts.death)
    if known is not None:
        return known, None
    if here is not None:  # nobody can say how far the inbox is read
        return None, None
    if facts.death is not None and facts.death.why == "expired":
        return ("expired", facts.death.at), None
    if facts.stored is not None and facts.cut is not None and facts.stored.end <= facts.cut:
        return ("read", None), facts.position_at  # and then it was taken out of the inbox
    return None, None


def _passing(passed: list[Moved], death: Death | None) -> tuple[str, float | None] | None:
    """How the position moved past the line, if that was noted anywhere."""
    if passed:
        last = max(passed, key=lambda move: move.at)
        return last.state, last.at
    if death is not None and death.why == "skipped":
        return "skipped", death.at
    return None
