"""The dialect word for word: every type, in both directions, as it stands on the wire.

A line here may change only together with the protocol page, and never for a
client that is already out there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from intercom.messages import (
    Ack,
    Auth,
    Beat,
    Cancel,
    Cursor,
    Envelope,
    Fault,
    Heartbeat,
    ListSessions,
    MemberRow,
    Message,
    PlacesTaken,
    Progress,
    Receipt,
    Register,
    Reply,
    SessionRow,
    Sessions,
    TakePlaces,
    Unknown,
    Unregister,
    Welcome,
)
from intercom.records import Position
from intercom.wire.envelope import make, parse
from intercom.wire.ndjson import Decoder, Encoder

GOLDEN = Path(__file__).with_name("golden")
SAID = (GOLDEN / "client.ndjson").read_bytes().splitlines()
ANSWERED = (GOLDEN / "hub.ndjson").read_bytes().splitlines()

NOW = "2026-08-26T15:30:00.000000+00:00"
NYOTA = "nyota-uhura"
SEVEN = "seven-of-nine"

#: What each line of client.ndjson means.
MEANT: list[Message] = [
    Register("msg_000000000001", NYOTA),
    Register(
        "msg_000000000002", SEVEN, ("receipts", "cursor", "heartbeat"), "session", "b7a1", True
    ),
    Register("msg_000000000003", SEVEN, (), "sender", "b7a1"),
    Envelope(
        "msg_a1b2c3d4e5f6",
        NYOTA,
        SEVEN,
        None,
        b'{"text": "Unit test suite completed with 0 failures.", '
        b'"diff": "--- a/auth.go\\n+++ b/auth.go\\n@@ -10,2 +10,2 @@"}',
        SAID[3],
    ),
    Envelope(
        "msg_000000000004",
        NYOTA,
        "all",
        "msg_a1b2c3d4e5f6",
        '{"text":"Grüße, 🙂","strict":true}'.encode(),
        SAID[4],
        strict=True,
    ),
    Envelope(
        "msg_new",
        None,
        "*",
        None,
        b'{"text":"by hand"}',
        b'{"type":"chat","payload":{"text":"by hand"},"id":"msg_new","from_session":"nyota-uhura",'
        b'"to_session":"*","channel":"collab","timestamp":"2026-08-26T15:30:00.000000+00:00",'
        b'"reply_to":null}',
    ),
    Envelope(
        "msg_00000000000c",
        NYOTA,
        SEVEN,
        None,
        b'{"text":"only if the disk has it","durability":"disk"}',
        SAID[6],
        durability="disk",
    ),
    Register("msg_00000000000d", NYOTA, ("receipts", "progress")),
    Heartbeat("msg_000000000005", NYOTA),
    Ack(Position(2, 4096), "read", "msg_000000000006", NYOTA),
    Ack(Position(2, 8192), "shown", "msg_000000000007", NYOTA),
    ListSessions("msg_000000000008", NYOTA),
    Unregister("msg_000000000009", NYOTA),
    Auth("2f1c", "msg_00000000000a", NYOTA),
    Unknown("telepathy", "msg_00000000000b", NYOTA),
    TakePlaces({"directory": "/home/nyota/.pi/agent/intercom"}, "msg_00000000000e", NYOTA),
    TakePlaces(None, "msg_00000000000f", NYOTA),
    Cancel("msg_a1b2c3d4e5f6", SEVEN, "msg_000000000010", NYOTA),
    Envelope(
        "msg_000000000011",
        NYOTA,
        SEVEN,
        None,
        b'{"text":"shall I?","expects_reply":true}',
        SAID[-1],
        asks=True,
    ),
]

#: What each line of hub.ndjson is the wording of.
REPLIES: list[Reply] = [
    Welcome(NYOTA, (SEVEN,), ("receipts", "cursor"), "msg_000000000001"),
    Fault(
        NYOTA,
        "SESSION_COLLISION",
        "'seven-of-nine' is held by another live connection",
        "msg_000000000002",
    ),
    Fault(None, "BAD_JSON", "bad JSON at byte 7: Expecting value", None, {"byte": 7}),
    Receipt(NYOTA, "msg_a1b2c3d4e5f6", "stored", "disk", 1, 1),
    Receipt(NYOTA, "msg_a1b2c3d4e5f6", "stored", "disk", 1, 0, True, False, (SEVEN,)),
    Receipt(
        NYOTA,
        "msg_000000000004",
        "stored",
        "process",
        2,
        1,
        failed=({"session": "kes", "code": "INBOX_LOCKED", "message": "its inbox is locked"},),
    ),
    Receipt(
        NYOTA,
        "msg_000000000004",
        "refused",
        nearest=(SEVEN,),
        code="TARGET_NOT_FOUND",
        text="no session was ever called 'sevne'",
    ),
    Progress(NYOTA, "msg_a1b2c3d4e5f6", "pushed", SEVEN),
    Progress(NYOTA, "msg_a1b2c3d4e5f6", "shown", SEVEN, 1787758200.5),
    Progress(NYOTA, "msg_a1b2c3d4e5f6", "read", SEVEN, 1787758201.0),
    Progress(NYOTA, "msg_000000000004", "skipped", "kes", 1787758202.25),
    Cursor(NYOTA, Position(2, 4096)),
    Sessions(
        NYOTA, (SessionRow(NYOTA, 12.5, ("receipts",), 1000, 77),), ("kes",), "msg_000000000008"
    ),
    Beat(NYOTA, "msg_000000000005"),
    Receipt(NYOTA, "msg_a1b2c3d4e5f6", "cancelled"),
    Sessions(
        NYOTA,
        (MemberRow("planner", 3.5, "pi-intercom", "Planner", "/w", "m", pid=7),),
        (),
        "msg_000000000008",
    ),
    PlacesTaken(NYOTA, 4711, "msg_00000000000e"),
]


def test_the_transcript_is_complete() -> None:
    """Every message that the hub takes, and every reply that it gives, occurs in it."""
    assert {type(message) for message in MEANT} == set(Message.__args__)
    assert {type(reply) for reply in REPLIES} == set(Reply.__args__)


@pytest.mark.parametrize(("line", "message"), list(zip(SAID, MEANT, strict=True)))
def test_what_a_client_says_is_understood(line: bytes, message: Message) -> None:
    decoder = Decoder("collab", lambda: "msg_new", lambda: NOW)
    assert decoder.decode(line, NYOTA) == message


@pytest.mark.parametrize(("line", "reply"), list(zip(ANSWERED, REPLIES, strict=True)))
def test_the_hub_words_each_reply_like_this(line: bytes, reply: Reply) -> None:
    encoder = Encoder("collab", lambda: "msg_hub", lambda: NOW, {"pid": 4711, "version": "0.1.0"})
    assert encoder.encode(reply) == line


@pytest.mark.parametrize("line", [*SAID[1:3], *SAID[4:5], *SAID[6:], *ANSWERED])
def test_commands_make_and_read_the_same_lines(line: bytes) -> None:
    fields = parse(line)
    assert make(message_id=fields.pop("id"), **fields) == line
