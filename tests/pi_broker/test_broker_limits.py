"""Bounds: silent connections, sessions, floods, sizes, queued mail; and who pays for them."""

from __future__ import annotations

import re
import socket
import time
from pathlib import Path
from typing import Any

from pi_broker_process import BrokerProcess
from pi_frames_client import MAX_FRAME, PATIENCE_S, PiClient, message, packed, register_frame

SESSIONS = 128
EXTENSIONS = 32
QUEUED = 256
#: Characters, and how many bytes ``JSON.stringify`` makes of them.
FILLERS = {"x": 1, "ü": 2, "\u2028": 3, '"': 2, "\x01": 6, "😀": 4}
FLOOD = "Intercom broker rate limit exceeded"


def namespaces(count: int) -> list[dict[str, Any]]:
    return [{"namespace": f"n{number}", "ownerEligible": True} for number in range(count)]


# -- connections without a session


def test_the_silent_stop_no_register_and_are_sent_away(broker: BrokerProcess) -> None:
    """The second that a connection has to register is no matter to a session."""
    silent = [broker.connect() for _ in range(40)]
    silent[-1].write_bytes(b"\0\0")  # one that began, and is none the better for it
    with broker.join("ada") as client:
        assert client.ids() == ["ada"]
        silent += [broker.connect() for _ in range(140)]
        broker.join("bob")
        assert client.ids() == ["ada", "bob"]
        for one in silent:
            assert one.ended() == []
        assert client.ids() == ["ada", "bob"]


def test_those_that_unregistered_stop_no_register_either(broker: BrokerProcess) -> None:
    crowd = [broker.join(f"s{number}") for number in range(40)]
    for one in crowd:
        one.unregister()
    with broker.join("ada") as client:
        for one in crowd:
            one.ended()
        assert client.ids() == ["ada"]


# -- sessions


def test_there_are_so_many_sessions_and_a_replacement_is_none_more(broker: BrokerProcess) -> None:
    crowd = [broker.join(f"s{number}", scopeId=str(number % 2)) for number in range(SESSIONS)]
    refused = broker.connect()
    refused.write(register_frame("more"))
    assert refused.ended() == [{"type": "error", "error": "Too many registered intercom sessions"}]
    broker.join("s5", scopeId="1").close()
    crowd[5].ended()
    crowd[6].unregister()
    crowd[6].health()
    broker.join("more")


# -- floods


def test_a_flood_closes_its_own_connection_and_no_other(broker: BrokerProcess) -> None:
    with broker.join("ada") as other, broker.join("bob") as client:
        other.take("session_joined")
        client.write(*[{"type": "list", "requestId": str(number)} for number in range(300)])
        other.take("session_left", sessionId="bob")
        assert other.ids() == ["ada"]
        said = client.ended()
        assert all(one["error"] == FLOOD for one in said if one["type"] == "error")
        answers = [one["requestId"] for one in said if one["type"] == "sessions"]
        assert answers == [str(number) for number in range(len(answers))]
        assert len(answers) < 300


def test_a_flood_that_reads_nothing_is_cut_off_too(broker: BrokerProcess) -> None:
    """Its answers are much more than a socket holds."""
    with broker.join("ada") as other, broker.join("bob") as client:
        crowd = [broker.join(session={"status": "s" * 20_000}) for _ in range(10)]
        client.write(*[{"type": "list", "requestId": str(number)} for number in range(300)])
        other.take("session_left", sessionId="bob")
        assert len(other.ids()) == 1 + len(crowd)
        client.socket.settimeout(PATIENCE_S)
        while True:  # it ends, wherever it is cut
            try:
                if not client.socket.recv(1 << 20):
                    break
            except ConnectionResetError:
                break


# -- extensions


def test_a_session_has_so_many_extensions(broker: BrokerProcess) -> None:
    with broker.connect() as client:
        client.write(register_frame("ada", session={"extensions": namespaces(EXTENSIONS + 1)}))
        assert client.ended() == []
    with broker.join("ada", session={"extensions": namespaces(EXTENSIONS)}) as client:
        for number in range(EXTENSIONS):
            client.take("extension_owner", namespace=f"n{number}", ownerId="ada")
        more = {"type": "extension_capabilities_update", "extensions": namespaces(EXTENSIONS + 1)}
        client.write(more)
        client.ended()


def test_messages_are_measured_as_the_clients_print_them(broker: BrokerProcess) -> None:
    """Not as they came: JSON may be written with escapes and white space."""
    with broker.join("ada", session={"extensions": namespaces(1)}) as client:
        said = {"type": "extension_publish", "namespace": "n0", "audience": "owner"}
        for filler in FILLERS:
            fits = payload_of(16 * 1024, filler)
            client.write({**said, "payload": fits})
            assert client.take("extension_message")["payload"] == fits
            client.write({**said, "payload": fits + "-"})
            reason = "Invalid extension payload or payload exceeds 16 KiB limit"
            assert client.take("error")["error"] == reason
        assert client.ids() == ["ada"]


def test_states_are_measured_as_the_clients_print_them(broker: BrokerProcess) -> None:
    with broker.join("ada", session={"extensions": namespaces(1)}) as client:
        epoch = client.take("extension_owner")["ownerEpoch"]
        said = {"type": "extension_state_commit", "namespace": "n0", "ownerEpoch": epoch}
        for revision, filler in enumerate(FILLERS):
            fits = payload_of(64 * 1024, filler)
            client.write({**said, "expectedRevision": revision, "payload": fits})
            assert client.take("extension_state_result")["committed"] is True
            assert client.take("extension_state")["payload"] == fits
            client.write({**said, "expectedRevision": revision + 1, "payload": fits + "-"})
            result = client.take("extension_state_result")
            reason = "Invalid extension state or payload exceeds 64 KiB limit"
            assert (result["committed"], result["reason"]) == (False, reason)
            assert result["revision"] == revision + 1


def payload_of(size: int, filler: str) -> str:
    """A text of which the JSON has so many bytes."""
    count, rest = divmod(size - 2, FILLERS[filler])
    return filler * count + "-" * rest


# -- the size of what goes out


def test_the_limit_is_for_what_the_receiver_gets(broker: BrokerProcess) -> None:
    with broker.join("ada") as client, broker.join("bob") as other:
        frame = {"type": "send", "to": "bob", "message": message("m1", "")}
        room = MAX_FRAME - (len(packed(frame)) - 4)
        # with the sender's session in it this is over the limit
        failed = client.send("bob", "m1", "x" * room)
        assert failed["type"] == "delivery_failed"
        found = re.fullmatch(
            r"Intercom message too large \((\d+) bytes; max 1048576\)", failed["reason"]
        )
        assert found is not None, failed
        assert int(found[1]) > MAX_FRAME
        assert other.mail() == []
        assert client.send("bob", "m2", "x" * (room - 1000))["type"] == "delivered"
        assert len(other.take("message")["message"]["content"]["text"]) == room - 1000


def test_a_listing_that_is_too_large_loses_what_can_be_spared(broker: BrokerProcess) -> None:
    """Twelve rows of a hundred thousand bytes: no frame holds them all."""
    crowd = [broker.join(f"s{n}", session={"status": "s" * 100_000}) for n in range(12)]
    rows = crowd[0].list()
    assert [row["id"] for row in rows] == [f"s{number}" for number in range(12)]
    assert any("status" not in row for row in rows)


# -- queued mail


def send_all(client: PiClient, to: str, names: list[str]) -> set[str]:
    """Send many messages at once, within what one connection may say; how they were taken."""
    client.write(*[{"type": "send", "to": to, "message": message(one)} for one in names])
    return {client.outcome(one)["delivery"] for one in names}


def test_of_queued_mail_the_oldest_makes_room_and_its_sender_can_know(
    broker: BrokerProcess,
) -> None:
    names = [f"m{number}" for number in range(QUEUED + 1)]
    with broker.join("ada") as client:
        broker.join("bob").close()
        until_gone(client, "bob")
        assert send_all(client, "bob", names[:150]) == {"queued"}
    with broker.join("ada") as client:
        assert send_all(client, "bob", names[150:]) == {"queued"}
        failed = client.send("bob", "m0")
        assert failed["reason"] == "Mailbox capacity evicted the delivery"
        assert failed["code"] == "E_DELIVERY_EVICTED"
        assert client.send("bob", "m1")["delivery"] == "queued"
        with broker.join("bob") as other:
            assert other.mail() == names[1:]


def until_gone(client: PiClient, session: str) -> None:
    """Wait until a session that hung up has left."""
    deadline = time.monotonic() + PATIENCE_S
    while session in client.ids():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_crowd_that_comes_and_goes_leaves_nothing_open(broker: BrokerProcess) -> None:
    with broker.join("ada") as client:
        before = descriptors(broker.pid)
        for _ in range(3):
            crowd = [broker.join() for _ in range(30)]
            for one in crowd:
                one.socket.shutdown(socket.SHUT_RDWR)
                one.close()
        deadline = time.monotonic() + PATIENCE_S
        while client.ids() != ["ada"] or descriptors(broker.pid) > before + 5:
            assert time.monotonic() < deadline, descriptors(broker.pid)
            time.sleep(0.05)


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
