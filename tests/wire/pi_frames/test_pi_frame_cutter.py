"""Frames come out whole and in order, however they were split; nothing else comes out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire.pi.frames import (
    MAX_FRAME,
    FrameCutter,
    FrameTooLarge,
    dump_frame,
    read_object,
)
from intercom.wire.pi.reading import MAX_DEPTH, FrameError, is_nested_over, read_json

LIST = b'{"type":"list","requestId":"r"}'


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4) + body


def fed(cutter: FrameCutter, chunks: Iterable[bytes]) -> tuple[list[dict[str, Any]], str | None]:
    """All that came out, and the code of the error that ended it."""
    found = []
    try:
        for chunk in chunks:
            for frame in cutter.feed(chunk):
                found.append(frame)
    except FrameError as error:
        return found, error.code
    return found, None


def one_by_one(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def test_many_frames_in_one_read_and_one_frame_in_many() -> None:
    stream = framed(LIST) * 3
    expected = [json.loads(LIST)] * 3
    assert fed(FrameCutter(), [stream]) == (expected, None)
    assert fed(FrameCutter(), one_by_one(stream)) == (expected, None)


def test_a_split_anywhere_changes_nothing() -> None:
    stream = framed(LIST) + framed('{"type":"é🙂"}'.encode())
    for at in range(len(stream) + 1):
        assert fed(FrameCutter(), [stream[:at], stream[at:]])[0] == [
            json.loads(LIST),
            {"type": "é🙂"},
        ]


def test_the_unfinished_is_kept_and_counted() -> None:
    cutter = FrameCutter()
    assert list(cutter.feed(framed(LIST)[:10])) == []
    assert cutter.pending == 10
    assert list(cutter.feed(framed(LIST)[10:] + b"\0")) == [json.loads(LIST)]
    assert cutter.pending == 1


def test_frames_that_were_not_taken_come_with_the_next_read() -> None:
    cutter = FrameCutter()
    bodies = [b'{"type":"%d"}' % n for n in range(4)]
    frames = cutter.feed(b"".join(map(framed, bodies[:3])))
    assert next(frames) == {"type": "0"}
    assert [frame["type"] for frame in cutter.feed(framed(bodies[3]))] == ["1", "2", "3"]


def test_the_longest_frame_is_taken_and_one_byte_more_is_not() -> None:
    body = b'{"type":"' + b"x" * (MAX_FRAME - 11) + b'"}'
    assert len(body) == MAX_FRAME
    assert [len(frame["type"]) for frame in FrameCutter().feed(framed(body))] == [MAX_FRAME - 11]
    # refused as soon as its length is known
    assert fed(FrameCutter(), [(MAX_FRAME + 1).to_bytes(4)]) == ([], "LINE_TOO_LONG")


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"\0\0\0\0", "LINE_TOO_LONG"),
        (b"\xff\xff\xff\xff", "LINE_TOO_LONG"),
        (b'{"type":"list"}\n', "LINE_TOO_LONG"),
        (framed(b"x"), "BAD_JSON"),
        (framed(b" "), "BAD_JSON"),
        (framed(b'{"type":"a"} x'), "BAD_JSON"),
        (framed(b'{"type":"\xff"}'), "BAD_JSON"),
        (framed(b'\xef\xbb\xbf{"type":"a"}'), "BAD_JSON"),
        (framed('{"type":"a"}'.encode("utf-16-le")), "BAD_JSON"),
        (framed(b'{"type":"a\n"}'), "BAD_JSON"),
        (framed(b'{"type":"a","n":NaN}'), "BAD_JSON"),
        (framed(b'{"type":"a","n":-Infinity}'), "BAD_JSON"),
        (framed(b'{"type":"a","n":01}'), "BAD_JSON"),
        (framed(b'{"type":"a","n":[1,]}'), "BAD_JSON"),
        (framed(b'{"type":"a","n":' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}"), "BAD_JSON"),
        (framed(b"[" * 500_000), "BAD_JSON"),
        (framed(b'{"a":' * 100_000), "BAD_JSON"),
        (framed(b"null"), "BAD_ENVELOPE"),
        (framed(b'"type"'), "BAD_ENVELOPE"),
        (framed(b'[{"type":"a"}]'), "BAD_ENVELOPE"),
        (framed(b"{}"), "BAD_ENVELOPE"),
        (framed(b'{"type":null}'), "BAD_ENVELOPE"),
        (framed(b'{"type":["a"]}'), "BAD_ENVELOPE"),
    ],
)
def test_the_first_bad_frame_ends_it_and_those_before_it_count(bad: bytes, code: str) -> None:
    cutter = FrameCutter()
    assert fed(cutter, [framed(LIST) + bad + framed(LIST)]) == ([json.loads(LIST)], code)
    assert fed(cutter, [framed(LIST)]) == ([], code)
    assert cutter.pending == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"9007199254740993", 9007199254740992.0),
        (b"123456789012345", 123456789012345),
        (b"-0", 0),
        (b"1" + b"0" * 5000, None),
        (b"-1e999", None),
        (b"0." + b"3" * 5000, 1 / 3),
        (b'"\\ud800"', "\ud800"),
        (b'"\\ud83d\\ude42"', "🙂"),
        (b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
        (b"\t\r\n [ ]", []),
    ],
)
def test_values_are_read_as_javascript_reads_them(text: bytes, value: Any) -> None:
    assert read_json(text) == value


def test_containers_may_nest_as_deep_as_said() -> None:
    inner = MAX_DEPTH - 1
    assert read_object(b'{"type":"a","n":' + b"[" * inner + b"]" * inner + b"}")["type"] == "a"
    assert not is_nested_over({"a": [1], "b": 2}, 2)
    assert is_nested_over({"a": [1], "b": 2}, 1)
    assert not is_nested_over("[[[", 0)
    assert is_nested_over([], 0)


# -- writing ----------------------------------------------------------------------------------


def test_a_frame_is_its_length_and_its_json() -> None:
    frame = {"type": "sessions", "sessions": [], "n": 1.0, "text": "é\ud800"}
    body = '{"type":"sessions","sessions":[],"n":1,"text":"é\\ud800"}'.encode()
    assert dump_frame(frame) == len(body).to_bytes(4) + body


def test_what_is_too_large_for_a_frame_is_refused_in_the_words_of_the_clients() -> None:
    frame = {"type": "x", "text": ""}
    frame["text"] = "é" * ((MAX_FRAME - len(dump_frame(frame)) + 4) // 2)
    dump_frame(frame)
    frame["text"] += "xx"
    with pytest.raises(FrameTooLarge) as caught:
        dump_frame(frame)
    size = len(json.dumps(frame, ensure_ascii=False, separators=(",", ":")).encode())
    assert caught.value.text == f"Intercom message too large ({size} bytes; max 1048576)"


# -- whatever comes ---------------------------------------------------------------------------

PIECES = st.one_of(
    st.binary(max_size=12),
    st.sampled_from([framed(LIST), framed(b"{}"), framed(b'{"type":1}'), b"\0\0\0\x02", b"\0"]),
    st.binary(max_size=30).map(framed),
    st.text(st.sampled_from('{}[]",:\\ud8typea01-.eE'), max_size=30).map(
        lambda text: framed(text.encode())
    ),
)


@given(st.lists(PIECES, max_size=6), st.data())
def test_any_bytes_give_frames_or_the_one_error_and_the_split_does_not_matter(
    pieces: list[bytes], data: st.DataObject
) -> None:
    stream = b"".join(pieces)
    whole = fed(FrameCutter(), [stream])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=5)))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert fed(FrameCutter(), chunks) == whole
    assert fed(FrameCutter(), one_by_one(stream)) == whole


FRAMES = st.dictionaries(
    st.text(max_size=5),
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=9),
    max_size=4,
).map(lambda fields: {**fields, "type": "any"})


@given(st.lists(FRAMES, max_size=5), st.integers(1, 40))
def test_what_is_written_is_read(frames: list[dict[str, Any]], step: int) -> None:
    stream = b"".join(map(dump_frame, frames))
    chunks = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert fed(FrameCutter(), chunks) == (frames, None)


def hostile(size: int) -> list[list[bytes]]:
    """Streams of about that size that a careless reader takes long over."""
    small = framed(b'{"type":""}')
    long = framed(b'{"type":"' + b"x" * (size - 11) + b'"}')
    return [
        [small * (size // len(small))],
        [long[at : at + 16] for at in range(0, len(long), 16)],
        [framed(b'{"type":"","a":[' + b"{}," * (size // 3) + b"1]}")],
        [framed(b'{"type":"","a":' + b"1" * size + b"}")],
        [framed(b'{"type":"","a":0.' + b"1" * size + b"e-5}")],
        [framed(b'{"type":"' + b'\\"' * (size // 2) + b'"}')],
        [framed(b'{"type":"' + b"\\ud83d" * (size // 6) + b'"}')],
        [framed(b"[" * size)],
    ]


@pytest.mark.parametrize("which", range(len(hostile(64))))
def test_time_is_linear_in_the_bytes(which: int) -> None:
    """Sixteen times as much may take at most some sixty times as long: squares would be 256."""

    def cost(size: int) -> float:
        tries = []
        for _ in range(3):
            chunks = hostile(size)[which]
            begin = time.process_time()
            fed(FrameCutter(), chunks)
            tries.append(time.process_time() - begin)
        return min(tries)

    little = max(cost(1 << 15), 0.0005)
    assert cost(1 << 19) < 64 * little
