"""Processes that share an inbox by its lock: nothing torn, nothing lost, nothing twice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from intercom.paths import ChannelPaths
from intercom.records import Appeared, Entry, Refused, Written
from intercom.spool.files import Inbox
from intercom.spool.store import Store

WRITER = textwrap.dedent(
    """
    import os, sys
    from intercom.paths import ChannelPaths
    from intercom.spool.calls import FileCalls
    from intercom.spool.files import Inbox
    from intercom.wire.envelope import make
    base, name, count, size, piece = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])

    class InPieces(FileCalls):
        def write(self, fd, data):
            return os.write(fd, memoryview(data)[:piece])
        def sync(self, fd):
            pass

    inbox = Inbox(ChannelPaths(base, "room"), "bob", calls=InPieces())
    for n in range(count):
        line = make(type="chat", message_id=f"{name}-{n}", from_session=name, to_session="bob",
                    channel="room", payload={"text": "é" * (size + n % 7)}, timestamp="t")
        assert inbox.append(line, sender=name, message_id=f"{name}-{n}", after=inbox.size(),
                            timeout=60)
    """
)


def start_writer(
    paths: ChannelPaths, name: str, count: int, size: int, piece: int
) -> subprocess.Popen[Any]:
    """A client that appends ``count`` messages, ``piece`` bytes with each write."""
    numbers = [str(number) for number in (count, size, piece)]
    return subprocess.Popen([sys.executable, "-c", WRITER, paths.base, name, *numbers])


def test_clients_and_the_hub_append_at_once(
    paths: ChannelPaths, entry: Callable[..., Entry]
) -> None:
    writers = [start_writer(paths, name, 60, 500, 300) for name in ("ann", "eve")]
    store = Store(paths)
    store.start()
    news: list[bytes] = []
    written: list[int] = []
    waiting: list[Entry] = []
    ticket = 0
    deadline = time.monotonic() + 60
    while waiting or any(writer.poll() is None for writer in writers):
        assert time.monotonic() < deadline
        while len(waiting) < 3 and ticket < 20_000:
            waiting.append(entry(ticket, sender="hub-test"))
            ticket += 1
        work = store.append_batch(waiting)
        waiting = work.busy
        for outcome in work.outcomes:
            assert not isinstance(outcome, Refused)
            if isinstance(outcome, Appeared):
                news += [record.line for record in outcome.records]
            else:
                assert isinstance(outcome, Written)
                written.append(outcome.ticket)
        time.sleep(0.001)
    news += [r.line for o in store.work(["bob"], []).outcomes for r in o.records]  # type: ignore[union-attr]
    store.close()
    assert [writer.wait() for writer in writers] == [0, 0]
    order: dict[str, list[str]] = defaultdict(list)
    batch = Inbox(paths, "bob").read(limit=1 << 30)
    assert batch.damaged == []
    for record in batch.records:
        fields = json.loads(record.line)
        order[fields["from_session"]].append(fields["id"])
    assert order["eve"] == [f"eve-{n}" for n in range(60)]
    theirs = [json.loads(line)["id"] for line in news]
    assert len(theirs) == 120
    assert [name for name in theirs if name.startswith("eve")] == order["eve"]
    assert written == sorted(written)
    assert len(written) > 10
    assert len(batch.records) == 120 + len(written)


def test_writers_that_are_killed_leave_at_most_a_torn_line_each(paths: ChannelPaths) -> None:
    torn = 0
    inbox = Inbox(paths, "bob")
    for n in range(40):
        before = inbox.size()
        writer = start_writer(paths, f"w{n}", 100_000, 20_000, 50)
        deadline = time.monotonic() + 60
        while inbox.size() < before + 100_000:
            assert time.monotonic() < deadline
            time.sleep(0.002)
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait()
        with open(paths.inbox("bob"), "rb") as file:
            file.seek(-1, os.SEEK_END)
            torn += file.read() != b"\n"
        if torn >= 2 and n >= 3:
            break
    assert torn >= 2  # else nothing was tried
    assert inbox.append(b'{"id":"last"}', sender="x", message_id="last", timeout=60)
    ids: dict[str, list[int]] = defaultdict(list)
    batch = inbox.read(limit=1 << 30)
    assert 0 < len(batch.damaged) <= torn  # one may have lacked its line feed only
    for record in batch.records[:-1]:
        name, number = json.loads(record.line)["id"].split("-")
        ids[name].append(int(number))
    assert all(numbers == list(range(len(numbers))) for numbers in ids.values())
    assert len(ids) == n + 1


def test_commits_of_many_processes_never_go_back(paths: ChannelPaths) -> None:
    with open(paths.inbox("bob"), "wb") as file:
        file.write(b"{}\n" * 200)
    script = textwrap.dedent(
        """
        import random, sys
        from intercom.paths import ChannelPaths
        from intercom.records import Position
        from intercom.spool.files import Inbox
        inbox = Inbox(ChannelPaths(sys.argv[1], "room"), "bob")
        last = 0
        for _ in range(100):
            wanted = 3 * random.randrange(201)
            stored = inbox.commit(Position(1, wanted), timeout=60).offset
            assert stored >= max(last, wanted), (stored, last, wanted)
            last = stored
        """
    )
    command = [sys.executable, "-c", script, paths.base]
    committers = [subprocess.Popen(command) for _ in range(3)]
    assert [committer.wait(60) for committer in committers] == [0, 0, 0]
    assert [name for name in os.listdir(paths.directory) if name.startswith(".tmp")] == []
