"""What the hub says, as lines that every client can read."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.messages import (
    Beat,
    Cursor,
    Fault,
    Progress,
    Receipt,
    Reply,
    SessionRow,
    Sessions,
    Welcome,
)
from intercom.records import STATES, Position
from intercom.wire.envelope import MAX_LINE, parse
from intercom.wire.ndjson import Encoder

NOW = "2026-08-26T15:30:00.000000+00:00"
HUB = {"pid": 4711, "version": "0.1.0"}

STORED = Receipt("nyota", "m1", "stored", "disk", 2, 1)


def encode(reply: Reply) -> bytes:
    numbers = itertools.count(1)
    return Encoder("collab", lambda: f"msg_{next(numbers):012x}", lambda: NOW, HUB).encode(reply)


def payload(reply: Reply) -> dict[str, Any]:
    found = parse(encode(reply))["payload"]
    assert isinstance(found, dict)
    return found


REPLIES: list[Reply] = [
    Welcome("nyota", ("seven",), ("receipts",), "m1"),
    Fault("nyota", "BAD_JSON", "no", "m1", {"byte": 3}),
    Fault(None, "BAD_JSON", "no"),
    STORED,
    Receipt("nyota", "m1", "refused", code="DISK_FULL", text="full", retryable=True),
    Progress("nyota", "m1", "read", "seven", 1.5),
    Cursor("nyota", Position(3, 4096)),
    Sessions("nyota", (SessionRow("seven", 1.5),), ("kes",), "m1"),
    Beat("nyota", "m1"),
    Beat(None),
]


@pytest.mark.parametrize("reply", REPLIES, ids=lambda reply: type(reply).__name__)
def test_every_line_of_the_hub_is_a_whole_envelope(reply: Reply) -> None:
    line = encode(reply)
    assert b"\n" not in line
    fields = parse(line)
    assert list(fields) == [
        "id",
        "type",
        "from_session",
        "to_session",
        "channel",
        "reply_to",
        "payload",
        "timestamp",
    ]
    assert fields["id"] == "msg_000000000001"
    assert fields["from_session"] == "hub"
    assert fields["channel"] == "collab"
    assert fields["timestamp"] == NOW
    assert fields["to_session"] == (reply.session or "unknown")


def test_each_reply_has_its_type_and_names_what_it_answers() -> None:
    heads = [(fields["type"], fields["reply_to"]) for fields in map(parse, map(encode, REPLIES))]
    assert heads == [
        ("welcome", "m1"),
        ("error", "m1"),
        ("error", None),
        ("receipt", "m1"),
        ("receipt", "m1"),
        ("receipt", "m1"),
        ("cursor", None),
        ("sessions", "m1"),
        ("heartbeat", "m1"),
        ("heartbeat", None),
    ]


# -- welcome ----------------------------------------------------------------------------------


def test_a_welcome_says_who_is_here_and_what_was_granted() -> None:
    assert payload(Welcome("nyota", ("kes", "seven"), ("receipts", "cursor"))) == {
        "peers": ["kes", "seven"],
        "status": "connected",
        "protocol": "intercom/1",
        "features": ["receipts", "cursor"],
        "hub": HUB,
    }


@pytest.mark.parametrize("name", ["p{:04}", 'é🙂"\\{:04}' + "ü" * 100])
def test_a_welcome_is_cut_to_what_the_original_client_reads(name: str) -> None:
    """Its reader takes 64 KiB with the line feed; the first peers stay, in their order."""
    peers = tuple(name.format(number) for number in range(10_000))
    line = encode(Welcome("nyota", peers, ()))
    assert 64 * 1024 - 300 < len(line) + 1 < 64 * 1024
    said = parse(line)["payload"]
    assert said["peers_total"] == 10_000
    assert said["peers"] == list(peers[: len(said["peers"])])


def test_a_welcome_that_just_fits_is_whole_and_one_byte_more_is_cut() -> None:
    room = 64 * 1024 - 2 - len(encode(Welcome("nyota", ("", "b"), ())))
    fitting, longer = ("a" * room, "b"), ("a" * (room + 1), "b")
    assert payload(Welcome("nyota", fitting, ()))["peers"] == list(fitting)
    said = payload(Welcome("nyota", longer, ()))
    assert (said["peers_total"], len(said["peers"])) == (2, 0)


# -- errors -----------------------------------------------------------------------------------


def test_an_error_has_a_code_a_sentence_and_details() -> None:
    assert payload(Fault("nyota", "TARGET_NOT_FOUND", "no such", "m1", {"nearest": ["kes"]})) == {
        "code": "TARGET_NOT_FOUND",
        "message": "no such",
        "nearest": ["kes"],
    }


def test_details_never_hide_the_code_or_the_sentence() -> None:
    said = payload(Fault(None, "INTERNAL", "text", None, {"code": "X", "message": 1, "more": 2}))
    assert said == {"code": "INTERNAL", "message": "text", "more": 2}


def test_a_sentence_that_quotes_too_much_is_cut() -> None:
    """Else a type of half a megabyte would come back, escaped, as a line over the limit."""
    said = payload(Fault(None, "UNKNOWN_TYPE", "unknown type " + "\x00" * MAX_LINE))
    assert len(said["message"]) == 1000
    assert said["message"].endswith("…")


def test_an_error_may_name_a_path_that_is_no_text() -> None:
    fault = Fault("nyota", "SPOOL_FAILED", "/tmp/caf\udce9", None, {"paths": ("a\udce9", 1)})
    assert payload(fault) == {
        "code": "SPOOL_FAILED",
        "message": "/tmp/caf?",
        "paths": ["a?", 1],
    }


# -- receipts ---------------------------------------------------------------------------------


def test_a_receipt_says_how_safe_and_for_how_many() -> None:
    assert payload(STORED) == {"state": "stored", "level": "disk", "recipients": 2, "live": 1}


def test_a_receipt_mentions_the_unusual_only_where_it_is_the_case() -> None:
    assert payload(
        Receipt(
            "nyota",
            "m1",
            "stored",
            "process",
            1,
            duplicate=True,
            known=False,
            nearest=("seven",),
            failed=({"session": "kes", "code": "INBOX_LOCKED", "message": "busy"},),
        )
    ) == {
        "state": "stored",
        "level": "process",
        "recipients": 1,
        "live": 0,
        "duplicate": True,
        "known": False,
        "nearest": ["seven"],
        "failed": [{"session": "kes", "code": "INBOX_LOCKED", "message": "busy"}],
    }


def test_a_refusal_says_why_and_whether_to_try_again() -> None:
    refused = Receipt("nyota", "m1", "refused", code="INBOX_LOCKED", text="busy", retryable=True)
    assert payload(refused) == {
        "state": "refused",
        "code": "INBOX_LOCKED",
        "message": "busy",
        "retryable": True,
    }
    unknown = Receipt(
        "nyota", "m1", "refused", code="TARGET_NOT_FOUND", text="who?", nearest=("kes",)
    )
    assert payload(unknown) == {
        "state": "refused",
        "code": "TARGET_NOT_FOUND",
        "message": "who?",
        "retryable": False,
        "nearest": ["kes"],
    }


def test_a_receipt_with_more_failures_than_a_line_holds_counts_them() -> None:
    failed = tuple(
        {"session": "🙂" * 100 + str(number), "code": "DISK_FULL", "message": "caf\udce9" * 20}
        for number in range(4000)
    )
    reply = Receipt("nyota", "m1", "stored", "disk", 1, failed=failed)
    line = encode(reply)
    assert MAX_LINE - 1000 < len(line) <= MAX_LINE
    said = parse(line)["payload"]
    assert said["failed_total"] == 4000
    assert [one["session"] for one in said["failed"]] == [
        one["session"] for one in failed[: len(said["failed"])]
    ]


# -- progress ---------------------------------------------------------------------------------


@pytest.mark.parametrize("state", STATES)
def test_progress_names_the_recipient_and_when(state: str) -> None:
    assert payload(Progress("nyota", "m1", state, "seven", 1795982932.4184)) == {
        "state": state,
        "session": "seven",
        "at": "2026-11-29T20:08:52.418400+00:00",
    }


def test_progress_says_no_time_where_none_is_known() -> None:
    assert payload(Progress("nyota", "m1", "pushed", "seven")) == {
        "state": "pushed",
        "session": "seven",
    }


@pytest.mark.parametrize("at", [float("nan"), float("inf"), 1e300, -1e300])
def test_a_time_that_is_none_is_left_out(at: float) -> None:
    """It comes from a file, which may hold any number."""
    assert payload(Progress("nyota", "m1", "read", "seven", at)) == {
        "state": "read",
        "session": "seven",
    }


# -- the rest ---------------------------------------------------------------------------------


def test_a_cursor_names_a_position_of_the_inbox() -> None:
    assert payload(Cursor("nyota", Position(3, 4096))) == {"offset": 4096, "generation": 3}


def test_a_heartbeat_has_nothing_to_say() -> None:
    assert payload(Beat("nyota")) == {}


def test_a_listing_has_the_live_and_the_absent_and_the_hub() -> None:
    rows = (SessionRow("kes", 12.5, ("cursor",), 1000, 77), SessionRow("seven", 13.0))
    assert payload(Sessions("nyota", rows, ("tuvok",))) == {
        "sessions": [
            {"session": "kes", "since": 12.5, "features": ["cursor"], "uid": 1000, "pid": 77},
            {"session": "seven", "since": 13.0, "features": [], "uid": None, "pid": None},
        ],
        "absent": ["tuvok"],
        "hub": HUB,
    }


def test_a_listing_that_is_too_long_loses_the_absent_first() -> None:
    rows = tuple(SessionRow(f"s{number}", 1.0) for number in range(50))
    absent = tuple(f"{number:05}" + "é" * 100 for number in range(10_000))
    line = encode(Sessions("nyota", rows, absent))
    assert MAX_LINE - 300 < len(line) <= MAX_LINE
    said = parse(line)["payload"]
    assert len(said["sessions"]) == 50
    assert "sessions_total" not in said
    assert said["absent"] == list(absent[: len(said["absent"])])
    assert said["absent_total"] == 10_000


def test_a_listing_of_very_many_live_sessions_is_cut_too() -> None:
    rows = tuple(SessionRow(f"{number:05}" + "é" * 100, 1.0) for number in range(10_000))
    line = encode(Sessions("nyota", rows, ("kes",)))
    assert MAX_LINE - 400 < len(line) <= MAX_LINE
    said = parse(line)["payload"]
    assert (said["sessions_total"], said["absent_total"], said["absent"]) == (10_000, 1, [])
    assert [row["session"] for row in said["sessions"]] == [
        row.session for row in rows[: len(said["sessions"])]
    ]


NAMES = st.text(st.characters(codec="utf-8"), max_size=40)


@given(NAMES, NAMES, st.lists(NAMES, max_size=4))
def test_any_name_comes_through_as_it_is(session: str, other: str, more: list[str]) -> None:
    receipt = Receipt(session, other, "stored", "disk", 1, nearest=tuple(more))
    fields = json.loads(encode(receipt))
    assert (fields["to_session"], fields["reply_to"]) == (session or "unknown", other)
    assert fields["payload"].get("nearest", []) == more
    assert payload(Welcome(session, tuple(more), ()))["peers"] == more
