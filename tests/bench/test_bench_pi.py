"""Clients of pi to our hub, beside lines; and that they answer as the extensions do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from socket import socketpair
from typing import Any

import pytest
from gauge.dialects.pi import Pi, PiSubagents, packed
from gauge.doubles import bench, measured, rows_of
from gauge.server import scratch
from gauge.targets import targets_named
from gauge.texts import Broken
from gauge.workloads import Workload

NAMES = ["pi", "pi-subagents", "pi-ndjson"]


def test_pi_clients_are_compared_with_lines() -> None:
    """Both clients, and NDJSON to the same hub; every message is counted, and none is slow."""
    words = [word for name in NAMES for word in ("--target", name)]
    words += ["--level", "process", "--rounds", "1", "--messages", "80"]
    with scratch("/tmp") as place:  # a socket's path must not be long
        found = bench(place, "bulk", *words)
    rows = rows_of(found, "bulk")
    assert list(rows) == [f"{name}-process" for name in NAMES]
    for row in rows.values():
        assert [run["messages"] for run in row["runs"]] == [80]
        assert row["medians"]["receipt_p99_us"] > 0
    assert [row["notes"].get("acks") for row in rows.values()] == [True, None, True]
    assert rows["pi-ndjson-process"]["notes"]["level"] == "process"


def test_without_an_address_of_all_each_has_a_message_of_its_own() -> None:
    """One counts as confirmed when all its copies are."""
    (target,) = targets_named("pi", ["process"])
    found = measured(target, Workload("short", "messages_per_s", 20, receivers=4, fan_out=True))
    assert found["messages"] == 19 * 4
    assert found["receipt_p50_us"] > 0


def test_one_hub_is_started_for_all_pi_clients() -> None:
    """It starts once for them in a comparison of starts."""
    targets = [target for name in NAMES for target in targets_named(name, ["process"])]
    assert [target.twin for target in targets] == [False, True, True]


@pytest.fixture
def pi_client() -> Iterator[Pi]:
    """A client that has a socket, and is registered nowhere."""
    ours, theirs = socketpair()
    with ours, theirs:
        yield Pi(ours, "b-to-0000", "pi")


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_pi_client_answers_and_counts_frames_however_they_are_cut(
    pi_client: Pi, step: int
) -> None:
    """Three receipts of each message, and a message once for each ``delivered``."""
    news: dict[str, Any] = {"type": "session_joined", "session": {"id": "another"}}
    sent = [json.loads(pi_client.frame("b", number, "text")[4:]) for number in (5, 6)]
    ids = [one["message"]["id"] for one in sent]
    frames = [{"type": "message", "from": {}, "message": one["message"]} for one in sent]
    stream = b"".join(map(packed, [news, *frames]))
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    said = b"".join(map(pi_client.replies, pieces))
    assert [said.count(one.encode()) for one in ids] == [3, 3]
    assert said.count(b'"type":"message_receipt"') == 6

    told = [{"type": "delivered", "messageId": one} for one in ids]
    receipt = {"type": "message_receipt", "from": {}, "receipt": {"messageId": ids[0]}}
    stream = b"".join(map(packed, [told[0], receipt, told[1]]))
    pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
    assert [one for piece in pieces for one in pi_client.confirmed(piece)] == [5, 6]


def test_a_subagents_client_sends_no_receipts(pi_client: Pi) -> None:
    """Its broker sees by itself what it has read."""
    client = PiSubagents(pi_client.sock, "b-to-0001", "pi")
    message = json.loads(client.frame("b", 1, "text")[4:])["message"]
    assert client.replies(packed({"type": "message", "from": {}, "message": message})) == b""


@pytest.mark.parametrize("kind", ["delivery_failed", "error"])
def test_a_pi_client_that_is_refused_ends_the_run(pi_client: Pi, kind: str) -> None:
    """Whatever the hub refuses, to a sender and to a receiver."""
    for hear in (pi_client.confirmed, pi_client.replies):
        with pytest.raises(Broken, match=f"the hub told b-to-0000: .*{kind}.*no"):
            hear(packed({"type": kind, "reason": "no"}))
