"""Mail that nobody reads is kept for as long as the channel says, and not dropped in silence."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.interfaces import IReactorTime
from twisted.internet.task import Clock

from intercom.errors import InboxLocked
from intercom.hub.retention import EVERY_S, HURRY_S, Retention
from intercom.records import Record
from intercom.settings.limits import DEFAULTS, Limits
from intercom.testing import MemoryClient, MemoryHub

HOUR = 3600.0


class Inboxes:
    """A spool of which only what the retention asks is of interest.

    :ivar asked: for what; :ivar answers: by inbox, what is dropped or why nothing can be.
    """

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.asked: list[tuple[str, int | None, float | None]] = []
        self.answers: dict[str, Any] = {}
        self.waiting: list[Deferred[list[Record]]] = []
        self.slow = False

    def list_inboxes(self) -> Deferred[list[str]]:
        return succeed(self.names)

    def expire(self, inbox: str, keep: int | None, age: float | None) -> Deferred[list[Record]]:
        self.asked.append((inbox, keep, age))
        if self.slow:
            self.waiting.append(Deferred())
            return self.waiting[-1]
        answer = self.answers.get(inbox, [])
        return fail(answer) if isinstance(answer, Exception) else succeed(answer)


class Scene:
    """The retention, and what it tells."""

    def __init__(self, spool: Inboxes, **limits: Any) -> None:
        self.clock = Clock()
        self.told: list[tuple[str, list[Record]]] = []
        self.retention = Retention(
            cast(IReactorTime, self.clock),
            cast(Any, spool),
            lambda inbox, records: self.told.append((inbox, records)),
            Limits(**limits),
        )


LOST = Record(0, 9, b'{"x": 1}')


def test_all_inboxes_are_looked_at_at_the_start_and_every_hour_but_the_hub_s_own() -> None:
    spool = Inboxes("ann", "hub", "bob")
    scene = Scene(spool, retention_age=60.0, retention_size=5000)
    scene.retention.start()
    expected = [("ann", 5000, 60.0), ("bob", 5000, 60.0)]
    assert spool.asked == expected
    scene.clock.advance(EVERY_S - 1)
    assert spool.asked == expected
    scene.clock.advance(1)
    assert spool.asked == expected * 2
    scene.retention.stop()
    scene.clock.advance(2 * EVERY_S)
    assert spool.asked == expected * 2
    assert scene.clock.getDelayedCalls() == []


def test_nothing_is_looked_at_where_everything_is_kept() -> None:
    spool = Inboxes("ann")
    scene = Scene(spool)
    scene.retention.start()
    scene.retention.hurry("ann")
    scene.retention.stop()
    assert (spool.asked, scene.clock.getDelayedCalls()) == ([], [])


def test_one_inbox_is_done_before_the_next_is_begun() -> None:
    spool = Inboxes("ann", "bob", "eve")
    spool.slow = True
    scene = Scene(spool, retention_size=5000)
    scene.retention.start()
    assert [asked[0] for asked in spool.asked] == ["ann"]
    spool.waiting[0].callback([LOST])
    assert scene.told == [("ann", [LOST])]
    assert [asked[0] for asked in spool.asked] == ["ann", "bob"]
    scene.retention.stop()  # the hub goes: what is under way is told, nothing more begun
    spool.waiting[1].callback([LOST])
    assert [asked[0] for asked in spool.asked] == ["ann", "bob"]
    assert scene.told == [("ann", [LOST]), ("bob", [LOST])]


def test_one_that_is_locked_is_left_for_the_next_time() -> None:
    spool = Inboxes("ann", "bob")
    spool.answers = {"ann": InboxLocked("locked"), "bob": [LOST]}
    scene = Scene(spool, retention_size=5000)
    scene.retention.start()
    assert scene.told == [("bob", [LOST])]
    scene.retention.stop()


def test_a_bug_is_logged_and_the_next_hour_comes(logged_failures: list[Any]) -> None:
    spool = Inboxes("ann")
    spool.answers = {"ann": ZeroDivisionError()}
    scene = Scene(spool, retention_size=5000)
    scene.retention.start()
    assert [failure.type for failure in logged_failures] == [ZeroDivisionError]
    logged_failures.clear()
    spool.answers = {"ann": [LOST]}
    scene.clock.advance(EVERY_S)
    assert scene.told == [("ann", [LOST])]
    scene.retention.stop()


@pytest.mark.parametrize(("later", "again"), [(HURRY_S - 0.1, False), (HURRY_S, True)])
def test_a_full_inbox_is_looked_at_out_of_turn_but_not_for_each_message(
    later: float, again: bool
) -> None:
    spool = Inboxes()
    scene = Scene(spool, retention_age=5.0)
    for _ in range(10):
        scene.retention.hurry("ann")
    scene.retention.hurry("bob")
    assert [asked[0] for asked in spool.asked] == ["ann", "bob"]
    scene.clock.advance(later)
    scene.retention.hurry("ann")
    assert len(spool.asked) == 2 + again


# -- a whole hub ------------------------------------------------------------------------------


def texts(client: MemoryClient) -> list[str]:
    return [line["payload"]["text"] for line in client.heard("chat")]


def payloads(hub: MemoryHub, session: str) -> list[dict[str, Any]]:
    return [json.loads(line)["payload"] for line in hub.spool.lines(session)]


def test_old_mail_goes_and_its_sender_is_told_once() -> None:
    """What is young enough stays, and is pushed as soon as its reader comes."""
    hub = MemoryHub(limits=DEFAULTS._replace(retention_age=HOUR))
    ann = hub.client("ann")
    hub.client("bob").hang_up()
    said = [{"text": f"old {n}"} for n in range(3)]
    for payload in said:
        line = {"type": "chat", "to_session": "bob", "payload": payload}
        ann.say(line | {"timestamp": "1960-01-01T00:00:00+00:00"})
    hub.advance(1)
    ann.chat("bob", text="young")
    assert len(payloads(hub, "bob")) == 4
    hub.clock.advance(EVERY_S - 1)
    hub.pump()
    assert [payload["text"] for payload in payloads(hub, "bob")] == ["young"]
    (notice,) = payloads(hub, "ann")
    assert notice["notice"]["code"] == "EXPIRED"
    assert (notice["notice"]["session"], notice["notice"]["count"]) == ("bob", 3)
    assert texts(ann) == [notice["text"]]
    bob = hub.client("bob", features=["cursor"])
    assert texts(bob) == ["young"]
    hub.clock.advance(EVERY_S)
    hub.pump()
    assert [payload["notice"]["count"] for payload in payloads(hub, "ann")] == [3, 1]
    assert hub.spool.lines("bob") == []


def test_an_inbox_that_is_full_is_made_smaller_where_mail_may_go() -> None:
    """The message that found it full is refused; sent again, it fits."""
    hub = MemoryHub(limits=DEFAULTS._replace(retention_size=4096))
    ann = hub.client("ann", features=["receipts"])
    for n in range(30):
        ann.chat("bob", text=f"{n}" + " " * 200)
    hub.spool.refusals["bob"] = ("INBOX_FULL", "no room")
    ann.chat("bob", message_id="again", text="late")
    assert ann.heard("receipt")[-1]["payload"]["code"] == "INBOX_FULL"
    assert len(hub.spool.inbox("bob").data) <= 4096
    (notice,) = payloads(hub, "ann")
    assert notice["notice"]["count"] == 30 - len(payloads(hub, "bob")) > 0
    hub.spool.refusals.clear()
    ann.chat("bob", message_id="again", text="late")
    assert ann.heard("receipt")[-1]["payload"]["state"] == "stored"
