"""Garbage for everything that reads: framing, envelopes, small files, and the client.

A corpus of what has broken programs of this kind, replayed; then changes of it that follow
from a seed. The long form goes on for INTERCOM_FUZZ_SECONDS for each target.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import garbage
import pytest
from storm_place import record

from intercom.client.blocking import HubConnection
from intercom.client.control import published
from intercom.election.locks import already_led, leader
from intercom.errors import IntercomError, ProtocolError
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.settings.files import ChannelFile
from intercom.spool import deadletters, history, turns
from intercom.spool.calls import FileCalls
from intercom.spool.files import Inbox
from intercom.spool.format import Damaged, parse_meta, parse_offset
from intercom.spool.trail import Trail
from intercom.wire import envelope
from intercom.wire.framing import LineCutter
from intercom.wire.ndjson import Decoder

SECONDS = float(os.environ.get("INTERCOM_FUZZ_SECONDS", "300"))
#: What a hub may answer a line with that is no message.
CODES = {"BAD_JSON", "BAD_ENVELOPE", "BAD_SESSION_ID", "LINE_TOO_LONG"}


def check_framing(chance: random.Random) -> None:
    """However the bytes are cut: the same lines, and one for each line feed."""
    lines = [garbage.line(chance) for _ in range(chance.randint(1, 5))]
    limit = chance.choice([10, 100, 1000, 1 << 20])
    cutter = LineCutter(limit)
    found: list[bytes | None] = []
    rest = b"\n".join(lines) + b"\n"
    while rest:
        at = chance.choice([1, 7, 64, 4096, len(rest)])
        found += cutter.feed(rest[:at])
        rest = rest[at:]
    assert len(found) == len(lines)
    for one, line in zip(found, lines, strict=True):
        assert one is None or one.rstrip(b"\r") == line.rstrip(b"\r")
        assert one is not None or len(line) >= limit


DECODER = Decoder("default", iter(map(str, range(1 << 40))).__next__, lambda: "t")


def check_envelope(chance: random.Random) -> None:
    """A message or a refusal with a code; what is a message, a reader can read."""
    check_line(garbage.line(chance), chance.choice([None, "ada"]))


def check_line(line: bytes, session: str | None) -> None:
    """One line, by everything that reads lines."""
    envelope.identify(line)
    with contextlib.suppress(ProtocolError):
        envelope.parse(line)
    refused = ""
    try:
        DECODER.decode(line, session)
    except ProtocolError as error:
        refused = error.code
    assert refused in CODES | {"CHANNEL_MISMATCH", ""}, refused


class Files:
    """One channel whose small files hold garbage."""

    def __init__(self, paths: ChannelPaths) -> None:
        self.paths = paths
        self.inbox = Path(paths.inbox("bob"))
        self.names = [
            paths.offset("bob"),
            paths.meta("bob"),
            paths.trail("bob"),
            paths.turn("bob"),
            paths.reader("bob"),
            paths.lock,
            paths.peers,
            paths.settings,
            paths.file("dead.ndjson"),
            paths.file("history.ndjson"),
        ]

    def check(self, chance: random.Random) -> None:
        """Whatever they hold, they are read, or it is said what is wrong with them."""
        content = b"".join(garbage.line(chance) + b"\n" for _ in range(3))
        self.hold(content[: chance.randint(0, len(content))], lambda: garbage.file(chance))

    def hold(self, content: bytes, small: Callable[[], bytes]) -> None:
        """Have every file hold something, and read them all."""
        self.inbox.write_bytes(content)
        for name in self.names:
            Path(name).write_bytes(small())
        for parse in (parse_offset, parse_meta):
            with contextlib.suppress(Damaged):
                parse(small())
        calls = FileCalls()
        with Inbox(self.paths, "bob", sleep=lambda _seconds: None) as inbox:
            with contextlib.suppress(IntercomError):
                batch = inbox.read()
                assert 0 <= batch.start.offset <= len(content)
                inbox.commit(batch.next)
            with contextlib.suppress(IntercomError):
                inbox.commit(Position(1, len(content)))
        Trail(self.paths, "bob", calls).events()
        turns.turn_of(self.paths, "bob")
        turns.reader_of(self.paths, "bob")
        leader(self.paths)
        assert already_led(self.paths).text
        published(self.paths)
        with contextlib.suppress(IntercomError):
            ChannelFile(self.paths).read()
        deadletters.DeadLetters(self.paths, calls, time.time).read(5)
        history.lookup(self.paths, "m1")
        history.pushes(self.paths, "bob")


class Reader:
    """A client at whose other end somebody writes what he likes."""

    def __init__(self, paths: ChannelPaths) -> None:
        self.paths = paths

    def check(self, chance: random.Random) -> None:
        """It gets what it asked for, or says why not."""
        lines = [garbage.line(chance) for _ in range(chance.randint(0, 4))]
        self.hear(b"\n".join(lines) + chance.choice([b"\n", b""]), chance.randrange(3))

    def hear(self, data: bytes, what: int) -> None:
        """Read everything that was written, in one of three ways."""
        ours, theirs = socket.socketpair()
        with HubConnection(ours, self.paths, "ada") as hub, theirs:
            theirs.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                theirs.send(data)
            theirs.shutdown(socket.SHUT_WR)
            with contextlib.suppress(IntercomError):
                if what == 0:
                    hub.register(features=("receipts",), timeout=1.0)
                elif what == 1:
                    hub.answer_to("m1", 1.0)
                while hub.receive(0.0) is not None:
                    pass


@pytest.fixture
def targets(paths: ChannelPaths) -> dict[str, Callable[[random.Random], None]]:
    """What is fed, each by one call."""
    return {
        "framing": check_framing,
        "envelope": check_envelope,
        "files": Files(paths).check,
        "client": Reader(paths).check,
    }


TARGETS = {"framing": 3_000, "envelope": 10_000, "files": 150, "client": 3_000}


def fuzz(
    check: Callable[[random.Random], None], seeds: Iterator[int], until: Callable[[int], bool]
) -> int:
    """Feed a target; how often."""
    done = 0
    for seed in seeds:
        if until(done):
            break
        try:
            check(random.Random(seed))
        except BaseException as error:
            error.add_note(f"with the seed {seed}")
            raise
        done += 1
    return done


@pytest.mark.parametrize("name", TARGETS)
def test_garbage_breaks_no_reader(targets: Any, name: str) -> None:
    count = TARGETS[name]
    assert fuzz(targets[name], iter(range(count)), lambda _done: False) == count


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_much_garbage_breaks_no_reader(targets: Any, name: str) -> None:
    start = time.time_ns()
    end = time.monotonic() + SECONDS
    done = fuzz(targets[name], iter(range(start, 1 << 80)), lambda _n: time.monotonic() > end)
    print(name, done, "from the seed", start)
    record(f"fuzz, {name}", {"executions": done, "seed": start})
    assert done > 1000


@pytest.mark.parametrize("line", garbage.LINES, ids=range(len(garbage.LINES)))
def test_what_broke_others_before(paths: ChannelPaths, line: bytes) -> None:
    """The corpus as it is, each line by itself, for each that reads lines."""
    for session in (None, "ada"):
        check_line(line, session)
    for what in range(3):
        Reader(paths).hear(line + b"\n", what)
        Reader(paths).hear(garbage.LINES[-6] + b"\n" + line + b"\n", what)
    Files(paths).hold(line + b"\n" + garbage.LINE + b"\n", lambda: b"")
    for content in garbage.FILES:
        Files(paths).hold(garbage.LINE + b"\n", lambda content=content: content)


def test_ten_thousand_bad_lines_to_a_live_hub(hub: Any) -> None:
    """Each has its error, no connection is closed, memory stays flat, and others are served."""
    one = hub("--durability", "process")
    eve, ada, bob = one.connect("eve"), one.connect("ada", "receipts"), one.connect("bob")
    chance = random.Random(1)
    batches = [[garbage.bad_line(chance) for _ in range(250)] for _ in range(40)]
    eve.send(b"".join(line + b"\n" for line in batches[0]))
    codes = Counter(eve.until("error")["payload"]["code"] for _ in batches[0])
    before = one.memory()

    def flood() -> None:
        for batch in batches[1:]:
            eve.send(b"".join(line + b"\n" for line in batch))

    flooding = threading.Thread(target=flood)
    flooding.start()
    waits = []
    for pings, batch in enumerate(batches[1:]):
        for _ in batch:
            codes[eve.until("error")["payload"]["code"]] += 1
        began = time.monotonic()
        ada.chat("bob", f"ping {pings}")
        assert bob.until("chat")["payload"]["text"] == f"ping {pings}"
        assert ada.until("receipt")["payload"]["state"] == "stored"
        waits.append(time.monotonic() - began)
    flooding.join()
    assert sum(codes.values()) == 10_000
    assert set(codes) <= CODES, codes
    assert one.memory() - before < 20 << 20
    eve.say("heartbeat", id="h1")
    assert eve.read()["type"] == "heartbeat", "it answered more than it was asked"
    assert max(waits) < 5.0, "a canary had to wait"
    assert not any(json.dumps(line).count("Traceback") for line in one.log())
    assert one.stop() < 10.0
