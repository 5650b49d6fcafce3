"""Frames in pieces, in heaps, and what is none; and who is told by its first byte."""

from __future__ import annotations

import json
import socket
from typing import Any

from pi_broker_process import BrokerProcess
from pi_frames_client import (
    MAX_FRAME,
    PATIENCE_S,
    SESSION,
    Ended,
    PiClient,
    message,
    packed,
    register_frame,
)

GARBAGE = {
    "zero length": bytes(4),
    "a length over the limit": (MAX_FRAME + 1).to_bytes(4),
    "the largest length": b"\xff\xff\xff\xff",
    "no JSON": b"\0\0\0\3abc",
    "half of it": b'\0\0\0\5{"a":',
    "two values": b"\0\0\0\4{}{}",
    "no object": packed([{"type": "list", "requestId": "r"}]),
    "no value at all": packed(None),
    "no type": packed({"requestId": "r"}),
    "a type that is no string": packed({"type": ["list"], "requestId": "r"}),
    "no UTF-8": b'\0\0\0\x0f{"type":"\xff\xfe"}\n\n',
    "NaN": b'\0\0\0\x1c{"type":"presence","x": NaN}',
    "nested without end": (200_000).to_bytes(4) + b"[" * 200_000,
}


def padded(frame: dict[str, Any], size: int) -> bytes:
    """A frame of so many bytes of JSON, by a field that nobody looks at."""
    lacks = size - (len(packed({**frame, "pad": ""})) - 4)
    return packed({**frame, "pad": "x" * lacks})


# -- any split


def test_a_frame_may_come_in_any_pieces(broker: BrokerProcess) -> None:
    for piece in (1, 3, 5):
        with broker.connect() as client:
            client.write_bytes(packed(register_frame(f"p{piece}")), piece)
            assert client.read()["sessionId"] == f"p{piece}"
            said = message("m1", "ü" * 40)
            client.write_bytes(packed({"type": "send", "to": f"p{piece}", "message": said}), piece)
            assert client.outcome("m1")["delivery"] == "socket_delivered"
            assert client.take("message")["message"]["content"]["text"] == "ü" * 40


def test_many_frames_may_come_in_one_write(broker: BrokerProcess) -> None:
    names = [f"m{number}" for number in range(60)]
    frames: list[Any] = [register_frame("ada")]
    for name in names:
        frames.append({"type": "presence", "status": name})
        frames.append({"type": "send", "to": "ada", "message": message(name)})
        frames.append({"type": "list", "requestId": name})
    with broker.connect() as client:
        client.write(*frames)
        client.take("registered")
        for name in names:
            assert client.take("message")["message"]["id"] == name
            assert client.outcome(name)["type"] == "delivered"
            (row,) = client.take("sessions", requestId=name)["sessions"]
            assert row["status"] == name, "the listing shows what came before it"


def test_a_cut_may_be_anywhere(broker: BrokerProcess) -> None:
    """Two frames, cut at each byte of the first one's end and the second one's length."""
    with broker.join("ada") as client:
        first, second = ({"type": "list", "requestId": name} for name in ("one", "two"))
        data = packed(first, second)
        for cut in range(len(packed(first)) - 2, len(packed(first)) + 6):
            client.write_bytes(data[:cut])
            assert client.ids() if cut == len(packed(first)) else True
            client.write_bytes(data[cut:])
            client.take("sessions", requestId="one")
            client.take("sessions", requestId="two")


def test_the_largest_frame_is_taken_and_one_byte_more_is_not(broker: BrokerProcess) -> None:
    with broker.join("ada") as client, broker.join("bob") as other:
        client.write_bytes(padded({"type": "list", "requestId": "largest"}, MAX_FRAME))
        client.take("sessions", requestId="largest")
        client.write_bytes(padded({"type": "list", "requestId": "larger"}, MAX_FRAME + 1)[:9])
        assert [one["type"] for one in client.ended()] == ["session_joined"]
        other.take("session_left", sessionId="ada")


# -- what is no frame


def test_what_is_no_frame_closes_that_connection_and_nothing_else(broker: BrokerProcess) -> None:
    """With a session and without; what came before it counts."""
    witness = broker.join("eve")
    crowd = {what: (broker.connect(), broker.connect()) for what in GARBAGE}
    for what, data in GARBAGE.items():
        without, having = crowd[what]
        without.write_bytes(data)
        said = packed(register_frame(what), {"type": "send", "to": "eve", "message": message(what)})
        having.write_bytes(said + data + packed({"type": "list", "requestId": "r"}))
    for what, (without, having) in crowd.items():
        assert without.ended() == [], what
        kinds = [one["type"] for one in having.ended()]
        assert kinds[0] == "registered", what
        assert kinds.count("delivered") == 1, what
        assert "sessions" not in kinds, what
        witness.take("session_left", sessionId=what)
    assert witness.ids() == ["eve"]
    assert sorted(witness.mail()) == sorted(GARBAGE)


def test_half_a_frame_and_the_end_is_the_end(broker: BrokerProcess) -> None:
    with broker.join("eve") as witness, broker.join("bob") as client:
        client.write_bytes(packed({"type": "list", "requestId": "r"})[:-1])
        client.socket.shutdown(socket.SHUT_WR)
        assert client.ended() == []
        witness.take("session_left", sessionId="bob")


# -- the first byte


class LineClient:
    """A client of the other dialect: lines of JSON."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.lines = self.socket.makefile("rb")

    def register(self, session: str, channel: str, before: bytes = b"") -> dict[str, Any]:
        """Register; the line that answers it. An empty line before it is an error of its own."""
        said = {"type": "register", "from_session": session, "channel": channel, "payload": {}}
        self.socket.sendall(before + json.dumps(said).encode() + b"\n")
        for _ in range(before.count(b"\n")):
            assert json.loads(self.lines.readline())["type"] == "error"
        found = json.loads(self.lines.readline())
        assert isinstance(found, dict)
        return found

    def leave(self) -> None:
        """Say no more, and wait until the hub has let go of the session."""
        self.socket.shutdown(socket.SHUT_WR)
        while self.lines.readline():
            pass

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def test_a_client_of_lines_is_welcome_where_pi_clients_are(broker: BrokerProcess) -> None:
    with broker.join("ada") as client:
        for path in (broker.socket, broker.subagents_socket):
            for before in (b"", b" ", b"\t", b"\n", b"\r\n", b" \t\r\n"):
                lines = LineClient(path)
                try:
                    welcome = lines.register("rosa", "pi", before)
                    assert welcome["type"] == "welcome", (before, welcome)
                    assert welcome["payload"]["hub"]["pid"] == broker.pid
                    lines.leave()
                finally:
                    lines.close()
        assert "ada" in client.ids()


def test_a_pi_client_is_welcome_at_the_channels_own_socket(broker: BrokerProcess) -> None:
    with broker.join("ada") as other:
        client = broker.connect(broker.hub_socket)
        client.register("bob")
        assert other.send("bob", "m1")["delivery"] == "socket_delivered"
        assert client.take("message")["from"]["id"] == "ada"
        (row,) = (row for row in other.list() if row["id"] == "bob")
        assert row["trustedLocal"] is True
        lines = LineClient(broker.hub_socket)
        assert lines.register("rosa", "pi")["type"] == "welcome"
        lines.close()


def test_the_first_byte_may_come_alone(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        data = packed({"type": "register", "sessionId": "ada", "session": SESSION})
        client.write_bytes(data[:1])
        assert broker.join("bob").ids() == ["bob"], "nobody waits for the rest"
        client.write_bytes(data[1:])
        assert client.read()["type"] == "registered"


def test_what_is_neither_dialect_harms_nobody(broker: BrokerProcess) -> None:
    with broker.join("ada") as client:
        for data in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x7fELF", b"\x16\x03\x01", b"\xff"):
            stranger = broker.connect()
            stranger.write_bytes(data)
            stranger.socket.shutdown(socket.SHUT_WR)
            assert not _is_answered(stranger), data
        assert client.ids() == ["ada"]


def _is_answered(client: PiClient) -> bool:
    """Whether a frame comes before the end; an error line of the other dialect is none."""
    try:
        client.read()
    except (Ended, AssertionError):
        return False
    return True
