"""Cutting inboxes into lines, and reading small files whatever is in them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.names import file_name
from intercom.records import Position, Record, Span
from intercom.spool import format as spool_format
from intercom.spool.format import (
    Cutter,
    Damaged,
    Keep,
    Mark,
    Stored,
    decode_name,
    dump_meta,
    dump_offset,
    parse_meta,
    parse_offset,
    split_name,
    unfit,
)
from intercom.wire.envelope import MAX_LINE

PIECES = [
    b'{"a": 1}\n',
    '{"text": "grüße 💥"}\n'.encode(),
    b"\n",
    b"   \n",
    b"not json\n",
    b'{"torn": "\xff"}\n',
    b'{"payload": {"x": 1}\n',
    b'{"text": "}"}\r\n',
    b'{"unfinished',
]


def cut(data: bytes, *sizes: int, base: int = 0) -> Cutter:
    cutter = Cutter(base)
    at = 0
    for size in sizes:
        cutter.feed(data[at : at + size])
        at += size
    cutter.feed(data[at:])
    return cutter


def test_an_unfinished_last_line_is_no_message() -> None:
    cutter = cut(b'{"a":1}\n{"b":2}', base=100)
    assert cutter.records == [Record(100, 108, b'{"a":1}')]
    assert (cutter.next, cutter.pending) == (108, 7)


@given(st.lists(st.sampled_from(PIECES), max_size=8), st.lists(st.integers(1, 9)))
def test_lines_are_the_same_however_they_come(pieces: list[bytes], sizes: list[int]) -> None:
    data = b"".join(pieces)
    whole, parts = cut(data), cut(data, *sizes)
    assert parts.records == whole.records
    assert parts.damaged == whole.damaged
    assert (parts.next, parts.pending) == (whole.next, whole.pending)


@given(st.lists(st.sampled_from(PIECES), max_size=8))
def test_every_byte_is_in_one_message_or_one_damage_or_unfinished(pieces: list[bytes]) -> None:
    data = b"".join(pieces)
    cutter = cut(data)
    places = sorted([(r.start, r.end) for r in cutter.records] + [s[:2] for s in cutter.damaged])
    assert [start for start, _ in places] == ([0] + [end for _, end in places])[: len(places)]
    assert cutter.next == (places[-1][1] if places else 0)
    assert cutter.next + cutter.pending == len(data)
    for record in cutter.records:
        assert data[record.start : record.end] == record.line + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "blank"),
        (b" \t\r", "blank"),
        (b"[1]", "not a JSON object"),
        (b'{"a": 1', "not a JSON object"),
        (b'{"a": {"b": 1}', "not a JSON object"),
        (b'{"a": "\xc3"}', "not valid UTF-8"),
        (b"{" + b" " * MAX_LINE + b"}", f"longer than {MAX_LINE} bytes"),
    ],
)
def test_a_bad_line_is_skipped_with_a_reason(line: bytes, reason: str) -> None:
    assert unfit(line) == reason
    cutter = cut(line + b"\n" + b'{"good":1}\n')
    assert cutter.damaged == [Span(0, len(line) + 1, reason)]
    assert [record.line for record in cutter.records] == [b'{"good":1}']


@pytest.mark.parametrize(
    "line",
    [
        b"{}",
        b'{"text": "}{"}',
        b'{"text": "}"}',
        b' {"a": {"b": 1}} \r',
        b'{"t": "a\xe2\x80\xa8b"}',
    ],
)
def test_a_good_line_is_a_message(line: bytes) -> None:
    assert unfit(line) == ""


def test_a_line_without_end_costs_no_memory() -> None:
    cutter = Cutter(0)
    for _ in range(40):
        cutter.feed(b"x" * (MAX_LINE // 4))
    assert sum(map(len, cutter._begun)) <= MAX_LINE
    cutter.feed(b'tail\n{"good":1}\n')
    length = 10 * MAX_LINE + 5
    assert cutter.damaged == [Span(0, length, f"longer than {MAX_LINE} bytes")]
    assert cutter.records == [Record(length, length + 11, b'{"good":1}')]


NO_NUMBERS = ["-1", "1.5", "1e400", "true", "null", '"7"', "[1]", "{}", str(1 << 60), "9" * 5000]


@pytest.mark.parametrize(
    "content",
    [b"", b" ", b"[]", b"7", b'"7"', b"null", b"{", b"{}", b"\xff\xfe", b"\x00" * 40, b"[" * 100000]
    + [b'{"offset": %s}' % number.encode() for number in NO_NUMBERS]
    + [b'{"offset": 1, "generation": %s}' % n.encode() for n in [*NO_NUMBERS, "0"] if n != "null"],
)
def test_a_damaged_offset_file_is_said_to_be_damaged(content: bytes) -> None:
    with pytest.raises(Damaged):
        parse_offset(content)


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b'{"generation": 1, "emptying": 5}', b'{"generation": 1, "emptying": {}}']
    + [b'{"generation": %s}' % number.encode() for number in [*NO_NUMBERS, "0"]]
    + [b'{"generation": 1, "emptying": {"to": 2, "size": -1, "head": ""}}']
    + [
        b'{"generation": 1, "emptying": {"to": 2, "size": 1, "head": "", "keep": %s}}' % keep
        for keep in (b"5", b"[]", b"{}", b'{"size": 5}', b'{"size": -5, "digest": ""}')
    ],
)
def test_a_damaged_meta_file_is_said_to_be_damaged(content: bytes) -> None:
    with pytest.raises(Damaged):
        parse_meta(content)


def test_the_small_files_say_what_was_written() -> None:
    assert parse_offset(dump_offset(Position(3, 70), "bob", 12.5)) == Stored(70, 3, "bob")
    assert parse_offset(dump_offset(Position(3, 70), "bob", 12.5, 4.0)).foreign_at == 4.0
    assert json.loads(dump_offset(Position(3, 70), "bob", 12.5)) == {
        "offset": 70,
        "updated_at": 12.5,
        "generation": 3,
        "session": "bob",
    }
    mark = Mark(4, 70, "abc")
    assert parse_meta(dump_meta("bob", 3, mark)) == spool_format.Meta(3, "bob", mark)
    kept = mark._replace(keep=Keep(9, "def"))
    for one in (kept, kept._replace(forward=True)):
        assert parse_meta(dump_meta("bob", 3, one)) == spool_format.Meta(3, "bob", one)
    assert json.loads(dump_meta("bob", 3)) == {"format": 1, "session": "bob", "generation": 3}


def test_an_offset_file_of_the_original_programs_is_read() -> None:
    assert parse_offset(b'{"offset": 12, "updated_at": 1.5}') == Stored(12, None)
    assert parse_offset(b'{"offset": 12, "generation": null, "session": 5}') == Stored(12, None)


@given(st.text(min_size=1, max_size=128))
def test_a_file_name_leads_back_to_its_session(session: str) -> None:
    try:
        encoded = file_name(session)
    except UnicodeEncodeError:
        return
    assert decode_name(encoded) == (None if "~" in encoded else session)


@pytest.mark.parametrize("name", ["b%", "b%2", "b%zz", "%41", "b~", "a%FF", "a%ff", "caf\u00e9"])
def test_a_file_name_that_we_would_not_make_names_no_session(name: str) -> None:
    assert decode_name(name) is None


def test_only_files_of_sessions_are_taken_for_such() -> None:
    assert split_name("inbox_a_b.ndjson") == ("inbox", "a_b")
    assert split_name("token_a.b") == ("token", "a.b")
    assert split_name("offset_a.json") == ("offset", "a")
    assert split_name("trail_a%20b.ndjson") == ("trail", "a%20b")
    for name in ("hub.lock", "inbox_.ndjson", "inbox_a.json", "meta_a", "peers.json", ".tmp-1"):
        assert split_name(name) is None
