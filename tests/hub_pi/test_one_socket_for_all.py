"""One socket serves every dialect: the first byte decides."""

from __future__ import annotations

import json

import pytest

from intercom.settings.limits import DEFAULTS
from intercom.testing import MemoryHub, MemoryPiClient
from intercom.wire.pi.frames import dump_frame

HEALTH = {"type": "health", "requestId": "r"}
LINE = b'{"type":"register","from_session":"ann"}\n'


@pytest.fixture
def hub() -> MemoryHub:
    return MemoryHub()


def test_lines_are_welcome_where_pi_clients_look(hub: MemoryHub) -> None:
    for before in (b"", b" ", b"\t"):
        client = hub.connect_pi()
        client.transport.receive(before + LINE)
        hub.pump()
        said = client.transport.take()
        assert json.loads(said)["type"] == "welcome"
        client.hang_up()


def test_frames_are_welcome_at_the_hubs_own_socket(hub: MemoryHub) -> None:
    client = hub.connect()
    client.transport.receive(dump_frame(HEALTH))
    hub.pump()
    said = client.transport.take()
    assert json.loads(said[4:]) == {
        **HEALTH,
        "type": "health_ok",
        "protocol": "pi-intercom",
        "version": 1,
    }
    assert hub.registry.sessions == ()
    assert hub.core.claim_of(1) is None


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_however_a_frame_is_split(hub: MemoryHub, size: int) -> None:
    client = hub.connect()
    data = dump_frame(HEALTH)
    for at in range(0, len(data), size):
        client.transport.receive(data[at : at + size])
    hub.pump()
    assert client.transport.take()


@pytest.mark.parametrize("first", [b"\x01", b"\xff", b"P", b"[", b"a"])
def test_any_other_byte_ends_a_connection_where_pi_clients_look(
    hub: MemoryHub, first: bytes
) -> None:
    client = hub.connect_pi()
    client.transport.receive(first + bytes(10))
    hub.advance(1.2)
    assert client.transport.take() == b""
    assert not client.transport.connected


def test_who_is_undecided_waits_by_the_rules_of_the_socket(hub: MemoryHub) -> None:
    """A second on the places of pi clients, the channel's own time elsewhere."""
    pi, lines = hub.connect_pi(), hub.connect()
    hub.advance(1.2)
    assert (pi.transport.connected, lines.transport.connected) == (False, True)
    hub.advance(DEFAULTS.register_within)
    lines.transport.take()
    hub.advance(1.2)
    assert not lines.transport.connected


def test_of_many_that_are_undecided_the_oldest_go(hub: MemoryHub) -> None:
    silent = [hub.connect_pi() for _ in range(DEFAULTS.pi_unregistered + 3)]
    gone = [not one.transport.connected for one in silent]
    assert gone == [True] * 3 + [False] * DEFAULTS.pi_unregistered
    assert hub.connect_pi().register("ann")["type"] == "registered"


def test_all_are_counted_together_and_everybody_leaves(hub: MemoryHub) -> None:
    pi, lines, other = hub.connect_pi(), hub.client("bob"), hub.connect()
    pi.register("ann")
    other.transport.receive(dump_frame(HEALTH))
    assert hub.hub.peer_count == 3
    for one in (pi, lines, other):
        one.hang_up()
    assert hub.hub.peer_count == 0
    hub.advance(2)
    assert hub.hub.idle_for(hub.clock.seconds()) >= 2


def test_a_connection_over_tcp_shows_a_key_or_a_state_id(hub: MemoryHub) -> None:
    for client in (hub.connect_pi(local=False), hub.connect(local=False)):
        client.transport.receive(dump_frame(HEALTH))
        hub.advance(1.2)
        assert client.transport.take() == b""
        assert not client.transport.connected


def test_who_says_no_more_hears_what_it_asked_for(hub: MemoryHub) -> None:
    """As ``net.Socket.end()`` leaves it: the answers come, then the end."""
    client, other = hub.connect_pi(), hub.connect_pi()
    client.register("ann")
    other.register("bob")
    protocol = client.transport._protocol
    client.transport.receive(dump_frame({"type": "list", "requestId": "r"}))
    protocol.readConnectionLost()
    hub.pump()
    assert other.heard("session_left") == [{"type": "session_left", "sessionId": "ann"}]
    assert client.heard("sessions")
    hub.pump()
    assert not client.transport.connected


def test_what_was_said_before_the_end_is_done(hub: MemoryHub) -> None:
    ann, bob = hub.connect_pi(), hub.connect_pi()
    bob.register("bob")
    register = {"cwd": "/new", "model": "m", "pid": 1, "startedAt": 1, "lastActivity": 1}
    message = {"id": "m1", "timestamp": 1, "content": {"text": "last words"}}
    frames = [
        {"type": "register", "sessionId": "ann", "session": register},
        {"type": "send", "to": "bob", "message": message},
    ]
    ann.transport.receive(b"".join(map(dump_frame, frames)))
    ann.hang_up()
    (heard,) = bob.heard("message")
    assert heard["message"]["content"]["text"] == "last words"
    kinds = [frame["type"] for frame in bob.frames]
    assert kinds[-3:] == ["session_joined", "message", "session_left"]


def test_another_users_process_is_turned_away(hub: MemoryHub) -> None:
    class Stranger(MemoryPiClient):
        pass

    from intercom.messages import Credentials

    client = hub.connect_pi()
    bus = hub.hub.bus
    assert bus is not None
    ended: list[bool] = []

    class Peer:
        credentials = Credentials(uid=4242, pid=7)

        def say(self, frame: bytes) -> None:
            raise AssertionError("nothing is said to a stranger")

        def end(self, after_flush: bool) -> None:
            ended.append(after_flush)

        def hold(self) -> None: ...

        def release(self) -> None: ...

    number = bus.attach(Peer(), local=True)
    bus.receive(number, {"type": "health", "requestId": "r"})
    assert ended == [False]
    assert client.transport.connected
