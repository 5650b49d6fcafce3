"""How long calls wait, by a clock that only the test moves."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from intercom.bridge import reading, sending
from intercom.bridge.place import Place, take_place
from intercom.bridge.server import Call, Said
from intercom.bridge.session import Session
from intercom.client.letters import compose
from intercom.client.outbox import Outcome
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox


class AtOnce:
    """Threads that do it here and now."""

    def call(self, work: Callable[..., Any], *args: Any) -> Deferred[Any]:
        return maybeDeferred(work, *args)


@pytest.fixture
def session(channel_dir: Path, tmp_path: Path) -> Iterator[Session]:
    """A session that is not connected."""
    environ = {"INTERCOM_NO_SPAWN": "1"}
    paths = ChannelPaths(str(channel_dir), "c")
    place = Place(lambda: (paths, str(tmp_path)), "ada", environ, print)
    taken = take_place(place, "")
    session = Session(Clock(), AtOnce(), taken, print)  # type: ignore[arg-type]
    session.keeper.trouble = HubUnavailable("there is none")
    yield session
    session.close()


def begin(tool: Any, session: Session, **arguments: Any) -> tuple[Call, list[Said]]:
    """Call a tool; what it says comes into the list."""
    call, said = Call(arguments, {}), []  # type: tuple[Call, list[Said]]
    Deferred.fromCoroutine(tool(session, call)).addCallback(said.append)
    return call, said


def put(session: Session, text: str, reply_to: str | None = None) -> None:
    """Append a message of bob's to the inbox."""
    letter = compose(session.paths, "bob", "ada", {"text": text}, reply_to=reply_to)
    with Inbox(session.paths, "ada") as inbox:
        inbox.append(letter.line, sender="bob", message_id=letter.message_id)


def pass_time(session: Session, seconds: float) -> None:
    session.reactor.pump([0.1] * round(seconds * 10))


def settle(said: Said, written: bool) -> None:
    assert said.settle is not None
    Deferred.fromCoroutine(said.settle(written))  # type: ignore[arg-type]


def test_an_inbox_waits_as_long_as_it_was_asked_to(session: Session) -> None:
    _call, said = begin(reading.inbox, session, wait_s=45.0)
    pass_time(session, 44.8)
    assert said == []
    pass_time(session, 0.4)
    assert [one.text for one in said] == ["nothing unread"]
    assert not session.reactor.getDelayedCalls()


def test_an_inbox_ends_its_waiting_when_something_comes(session: Session) -> None:
    _call, said = begin(reading.inbox, session, wait_s=45.0)
    pass_time(session, 10)
    put(session, "hello")
    pass_time(session, 0.3)
    assert "\nhello\n" in said[0].text
    settle(said[0], written=True)
    assert session.inbox.unread() == 0


def test_a_push_ends_the_waiting_at_once(session: Session) -> None:
    _call, said = begin(reading.inbox, session, wait_s=45.0)
    put(session, "hello")
    session.news.ring()
    assert "\nhello\n" in said[0].text


def test_what_was_not_written_stays_unread_and_another_call_shows_it(session: Session) -> None:
    put(session, "hello")
    _call, first = begin(reading.inbox, session)
    _call, second = begin(reading.inbox, session)
    assert (len(first), len(second)) == (1, 0)  # who shows has the turn until that is settled
    assert session.inbox.unread() == 1
    settle(first[0], written=False)
    assert "\nhello\n" in second[0].text
    settle(second[0], written=True)
    assert session.inbox.unread() == 0


def test_a_cancelled_call_waits_no_longer(session: Session) -> None:
    call, said = begin(reading.inbox, session, wait_s=45.0)
    call.end()
    assert len(said) == 1
    assert not session.reactor.getDelayedCalls()


@pytest.fixture
def question(session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ids of the questions that a hub has taken from a file."""
    asked: list[str] = []

    def leave(_session: Session, letter: Any) -> Outcome:
        asked.append(letter.message_id)
        return Outcome("sent", "stored", "disk", 1)

    monkeypatch.setattr(sending, "_leave_question", leave)
    return asked


def test_an_ask_waits_45_seconds_and_stays_open(session: Session, question: list[str]) -> None:
    _call, said = begin(sending.ask, session, to="bob", text="how many?")
    pass_time(session, 44.8)
    assert said == []
    pass_time(session, 0.4)
    assert said[0].text.startswith("no answer from bob within 45 s; ask msg_")
    put(session, "42", question[0])
    _call, later = begin(reading.inbox, session)
    assert "\n42\n" in later[0].text


def test_the_answer_is_found_whoever_reads_the_inbox_meanwhile(
    session: Session, question: list[str]
) -> None:
    put(session, "before")
    _call, said = begin(sending.ask, session, to="bob", text="how many?")
    put(session, "something else")
    put(session, "42", question[0])
    session.inbox.skip_to_end()  # a poll of the same session was quicker
    pass_time(session, 0.3)
    assert "\n42\n" in said[0].text
    assert not said[0].failed


def test_an_answer_that_was_not_written_is_shown_by_the_inbox(
    session: Session, question: list[str]
) -> None:
    put(session, "before")
    _call, said = begin(sending.ask, session, to="bob", text="how many?")
    put(session, "42", question[0])
    pass_time(session, 0.3)
    settle(said[0], written=False)
    _call, later = begin(reading.inbox, session)
    assert "\n42\n" in later[0].text


def test_an_answer_that_was_shown_is_passed_over_in_its_turn(
    session: Session, question: list[str]
) -> None:
    put(session, "before")
    _call, said = begin(sending.ask, session, to="bob", text="how many?")
    put(session, "42", question[0])
    put(session, "behind")
    pass_time(session, 0.3)
    assert said[0].text.endswith("[2 unread]")
    settle(said[0], written=True)
    _call, later = begin(reading.inbox, session)
    assert "\n42\n" not in later[0].text
    assert "before" in later[0].text
    assert "behind" in later[0].text
    settle(later[0], written=True)
    assert session.inbox.unread() == 0


def test_who_else_has_the_turn_is_named(session: Session) -> None:
    from intercom.client.readers import Seat

    put(session, "hello")
    with Seat(session.paths, "ada", "intercom listen", 0.0) as other:
        assert other.take() is None
        _call, said = begin(reading.inbox, session)
        expected = f"nothing is shown here: process {os.getpid()} (intercom listen)"
        assert said[0].text == f"{expected} reads for this session now\n[1 unread]"
