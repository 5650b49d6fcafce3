"""The hub on a real reactor, real Unix sockets and real files, in one process."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_twisted
from twisted.internet import reactor as _reactor
from twisted.internet.defer import Deferred
from twisted.internet.task import deferLater
from twisted.internet.threads import deferToThread

from intercom.core.hub import HubCore
from intercom.hub import connection
from intercom.hub.factory import HubFactory
from intercom.hub.hub import Hub
from intercom.hub.patience import listen_unix
from intercom.hub.pi.watching import is_taken
from intercom.hub.poller import Poller
from intercom.hub.registry import FileRegistry
from intercom.messages import Fault
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox
from intercom.spool.threaded import ThreadedSpool
from intercom.spool.worker import ThreadWorker
from intercom.wire import envelope
from intercom.wire.ndjson import Decoder, Encoder
from intercom.wire.notices import NoticeWriter

reactor: Any = _reactor
DEADLINE_S = 60.0


class Running:
    """A hub that listens at a socket of its own.

    :param quick: it reads and writes past the reactor's way for each event.
    """

    def __init__(self, base: str, quick: bool) -> None:
        self.poller = Poller(reactor) if quick else None
        self.paths = ChannelPaths(base, "test")
        self.paths.prepare()
        self.worker = ThreadWorker(reactor, "registry")
        registry = FileRegistry(self.worker, self.paths, os.getpid(), time.time)
        notice = NoticeWriter("test", self.new_id, self.now)
        core = HubCore("disk", envelope.digest, envelope.identify, notice)
        decoder = Decoder("test", self.new_id, self.now)
        self.hub = Hub(
            core,
            ThreadedSpool(reactor, self.paths, poller=self.poller),
            registry,
            reactor,
            decode=lambda line: decoder.decode(line, None),
        )
        factory = HubFactory(
            self.hub,
            decoder,
            Encoder("test", self.new_id, self.now, {"pid": os.getpid(), "version": "t"}),
            poller=self.poller,
        )
        self.port: Any = listen_unix(reactor, self.paths.socket, factory, 100, 0o700)

    @staticmethod
    def new_id() -> str:
        return envelope.format_id(os.urandom(6))

    @staticmethod
    def now() -> str:
        return envelope.format_timestamp(time.time())

    async def stop(self) -> None:
        await self.port.stopListening()
        await self.hub.shut_down()
        await self.worker.quit()
        if self.poller is not None:
            self.poller.close()

    def line(self, kind: str, **fields: Any) -> bytes:
        return json.dumps({"type": kind, **fields}).encode() + b"\n"


@pytest_twisted.async_yield_fixture(params=[False, True], ids=["reactor", "poller"])
async def running(channel_dir: str, request: Any) -> AsyncIterator[Running]:
    running = Running(str(channel_dir), request.param)
    await running.hub.start()
    yield running
    await running.stop()


class Raw:
    """A blocking client, driven from a thread so that the reactor runs."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(DEADLINE_S)
        self.socket.connect(path)
        self.reader = self.socket.makefile("rb")

    def send(self, data: bytes) -> Deferred[Any]:
        return deferToThread(self.socket.sendall, data)

    def read(self) -> Deferred[Any]:
        return deferToThread(lambda: json.loads(self.reader.readline() or b"null"))

    async def until(self, kind: str) -> Any:
        while True:
            line = await self.read()
            if line is None or line["type"] == kind:
                return line

    def close(self) -> None:
        self.reader.close()
        self.socket.close()


async def wait_for(condition: Any) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        await deferLater(reactor, 0.01)


@pytest_twisted.ensureDeferred
async def test_two_clients_talk_and_the_message_is_in_the_file(running: Running) -> None:
    ada, bob = Raw(running.paths.socket), Raw(running.paths.socket)
    await ada.send(running.line("register", from_session="ada", payload={"features": ["receipts"]}))
    assert (await ada.read())["type"] == "welcome"
    await bob.send(running.line("register", from_session="bob"))
    assert (await bob.read())["payload"]["peers"] == ["ada"]
    body = "quotes \" ' backticks `$(x)` 🚀 " + "x" * 100_000
    await ada.send(running.line("chat", id="m1", to_session="bob", payload={"text": body}))
    assert (await bob.until("chat"))["payload"]["text"] == body
    receipt = await ada.until("receipt")
    assert (receipt["payload"]["state"], receipt["payload"]["live"]) == ("stored", 1)
    with Inbox(running.paths, "bob") as inbox:
        (record,) = inbox.read().records
    assert json.loads(record.line)["payload"]["text"] == body
    ada.close()
    bob.close()


@pytest_twisted.ensureDeferred
async def test_a_client_that_closes_without_reading_is_heard_out(running: Running) -> None:
    """Even while the hub writes to it: a failed write never stops the reading."""
    eve = Raw(running.paths.socket)
    await eve.send(running.line("register", from_session="eve"))
    await eve.until("welcome")
    noise = running.line("chat", to_session="*", payload={"text": "n" * 20_000})
    for number in range(5):
        name = f"ada{number}"
        ada = Raw(running.paths.socket)
        await ada.send(running.line("register", from_session=name))
        await ada.until("welcome")
        chat = running.line("chat", id=name, to_session="bob", payload={"text": "x" * 900_000})
        sending = ada.send(chat)
        for _ in range(10):
            await eve.send(noise)
        await sending
        ada.close()
    with Inbox(running.paths, "bob") as inbox:
        await wait_for(lambda: inbox.size() > 5 * 900_000)
        lines = inbox.read(limit=1 << 24).records
    assert sorted(json.loads(r.line)["id"] for r in lines) == [f"ada{n}" for n in range(5)]
    eve.close()


@pytest_twisted.ensureDeferred
async def test_a_hub_that_was_held_up_still_says_why_it_hangs_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All its timers are due then: to speak, to end its side, and to wait no longer."""
    monkeypatch.setattr(connection, "ANSWER_S", 0.01)
    monkeypatch.setattr(connection, "LINGER_S", 0.05)
    eve = Raw(running.paths.socket)
    await wait_for(lambda: running.hub.line_peers)
    (peer,) = running.hub._peers.values()
    peer.answer(Fault(None, "TOO_MANY_SESSIONS", "no room"))
    peer.close()
    time.sleep(0.1)  # the machine has other work
    assert (await eve.read())["payload"]["code"] == "TOO_MANY_SESSIONS"
    assert await eve.read() is None
    eve.close()


@pytest_twisted.ensureDeferred
async def test_what_was_written_to_one_who_had_gone_was_not_taken(running: Running) -> None:
    """It was discarded: nothing of it lies unread, and nobody has read it."""
    eve = Raw(running.paths.socket)
    await wait_for(lambda: running.hub.line_peers)
    (peer,) = running.hub._peers.values()
    wire = peer._wire
    assert is_taken(wire, reactor)
    eve.close()
    wire.write(b"too late")
    wire.doWrite()
    assert wire not in reactor.getWriters()
    assert is_taken(wire, reactor) is False
    await wait_for(lambda: not running.hub.line_peers)


@pytest_twisted.ensureDeferred
async def test_a_line_appended_by_another_process_is_pushed_once(running: Running) -> None:
    bob = Raw(running.paths.socket)
    payload = {"features": ["cursor"]}
    await bob.send(running.line("register", from_session="bob", payload=payload))
    await bob.until("welcome")
    await bob.until("cursor")
    line = envelope.make(
        type="chat",
        message_id="m1",
        from_session="ada",
        to_session="bob",
        channel="test",
        payload={"text": "by file"},
        timestamp=running.now(),
    )

    def append() -> bool:
        with Inbox(running.paths, "bob") as inbox:
            return inbox.append(line, sender="ada", message_id="m1")

    assert await deferToThread(append)
    assert (await bob.until("chat"))["payload"]["text"] == "by file"
    ada = Raw(running.paths.socket)
    await ada.send(running.line("register", from_session="ada", payload={"features": ["receipts"]}))
    await ada.until("welcome")
    await ada.send(line + b"\n")
    assert (await ada.until("receipt"))["payload"]["duplicate"]
    await ada.send(running.line("chat", id="m2", to_session="bob", payload={"text": "by hub"}))
    assert (await bob.until("chat"))["payload"]["text"] == "by hub"
    ada.close()
    bob.close()
