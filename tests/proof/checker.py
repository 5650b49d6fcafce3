"""Judges what the clients of a storm saw: was anything lost, invented, torn, doubled or disordered?

Pure. A history is a list of events, one JSON object each, as the clients wrote them
(``storm_history.py``). All of them have ``t`` (seconds of the machine's monotonic clock),
``who`` (one client process, never reused), ``kind`` (``invoke``, then ``ok``, ``fail`` or
``info`` for "not known") and ``op``, which decides about the rest:

* ``send``: ``id``, and with ``invoke`` also ``to`` (inboxes) and ``digest`` of the line's bytes;
* ``poll``: ``inbox``, ``since`` (when the reading began), ``from`` (``stored`` position, or
  ``start`` of the file for an observer), ``records`` ([generation, start, end, id, digest];
  the numbers are None where a hub pushed, which tells no positions) and ``damaged`` spans;
* ``commit``: ``inbox``, ``since``, and ``position`` ([generation, offset]) as it is stored now,
  or None: all that I was shown;
* ``lead``: ``key`` (what only one may lead at a time), ``begin``, ``end``, and where another
  tells it, ``leader``;
* ``kill``: ``what`` was killed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

Event = dict[str, Any]

#: The anomalies that are looked for, by the names of Jepsen's ``total-queue`` and ``kafka`` tests.
ANOMALIES = (
    "lost",
    "phantom",
    "torn",
    "duplicate position",
    "nonmonotonic poll",
    "skip",
    "order",
    "divergence",
    "double leader",
    "commit regress",
    "delivered twice",
)
#: Of each kind so many are described.
SHOWN = 5


@dataclass
class Report:
    """What was found.

    :ivar anomalies: descriptions by kind, only of kinds that were found.
    :ivar figures: what the run did: acked, unknown, refused, delivered, kills, torn, leaders.
    """

    anomalies: dict[str, list[str]] = field(default_factory=dict)
    figures: dict[str, int] = field(default_factory=dict)

    def add(self, kind: str, text: str) -> None:
        """Note an anomaly."""
        assert kind in ANOMALIES
        self.anomalies.setdefault(kind, []).append(text)

    def vacuous(self, **least: int) -> list[str]:
        """Why the run proves nothing: what had to happen at least so often, and did not."""
        return [
            f"{name}: {self.figures[name]}, and {number} are needed"
            for name, number in least.items()
            if self.figures[name] < number
        ]

    def __str__(self) -> str:
        lines = [", ".join(f"{name} {number}" for name, number in self.figures.items())]
        for kind, texts in self.anomalies.items():
            lines.append(f"{kind} ({len(texts)}): " + "; ".join(texts[:SHOWN]))
        return "\n".join(lines)


def check(events: Iterable[Event]) -> Report:
    """Judge a history, whose events may come in any order."""
    ordered = sorted(events, key=lambda event: event["t"])
    report = Report()
    sends = _sends(ordered)
    inboxes: dict[str, list[Event]] = defaultdict(list)
    for event in ordered:
        if event["op"] in ("poll", "commit"):
            inboxes[event["inbox"]].append(event)
    for send in sends.values():
        for inbox in send.to:
            inboxes.setdefault(inbox, [])
    for inbox, seen in inboxes.items():
        _check_inbox(inbox, seen, sends, report)
    _check_leaders(ordered, report)
    report.figures = _figures(ordered, sends)
    return report


@dataclass
class _Send:
    """One message: where it was to go, and how it ended."""

    who: str
    number: int
    to: list[str]
    digest: str
    end: str = "info"


def _sends(ordered: list[Event]) -> dict[str, _Send]:
    """The messages by id, numbered by each sender in the order of its sending."""
    sends: dict[str, _Send] = {}
    counts: dict[str, int] = defaultdict(int)
    for event in ordered:
        if event["op"] != "send":
            continue
        if event["kind"] == "invoke":
            counts[event["who"]] += 1
            assert event["id"] not in sends, f"the id {event['id']} was used twice by a storm"
            sends[event["id"]] = _Send(
                event["who"], counts[event["who"]], event["to"], event["digest"]
            )
        else:
            sends[event["id"]].end = event["kind"]
    return sends


def _figures(ordered: list[Event], sends: dict[str, _Send]) -> dict[str, int]:
    ends = [send.end for send in sends.values()]
    leads = [event for event in ordered if event["op"] == "lead"]
    polls = [event for event in ordered if event["op"] == "poll"]
    torn = {(poll["inbox"], *span) for poll in polls for span in poll.get("damaged", ())}
    return {
        "acked": ends.count("ok"),
        "unknown": ends.count("info"),
        "refused": ends.count("fail"),
        "delivered": sum(len(p["records"]) for p in polls if p["from"] == "stored"),
        "kills": sum(event["op"] == "kill" for event in ordered),
        "torn": len(torn),
        "leaders": len(leads),
    }


# -- one inbox --------------------------------------------------------------------------------


def _check_inbox(inbox: str, seen: list[Event], sends: dict[str, _Send], report: Report) -> None:
    polls = [event for event in seen if event["op"] == "poll"]
    _check_messages(inbox, polls, sends, report)
    places = _check_places(inbox, polls, report)
    _check_order(inbox, places, sends, report)
    _check_polls(inbox, seen, report)
    _check_commits(inbox, seen, places, report)
    _check_repeats(inbox, seen, report)


def _check_messages(
    inbox: str, polls: list[Event], sends: dict[str, _Send], report: Report
) -> None:
    """Every acknowledged message was found somewhere, and everything found was sent, as it was."""
    found: set[str] = set()
    for poll in polls:
        for *_place, message_id, digest in poll["records"]:
            found.add(message_id)
            send = sends.get(message_id)
            if send is None or inbox not in send.to or send.end == "fail":
                why = "refused" if send is not None and send.end == "fail" else "never sent there"
                report.add("phantom", f"{message_id} in {inbox}, {why}")
            elif digest != send.digest:
                report.add("torn", f"{message_id} in {inbox} is not what was sent")
    for message_id, send in sends.items():
        if send.end == "ok" and inbox in send.to and message_id not in found:
            report.add("lost", f"{message_id} to {inbox}")


Place = tuple[int, int, int]


def _check_places(inbox: str, polls: list[Event], report: Report) -> dict[Place, str]:
    """Readers agree on what stands where, and no message stands at two places."""
    places: dict[Place, str] = {}
    starts: dict[tuple[int, int], tuple[int, str]] = {}
    of: dict[str, Place] = {}
    for poll in polls:
        for generation, start, end, message_id, _digest in poll["records"]:
            if generation is None:
                continue
            place = (generation, start, end)
            known = starts.setdefault((generation, start), (end, message_id))
            if known != (end, message_id):
                text = f"{inbox} {place}: {known[1]} for one reader, {message_id} for another"
                report.add("divergence", text)
                continue
            places[place] = message_id
            if of.setdefault(message_id, place) != place:
                text = f"{message_id} in {inbox} at {of[message_id]} and at {place}"
                report.add("duplicate position", text)
    return dict(sorted(places.items()))


def _check_order(
    inbox: str, places: dict[Place, str], sends: dict[str, _Send], report: Report
) -> None:
    """Each sender's acknowledged messages stand in the order in which it sent them."""
    last: dict[str, int] = {}
    for message_id in places.values():
        send = sends.get(message_id)
        if send is None or send.end != "ok":
            continue
        if send.number < last.get(send.who, 0):
            text = f"{message_id} in {inbox} behind its sender's number {last[send.who]}"
            report.add("order", text)
        last[send.who] = max(send.number, last.get(send.who, 0))


def _check_polls(inbox: str, seen: list[Event], report: Report) -> None:
    """Polls go forward: inside each, and never behind what was committed before they began."""
    committed = _Committed(seen)
    for poll in seen:
        if poll["op"] != "poll":
            continue
        places = [tuple(record[:3]) for record in poll["records"] if record[0] is not None]
        if any(later <= sooner for sooner, later in pairwise(places)):
            report.add("nonmonotonic poll", f"{poll['who']} of {inbox} goes back inside a poll")
        if poll["from"] != "stored" or not places:
            continue
        before = committed.before(poll["since"])
        generation, _start, end = places[0]
        if (generation, end) <= before:
            text = f"{poll['who']} of {inbox} reads {places[0]}, though {before} was committed"
            report.add("nonmonotonic poll", text)


class _Committed:
    """The positions that were stored for certain, each known to be from its event's time on."""

    def __init__(self, seen: list[Event]) -> None:
        self.events = [
            event
            for event in seen
            if event["op"] == "commit" and event["kind"] == "ok" and event["position"] is not None
        ]
        self._times = [event["t"] for event in self.events]
        self._highest: list[tuple[int, int]] = [(0, 0)]
        for event in self.events:
            self._highest.append(max(self._highest[-1], tuple(event["position"])))

    def before(self, t: float) -> tuple[int, int]:
        """The furthest position that was stored before a time."""
        return self._highest[bisect_left(self._times, t)]


def _check_commits(inbox: str, seen: list[Event], places: dict[Place, str], report: Report) -> None:
    """Stored positions only go forward, and over nothing that no reader was given before."""
    delivered: dict[str, float] = {}
    for poll in seen:
        if poll["op"] == "poll" and poll["from"] == "stored":
            for *_place, message_id, _digest in poll["records"]:
                delivered.setdefault(message_id, poll["t"])
    committed = _Committed(seen)
    waiting = list(places.items())
    passed = 0
    for event in committed.events:
        position = tuple(event["position"])
        if position < (earlier := committed.before(event["since"])):
            report.add("commit regress", f"{inbox}: {position} after {earlier}")
        while passed < len(waiting):
            (generation, start, end), message_id = waiting[passed]
            if (generation, end) > position:
                break
            passed += 1
            if generation == position[0] and not delivered.get(message_id, event["t"]) < event["t"]:
                text = f"{inbox}: {position} is behind {message_id} at {start}, which nobody got"
                report.add("skip", text)


def _check_repeats(inbox: str, seen: list[Event], report: Report) -> None:
    """No reader gets again what it has acknowledged itself."""
    shown: dict[str, dict[str, tuple[int, int] | None]] = defaultdict(dict)
    done: dict[str, set[str]] = defaultdict(set)
    for event in seen:
        who = event["who"]
        if event["op"] == "poll" and event["from"] == "stored":
            for generation, _start, end, message_id, _digest in event["records"]:
                if message_id in done[who]:
                    report.add("delivered twice", f"{message_id} to {who} of {inbox}")
                shown[who][message_id] = None if generation is None else (generation, end)
        elif event["op"] == "commit" and event["kind"] == "ok":
            upto = event["position"]
            covered = [
                message_id
                for message_id, end in shown[who].items()
                if upto is None or (end is not None and end <= tuple(upto))
            ]
            done[who].update(covered)
            for message_id in covered:
                del shown[who][message_id]


# -- who leads --------------------------------------------------------------------------------


def _check_leaders(ordered: list[Event], report: Report) -> None:
    """No two terms of one office overlap."""
    terms: dict[str, list[tuple[float, float, str]]] = defaultdict(list)
    for event in ordered:
        if event["op"] == "lead":
            who: str = event.get("leader") or event["who"]
            terms[event["key"]].append((event["begin"], event["end"], who))
    for key, held in terms.items():
        held.sort()
        last_end, last_who = float("-inf"), ""
        for begin, end, who in held:
            if begin < last_end:
                over = 1000 * (min(end, last_end) - begin)
                report.add("double leader", f"{last_who} and {who} of {key} for {over:.1f} ms")
            if end > last_end:
                last_end, last_who = end, who
