"""Listening: each message shown once, and acknowledged only after it was shown."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from collections.abc import Callable
from typing import Any

import pytest

from intercom.client import listening
from intercom.client.dial import connect
from intercom.client.listening import Listener
from intercom.client.offline import store_offline
from intercom.client.outbox import Letter, Outcome, compose
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox

Start = Callable[..., Any]


class Audience:
    """Remembers what it is shown; fails at the n-th message if told to."""

    def __init__(self, fail_at: int = 0) -> None:
        self.ids: list[str] = []
        self.reports: list[tuple[str | None, Outcome | IntercomError]] = []
        self.notes: list[str] = []
        self._fail_at = fail_at

    def show(self, line: bytes, message: dict[str, Any]) -> None:
        """Remember a message."""
        assert json.loads(line) == message
        if len(self.ids) + 1 == self._fail_at:
            raise BrokenPipeError
        self.ids.append(message["id"])

    def report(self, letter: Letter | None, result: Outcome | IntercomError) -> None:
        """Remember a report."""
        self.reports.append((letter and letter.to, result))

    def note(self, text: str) -> None:
        """Remember a sentence."""
        self.notes.append(text)


def listener(paths: ChannelPaths, audience: Audience, **more: Any) -> Listener:
    """A listener for ``me`` that starts no hub and ends in any case."""
    more = {"deadline": time.monotonic() + 10, "connect": connect} | more
    return Listener(paths, "me", "token", audience, **more)


def put(paths: ChannelPaths, *ids: str) -> None:
    """Append messages to my inbox as a client without a hub does."""
    for one in ids:
        letter = compose(paths, "bob", "me", {"text": one}, message_id=one)
        store_offline(paths, letter, HubUnavailable("none"))


def position(paths: ChannelPaths) -> int:
    """The stored offset of my inbox."""
    with Inbox(paths, "me") as inbox:
        return inbox.read().start.offset


def size(paths: ChannelPaths) -> int:
    """How large my inbox is."""
    with Inbox(paths, "me") as inbox:
        return inbox.size()


GRANTED = ("receipts", "cursor", "heartbeat")


def test_messages_are_shown_and_then_acknowledged(paths: ChannelPaths, hub: Start) -> None:
    """The acknowledgement names exactly the cursor's position."""
    put(paths, "msg_1", "msg_2")
    end, seen = size(paths), []

    def push(side: Any) -> None:
        register = side.welcome(*GRANTED)
        assert register["payload"] == {"features": list(GRANTED), "token": "token"}
        side.chat("msg_1", "one")
        side.chat("msg_2", "two")
        side.say("cursor", {"generation": 1, "offset": end})
        seen.append(side.read())

    fake = hub(push)
    audience = Audience()
    listener(paths, audience, once=True).run()
    fake.finish()
    assert audience.ids == ["msg_1", "msg_2"]
    assert seen[0]["type"] == "ack"
    assert seen[0]["payload"] == {"generation": 1, "offset": end}
    assert position(paths) == end


def test_what_could_not_be_shown_is_not_acknowledged(paths: ChannelPaths, hub: Start) -> None:
    """A reader that went away sees it again, for its position has not moved."""
    put(paths, "msg_1", "msg_2")

    def push(side: Any) -> None:
        side.welcome(*GRANTED)
        side.chat("msg_1", "one")
        side.chat("msg_2", "two")
        with contextlib.suppress(BrokenPipeError):  # it leaves at the second message
            side.say("cursor", {"generation": 1, "offset": size(paths)})
        assert side.read() == {}

    hub(push)
    with pytest.raises(BrokenPipeError):
        listener(paths, Audience(fail_at=2)).run()
    assert position(paths) == 0


def test_what_a_dead_hub_had_pushed_is_not_shown_again(paths: ChannelPaths, hub: Start) -> None:
    """It died before it heard the acknowledgement; what was shown counts all the same."""
    put(paths, "msg_1", "msg_2")
    with Inbox(paths, "me") as inbox:
        first = inbox.read().records[0].end
    pushed, starts = size(paths), []

    def dies(side: Any) -> None:
        side.welcome(*GRANTED)
        side.chat("msg_1", "one")
        side.say("cursor", {"generation": 1, "offset": first})
        side.read()  # the acknowledgement, which it takes to its grave
        side.chat("msg_2", "two")

    def goes_on(side: Any) -> None:
        side.welcome(*GRANTED)
        starts.append(position(paths))
        put(paths, "msg_3")
        side.chat("msg_3", "three")
        side.say("cursor", {"generation": 1, "offset": size(paths)})
        assert side.read()["type"] == "ack"

    hub(dies, goes_on)
    audience = Audience()
    listener(paths, audience, deadline=time.monotonic() + 1.0).run()
    assert audience.ids == ["msg_1", "msg_2", "msg_3"]
    assert starts == [pushed]
    assert position(paths) == size(paths)


def test_what_a_second_hub_sends_again_is_not_shown_again(
    paths: ChannelPaths, hub: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the inbox's lock is taken the file cannot tell the new hub what was shown."""
    put(paths, "msg_1")
    monkeypatch.setattr(Listener, "_follow", lambda *_args: None)

    def pushes(side: Any) -> None:
        side.welcome(*GRANTED)
        side.chat("msg_1", "one")

    def acknowledged(side: Any) -> None:
        pushes(side)
        side.say("cursor", {"generation": 1, "offset": size(paths)})
        assert side.read()["type"] == "ack"

    hub(pushes, acknowledged)
    audience = Audience()
    listener(paths, audience, once=True).run()
    assert audience.ids == ["msg_1"]


def test_pings_are_answered_and_answers_are_not(paths: ChannelPaths, hub: Start) -> None:
    """Or two polite programs would never stop."""

    def ping(side: Any) -> None:
        side.welcome(*GRANTED)
        side.say("heartbeat", {})
        assert side.read()["type"] == "heartbeat"
        side.say("heartbeat", {}, "msg_earlier")
        side.chat("msg_1", "one")
        side.say("cursor", {"generation": 1, "offset": 0})
        assert side.read()["type"] == "ack"

    hub(ping)
    listener(paths, Audience(), once=True).run()


def test_a_hub_that_stops_answering_pings_is_left(
    paths: ChannelPaths, hub: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For the inbox file, where messages arrive without it."""
    monkeypatch.setattr(listening, "PING_AFTER", 0.05)
    monkeypatch.setattr(listening, "PONG_WITHIN", 0.1)

    def stops(side: Any) -> None:
        side.welcome(*GRANTED)
        assert side.read()["type"] == "heartbeat"
        assert side.read() == {}
        os.unlink(paths.socket)
        put(paths, "msg_1")

    hub(stops)
    audience = Audience()
    listener(paths, audience, once=True).run()
    assert audience.ids == ["msg_1"]
    assert position(paths) == size(paths)


def test_without_a_hub_the_inbox_file_is_followed(paths: ChannelPaths) -> None:
    """What lies unread is shown once, and counts as read."""
    put(paths, "msg_1", "msg_2")
    audience = Audience()
    listener(paths, audience, once=True).run()
    assert audience.ids == ["msg_1", "msg_2"]
    assert position(paths) == size(paths)
    assert len(audience.notes) == 1
    assert "following the inbox file" in audience.notes[0]


def test_on_the_file_too_a_message_that_was_not_shown_stays_unread(paths: ChannelPaths) -> None:
    """Those before it were shown, and count."""
    put(paths, "msg_1", "msg_2")
    with Inbox(paths, "me") as inbox:
        first = inbox.read().records[0].end
    with pytest.raises(BrokenPipeError):
        listener(paths, Audience(fail_at=2)).run()
    assert position(paths) == first


def test_an_original_hub_is_listened_to_through_the_file(paths: ChannelPaths, hub: Start) -> None:
    """Its pushes have no positions; the connection makes us present, the file is the truth."""

    def original(side: Any) -> None:
        register = side.welcome_as_original()
        assert register["from_session"] == "me"
        side.chat("msg_2", "pushed before it is stored")
        put(paths, "msg_2")
        assert side.read() == {}

    put(paths, "msg_1")
    hub(original)
    audience = Audience()
    listener(paths, audience, deadline=time.monotonic() + 0.7).run()
    assert audience.ids == ["msg_1", "msg_2"]
    assert position(paths) == size(paths)


def test_a_name_that_another_holds_is_an_error(paths: ChannelPaths, hub: Start) -> None:
    """Two listeners of one session would take each other's messages."""

    def collide(side: Any) -> None:
        register = side.read()
        side.say("error", {"code": "SESSION_COLLISION", "message": "taken"}, register["id"])

    hub(collide)
    with pytest.raises(IntercomError) as caught:
        listener(paths, Audience()).run()
    assert caught.value.exit_code == 77


def test_a_taken_over_listener_ends(paths: ChannelPaths, hub: Start) -> None:
    """And does not fight for its name."""

    def take(side: Any) -> None:
        side.welcome(*GRANTED)
        side.say("error", {"code": "TAKEN_OVER", "message": "by another"})

    hub(take)
    with pytest.raises(IntercomError) as caught:
        listener(paths, Audience()).run()
    assert caught.value.code == "TAKEN_OVER"


def test_a_collision_right_after_a_lost_connection_is_waited_out(
    paths: ChannelPaths, hub: Start
) -> None:
    """The hub may not have seen yet that our old connection is gone."""

    def lost(side: Any) -> None:
        side.welcome(*GRANTED)

    def collide(side: Any) -> None:
        register = side.read()
        side.say("error", {"code": "SESSION_COLLISION", "message": "taken"}, register["id"])

    def welcome(side: Any) -> None:
        side.welcome(*GRANTED)
        side.chat("msg_1", "one")
        side.say("cursor", {"generation": 1, "offset": 0})
        side.read()

    hub(lost, collide, welcome)
    audience = Audience()
    listener(paths, audience, once=True).run()
    assert audience.ids == ["msg_1"]


def orders(*lines: dict[str, Any]) -> int:
    """A standard input that holds these lines and then ends."""
    reader, writer = os.pipe()
    with open(writer, "w") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    return reader


def test_orders_are_sent_on_the_same_connection_and_reported(
    paths: ChannelPaths, hub: Start
) -> None:
    """A hub that dies with one is followed by the next, which gets the same bytes."""
    seen = []

    def dies(side: Any) -> None:
        side.welcome(*GRANTED)
        seen.append(side.read())

    def receipt(side: Any) -> None:
        side.welcome(*GRANTED)
        seen.append(side.read())
        side.say("receipt", {"state": "stored", "level": "disk"}, seen[-1]["id"])
        assert side.read() == {}

    hub(dies, receipt)
    audience = Audience()
    reader = orders({"action": "send", "to": "bob", "text": "hi"}, {"action": "dance"})
    listener(paths, audience, orders=reader, deadline=time.monotonic() + 1.0).run()
    os.close(reader)
    assert seen[0] == seen[1]
    assert seen[0]["payload"] == {"text": "hi"}
    assert [to for to, _result in audience.reports] == [None, "bob"]
    assert isinstance(audience.reports[0][1], IntercomError)
    assert isinstance(audience.reports[1][1], Outcome)
    assert audience.reports[1][1].state == "stored"


def test_an_order_that_was_not_answered_at_the_end_is_not_left_open(
    paths: ChannelPaths, hub: Start
) -> None:
    """It is in the recipient's file then, where the hub will find it if it comes to it."""

    def mute(side: Any) -> None:
        side.welcome(*GRANTED)
        assert side.read()["to_session"] == "bob"
        assert side.read() == {}

    hub(mute)
    audience = Audience()
    reader = orders({"action": "send", "to": "bob", "text": "hi"})
    listener(paths, audience, orders=reader, deadline=time.monotonic() + 0.5).run()
    os.close(reader)
    assert len(audience.reports) == 1
    assert isinstance(audience.reports[0][1], Outcome)
    assert audience.reports[0][1].status == "spooled_offline"


def test_orders_are_heard_through_a_flood_of_messages(paths: ChannelPaths, hub: Start) -> None:
    """A busy channel does not keep a session from speaking."""

    def flood(side: Any) -> None:
        side.welcome(*GRANTED)
        number, asked = 0, False
        while not asked:
            number += 1
            side.chat(f"msg_{number}", "x" * 1000)
            asked = bool(select.select((side.socket,), (), (), 0)[0])
            assert number < 100_000
        message = side.read()
        side.say("receipt", {"state": "stored", "level": "disk"}, message["id"])
        assert side.read() == {}

    hub(flood)
    audience = Audience()
    reader = orders({"action": "send", "to": "bob", "text": "hi"})
    listener(paths, audience, orders=reader, deadline=time.monotonic() + 1).run()
    os.close(reader)
    assert isinstance(audience.reports[0][1], Outcome)
    assert audience.reports[0][1].state == "stored"


def test_without_a_hub_orders_go_to_the_recipients_file(paths: ChannelPaths) -> None:
    """Except for broadcasts, which are reported as failed."""
    audience = Audience()
    reader = orders({"action": "send", "to": "bob", "text": "hi"}, {"action": "send", "text": "x"})
    listener(paths, audience, orders=reader, deadline=time.monotonic() + 0.3).run()
    os.close(reader)
    assert [to for to, _result in audience.reports] == ["bob", "*"]
    assert isinstance(audience.reports[0][1], Outcome)
    assert audience.reports[0][1].status == "spooled_offline"
    assert isinstance(audience.reports[1][1], HubUnavailable)
    with Inbox(paths, "bob") as inbox:
        assert len(inbox.read().records) == 1


def test_a_listener_whose_reader_is_gone_does_not_stay(paths: ChannelPaths, hub: Start) -> None:
    """It would count as live and show nobody anything."""

    def quiet(side: Any) -> None:
        side.welcome(*GRANTED)
        assert side.read() == {}

    hub(quiet)
    reader, writer = os.pipe()
    os.close(reader)
    begun = time.monotonic()
    with pytest.raises(BrokenPipeError):
        listener(paths, Audience(), output=writer).run()
    os.close(writer)
    assert time.monotonic() - begun < 20


def test_a_line_that_stands_twice_is_shown_once(paths: ChannelPaths, hub: Start) -> None:
    """An original client wrote it again, and it was acknowledged in between."""
    ends = iter((100, 200, 300))

    def push(side: Any) -> None:
        side.welcome(*GRANTED)
        for message_id in ("msg_1", "msg_1", "msg_2"):
            side.chat(message_id, "one")
            side.say("cursor", {"generation": 1, "offset": next(ends)})
            assert side.read()["type"] == "ack"

    fake = hub(push)
    audience = Audience()
    with contextlib.suppress(HubUnavailable):
        listener(paths, audience, deadline=time.monotonic() + 1).run()
    fake.finish()
    assert audience.ids == ["msg_1", "msg_2"]


def test_only_so_many_shown_messages_are_remembered(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest is forgotten first; and what has no id is never taken for another."""
    monkeypatch.setattr(listening, "REMEMBERED", 2)
    audience = Audience()
    mine = listener(paths, audience)
    for message_id in ("a", "b", "c", "b", "a", None, None):
        message = {"type": "chat", "from_session": "bob", "id": message_id}
        mine._show(json.dumps(message).encode(), message)
    assert audience.ids == ["a", "b", "c", "a", None, None]
