"""The checker finds each anomaly and nothing else, and refuses runs in which nothing happened."""

from __future__ import annotations

from typing import Any

import pytest
from checker import ANOMALIES, Event, check

TO = "bob"


class Story:
    """A history that is told step by step, a second each."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def tell(self, who: str, kind: str, op: str, **fields: Any) -> None:
        t = float(len(self.events))
        self.events.append({"t": t, "who": who, "kind": kind, "op": op, **fields})

    def send(self, message_id: str, end: str = "ok", who: str = "ada") -> None:
        self.tell(who, "invoke", "send", id=message_id, to=[TO], digest=f"#{message_id}")
        if end != "info":
            self.tell(who, end, "send", id=message_id)

    def poll(self, *records: list[Any], who: str = "poller", **more: Any) -> None:
        fields = {"from": "stored", "since": float(len(self.events)), "damaged": []} | more
        self.tell(who, "ok", "poll", inbox=TO, records=list(records), **fields)

    def drain(self, *records: list[Any], **more: Any) -> None:
        self.poll(*records, who="observer", **{"from": "start"} | more)

    def commit(self, position: list[int] | None, kind: str = "ok", who: str = "poller") -> None:
        since = float(len(self.events))
        self.tell(who, kind, "commit", inbox=TO, position=position, since=since)

    def lead(self, who: str, begin: float, end: float, key: str = "room") -> None:
        self.tell(who, "ok", "lead", key=key, begin=begin, end=end)


def at(place: int, message_id: str, generation: int = 1, digest: str = "") -> list[Any]:
    """A record of ten bytes: the ``place``-th of its inbox."""
    return [generation, 10 * place, 10 * place + 10, message_id, digest or f"#{message_id}"]


def pushed(message_id: str) -> list[Any]:
    """A record that a hub pushed: its place is not told."""
    return [None, None, None, message_id, f"#{message_id}"]


def good(story: Story) -> None:
    """Messages of every fate, read in several goes; an emptied inbox; readers that take turns."""
    story.lead("hub-1", 0.0, 4.0)
    story.send("a1")
    story.send("a2", "info")
    story.poll(at(0, "a1"))
    story.poll(at(0, "a1"), at(1, "a2"))  # not committed yet: shown again
    story.tell("driver", "ok", "kill", what="hub")
    story.commit([1, 20])
    story.send("a3")
    story.send("a4", "fail")
    story.poll(at(2, "a3"), damaged=[[1, 30, 35]])
    story.commit([1, 35])
    story.send("a5")
    story.poll(at(0, "a5", generation=2))
    story.commit([2, 10], "info")
    story.poll(at(0, "a5", generation=2), who="poller-2")
    story.commit([2, 10], who="poller-2")
    story.lead("hub-2", 4.0, 9.0)
    story.drain(at(0, "a5", generation=2))


def lost(story: Story) -> None:
    story.send("a1")
    story.drain()


def lost_of_an_inbox_that_nobody_saw(story: Story) -> None:
    story.send("a1")


def phantom(story: Story) -> None:
    story.drain(at(0, "a9"))


def phantom_although_refused(story: Story) -> None:
    story.send("a1", "fail")
    story.drain(at(0, "a1"))


def torn(story: Story) -> None:
    story.send("a1")
    story.drain(at(0, "a1", digest="#other"))


def duplicate_position(story: Story) -> None:
    story.send("a1")
    story.drain(at(0, "a1"), at(1, "a1"))


def duplicate_position_in_the_next_generation(story: Story) -> None:
    story.send("a1")
    story.poll(at(0, "a1"))
    story.drain(at(0, "a1", generation=2))


def nonmonotonic_poll(story: Story) -> None:
    story.send("a1", who="ada")
    story.send("b1", who="ben")
    story.poll(at(1, "a1"), at(0, "b1"))


def nonmonotonic_poll_behind_a_commit(story: Story) -> None:
    story.send("a1")
    story.poll(at(0, "a1"))
    story.commit([1, 10])
    story.poll(at(0, "a1"), who="poller-2")


def skip(story: Story) -> None:
    story.send("a1")
    story.send("a2")
    story.poll(at(0, "a1"))
    story.commit([1, 20])
    story.drain(at(0, "a1"), at(1, "a2"))


def skip_committed_before_it_was_shown(story: Story) -> None:
    story.send("a1")
    story.commit([1, 10])
    story.poll(at(0, "a1"), since=0.0)


def order(story: Story) -> None:
    story.send("a1")
    story.send("a2")
    story.drain(at(0, "a2"), at(1, "a1"))


def divergence(story: Story) -> None:
    story.send("a1", who="ada")
    story.send("b1", who="ben")
    story.drain(at(0, "a1"), at(1, "b1"))
    story.drain(at(0, "b1"))


def double_leader(story: Story) -> None:
    story.lead("hub-1", 0.0, 5.0)
    story.lead("hub-2", 4.9, 6.0)


def double_leader_inside_a_long_term(story: Story) -> None:
    story.lead("hub-1", 0.0, 9.0)
    story.lead("hub-2", 1.0, 2.0)


def commit_regress(story: Story) -> None:
    story.send("a1")
    story.poll(at(0, "a1"))
    story.commit([1, 10])
    story.commit([1, 0], who="poller-2")


def delivered_twice(story: Story) -> None:
    story.send("a1")
    story.poll(pushed("a1"))
    story.commit(None)
    story.poll(pushed("a1"))
    story.drain(at(0, "a1"))


STORIES = [
    lost,
    lost_of_an_inbox_that_nobody_saw,
    phantom,
    phantom_although_refused,
    torn,
    duplicate_position,
    duplicate_position_in_the_next_generation,
    nonmonotonic_poll,
    nonmonotonic_poll_behind_a_commit,
    skip,
    skip_committed_before_it_was_shown,
    order,
    divergence,
    double_leader,
    double_leader_inside_a_long_term,
    commit_regress,
    delivered_twice,
]
NAMES = {story: story.__name__.replace("_", " ") for story in STORIES}


def anomaly_of(name: str) -> str:
    """The anomaly that a story is named after."""
    return max((kind for kind in ANOMALIES if name.startswith(kind)), key=len)


def test_a_clean_history_passes() -> None:
    story = Story()
    good(story)
    report = check(story.events)
    assert report.anomalies == {}
    assert report.figures == {
        "acked": 3,
        "unknown": 1,
        "refused": 1,
        "delivered": 6,
        "kills": 1,
        "torn": 1,
        "leaders": 2,
    }
    assert report.vacuous(acked=3, kills=1, torn=1, leaders=2) == []


@pytest.mark.parametrize("tell", STORIES)
@pytest.mark.parametrize("where", ["alone", "in a good history"])
def test_each_anomaly_is_found_and_no_other(tell: Any, where: str) -> None:
    story = Story()
    tell(story)
    if where != "alone":
        alone, story = story, Story()
        good(story)
        begun = len(story.events)
        for event in alone.events:  # the same, later and elsewhere
            moved: Event = {
                key: f"late {event[key]}" for key in ("inbox", "key", "who") if key in event
            }
            times = {key: event[key] + begun for key in ("t", "since") if key in event}
            if "id" in event:
                moved["id"] = f"late {event['id']}"
            if "to" in event:
                moved |= {"to": ["late bob"], "digest": f"late {event['digest']}"}
            if "records" in event:
                moved["records"] = [
                    [*place, f"late {message_id}", f"late {digest}"]
                    for *place, message_id, digest in event["records"]
                ]
            story.events.append(event | moved | times)
    assert list(check(story.events).anomalies) == [anomaly_of(NAMES[tell])]


def test_every_anomaly_has_its_story() -> None:
    assert {anomaly_of(name) for name in NAMES.values()} == set(ANOMALIES)


def test_unknown_sends_may_stand_there_or_not() -> None:
    for stands in (False, True):
        story = Story()
        story.send("a1", "info")
        story.drain(*[at(0, "a1")] * stands)
        assert check(story.events).anomalies == {}


def test_a_reader_that_was_killed_before_it_acknowledged_may_see_it_again() -> None:
    story = Story()
    story.send("a1")
    story.poll(pushed("a1"))
    story.poll(pushed("a1"), who="listener-2")
    story.commit(None, who="listener-2")
    story.drain(at(0, "a1"))
    assert check(story.events).anomalies == {}


def test_a_commit_that_was_under_way_while_a_later_one_ended_is_no_regress() -> None:
    story = Story()
    story.send("a1")
    story.poll(at(0, "a1"))
    story.commit([1, 10])
    story.commit([1, 0], who="poller-2")
    story.events[-1]["since"] = story.events[-2]["since"]
    assert check(story.events).anomalies == {}


def test_terms_of_different_offices_may_overlap() -> None:
    story = Story()
    story.lead("hub-1", 0.0, 5.0, key="one directory")
    story.lead("hub-2", 1.0, 6.0, key="another")
    assert check(story.events).anomalies == {}


@pytest.mark.parametrize("missing", ["acked", "kills", "torn", "leaders"])
def test_a_run_in_which_nothing_happened_is_refused(missing: str) -> None:
    story = Story()
    good(story)
    report = check(story.events)
    least = {name: report.figures[name] for name in ("acked", "kills", "torn", "leaders")}
    assert report.vacuous(**least) == []
    (complaint,) = report.vacuous(**least | {missing: least[missing] + 1})
    assert complaint.startswith(missing)
    assert check([]).vacuous(**{missing: 1}) != []


def test_the_report_names_what_was_found() -> None:
    story = Story()
    good(story)
    lost(story_of_another := Story())
    text = str(check(story_of_another.events))
    assert "lost (1): a1 to bob" in text
    assert "acked 1" in text
