"""Bytes arrive cut anywhere; lines come out whole, once each, in linear time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.wire import framing
from intercom.wire.envelope import MAX_LINE
from intercom.wire.framing import LineCutter


def cut(data: bytes, limit: int = MAX_LINE) -> list[bytes | None]:
    return LineCutter(limit).feed(data)


def fed(cutter: LineCutter, chunks: Iterable[bytes]) -> list[bytes | None]:
    return [line for chunk in chunks for line in cutter.feed(chunk)]


def expected(stream: bytes, limit: int) -> list[bytes | None]:
    """What must have come out once all of ``stream`` went in, said as simply as possible."""
    *ended, begun = stream.split(b"\n")
    lines: list[bytes | None] = []
    for line in ended:
        line = line.removesuffix(b"\r")
        lines.append(line if len(line) <= limit else None)
    if len(begun.removesuffix(b"\r")) > limit:
        lines.append(None)
    return lines


def test_lines_end_with_a_line_feed_alone_or_after_a_carriage_return() -> None:
    assert cut(b"one\ntwo\r\n\nthree\r\r\nrest") == [b"one", b"two", b"", b"three\r"]


def test_nothing_else_ends_a_line() -> None:
    text = "a\u2028b\u0085c\u2029d\x0be\x0cf\x1cg\rh".encode()
    assert cut(text + b"\n") == [text]


def test_an_unfinished_line_waits_for_its_end() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"") == []
    assert cutter.feed(b"hel") == []
    assert cutter.pending == 3
    assert cutter.feed(b"lo\nwor") == [b"hello"]
    assert cutter.pending == 3
    assert cutter.feed(b"ld\n") == [b"world"]
    assert cutter.pending == 0


def test_a_line_end_may_be_split_between_its_two_bytes() -> None:
    assert fed(LineCutter(), [b"one\r", b"\ntwo", b"\r", b"\n"]) == [b"one", b"two"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("split", range(8))
def test_a_line_of_exactly_the_limit_is_fine(end: bytes, split: int) -> None:
    stream = b"x" * 5 + end
    assert fed(LineCutter(5), [stream[:split], stream[split:]]) == [b"xxxxx"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("split", range(9))
def test_one_byte_more_is_one_overlong_line(end: bytes, split: int) -> None:
    stream = b"x" * 6 + end + b"ok\n"
    assert fed(LineCutter(5), [stream[:split], stream[split:]]) == [None, b"ok"]


def test_an_overlong_line_is_reported_at_once_and_only_once() -> None:
    cutter = LineCutter(10)
    assert cutter.feed(b"x" * 10) == []
    assert cutter.feed(b"x") == [None]
    assert cutter.pending == 0
    assert cutter.feed(b"x" * 1000) == []
    assert cutter.pending == 0
    assert cutter.feed(b"the end\nfine\n") == [b"fine"]


def test_what_follows_an_overlong_line_is_read_as_if_nothing_had_happened() -> None:
    stream = b"a\n" + b"x" * 50 + b"\nb\r\n" + b"y" * 50 + b"\n" + b"z" * 50
    assert cut(stream, 10) == [b"a", None, b"b", None, None]


def test_overlong_lines_among_short_ones_in_one_large_chunk_keep_their_places() -> None:
    assert cut(b"a\n" + b"x" * 9 + b"\n" + b"b\n" * 3, 8) == [b"a", None, b"b", b"b", b"b"]


def test_a_megabyte_is_the_limit_unless_another_is_asked_for() -> None:
    cutter = LineCutter()
    assert cutter.feed(b"x" * MAX_LINE) == []
    assert cutter.feed(b"\n") == [b"x" * MAX_LINE]
    assert cutter.feed(b"x" * (MAX_LINE + 1)) == [None]


STREAM = (
    b'{"type":"heartbeat"}\n\r\n\n'
    + "späte Grüße 🙂\r\n".encode()
    + b"x" * 40
    + b"\r\r\n"
    + b"y" * 300
    + b"\nlast\nunfinished"
)


def test_one_byte_at_a_time_gives_the_same_lines_as_all_at_once() -> None:
    single = [STREAM[at : at + 1] for at in range(len(STREAM))]
    assert fed(LineCutter(64), single) == cut(STREAM, 64) == expected(STREAM, 64)


CHUNKS = st.lists(
    st.lists(st.sampled_from([b"\n", b"\r", b"x", b"yy", b"zzzzz", b"\r\n"]), max_size=12).map(
        b"".join
    ),
    max_size=12,
)


@given(CHUNKS, st.integers(0, 12))
def test_any_split_gives_what_a_plain_split_of_the_whole_stream_gives(
    chunks: list[bytes], limit: int
) -> None:
    """After every chunk: the same lines, None as soon as the limit is passed, little kept."""
    cutter = LineCutter(limit)
    lines: list[bytes | None] = []
    stream = b""
    for chunk in chunks:
        lines += cutter.feed(chunk)
        stream += chunk
        assert lines == expected(stream, limit)
        assert cutter.pending <= limit + 1


# -- the cost, in bytes looked at or copied ---------------------------------------------------


class Counter:
    """How many bytes were searched or copied."""

    work = 0


class CountedBytes(bytes):
    """Bytes that count what is done with them, and pass that on to what is made of them."""

    def _counted(self, size: int) -> None:
        Counter.work += size

    def split(self, *args: Any) -> list[bytes]:
        self._counted(len(self))
        return [CountedBytes(part) for part in super().split(*args)]

    def partition(self, separator: Any) -> tuple[bytes, bytes, bytes]:
        self._counted(len(self))
        head, found, tail = super().partition(separator)
        return CountedBytes(head), found, CountedBytes(tail)

    def find(self, *args: Any) -> int:
        self._counted(len(self))
        return super().find(*args)

    def __contains__(self, item: Any) -> bool:
        self._counted(len(self))
        return super().__contains__(item)

    def __add__(self, other: Any) -> bytes:
        self._counted(len(self) + len(other))
        return CountedBytes(bytes.__add__(self, other))

    def __radd__(self, other: Any) -> bytes:
        self._counted(len(self) + len(other))
        return CountedBytes(bytes.__add__(bytes(other), self))

    def __getitem__(self, key: Any) -> Any:
        part = super().__getitem__(key)
        if isinstance(part, int):
            return part
        self._counted(len(part))
        return CountedBytes(part)


class CountedBytearray(bytearray):
    """A buffer that counts what is put into it and taken out of it."""

    def __iadd__(self, other: Any) -> CountedBytearray:  # type: ignore[misc]
        Counter.work += len(other)
        return super().__iadd__(other)

    def __bytes__(self) -> bytes:
        Counter.work += len(self)
        return CountedBytes(memoryview(self))

    def _searched(self, *_: Any) -> Any:
        raise AssertionError("what was kept is not to be looked at again")

    find = index = split = partition = count = __contains__ = _searched  # type: ignore[assignment]


class SimpleCutter:
    """The obvious way, as the stock class of the framework does it: the rest is copied per line."""

    def __init__(self) -> None:
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        lines = []
        self.rest = self.rest + data
        while b"\n" in self.rest:
            line, _, self.rest = self.rest.partition(b"\n")
            lines.append(line)
        return lines


def one_byte_chunks(size: int) -> list[bytes]:
    return [b"x"] * size + [b"\n"]


def one_chunk_of_short_lines(size: int) -> list[bytes]:
    return [b"abcdefg\n" * (size // 8)]


def small_chunks_of_short_lines(size: int) -> list[bytes]:
    return [b"ab\ncdefgh\nij"] * (size // 12)


def skipped_bytes(size: int) -> list[bytes]:
    return [b"x" * 100] * (3 * size // 100)


def work(make: Callable[[], Any], chunks: list[bytes]) -> int:
    Counter.work = 0
    cutter = make()
    for chunk in chunks:
        cutter.feed(CountedBytes(chunk))
    return Counter.work


@pytest.mark.parametrize(
    "stream",
    [one_byte_chunks, one_chunk_of_short_lines, small_chunks_of_short_lines, skipped_bytes],
)
def test_each_byte_costs_the_same_however_long_the_line_and_however_small_the_chunks(
    stream: Callable[[int], list[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(framing, "bytearray", CountedBytearray, raising=False)
    chunks = stream(4800)
    size = sum(map(len, chunks))
    spent = work(lambda: LineCutter(4800), chunks)
    assert size <= spent <= 4 * size


@pytest.mark.parametrize("stream", [one_byte_chunks, one_chunk_of_short_lines])
def test_the_counting_would_notice_a_cutter_that_copies_the_rest(
    stream: Callable[[int], list[bytes]],
) -> None:
    """What the test above asserts is not true of every way to cut lines."""
    chunks = stream(4800)
    assert work(SimpleCutter, chunks) > 50 * sum(map(len, chunks))
