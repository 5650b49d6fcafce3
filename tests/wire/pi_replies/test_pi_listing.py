"""Listings at once, in a stream, and too large for a frame."""

from __future__ import annotations

import json
from typing import Any

import pytest

from intercom.wire.pi.frames import MAX_FRAME, FrameTooLarge
from intercom.wire.pi.listing import check_fits, intercom_listing, snapshot

UPDATE = {"topic": "t", "text": "hi", "event": "update", "revision": 1, "updatedAt": 2}
FULL = {
    "cwd": "/",
    "id": "full",
    "topics": [UPDATE, {**UPDATE, "topic": "u"}],
    "model": "m",
    "subscriptions": [{"topic": "t"}],
}
PLAIN = {"id": "plain", "cwd": "/", "model": "m"}


def read(frame: bytes) -> dict[str, Any]:
    assert int.from_bytes(frame[:4]) == len(frame) - 4 <= MAX_FRAME
    frame_read: dict[str, Any] = json.loads(frame[4:])
    return frame_read


def test_a_listing_at_once_carries_no_topics() -> None:
    (frame,) = snapshot("r", [FULL, PLAIN], stream=False)
    identity = {"cwd": "/", "id": "full", "model": "m"}
    assert read(frame) == {"type": "sessions", "requestId": "r", "sessions": [identity, PLAIN]}


def test_a_stream_brings_who_it_is_first_and_then_bit_by_bit() -> None:
    frames = [read(frame) for frame in snapshot("r", [FULL, PLAIN], stream=True)]
    first = {"cwd": "/", "id": "full", "model": "m", "topics": [], "subscriptions": []}
    assert list(frames[0]["sessions"][0]) == list(first)
    assert [frame["sessions"] for frame in frames] == [
        [first],
        [{"id": "full", "topics": [UPDATE]}],
        [{"id": "full", "topics": [{**UPDATE, "topic": "u"}]}],
        [{"id": "full", "subscriptions": [{"topic": "t"}]}],
        [PLAIN],
        [],
    ]
    assert [frame["more"] for frame in frames] == [True] * 5 + [False]


def test_an_id_stands_in_a_listing_once_and_rows_are_mended() -> None:
    frames = snapshot("r", [PLAIN, {**PLAIN, "model": "other"}, {"id": "x", "name": ""}], False)
    unknown = {"id": "x", "cwd": "unknown", "model": "unknown"}
    assert read(frames[0])["sessions"] == [PLAIN, unknown]


def test_a_listing_that_is_too_large_says_how_large() -> None:
    rows = [{**PLAIN, "id": str(n), "cwd": "x" * 600_000} for n in range(2)]
    with pytest.raises(FrameTooLarge, match=r"message too large \(12\d{5} bytes; max 1048576\)"):
        snapshot("r", rows, stream=False)
    assert len(snapshot("r", rows, stream=True)) == 3
    check_fits(rows[0])
    for big in (
        {**PLAIN, "cwd": "x" * MAX_FRAME},
        {**PLAIN, "topics": [{**UPDATE, "text": "x" * MAX_FRAME}]},
    ):
        with pytest.raises(FrameTooLarge):
            check_fits(big)


# -- for intercom clients ---------------------------------------------------------------------


def row(session_id: str, **fields: Any) -> dict[str, Any]:
    return {
        "id": session_id,
        "name": session_id,
        "cwd": "/",
        "model": "m",
        "pid": 0,
        "startedAt": 1,
        "lastActivity": 2,
        **fields,
    }


def listed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = read(intercom_listing("r", rows))["sessions"]
    return found


def test_what_fits_is_shown_as_it_is() -> None:
    rows = [row("a"), row("b", status="busy")]
    assert listed(rows) == rows
    assert listed([]) == []


def test_a_listing_that_is_too_large_loses_the_largest_optional_fields_first() -> None:
    rows = [row("a", status="x" * 400_000), row("b", status="x" * 900_000), row("c")]
    bare = {key: rows[1][key] for key in rows[1] if key not in ("name", "status")}
    assert listed(rows) == [rows[0], bare, rows[2]]
    assert "status" in rows[1]


def test_then_it_loses_the_largest_sessions() -> None:
    rows = [row(str(n), cwd="x" * size) for n, size in enumerate([300_000, 700_000, 5, 500_000])]
    assert [one["id"] for one in listed(rows)] == ["0", "2", "3"]
    assert listed([row("a", cwd="x" * MAX_FRAME)]) == []


@pytest.mark.parametrize("spare", range(-3, 4))
def test_it_is_cut_where_it_must_be_and_not_before(spare: int) -> None:
    rows = [row("a", status=""), row("b", status="é")]
    room = MAX_FRAME - len(intercom_listing("r", rows)) + 4
    rows[0]["status"] = "x" * (room - spare)
    whole = listed(rows) == rows
    assert whole is (spare >= 0)
    assert listed(rows)[1] == rows[1]


def test_many_sessions() -> None:
    rows = [row(str(n), cwd="x" * 9000) for n in range(128)]
    left = listed(rows)
    assert 100 < len(left) < 128
    assert all(one["cwd"] == "x" * 9000 for one in left)


def test_a_request_id_that_cannot_be_said_back() -> None:
    with pytest.raises(FrameTooLarge):
        intercom_listing("r" * MAX_FRAME, [row("a")])
