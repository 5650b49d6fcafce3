"""The bench measures what it says it does, and no server that fails a message gets a figure.

Nothing here is judged by time; that is what ``tests/bench/run.py`` is for.
"""

from __future__ import annotations

import pstats
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gauge import load, main, report
from gauge.doubles import Crooked, bench, measured, rows_of
from gauge.processes import Mailing
from gauge.server import BENCH, running, scratch
from gauge.targets import Ours, targets_named
from gauge.texts import Broken
from gauge.workloads import GROUPS, Workload

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


def test_processes_are_compared_and_checked(tmp_path: Path) -> None:
    """The interpreter alone, with click, ours, and the original's stand-in; beside each other."""
    words = ["--runs", "1", "--rounds", "1", "--target", "ours", "--level", "disk"]
    found = bench(tmp_path, "send", "poll", *words)
    for workload in ("send", "poll"):
        rows = rows_of(found, workload)
        bare = ["python -c pass", "import click"]
        assert list(rows) == [*bare, "ours-disk", "original, ours-disk"]
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


def test_a_bench_that_is_ended_ends_its_servers(tmp_path: Path) -> None:
    """And leaves none of their files."""
    words = ["bulk", "--target", "relay", "--rounds", "1000", "--dir", str(tmp_path)]
    command = [sys.executable, str(BENCH / "run.py"), *words]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as one:
        while not list(tmp_path.glob("gauge-*/socket")):
            assert one.poll() is None
            time.sleep(0.01)
        one.terminate()
    assert one.returncode == 128 + signal.SIGTERM
    assert not list(tmp_path.iterdir())


# -- a server that fails a message ------------------------------------------------------------

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
