"""A running hub notices what others do to its channel, with and without the kernel's help."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from twisted.internet import reactor as installed
from twisted.internet.task import deferLater

from intercom.paths import ChannelPaths
from intercom.records import Entry, Position
from intercom.spool import threaded, watch
from intercom.spool.files import Inbox
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.watch import DirectoryWatch, Snapshot
from intercom.spool.worker import ThreadWorker

reactor: Any = installed
Message = Callable[..., bytes]


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.tickets: list[int] = []
        self.safe: list[int] = []
        self.sessions: dict[str, float | None] = {}
        self.gone: list[str] = []

    def written(self, outcomes: Iterable[Any]) -> None:
        for outcome in outcomes:
            if hasattr(outcome, "records"):
                self.lines += [record.line for record in outcome.records]
            else:
                self.tickets.append(outcome.ticket)

    def stored(self, tickets: Iterable[int], level: str) -> None:
        self.safe += tickets

    def unsynced(self, tickets: Iterable[int], text: str) -> None:
        raise AssertionError(text)

    def remembered(self, messages: Iterable[Any]) -> None:
        pass

    def moved(self, moves: Iterable[Any]) -> None:
        pass

    def seen(self, sessions: dict[str, float | None]) -> None:
        self.sessions.update(sessions)

    def forgotten(self, sessions: Iterable[str]) -> None:
        self.gone += sessions


async def wait_until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait for a condition."""
    began = reactor.seconds()
    while not condition():
        assert reactor.seconds() - began < seconds, "it did not happen"
        await deferLater(reactor, 0.005)


@pytest.mark.parametrize("kernel", [True, False], ids=["inotify", "poll"])
async def test_a_line_that_a_client_appends_is_noticed_once(
    paths: ChannelPaths,
    message: Message,
    monkeypatch: pytest.MonkeyPatch,
    kernel: bool,
) -> None:
    if kernel and watch.inotify is None:
        pytest.skip("there is no inotify here")
    if not kernel:
        monkeypatch.setattr(watch, "inotify", None)
    # what the kernel tells is not left to the poll
    monkeypatch.setattr(watch, "INTERVAL", 600.0 if kernel else 0.3)
    Inbox(paths, "bob").append(message("old"), sender="ann", message_id="old")
    listener = Listener()
    spool = ThreadedSpool(reactor, paths)
    try:
        await spool.open(listener)
        inbox = Inbox(paths, "bob")
        inbox.append(message("m1"), sender="ann", message_id="m1")
        await wait_until(lambda: listener.lines != [])
        inbox.append(message("m2"), sender="ann", message_id="m2")
        Inbox(paths, "new").append(message("m3"), sender="ann", message_id="m3")
        await wait_until(lambda: len(listener.lines) >= 3)
        Inbox(paths, "eve").commit(Position(1, 0))
        await wait_until(lambda: "eve" in listener.sessions)
        assert listener.sessions["eve"] is not None
        os.unlink(paths.offset("eve"))
        await wait_until(lambda: "eve" in listener.gone)
        if kernel:
            spool._watch._timer.reset(0.0)
        await deferLater(reactor, 0.6)  # a poll in between tells nothing twice
        assert sorted(listener.lines) == [message("m1"), message("m2"), message("m3")]
    finally:
        await spool.close()


async def test_real_threads_write_sync_read_and_close(
    paths: ChannelPaths, entry: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threaded, "file_level", lambda _path: "disk")
    listener = Listener()
    spool = ThreadedSpool(reactor, paths)
    await spool.open(listener)
    await spool.enrol("bob")
    for ticket in range(0, 500, 5):
        spool.append([entry(n, inbox=f"s{n % 3}") for n in range(ticket, ticket + 5)])
        if ticket % 50 == 0:
            await deferLater(reactor, 0)
    await wait_until(lambda: len(listener.safe) == 500)
    assert sorted(listener.tickets) == list(range(500))
    batch = await spool.read("s1", None, 1 << 20)
    assert len(batch.records) == 167
    stored = await spool.commit("s1", batch.next)
    assert stored == batch.next
    spool.append([entry(n) for n in range(1000, 1100)])
    await spool.close()
    assert len(listener.safe) == 600
    assert listener.lines == []
    assert Inbox(paths, "bob").unread() == 100


async def test_our_own_appends_do_not_wake_us(
    paths: ChannelPaths, entry: Callable[..., Entry], monkeypatch: pytest.MonkeyPatch
) -> None:
    if watch.inotify is None:
        pytest.skip("there is no inotify here")
    monkeypatch.setattr(watch, "INTERVAL", 600.0)  # the poll sees them, of course
    noticed: list[str] = []
    worker = ThreadWorker(reactor, "test-watch")
    watching = DirectoryWatch(reactor, paths.directory, worker, noticed.extend)
    await watching.start()
    listener = Listener()
    spool = ThreadedSpool(reactor, paths)
    await spool.open(listener)
    for ticket in range(20):
        spool.append([entry(ticket)])
        await deferLater(reactor, 0.001)
    await spool.enrol("eve")
    await wait_until(lambda: len(listener.safe) == 20)
    await wait_until(lambda: "meta_eve.json" in noticed)
    assert "inbox_bob.ndjson" not in noticed
    watching.stop()
    watching.stop()
    await spool.close()
    await worker.quit()


async def test_a_watch_goes_on_when_the_directory_is_gone(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INTERVAL", 0.02)
    noticed: list[str] = []
    worker = ThreadWorker(reactor, "test-watch")
    watching = DirectoryWatch(reactor, paths.directory, worker, noticed.extend)
    await watching.start()
    os.rename(paths.directory, paths.directory + "-away")
    await deferLater(reactor, 0.1)
    os.rename(paths.directory + "-away", paths.directory)
    with open(paths.offset("bob"), "w"):
        pass
    await wait_until(lambda: "offset_bob.json" in noticed)
    watching.stop()
    await worker.quit()


def test_a_snapshot_tells_what_is_new_changed_or_gone(paths: ChannelPaths) -> None:
    snapshot = Snapshot(paths.directory)
    for name in ("inbox_a.ndjson", "offset_a.json", "hub.log"):
        with open(paths.file(name), "w"):
            pass
    assert sorted(snapshot.changed()) == ["inbox_a.ndjson", "offset_a.json"]
    assert snapshot.changed() == []
    with open(paths.inbox("a"), "a") as file:
        file.write("x")
    os.unlink(paths.offset("a"))
    assert snapshot.changed() == ["inbox_a.ndjson", "offset_a.json"]
    assert snapshot.changed() == []
