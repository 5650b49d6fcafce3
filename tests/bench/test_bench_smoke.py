"""The bench measures what it says it does, and no server that fails a message gets a figure.

Nothing here is judged by time; that is what ``tests/bench/run.py`` is for.
"""

from __future__ import annotations

import json
import os
import pstats
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from socket import socketpair
from typing import Any

import pytest

BENCH = Path(__file__).resolve().parent
sys.path.insert(0, str(BENCH))

from gauge import load, main, report  # noqa: E402  the path comes first
from gauge.dialects.pi import Pi, PiSubagents, packed  # noqa: E402
from gauge.peers import PEERS  # noqa: E402
from gauge.processes import Mailing  # noqa: E402
from gauge.server import Absent, Target, running, scratch  # noqa: E402
from gauge.targets import Ours, targets_named  # noqa: E402
from gauge.texts import SHORTEST, Arrivals, Broken, Ledger, Texts  # noqa: E402
from gauge.workloads import GROUPS, Workload  # noqa: E402

TIMEOUT = 120


def bench(where: Path, *words: str) -> dict[str, Any]:
    """Run the bench as its users do, and return all that it has found."""
    command = [sys.executable, str(BENCH / "run.py"), *words, "--dir", str(where), "--json", "-"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=where, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows_of(found: dict[str, Any], workload: str) -> dict[str, dict[str, Any]]:
    """One workload's rows by target."""
    (told,) = (one for one in found["workloads"] if one["name"] == workload)
    return {row["target"]: row for row in told["rows"]}


def measured(target: Target, workload: Workload) -> dict[str, Any]:
    """One load, its generator in this process."""
    with scratch("/tmp") as place, running(target, place) as server:
        return load.measure(
            load.Job(workload, target.dialect, server.address, "bench", server.pid, "b", 15.0)
        )


# -- the whole bench --------------------------------------------------------------------------


def test_a_short_run_compares_servers_and_counts_every_message(tmp_path: Path) -> None:
    """Two rounds, interleaved; each load is complete, and our hub says how safe it stored."""
    words = ["--target", "relay", "--target", "ours", "--level", "process", "--rounds", "2"]
    found = bench(tmp_path, "bulk", "--messages", "80", *words, "--profile", "profiles")
    assert found["workloads"][0]["base"] == "relay"
    rows = rows_of(found, "bulk")
    assert list(rows) == ["relay", "ours-process"]
    for row in rows.values():
        assert [run["messages"] for run in row["runs"]] == [80, 80]
        assert row["ratio"]["low"] <= row["ratio"]["median"] <= row["ratio"]["high"]
        assert all(run["server_cpu_s"] > 0 and run["load_busy"] > 0 for run in row["runs"])
    assert rows["ours-process"]["notes"] == {"acks": True, "level": "process"}
    assert "receipt_p99_us" in rows["ours-process"]["medians"]
    assert "receipt_p99_us" not in rows["relay"]["medians"]
    profiles = sorted((tmp_path / "profiles").iterdir())
    assert [path.name for path in profiles] == [f"bulk-ours-process-{n}.pstats" for n in (1, 2)]
    profiled = pstats.Stats(str(profiles[0])).get_stats_profile().func_profiles
    assert "dataReceived" in profiled


def test_a_hub_that_runs_already_can_be_measured(tmp_path: Path) -> None:
    """Given the path of its socket; its channel is the directory's name."""
    with scratch("/tmp") as place, running(Ours("memory"), place) as server:
        words = ["--messages", "40", "--rounds", "1", "--target", server.address]
        found = bench(tmp_path, "ping-pong", "fan-out", *words)
    # The first twentieth warms up and is not counted.
    for workload, messages in (("ping-pong", 38), ("fan-out", 38 * 10)):
        (row,) = rows_of(found, workload).values()
        assert row["notes"] == {"acks": True, "level": "memory"}
        assert [run["messages"] for run in row["runs"]] == [messages]


def test_sending_as_a_process_is_compared_and_checked(tmp_path: Path) -> None:
    """The interpreter alone, with click, and ``send``; all beside each other."""
    found = bench(
        tmp_path, "send", "--runs", "1", "--rounds", "1", "--target", "ours", "--level", "disk"
    )
    rows = rows_of(found, "send")
    assert list(rows) == ["python -c pass", "import click", "ours-disk"]
    assert {row["medians"]["runs"] for row in rows.values()} == {1}
    assert rows["python -c pass"]["ratio"]["median"] == 1


def test_every_workload_runs(tmp_path: Path) -> None:
    """Against the relay, which starts quickly; a start is a workload, too."""
    words = ["--messages", "64", "--rounds", "1", "--runs", "1", "--target", "relay"]
    found = bench(tmp_path, "throughput", "latency", "cold-start", *words)
    names = [told["name"] for told in found["workloads"]]
    assert names == [*GROUPS["throughput"], *GROUPS["latency"], "cold-start"]
    assert all(
        row["figure"]["median"] > 0 for name in names for row in rows_of(found, name).values()
    )


def test_an_echo_is_its_own_recipient() -> None:
    """What 64 connections send comes back to each, whole and in order."""
    (echo,) = targets_named("echo", ())
    found = measured(echo, Workload("short", "messages_per_s", 640, senders=64, receivers=32))
    assert found["messages"] == 640


def test_what_has_no_recipients_has_no_fan_out(tmp_path: Path) -> None:
    """It is left out of the comparison, in which the others stand."""
    words = ["--messages", "20", "--rounds", "1", "--target", "echo", "--target", "relay"]
    assert list(rows_of(bench(tmp_path, "fan-out", *words), "fan-out")) == ["relay"]


def test_the_hub_of_another_checkout_is_named_after_it(tmp_path: Path) -> None:
    """What a change did is seen in one run: the hub before it beside the hub after it."""
    (target,) = targets_named("ours", ["disk"], tmp_path / "before")
    assert target.name == "ours-disk@before"
    assert target.environment(tmp_path)["PYTHONPATH"] == str(tmp_path / "before")
    (target,) = targets_named("pi-subagents", ["disk"], tmp_path / "before")
    assert target.name == "pi-subagents-disk@before"
    assert target.environment(tmp_path)["PYTHONPATH"] == str(tmp_path / "before")


# -- servers that others made -----------------------------------------------------------------


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_takes_and_brings_each_message(name: str) -> None:
    """To one receiver, and to all of ten; those that promise to keep a message say so of each."""
    (target,) = targets_named(name, ())
    try:
        found = measured(target, Workload("short", "messages_per_s", 200, 4, 5, window=8))
    except Absent as error:
        pytest.skip(str(error))
    assert found["messages"] == 4 * 48  # the first twentieth warms up
    assert ("receipt_p50_us" in found) == (name != "nats")
    found = measured(target, Workload("short", "messages_per_s", 20, 1, 10, fan_out=True))
    assert found["messages"] == 19 * 10
    assert ("receipt_p50_us" in found) == (name != "nats")


def test_a_peer_that_is_not_installed_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the package that brings it, and a status of its own."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("gauge.server._ELSEWHERE", str(tmp_path))
    words = ["bulk", "--target", "redis-always", "--dir", str(tmp_path)]
    assert main.main(words) == os.EX_UNAVAILABLE
    told = capsys.readouterr()
    assert "there is no redis-server: install the package redis-server" in told.err
    assert not told.out


RELAYS = """
import sys
sys.path[:0] = sys.argv[3:]
from gauge.relay import Relay

class Confirming(Relay):
    def recipients(self, sender, line):
        sender.waiting.append(b'["' + line[7:23] + b'"]' + bytes([10]))
        self.flush(sender)
        return super().recipients(sender, line)

(Confirming if sys.argv[1] == "confirming" else Relay)(sys.argv[2]).serve()
"""


@pytest.mark.parametrize(
    ("kind", "name", "confirms"), [("cmd", "relay", False), ("cmd-ack", "confirming", True)]
)
def test_any_command_can_be_measured(kind: str, name: str, confirms: bool) -> None:
    """One that speaks NDJSON, and perhaps answers each line with one that has its id."""
    words = [sys.executable, "-c", RELAYS, name, "{socket}", str(BENCH), str(BENCH.parents[1])]
    (target,) = targets_named(f"mine={kind}:{shlex.join(words)}", ())
    assert target.name == "mine"
    found = measured(target, Workload("short", "messages_per_s", 80, 2, 2, window=4))
    assert found["messages"] == 76
    assert ("receipt_p50_us" in found) == confirms
    with pytest.raises(ValueError, match="says with neither"):
        targets_named("cmd:hub --quiet", ())


# -- pi clients -------------------------------------------------------------------------------


def test_pi_clients_are_compared_with_lines() -> None:
    """Both clients, and NDJSON to the same hub; every message is counted, and none is slow."""
    names = ["pi", "pi-subagents", "pi-ndjson"]
    words = [word for name in names for word in ("--target", name)]
    words += ["--level", "process", "--rounds", "1", "--runs", "1", "--messages", "80"]
    with scratch("/tmp") as place:  # a socket's path must not be long
        found = bench(place, "bulk", "fan-out", "cold-start", *words)
    rows = rows_of(found, "bulk")
    assert list(rows) == [f"{name}-process" for name in names]
    for row in rows.values():
        assert [run["messages"] for run in row["runs"]] == [80]
        assert row["medians"]["receipt_p99_us"] > 0
    assert [row["notes"].get("acks") for row in rows.values()] == [True, None, True]
    assert rows["pi-ndjson-process"]["notes"]["level"] == "process"
    # Without an address of all, each of the ten has a message of its own.
    assert [row["runs"][0]["messages"] for row in rows_of(found, "fan-out").values()] == [760] * 3
    assert list(rows_of(found, "cold-start"))[2:] == ["pi-process"]


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


# -- a server that fails a message ------------------------------------------------------------


class Crooked(Target):
    """A relay that does one thing wrong with its tenth message."""

    dialect = "Ndjson"
    _program = """
import sys
from gauge.relay import Relay

FAULTS = {
    "lose": lambda line: [],
    "repeat": lambda line: [line, line],
    "damage": lambda line: [line.replace(b"dozen", b"dizen")],
    "swap ends": lambda line: [line.replace(b":000000009]", b":000000008]")],
    "cut": lambda line: [line[:120]],
    "refuse": lambda line: [b'{"type":"error","to_session":"b-from-0000","payload":"no"}'],
}
fault = FAULTS.get(sys.argv[1])

class Crooked(Relay):
    seen = 0

    def heard(self, peer, data):
        if peer.name:
            lines = data.splitlines()
            if sys.argv[1] == "reverse":
                lines.reverse()
            elif sys.argv[1] != "nothing":
                at = 9 - self.seen
                if 0 <= at < len(lines):
                    lines[at : at + 1] = fault(lines[at])
                    if sys.argv[1] == "refuse":
                        del lines[at + 1 :]
            self.seen += data.count(b"\\n")
            data = b"".join(line + b"\\n" for line in lines)
        super().heard(peer, data)

Crooked(sys.argv[2]).serve()
"""

    def __init__(self, fault: str) -> None:
        self.name = self.fault = fault

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-c", self._program, self.fault, self.address(place)]


SHORT = Workload("short", "messages_per_s", 20, window=4)


def test_a_faithful_relay_passes() -> None:
    """The same program without a fault: it is the fault that is found below."""
    assert measured(Crooked("nothing"), SHORT)["messages"] == 19


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ("lose", "text 9 was due, and 10 came, so that one is lost or damaged"),
        ("repeat", "text 10 was due, and 9 came again or late"),
        ("damage", "text 9 was due, and 10 came, so that one is lost or damaged"),
        ("swap ends", "a text arrived damaged"),
        ("cut", "lost or damaged"),
        ("reverse", "came, so that one is lost or damaged"),
        ("refuse", 'the hub told b-from-0000: .*"payload":"no"'),
    ],
)
def test_one_bad_message_and_there_is_no_figure(fault: str, complaint: str) -> None:
    """Lost, repeated, damaged, out of order, refused: the run ends and says which."""
    with pytest.raises(Broken, match=complaint):
        measured(Crooked(fault), SHORT)


def test_a_lost_last_message_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing comes behind it that could tell; the wait for it ends."""
    monkeypatch.setattr(load, "PATIENCE", 0.2)
    with pytest.raises(Broken, match="of 10 messages 1 did not arrive"):
        measured(Crooked("lose"), Workload("short", "messages_per_s", 10))


def test_a_late_repetition_is_heard() -> None:
    """The load goes on listening for a moment after the last message."""
    with pytest.raises(Broken, match="9 came again"):
        measured(Crooked("repeat"), Workload("short", "messages_per_s", 10))


def test_a_failure_ends_the_bench_without_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Status 1, and one sentence that says what was wrong."""
    with scratch("/tmp") as place, running(Crooked("repeat"), place) as server:
        words = ["ping-pong", "--target", server.address, "--messages", "20"]
        assert main.main([*words, "--json", str(tmp_path / "out")]) == 1
    told = capsys.readouterr()
    assert not told.out
    assert "ping-pong" in told.err
    assert "came again" in told.err
    assert not (tmp_path / "out").exists()


def test_a_message_that_is_not_in_the_inbox_was_not_stored() -> None:
    """``send`` is believed only after a look into the recipient's inbox file."""
    with scratch("/tmp") as place, running(Ours("process"), place):
        mailing = Mailing(Ours("process"), place)
        mailing.send()
        mailing.check()
        inbox = place / "bench" / "inbox_bench-recipient.ndjson"
        inbox.write_bytes(inbox.read_bytes().replace(b"pack", b"lack"))
        with pytest.raises(Broken, match="1 messages were sent, and 0 are in the inbox"):
            mailing.check()


# -- texts ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [SHORTEST, 200])
def test_texts_are_found_however_their_bytes_are_cut(size: int) -> None:
    """In any framing: what stands between two texts does not matter."""
    texts = Texts(size)
    wanted = [(sender, sequence) for sequence in range(3) for sender in (7, 12345)]
    written = [texts.write(*one).encode() for one in wanted]
    assert {len(text) for text in written} == {size}
    stream = b'{"text":"' + b'"}\n{"type":"cursor"}\n{"text":"'.join(written) + b'"}\n'
    for step in range(1, 2 * size, 7):
        arrivals = Arrivals(size)
        pieces = [stream[at : at + step] for at in range(0, len(stream), step)]
        assert [one for piece in pieces for one in arrivals.feed(piece)] == wanted


def test_a_ledger_knows_what_each_receiver_is_due() -> None:
    """A sender that serves three receivers in turn counts on through all of them."""
    ledger = Ledger({0: 1, 1: 0}, 3)
    for sender, sequence in ((0, 1), (1, 0), (0, 4), (1, 3)):
        ledger.enter(sender, sequence)
    with pytest.raises(Broken, match="text 7 was due, and 5"):
        ledger.enter(0, 5)
    with pytest.raises(Broken, match="stranger"):
        ledger.enter(2, 0)


# -- figures ----------------------------------------------------------------------------------


def test_ratios_are_those_of_the_same_round() -> None:
    """A slow spell that hits both servers leaves their ratio as it is."""
    rounds = {
        "base": [{"messages_per_s": 100.0}, {"messages_per_s": 10.0}, {"messages_per_s": 80.0}],
        "ours": [{"messages_per_s": 50.0}, {"messages_per_s": 6.0}, {"messages_per_s": 20.0}],
    }
    base, ours = report.summary(rounds, "messages_per_s", "base")
    assert base["ratio"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert ours["ratio"] == {"median": 0.5, "low": 0.25, "high": 0.6}
    assert ours["figure"] == {"median": 20.0, "low": 6.0, "high": 50.0}
    assert "| ours   | 20.0 (6.00-50.0)" in report.table([base, ours], "messages_per_s", "base")
