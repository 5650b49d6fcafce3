"""What every IRouter promises, held by the hub's core and by a plain one of two hundred lines.

The plain router knows neither tokens nor cursors nor time; what both do alike is
the contract, and what the core does beyond it is tested in tests/core.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest
from zope.interface import implementer
from zope.interface.verify import verifyObject

from intercom.core import effects as fx
from intercom.core.hub import HubCore
from intercom.errors import IntercomError, ProtocolError, SpoolError
from intercom.interfaces import IRouter
from intercom.messages import (
    Beat,
    Credentials,
    Envelope,
    Fault,
    Heartbeat,
    ListSessions,
    Message,
    Progress,
    Receipt,
    Register,
    SessionRow,
    Sessions,
    Unregister,
    Welcome,
)
from intercom.names import EVERYONE
from intercom.records import (
    Appeared,
    Batch,
    Entry,
    Moved,
    Position,
    Receiver,
    Record,
    Refused,
    Remembered,
    Written,
)
from intercom.wire import envelope
from intercom.wire.notices import NoticeWriter


@implementer(IRouter)
class PlainRouter:
    """Routes by plain dictionaries; the shortest thing that keeps the contract."""

    def __init__(self) -> None:
        self.names: dict[int, str | None] = {}
        self.asked: dict[int, Register] = {}
        self.tickets: dict[int, tuple[int, str, str]] = {}
        self.seen_ids: dict[tuple[str, str], int] = {}
        self.earlier: dict[tuple[str, str], Remembered] = {}
        self.curious: set[int] = set()
        self.watches: list[tuple[int, Written, Progress]] = []

    @property
    def pending(self) -> int:
        return len(self.tickets)

    def claim_of(self, connection: int) -> str | None:
        claim = self.asked.get(connection)
        return claim.speaker if claim else self.names.get(connection)

    def claims(self, session: str) -> bool:
        return session in self.names.values()

    def elsewhere_changed(self, now: float) -> list[fx.Effect]:
        return []

    def pushed_elsewhere(
        self, inbox: str, generation: int, start: int, end: int, now: float
    ) -> list[fx.Effect]:
        return [fx.NotePushed(inbox, generation, start, end)]

    def taken_back(self, back: fx.TakeBack, found: bool, now: float) -> list[fx.Effect]:
        return []

    def notice(
        self, to: str, text: str, about: str, details: dict[str, Any], now: float
    ) -> list[fx.Effect]:
        return []

    def receivers(self, now: float) -> list[Receiver]:
        return [Receiver(name) for name in self.names.values() if name and now >= 60.0]

    def connected(
        self, connection: int, credentials: Credentials, needs_key: bool, now: float
    ) -> list[fx.Effect]:
        self.names[connection] = None
        return []

    def submit(self, connection: int, message: Message, now: float) -> list[fx.Effect]:
        if connection not in self.names:
            return []
        name = self.names[connection]
        if isinstance(message, Register):
            taken = {n: c for c, n in self.names.items() if n}
            if message.speaker in taken and taken[message.speaker] != connection:
                fault = Fault(message.speaker, "SESSION_COLLISION", "taken", message.id)
                return [fx.Answer(connection, fault), fx.Close(connection)]
            self.asked[connection] = message
            if "progress" in message.features:
                self.curious.add(connection)
            return [fx.Admit(connection, None, (str(message.speaker),))]
        if name is None:
            return [fx.Answer(connection, Fault(None, "NOT_REGISTERED", "who?", message.id))]
        if message.speaker not in (None, name):
            return [fx.Answer(connection, Fault(name, "FROM_MISMATCH", "no", message.id))]
        if isinstance(message, Heartbeat):
            return [fx.Answer(connection, Beat(name, message.id))]
        if isinstance(message, ListSessions):
            rows = tuple(SessionRow(n, 0.0) for n in sorted(filter(None, self.names.values())))
            return [fx.Answer(connection, Sessions(name, rows, (), message.id))]
        if isinstance(message, Unregister):
            self.names[connection] = None
            return []
        assert isinstance(message, Envelope)
        return self._route(connection, name, message)

    def _route(self, connection: int, name: str, message: Envelope) -> list[fx.Effect]:
        if (name, message.id) in self.seen_ids:
            receipt = Receipt(name, message.id, "stored", recipients=1, duplicate=True)
            return [fx.Answer(connection, receipt)]
        others = sorted(n for n in self.names.values() if n and n not in (name, "hub"))
        targets = others if message.to_session in EVERYONE else [message.to_session]
        digest = envelope.digest("chat", message.to_session, None, message.payload)
        earlier = self.earlier.get((name, message.id))
        if earlier is not None and earlier.digest != digest:
            receipt = Receipt(name, message.id, "refused", code="MESSAGE_ID_REUSE")
            return [fx.Answer(connection, receipt)]
        effects: list[fx.Effect] = []
        for target in targets if earlier is None else earlier.inboxes:
            ticket = len(self.seen_ids) * 100 + len(effects) + 1
            self.tickets[ticket] = (connection, name, message.id)
            level = message.durability or "disk"
            entry = Entry(ticket, target, message.line, name, message.id, digest, level)
            effects.append(fx.AppendEntry(entry))
        self.seen_ids[name, message.id] = len(effects)
        return effects

    def garbled(self, connection: int, error: IntercomError, now: float) -> list[fx.Effect]:
        if connection not in self.names:
            return []
        return [fx.Answer(connection, Fault(None, error.code, error.text))]

    def admitted(self, connection: int, token: str | None, now: float) -> list[fx.Effect]:
        claim = self.asked.pop(connection, None)
        if claim is None or connection not in self.names:
            return []
        others = tuple(sorted(n for n in self.names.values() if n))
        self.names[connection] = claim.speaker
        return [fx.Answer(connection, Welcome(str(claim.speaker), others, (), claim.id))]

    def disconnected(self, connection: int, now: float) -> list[fx.Effect]:
        name = self.names.pop(connection, None)
        return [fx.PublishPeers(tuple(filter(None, self.names.values())))] if name else []

    def written(
        self, outcomes: Sequence[Written | Refused | Appeared], now: float
    ) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        for outcome in outcomes:
            if isinstance(outcome, Refused):
                ticket = self.tickets.pop(outcome.ticket, None)
                if ticket:
                    receipt = Receipt(ticket[1], ticket[2], "refused", code=outcome.code)
                    self.seen_ids.pop(ticket[1:], None)
                    effects.append(fx.Answer(ticket[0], receipt))
                continue
            records = outcome.records if isinstance(outcome, Appeared) else [outcome.record]
            for number, name in self.names.items():
                if name == outcome.inbox:
                    effects += [fx.Push(number, record.line) for record in records]
                    effects += [
                        fx.NotePushed(name, outcome.generation, record.start, record.end)
                        for record in records
                    ]
            if isinstance(outcome, Written):
                effects += self._watch(outcome)
        return effects

    def _watch(self, written: Written) -> list[fx.Effect]:
        number, name, message_id = self.tickets[written.ticket]
        if number not in self.curious:
            return []
        step = Progress(name, message_id, "pushed", written.inbox)
        self.watches.append((number, written, step))
        return [fx.Answer(number, step)] if written.inbox in self.names.values() else []

    def remembered(self, messages: Iterable[Remembered], now: float) -> list[fx.Effect]:
        self.earlier = {(m.sender, m.message_id): m for m in messages}
        return []

    def moved(self, moves: Sequence[Moved], now: float) -> list[fx.Effect]:
        effects: list[fx.Effect] = []
        for move in moves:
            for number, written, step in list(self.watches):
                if written.inbox == move.inbox and written.record.end <= move.end:
                    told = Progress(step.session, step.message_id, move.state, move.inbox, move.at)
                    effects.append(fx.Answer(number, told))
                    self.watches.remove((number, written, step))
        return effects

    def stored(self, tickets: Sequence[int], level: str, now: float) -> list[fx.Effect]:
        told = [self.tickets.pop(ticket) for ticket in tickets if ticket in self.tickets]
        return [
            fx.Answer(number, Receipt(name, message_id, "stored", level, recipients=1))
            for number, name, message_id in told
        ]

    def inbox_read(self, connection: int, batch: Batch, now: float) -> list[fx.Effect]:
        return []

    def inbox_unreadable(
        self, connection: int, error: IntercomError, now: float
    ) -> list[fx.Effect]:
        return []

    def commit_refused(
        self, connection: int, error: IntercomError, message_id: str | None, now: float
    ) -> list[fx.Effect]:
        return []

    def paused(self, connection: int, now: float) -> list[fx.Effect]:
        return []

    def drained(self, connection: int, now: float) -> list[fx.Effect]:
        return []

    def forgotten(self, sessions: Sequence[str], now: float) -> list[fx.Effect]:
        return []

    def seen(self, sessions: dict[str, float | None], now: float) -> list[fx.Effect]:
        return []

    def open_desk(self, connection: int, now: float) -> list[fx.Effect]:
        self.names[connection] = "hub"
        return []

    def filed(self, message: Message, now: float) -> list[fx.Effect]:
        assert isinstance(message, Envelope)
        return self._route(0, str(message.speaker), message)

    def misfiled(
        self, sender: str, message_id: str, error: IntercomError, now: float
    ) -> list[fx.Effect]:
        return self._route(0, "hub", _notice(sender, error.text, message_id, {}))

    def desk_read(self, position: Position, now: float) -> list[fx.Effect]:
        return []

    def begun(self, connection: int, now: float) -> list[fx.Effect]:
        return []

    def expired(self, inbox: str, records: Sequence[Record], now: float) -> list[fx.Effect]:
        ids: dict[str, list[str]] = {}
        for record in records:
            found = envelope.identify(record.line)
            if found is not None and found.sender in self.names.values():
                ids.setdefault(found.sender, []).append(found.message_id)
        effects: list[fx.Effect] = []
        for sender, lost in ids.items():
            notice = {"code": "EXPIRED", "session": inbox, "count": len(lost), "ids": lost[:20]}
            effects += self._route(0, "hub", _notice(sender, "expired", lost[0], notice))
        return effects

    def tick(self, now: float) -> list[fx.Effect]:
        return []

    def closing(self, now: float) -> list[fx.Effect]:
        return [fx.Close(number) for number in self.names]


_numbers = itertools.count()
_notice = NoticeWriter("test", lambda: f"notice-{next(_numbers)}", lambda: "now")


@pytest.fixture(params=["core", "plain"])
def router(request: pytest.FixtureRequest) -> Any:
    if request.param == "core":
        return HubCore("disk", envelope.digest, envelope.identify, _notice)
    return PlainRouter()


def test_those_who_stay_and_receive_are_receivers(router: Any) -> None:
    """One that has just come may be an original client that only sends."""
    join(router, 1, "ada")
    join(router, 2, "bob", "cursor")
    assert router.receivers(0.0) == []
    assert [one.session for one in router.receivers(60.0)] == ["ada", "bob"]
    router.disconnected(1, 61.0)
    assert [one.session for one in router.receivers(62.0)] == ["bob"]


def join(router: Any, number: int, session: str, *features: str) -> None:
    router.connected(number, Credentials(), False, 0.0)
    (admit,) = router.submit(number, Register("r", session, ("receipts", *features)), 0.0)
    assert isinstance(admit, fx.Admit)
    assert router.claim_of(number) == session
    (welcome,) = told(router.admitted(number, None, 0.0), number)
    assert (type(welcome), welcome.session) == (Welcome, session)


def told(effects: list[fx.Effect], number: int) -> list[Any]:
    return [e.reply for e in effects if isinstance(e, fx.Answer) and e.connection == number]


def chat(message_id: str, to: str, speaker: str | None = None, level: str | None = None) -> Any:
    return Envelope(message_id, speaker, to, None, b"{}", b'{"type":"chat"}', durability=level)


def entries(effects: list[fx.Effect]) -> list[Entry]:
    return [e.entry for e in effects if isinstance(e, fx.AppendEntry)]


def test_it_provides_the_interface(router: Any) -> None:
    verifyObject(IRouter, router)


def test_a_message_is_appended_then_pushed_then_told_stored(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    assert (entry.inbox, entry.sender, entry.message_id) == ("bob", "ada", "m")
    assert router.pending == 1
    record = Record(0, len(entry.line) + 1, entry.line)
    written = router.written([Written(entry.ticket, "bob", record, 1)], 1.0)
    assert fx.Push(2, entry.line) in written
    assert told(written, 1) == []
    (receipt,) = told(router.stored([entry.ticket], "disk", 1.0), 1)
    assert (receipt.message_id, receipt.state, receipt.level) == ("m", "stored", "disk")
    assert router.pending == 0


def test_a_message_is_stored_as_safely_as_it_asks(router: Any) -> None:
    join(router, 1, "ada")
    (entry,) = entries(router.submit(1, chat("m", "bob", level="process"), 1.0))
    assert entry.level == "process"


def test_what_is_pushed_is_noted(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    written = router.written([Written(entry.ticket, "bob", Record(7, 9, entry.line), 3)], 1.0)
    assert fx.NotePushed("bob", 3, 7, 9) in written


def test_a_sender_that_wants_to_know_hears_how_far_its_message_comes(router: Any) -> None:
    join(router, 1, "ada", "progress")
    join(router, 2, "bob")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    written = router.written([Written(entry.ticket, "bob", Record(0, 9, entry.line), 1)], 1.0)
    assert told(written, 1) == [Progress("ada", "m", "pushed", "bob")]
    read = Moved("bob", "read", 1, 0, 9, 5.5)
    assert told(router.moved([read], 1.0), 1) == [Progress("ada", "m", "read", "bob", 5.5)]
    assert router.moved([read], 1.0) == []


def test_a_sender_that_did_not_ask_hears_nothing_of_it(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    written = router.written([Written(entry.ticket, "bob", Record(0, 9, entry.line), 1)], 1.0)
    assert told(written, 1) == []
    assert router.moved([Moved("bob", "read", 1, 0, 9, 5.5)], 1.0) == []


def test_a_retry_of_what_an_earlier_hub_stored_asks_the_inboxes_of_then(router: Any) -> None:
    digest = envelope.digest("chat", "*", None, b"{}")
    earlier = Remembered("ada", "m", digest, ("bob", "eve"), 3.0)
    assert router.remembered([earlier], 0.0) == []
    join(router, 1, "ada")
    join(router, 2, "newcomer")
    effects = router.submit(1, chat("m", "*"), 1.0)
    assert [entry.inbox for entry in entries(effects)] == ["bob", "eve"]
    assert told(effects, 1) == []


def test_an_id_that_an_earlier_hub_knew_is_refused_for_other_content(router: Any) -> None:
    router.remembered([Remembered("ada", "m", b"other", ("bob",), 3.0)], 0.0)
    join(router, 1, "ada")
    effects = router.submit(1, chat("m", "bob"), 1.0)
    assert entries(effects) == []
    assert told(effects, 1)[0].code == "MESSAGE_ID_REUSE"


def test_a_refused_entry_is_told_and_pushed_to_nobody(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    effects = router.written([Refused(entry.ticket, "bob", "DISK_FULL", "full")], 1.0)
    (receipt,) = told(effects, 1)
    assert (receipt.state, receipt.code) == ("refused", "DISK_FULL")
    assert not [e for e in effects if isinstance(e, fx.Push)]
    assert router.pending == 0


def test_a_broadcast_reaches_everybody_but_its_sender(router: Any) -> None:
    for number, name in enumerate(("ada", "bob", "eve"), 1):
        join(router, number, name)
    assert [e.inbox for e in entries(router.submit(1, chat("m", "*"), 1.0))] == ["bob", "eve"]


def test_a_retry_is_not_appended_again(router: Any) -> None:
    join(router, 1, "ada")
    (entry,) = entries(router.submit(1, chat("m", "bob"), 1.0))
    router.written([Written(entry.ticket, "bob", Record(0, 9, entry.line), 1)], 1.0)
    router.stored([entry.ticket], "disk", 1.0)
    again = router.submit(1, chat("m", "bob"), 2.0)
    assert entries(again) == []
    assert told(again, 1)[0].duplicate


def test_an_id_that_is_live_is_refused_and_free_again_when_its_holder_left(router: Any) -> None:
    join(router, 1, "ada")
    router.connected(2, Credentials(), False, 0.0)
    effects = router.submit(2, Register("r", "ada"), 0.0)
    assert told(effects, 2)[0].code == "SESSION_COLLISION"
    assert fx.Close(2) in effects
    assert [type(e) for e in router.disconnected(1, 0.0)][:1] == [fx.PublishPeers]
    assert router.disconnected(1, 0.0) == []
    join(router, 3, "ada")


def test_nobody_speaks_for_another_and_bad_lines_are_answered(router: Any) -> None:
    join(router, 1, "ada")
    assert told(router.submit(1, chat("m", "bob", "eve"), 0.0), 1)[0].code == "FROM_MISMATCH"
    error = ProtocolError("?", code="BAD_JSON")
    assert told(router.garbled(1, error, 0.0), 1)[0].code == "BAD_JSON"


def test_heartbeats_and_listings_are_answered(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    assert told(router.submit(1, Heartbeat("h"), 0.0), 1)[0].reply_to == "h"
    (listing,) = told(router.submit(1, ListSessions("l"), 0.0), 1)
    assert [row.session for row in listing.live] == ["ada", "bob"]
    router.submit(2, Unregister("u"), 0.0)
    (listing,) = told(router.submit(1, ListSessions("l"), 0.0), 1)
    assert [row.session for row in listing.live] == ["ada"]


def test_connections_that_are_gone_are_ignored(router: Any) -> None:
    empty = Batch(Position(1, 0), [], Position(1, 0), True, [])
    error = SpoolError("x")
    assert router.submit(9, chat("m", "bob"), 0.0) == []
    assert router.garbled(9, error, 0.0) == []
    assert router.admitted(9, None, 0.0) == []
    assert router.inbox_read(9, empty, 0.0) == []
    assert router.inbox_unreadable(9, error, 0.0) == []
    assert router.commit_refused(9, error, None, 0.0) == []
    assert router.paused(9, 0.0) == []
    assert router.drained(9, 0.0) == []
    assert router.seen({}, 0.0) == []
    assert router.forgotten(["nobody"], 0.0) == []
    assert router.remembered([], 0.0) == []
    assert router.moved([Moved("nobody", "read", 1, 0, 9, 5.5)], 0.0) == []
    assert router.tick(0.0) == []


def test_what_was_left_in_the_hubs_inbox_is_sent_on(router: Any) -> None:
    router.open_desk(9, 0.0)
    join(router, 1, "ada")
    join(router, 2, "bob")
    assert [e.inbox for e in entries(router.filed(chat("m", "*", "ada"), 1.0))] == ["bob"]
    error = ProtocolError("too long", code="LINE_TOO_LONG")
    (notice,) = entries(router.misfiled("ada", "m2", error, 1.0))
    assert (notice.inbox, notice.sender) == ("ada", "hub")


def test_closing_closes_every_connection(router: Any) -> None:
    join(router, 1, "ada")
    join(router, 2, "bob")
    closed = {e.connection for e in router.closing(0.0) if isinstance(e, fx.Close)}
    assert closed == {1, 2}


def test_senders_hear_of_messages_that_nobody_read_in_time(router: Any) -> None:
    """One notice each, however many were dropped; a stranger gets none."""
    join(router, 1, "ada")
    join(router, 2, "bob")
    senders = [("ada", "a1"), ("bob", "b1"), ("ada", "a2"), ("stranger", "s1")]
    lines = [
        envelope.make(
            type="chat",
            message_id=message_id,
            from_session=sender,
            to_session="eve",
            channel="test",
            payload={},
            timestamp="now",
        )
        for sender, message_id in senders
    ]
    lost = [Record(0, 1, line) for line in lines]
    told = {entry.inbox: entry for entry in entries(router.expired("eve", lost, 1.0))}
    assert sorted(told) == ["ada", "bob"]
    assert {entry.sender for entry in told.values()} == {"hub"}
    notice = json.loads(told["ada"].line)["payload"]["notice"]
    assert notice == {"code": "EXPIRED", "session": "eve", "count": 2, "ids": ["a1", "a2"]}
    assert router.expired("eve", [], 1.0) == []


def test_a_line_that_begins_is_taken_note_of_and_no_more(router: Any) -> None:
    router.connected(1, Credentials(), False, 0.0)
    assert router.begun(1, 0.5) == router.begun(99, 0.5) == []
    assert router.claim_of(1) is None
