"""A message that stands twice in an inbox is shown once; nothing else is ever left out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.paths import ChannelPaths
from intercom.records import Position, Record
from intercom.spool.files import Inbox
from intercom.spool.format import Cutter
from intercom.spool.repeats import LOOK_BACK, leave_out
from intercom.wire.envelope import identify, make


def chat(message_id: str, text: str = "hi", sender: str = "ann", timestamp: str = "t") -> bytes:
    return make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session="bob",
        channel="room",
        payload={"text": text, "id": "the payload's own"},
        timestamp=timestamp,
    )


def spread(line: bytes) -> bytes:
    """The same as the original programs write it, its fields in another order."""
    fields = json.loads(line)
    fields["id"] = fields.pop("id")
    return json.dumps(fields).encode()


def cut(lines: list[bytes], start: int = 0) -> tuple[bytes, list[Record]]:
    data = b"".join(line + b"\n" for line in lines)
    cutter = Cutter(start)
    cutter.feed(data)
    return data, cutter.records


def shown(before: list[bytes], lines: list[bytes]) -> list[bytes]:
    earlier = b"".join(line + b"\n" for line in before)
    _, records = cut(lines, len(earlier))
    stay, repeated = leave_out(earlier, records)
    places = {(one.start, one.end) for one in repeated}
    assert [record for record in records if record[:2] not in places] == stay
    assert len(stay) + len(repeated) == len(records)
    return [record.line for record in stay]


A, B, C = chat("a"), chat("b"), chat("c")


@pytest.mark.parametrize(
    ("before", "lines", "expected"),
    [
        ([], [A, B, C], [A, B, C]),
        ([], [A, B, A, C, B, A], [A, B, C]),
        ([A], [B, A], [B]),
        ([A], [A], []),
        ([A, A], [B], [B]),
        ([], [A, chat("a", timestamp="later")], [A]),
        ([], [A, chat("a", "other")], [A, chat("a", "other")]),
        ([], [A, chat("a", sender="eve")], [A, chat("a", sender="eve")]),
        ([A], [chat("x", '"id":"a"')], [chat("x", '"id":"a"')]),
        (
            [b"rubbish", b"", A],
            [b"{}", b'{"id":5}', b'{"id":5}', A, B],
            [b"{}", *[b'{"id":5}'] * 2, B],
        ),
        ([], [b'{"id":"x"}', b'{"id":"x"}'], [b'{"id":"x"}'] * 2),  # no envelopes
        ([spread(A)], [spread(A), spread(B), B], [spread(B), B]),  # its payload is spaced otherwise
        ([A + b" "], [b" " + A, B], [B]),
    ],
)
def test_what_stays(before: list[bytes], lines: list[bytes], expected: list[bytes]) -> None:
    assert shown(before, lines) == expected


def test_an_id_is_the_same_however_it_is_escaped() -> None:
    plain = chat("gr\u00fc\u00df")
    escaped = plain.replace("gr\u00fc\u00df".encode(), b"gr\\u00fc\\u00df")
    assert identify(plain) == identify(escaped)
    assert shown([plain], [escaped, A]) == [A]
    assert shown([escaped], [plain, A]) == [A]


@given(
    st.lists(st.sampled_from([A, B, C, spread(A), chat("a", "other"), b"x", b"", b"{}"])),
    st.integers(0, 20),
)
def test_what_is_left_out_is_what_a_slow_look_finds(lines: list[bytes], split: int) -> None:
    known = set()
    expected = []
    for number, line in enumerate(lines):
        found = identify(line)
        if number >= split and line[:1] == b"{" and (found is None or found not in known):
            expected.append(line)
        known.add(found)
    assert shown(lines[:split], lines[split:]) == expected


def test_an_inbox_is_read_once_wherever_reading_begins(
    paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    filler = [message(f"f{n}", "x" * 1000) for n in range(200)]
    lines = [message("m1"), *filler, message("m1"), message("m2")]
    Path(paths.inbox("bob")).write_bytes(b"".join(line + b"\n" for line in lines))
    inbox = Inbox(paths, "bob")
    whole = inbox.read()
    assert [record.line for record in whole.records] == [*lines[:-2], message("m2")]
    (span,) = whole.repeated
    assert span.end - span.start == len(message("m1")) + 1
    again = inbox.read(Position(1, span.start), limit=10)
    assert (again.records, again.repeated, again.next.offset) == ([], whole.repeated, span.end)
    inbox.commit(Position(1, span.start))
    assert inbox.unread() == 1
    assert inbox.skip_to_end()[0] == 1


def test_what_stands_too_far_away_is_not_looked_for(
    paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    far = [message(f"f{n}", "x" * 1000) for n in range(LOOK_BACK // 1000)]
    lines = [message("m1"), *far, message("m1")]
    data = b"".join(line + b"\n" for line in lines)
    Path(paths.inbox("bob")).write_bytes(data)
    start = len(data) - len(message("m1")) - 1
    assert len(Inbox(paths, "bob").read(Position(1, start)).records) == 1
    near = len(message("m1")) + 1
    Path(paths.inbox("bob")).write_bytes(data[near:])
    assert len(Inbox(paths, "bob").read(Position(1, start - near)).records) == 1
