"""A receiver that does not read costs the hub no memory, and it misses nothing."""

from __future__ import annotations

import re
import time
from pathlib import Path

from pi_broker_process import BrokerProcess
from pi_frames_client import PiClient

MESSAGES = 300
SIZE = 200_000
MAX_GROWTH_KIB = 24 * 1024


def resident_kib(pid: int) -> int:
    """How much memory a process has now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def text_of(number: int) -> str:
    return f"{number:06d}" * (SIZE // 6)


def take_in(client: PiClient, begin: int, end: int) -> None:
    """Read these messages: all, in order, whole, each once."""
    for number in range(begin, end):
        message = client.take("message")["message"]
        assert message["id"] == f"m{number}"
        assert message["content"]["text"] == text_of(number)


def test_memory_is_bounded_and_the_mail_is_there(broker: BrokerProcess) -> None:
    """Sixty megabytes for one that reads nothing, while others talk on."""
    with broker.join("ada") as sender, broker.join("eve") as other:
        deaf = broker.join("bob")
        sender.send("bob", "first", "x" * SIZE)
        deaf.take("message")
        before = most = resident_kib(broker.pid)
        for number in range(MESSAGES):
            assert sender.send("bob", f"m{number}", text_of(number))["type"] == "delivered"
            most = max(most, resident_kib(broker.pid))
        assert most - before < MAX_GROWTH_KIB, f"{most - before} KiB more"
        assert sender.send("eve", "hello")["delivery"] == "socket_delivered"
        other.take("message")
        take_in(deaf, 0, MESSAGES)
        assert deaf.mail() == []
        # what it has received is not brought again, when it comes by another connection
        deaf.receipt("first")
        for number in range(MESSAGES - 10):
            deaf.receipt(f"m{number}")
            if number % 100 == 99:
                deaf.list()  # those are heard: the next come in another second of the hub's
                time.sleep(1)  # within what a connection may say in a second
        deaf.list()
        with broker.join("bob") as again:
            take_in(again, MESSAGES - 10, MESSAGES)
            assert again.mail() == []


def test_who_went_away_deaf_finds_its_mail(broker: BrokerProcess) -> None:
    """Nothing of what a dead connection had not read is lost, or comes twice."""
    with broker.join("ada") as sender:
        with broker.join("bob"):
            for number in range(30):
                sender.send("bob", f"m{number}", text_of(number))
        with broker.join("bob") as again:
            take_in(again, 0, 30)
            assert again.mail() == []
