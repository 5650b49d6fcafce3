"""Files that end at any byte: every complete message is read, and the next one is stored."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Written
from intercom.spool.files import Inbox
from intercom.spool.store import Store

SHAPES = {
    "one message": ["a"],
    "four messages in many scripts": ["grüße", "你好，世界", "💥💥", 'back\\slash "quoted" {}'],
    "messages across a page": ["x" * 1500, "é" * 700, "y" * 900, "z"],
}


@pytest.mark.parametrize("by", ["client", "hub"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_file_torn_at_any_byte_keeps_every_complete_message_and_takes_the_next(
    paths: ChannelPaths,
    message: Callable[..., bytes],
    entry: Callable[..., Entry],
    calls: Any,
    shape: str,
    by: str,
) -> None:
    lines = [message(f"old_{n}", text) for n, text in enumerate(SHAPES[shape])]
    whole = b"".join(line + b"\n" for line in lines)
    path = paths.inbox("bob")
    calls.sync = calls.sync_directory = lambda _where: None  # thousands would take minutes
    step = 1 if len(whole) < 1200 else 7
    damages = 0
    for cut in range(0, len(whole) + 1, step):
        store = Store(paths, calls)
        store.start()
        with open(path, "wb") as file:
            file.write(whole[:cut])
        complete = whole[:cut].count(b"\n")
        inbox = Inbox(paths, "bob", calls=calls)
        before = inbox.read()
        assert [record.line for record in before.records] == lines[:complete], cut
        assert before.damaged == []
        assert before.at_end
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
        assert len(batch.damaged) == torn, cut
        damages += torn
        store.close()
        os.unlink(path)
    assert damages > 10
