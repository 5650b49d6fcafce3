"""Files that end at any byte: every complete message is read, and the next one is stored."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Position, Written
from intercom.spool.files import Inbox
from intercom.spool.store import Store

#: Every so many-th byte is cut at where a shape is long; the long form cuts at each.
STEP = 7
SHAPES = {
    "one message": ["a"],
    "four messages in many scripts": ["grüße", "你好，世界", "💥💥", 'back\\slash "quoted" {}'],
    "messages across a page": ["x" * 1500, "é" * 700, "y" * 900, "z"],
    "forty messages": ["{{}}"[: n % 4] + "ü" * (n % 5) + "\\" * (n % 3) for n in range(40)],
}
#: Of the long form: how many cuts in all.
CUTS = int(os.environ.get("INTERCOM_TORN_CUTS", "100000"))

Message = Callable[..., bytes]
Tear = Callable[[list[bytes], Iterable[int], str], int]


@pytest.fixture
def tear(paths: ChannelPaths, message: Message, entry: Callable[..., Entry], calls: Any) -> Tear:
    """Cuts a file of these lines at each of these bytes, reads, appends, and reads again.

    Returns how many of the files ended in the middle of a line.
    """
    calls.sync = calls.sync_directory = lambda _where: None  # thousands would take minutes
    path = paths.inbox("bob")

    def one(lines: list[bytes], whole: bytes, cut: int, by: str) -> bool:
        store = Store(paths, calls)
        store.start()
        with open(path, "wb") as file:
            file.write(whole[:cut])
        complete = whole[:cut].count(b"\n")
        behind = whole[:cut].rfind(b"\n") + 1
        inbox = Inbox(paths, "bob", calls=calls)
        before = inbox.read()
        assert [record.line for record in before.records] == lines[:complete], cut
        assert before.damaged == []
        assert before.at_end
        assert before.next == Position(1, behind)
        if by == "client":
            new = message("new")
            assert inbox.append(new, sender="ann", message_id="new")
        else:
            new = entry(cut).line
            outcomes = store.append_batch([entry(cut)]).outcomes
            assert isinstance(outcomes[-1], Written), outcomes
            seen = [r.line for o in outcomes if isinstance(o, Appeared) for r in o.records]
            assert seen == [line for line in lines if line + b"\n" in whole[:cut] + b"\n"]
        batch = inbox.read(before.start)
        # A line that lacked only its line feed is a message now; any other is damage.
        lacked_its_end = whole[cut : cut + 1] == b"\n"
        expected = lines[: complete + lacked_its_end]
        assert [record.line for record in batch.records] == [*expected, new], cut
        torn = cut > 0 and whole[cut - 1 : cut] != b"\n" and not lacked_its_end
        assert [(span.start, span.end) for span in batch.damaged] == [(behind, cut + 1)] * torn
        # Who had read up to the torn line gets the rest, and nothing else.
        rest = [record.line for record in inbox.read(before.next).records]
        assert rest == [*expected[complete:], new], cut
        assert inbox.commit(batch.next) == batch.next
        assert inbox.unread() == 0
        store.close()
        for name in os.listdir(paths.directory):
            os.unlink(paths.file(name))
        return torn

    def tear(lines: list[bytes], cuts: Iterable[int], by: str) -> int:
        whole = b"".join(line + b"\n" for line in lines)
        return sum(one(lines, whole, cut, by) for cut in cuts)

    return tear


@pytest.mark.parametrize("by", ["client", "hub"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_torn_at_any_byte_keeps_every_complete_message_and_takes_the_next(
    message: Message, tear: Tear, shape: str, by: str
) -> None:
    lines = [message(f"old_{n}", text) for n, text in enumerate(SHAPES[shape])]
    size = sum(len(line) + 1 for line in lines)
    step = 1 if size < 300 else STEP if size < 3000 else 3 * STEP
    assert tear(lines, range(0, size + 1, step), by) > 10


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "hub"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_torn_at_every_single_byte(
    message: Message, tear: Tear, shape: str, by: str
) -> None:
    lines = [message(f"old_{n}", text) for n, text in enumerate(SHAPES[shape])]
    size = sum(len(line) + 1 for line in lines)
    assert tear(lines, range(size + 1), by) > 10


@pytest.mark.slow
@pytest.mark.parametrize("by", ["client", "hub"])
def test_files_of_any_lines_torn_anywhere(message: Message, tear: Tear, by: str) -> None:
    left, seed = CUTS // 2, 0
    while left > 0:
        chance = random.Random(f"torn {seed}")
        texts = ["".join(chance.choices('a{}"\\\n\0é你💥\u2028', k=chance.choice((0, 3, 40, 4000))))
                 for _ in range(chance.randint(1, 12))]  # fmt: skip
        lines = [message(f"old_{n}", text) for n, text in enumerate(texts)]
        size = sum(len(line) + 1 for line in lines)
        cuts = sorted(chance.sample(range(size + 1), min(left, size + 1, 400)))
        assert tear(lines, cuts, by) >= 0, seed
        left -= len(cuts)
        seed += 1


@pytest.mark.parametrize("by", ["client", "hub"])
def test_a_line_torn_behind_its_payload_is_damage_whatever_braces_its_text_has(
    message: Message, tear: Tear, by: str
) -> None:
    lines = [message("before"), message("torn", "a lone } in a text"), message("behind")]
    cut = len(lines[0]) + 1 + lines[1].index(b',"timestamp"')
    assert tear(lines, [cut], by) == 1
