"""Lines without an end, readers that never read, and readers that read everything."""

from __future__ import annotations

import threading
import time
from typing import Any

MIB = 1 << 20
#: What a hub may grow by while it serves ordinary messages, whatever else is thrown at it.
HEADROOM = 8 * MIB


def warm_up(hub: Any) -> None:
    """Have the hub load and allocate what any message needs."""
    ada, bob = hub.connect("warm-ada", "receipts"), hub.connect("warm-bob", "cursor")
    for _ in range(4):
        ada.chat("warm-bob", "x" * 900_000)
        ada.until("receipt")
        bob.until("chat")
    ada.close()
    bob.close()


def test_64_mib_without_a_line_feed_cost_no_memory_and_delay_nobody(hub: Any) -> None:
    """Told at the limit and skipped to its end; then the connection is as good as new."""
    one = hub("--durability", "process")
    warm_up(one)
    eve, ada, bob = one.connect("eve"), one.connect("ada", "receipts"), one.connect("bob")
    before = one.memory()
    flooding = threading.Thread(target=lambda: [eve.send(b"x" * MIB) for _ in range(64)])
    flooding.start()
    slowest = 0.0
    while flooding.is_alive():
        began = time.monotonic()
        ada.chat("bob", "ping")
        bob.until("chat")
        ada.until("receipt")
        slowest = max(slowest, time.monotonic() - began)
    flooding.join()
    eve.send(b"\n")
    error = eve.until("error")
    assert error["payload"]["code"] == "LINE_TOO_LONG"
    eve.say("heartbeat", id="h1")
    assert (eve.read()["type"], one.memory() - before < HEADROOM) == ("heartbeat", True)
    assert 0 < slowest < 10.0
    assert one.stop() < 10.0


def test_a_peer_that_never_reads_costs_a_bounded_amount_and_loses_nothing(
    hub: Any, stored: Any
) -> None:
    """Over a mebibyte unsent its pushes stop, and the inbox is its buffer."""
    one = hub("--durability", "process", INTERCOM_INBOX_SIZE="none")
    warm_up(one)
    ada, bob = one.connect("ada", "receipts"), one.connect("bob", "cursor")
    bob.until("cursor")
    before = one.memory()
    sent = [f"{n} " + "x" * 900_000 for n in range(80)]
    live = []
    for text in sent:
        ada.chat("bob", text)
        receipt = ada.until("receipt")["payload"]
        assert receipt["state"] == "stored"
        live.append(receipt["live"])
    assert one.memory() - before < HEADROOM
    assert (live[0], live[-1]) == (1, 0), "it counts as live only while it reads"
    assert stored("bob") == sent
    assert [bob.until("chat")["payload"]["text"] for _ in sent] == sent
    assert one.memory() - before < HEADROOM
    assert one.stop() < 10.0


def test_a_reader_of_thousands_of_large_messages_leaves_no_trace_of_their_texts(hub: Any) -> None:
    """What has to be remembered of a message is a hash, not its text."""
    one = hub("--durability", "process", INTERCOM_INBOX_SIZE="none")
    warm_up(one)
    ada, bob = one.connect("ada", "receipts"), one.connect("bob", "cursor")
    before = one.memory()
    count, received = 4096, []

    def read() -> None:
        for _ in range(count):
            received.append(bob.until("chat")["payload"]["text"][:5])

    reading = threading.Thread(target=read)
    reading.start()
    for n in range(count):
        ada.chat("bob", f"{n:05}" + "x" * 16_384)
        if n % 64 == 63:
            for _ in range(64):
                ada.until("receipt")
    reading.join()
    assert received == [f"{n:05}" for n in range(count)]
    assert one.memory() - before < HEADROOM, "64 MiB have gone through"
