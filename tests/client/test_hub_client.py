"""The connection for programs on Twisted: answers, pings, and the end, by a clock of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport

from intercom.client.blocking import Received
from intercom.client.dial import ConnectionLost
from intercom.client.protocol import HubClient
from intercom.errors import HubUnavailable, IntercomError
from intercom.paths import ChannelPaths


class Hub:
    """A hub that the test plays, at the other end of a client."""

    def __init__(self, base: str) -> None:
        self.clock = Clock()
        self.pushed: list[Received] = []
        self.client = HubClient(ChannelPaths(base, "c"), "ada", self.clock, self.pushed.append)
        self.transport = StringTransport()
        self.client.makeConnection(self.transport)
        self.results: list[Any] = []
        self.over: list[IntercomError] = []
        self.client.lost.addCallback(self.over.append)

    def heard(self) -> list[dict[str, Any]]:
        lines = self.transport.value().splitlines()
        self.transport.clear()
        return [json.loads(line) for line in lines]

    def say(
        self, kind: str, reply_to: str | None = None, sender: str = "hub", **payload: Any
    ) -> None:
        said = {"id": "m", "type": kind, "from_session": sender, "reply_to": reply_to}
        self.client.dataReceived(json.dumps(said | {"payload": payload}).encode() + b"\n")

    def wait_for(self, coroutine: Any) -> None:
        done: Deferred[Any] = Deferred.fromCoroutine(coroutine)
        done.addCallbacks(self.results.append, lambda failure: self.results.append(failure.value))

    def hang_up(self) -> None:
        self.client.connectionLost()


@pytest.fixture
def hub(tmp_path: Any) -> Hub:
    return Hub(str(tmp_path))


def test_a_registration_is_granted(hub: Hub) -> None:
    hub.wait_for(hub.client.register(("turns",), "secret"))
    (register,) = hub.heard()
    assert register["payload"] == {"features": ["turns"], "token": "secret"}
    hub.say("welcome", register["id"], protocol="intercom/1", features=["turns"], hub={"pid": 7})
    assert hub.results == [None]
    assert (hub.client.features, hub.client.original) == (frozenset({"turns"}), False)
    assert hub.client.hub == {"pid": 7}


def test_an_original_hub_grants_nothing_and_names_no_line(hub: Hub) -> None:
    hub.wait_for(hub.client.register(("turns",), "secret", takeover=True))
    assert hub.heard()[0]["payload"]["takeover"] is True
    hub.say("welcome", None, peers=[], status="connected")
    assert (hub.results, hub.client.original) == ([None], True)


def test_a_refusal_is_raised(hub: Hub) -> None:
    hub.wait_for(hub.client.register((), "secret"))
    hub.say("error", hub.heard()[0]["id"], code="SESSION_COLLISION", message="taken")
    hub.hang_up()
    assert [one.code for one in hub.results + hub.over] == ["SESSION_COLLISION"] * 2


def test_answers_find_their_questions_in_any_order(hub: Hub) -> None:
    hub.wait_for(hub.client.ask("list", {}))
    hub.wait_for(hub.client.send(b'{"id":"m2"}', "m2"))
    first, second = hub.heard()
    hub.say("receipt", second["id"], state="stored")
    hub.say("sessions", first["id"], sessions=[])
    hub.say("receipt", "of another", state="stored")
    assert [one.type for one in hub.results] == ["receipt", "sessions"]
    assert not [call for call in hub.clock.getDelayedCalls() if call.getTime() < 5.0]


def test_what_is_pushed_is_handed_on_even_if_it_looks_like_the_hubs_own(hub: Hub) -> None:
    hub.say("chat", sender="bob", text="hello")
    hub.say("receipt", sender="bob", state="stored")
    hub.say("chat", text="a notice")
    hub.client.dataReceived(b"not json\n")
    assert [one.type for one in hub.pushed] == ["chat", "receipt", "chat"]


def test_no_answer_in_time_is_a_loss(hub: Hub) -> None:
    hub.wait_for(hub.client.ask("list", {}))
    hub.clock.advance(5.1)
    assert isinstance(hub.results[0], ConnectionLost)
    assert hub.results[0].details["cause"] == "silent"
    assert hub.transport.disconnecting


def test_a_hub_that_hangs_up_ends_all_waiting(hub: Hub) -> None:
    hub.wait_for(hub.client.ask("list", {}))
    hub.hang_up()
    hub.wait_for(hub.client.ask("list", {}))
    assert [type(one) for one in hub.results] == [ConnectionLost, ConnectionLost]
    assert isinstance(hub.over[0], HubUnavailable)
    assert not hub.clock.getDelayedCalls()


@pytest.mark.parametrize(
    ("code", "heard"), [("TAKEN_OVER", "TAKEN_OVER"), ("SHUTTING_DOWN", "HUB_UNAVAILABLE")]
)
def test_the_hubs_last_word_says_why(hub: Hub, code: str, heard: str) -> None:
    hub.say("error", code=code, message="because")
    hub.hang_up()
    assert [(one.code, one.text) for one in hub.over] == [(heard, "because")]


def test_pings_are_answered_and_asked(hub: Hub) -> None:
    hub.say("heartbeat")
    assert hub.heard()[0]["reply_to"] == "m"
    hub.clock.pump([5.0] * 6)
    (ping,) = hub.heard()
    assert (ping["type"], ping["reply_to"]) == ("heartbeat", None)
    hub.say("heartbeat", ping["id"])
    assert hub.heard() == []
    hub.clock.pump([5.0] * 9)
    assert hub.transport.disconnecting
    hub.hang_up()
    assert hub.over[0].details["cause"] == "silent"
