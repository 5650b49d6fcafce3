"""Very many connections, connections that come and go, and readers that never read.

The long forms take INTERCOM_CROWD connections, INTERCOM_CHURN of them a second for
INTERCOM_CHURN_SECONDS, and INTERCOM_SLOW readers that do not read.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crowds import Crowd, cpu_seconds, descriptors
from storm_place import quantile, record, until

from intercom.paths import ChannelPaths

MIB = 1 << 20
CROWD = int(os.environ.get("INTERCOM_CROWD", "2000"))
CHURN = int(os.environ.get("INTERCOM_CHURN", "200"))
CHURN_SECONDS = float(os.environ.get("INTERCOM_CHURN_SECONDS", "600"))
SLOW = int(os.environ.get("INTERCOM_SLOW", "100"))


@pytest.fixture
def roomy() -> Iterator[None]:
    """Let this process, and the hub that it starts, have as many descriptors as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def crowd(paths: ChannelPaths) -> Iterator[Crowd]:
    """Connections that are closed after the test."""
    made = Crowd(paths.socket)
    yield made
    made.close()


def require_room(count: int) -> None:
    """A machine that gives a process few descriptors cannot have the crowd."""
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * count + 100:
        pytest.skip(f"not run: a process may have too few descriptors here for {count}")


# -- many --------------------------------------------------------------------------------------


def gather(hub: Any, crowd: Crowd, count: int) -> dict[str, Any]:
    """Connect, register, talk and leave, all of them; what that took."""
    require_room(count)
    one = hub("--durability", "process")
    ada = one.connect("ada", "receipts")
    for number in range(50):  # whatever is made once is made
        crowd.join(f"warm-{number}")
    crowd.until_all("welcome")
    crowd.close()
    until(lambda: len(sessions(ada)) == 1, "the end of the first")
    before = descriptors(one.pid)
    began = time.monotonic()
    for _ in range(count):
        crowd.join()
    connected = time.monotonic() - began
    until(lambda: descriptors(one.pid) >= before + count, "all to be accepted")
    for number, member in enumerate(crowd.members):
        member.register(f"m{number}")
        if number % 50 == 0:
            crowd.listen()
    crowd.until_all("welcome")
    for few in (crowd.members[0], crowd.members[-1]):
        few.say(
            "chat",
            id="x",
            from_session=few.session,
            to_session="ada",
            payload={"text": "x"},
        )
        assert ada.until("chat")["payload"]["text"] == "x"
    assert len(sessions(ada)) == count + 1
    rss = one.memory()
    crowd.close()
    until(lambda: len(sessions(ada)) == 1, "all to be gone")
    until(lambda: abs(descriptors(one.pid) - before) <= 5, "all descriptors to be closed")
    return {"connected_s": connected, "rss": rss, "hub": one, "ada": ada, "before": before}


def sessions(raw: Any) -> list[str]:
    """Who is connected, by the hub's own word."""
    raw.say("list", id="l")
    return [row["session"] for row in raw.until("sessions")["payload"]["sessions"]]


@pytest.mark.usefixtures("roomy")
def test_a_thousand_connections_come_talk_and_go(hub: Any, crowd: Crowd) -> None:
    found = gather(hub, crowd, 1000)
    one, ada = found["hub"], found["ada"]
    churn(crowd, seconds=2.0, rate=200)
    until(lambda: abs(descriptors(one.pid) - found["before"]) <= 5, "descriptors after the churn")
    ada.chat("bob", "still here")
    assert ada.until("receipt")["payload"]["state"] == "stored"
    assert one.stop() < 10.0


def churn(crowd: Crowd, seconds: float, rate: int) -> int:
    """Connect and hang up again and again, at every step of a connection's life; how often."""
    began, done = time.monotonic(), 0
    while (now := time.monotonic() - began) < seconds:
        if done > now * rate:
            time.sleep(0.002)
            continue
        member = crowd.join(f"churn-{done}" if done % 3 else "")
        if done % 3 == 1:
            crowd.until(lambda: member.lines or member.closed, "a welcome")  # noqa: B023
        member.close()
        crowd.members.remove(member)
        done += 1
    return done


@pytest.mark.slow
@pytest.mark.usefixtures("roomy")
def test_thousands_of_connections_and_a_long_churn(hub: Any, crowd: Crowd) -> None:
    found = gather(hub, crowd, CROWD)
    one = found["hub"]
    rss = one.memory()
    done = churn(crowd, CHURN_SECONDS, CHURN)
    until(lambda: abs(descriptors(one.pid) - found["before"]) <= 5, "descriptors after the churn")
    figures = {"connected_s": round(found["connected_s"], 2), "churned": done}
    record("crowd", figures | {"rss": found["rss"], "grown": one.memory() - rss})
    assert done > 10 * CHURN_SECONDS
    assert one.memory() - rss < 16 * MIB


def test_idle_connections_that_never_register_cost_nothing(hub: Any, crowd: Crowd) -> None:
    """They are counted neither as sessions nor in anybody's way."""
    one = hub("--durability", "process")
    ada, bob = one.connect("ada", "receipts"), one.connect("bob")
    for _ in range(64):
        crowd.join()
    ada.chat("bob", "x")
    assert bob.until("chat")["payload"]["text"] == "x"
    assert sorted(sessions(ada)) == ["ada", "bob"]
    assert one.stop() < 10.0


# -- no descriptors left -----------------------------------------------------------------------

LIMITED = (
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)


def test_a_hub_without_descriptors_serves_those_whom_it_has(
    hub: Any, crowd: Crowd, monkeypatch: pytest.MonkeyPatch, stored: Callable[..., list[str]]
) -> None:
    """It turns the others away without a loop, keeps writing inboxes, and recovers.

    Registered peers write to inboxes that are not open yet, so descriptors are kept back.
    """
    one = limited(hub, monkeypatch)
    ada, bob = one.connect("ada", "receipts"), one.connect("bob")
    joined = 0
    for _ in range(300):
        try:
            crowd.join()
            joined += 1
        except OSError:
            pass
    assert joined == 300, "the queue takes them, or the hub does"
    crowd.listen(1.0)
    before = cpu_seconds(one.pid)
    time.sleep(2.0)
    used = cpu_seconds(one.pid) - before
    assert used < 1.0, f"{used} s of 2 are spent on connections that cannot be had"
    for number in range(20):
        ada.chat(f"new-{number}", f"text {number}")
        receipt = ada.until("receipt")["payload"]
        assert receipt["state"] == "stored", receipt
        assert stored(f"new-{number}") == [f"text {number}"]
    ada.chat("bob", "pushed")
    assert bob.until("chat")["payload"]["text"] == "pushed"
    crowd.close()
    until(lambda: descriptors(one.pid) < 40, "the descriptors of those who left")
    eve = one.connect("eve", "receipts")
    eve.chat("bob", "later")
    assert bob.until("chat")["payload"]["text"] == "later"
    assert one.stop() < 10.0


def limited(hub: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A hub that may have 64 descriptors, as a shell's ``ulimit -n`` gives it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    popen: Any = __import__("subprocess").Popen

    def start(command: list[str], *args: Any, **settings: Any) -> Any:
        return popen([command[0], "-c", LIMITED, *command], *args, **settings)

    monkeypatch.setattr("subprocess.Popen", start)
    one = hub("--durability", "process")
    monkeypatch.undo()
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)
    return one


# -- readers that never read -------------------------------------------------------------------


def storm_at(
    hub: Any, crowd: Crowd, peers: int, slow: int, size: int, count: int
) -> dict[str, Any]:
    """A broadcast storm at peers of whom some never read; what it took, and that all is there."""
    require_room(peers)
    one = hub("--durability", "process")
    ada = one.connect("ada", "receipts")
    for number in range(peers):
        crowd.join(f"peer-{number:03}", reads=number >= slow)
    crowd.until_all("welcome")
    ada.chat("*", "warm " + "x" * size)
    assert ada.until("receipt")["payload"]["recipients"] == peers
    crowd.until_all("chat")
    before, waits = one.memory(), []
    peak = before
    for number in range(count):
        began = time.monotonic()
        ada.chat("*", f"{number:06} " + "x" * size)
        assert ada.until("receipt")["payload"]["recipients"] == peers
        crowd.listen()
        waits.append(time.monotonic() - began)
        peak = max(peak, one.memory())
    crowd.until_all("chat", count + 1)
    return {
        "hub": one,
        "grown": peak - before,
        "p99": quantile(waits, 0.99),
        "texts": [f"{number:06}" for number in range(count)],
    }


def check_spools(paths: ChannelPaths, peers: int, texts: list[str]) -> None:
    """Every inbox, of those who read and those who do not, has everything once and in order."""
    for number in range(peers):
        content = Path(paths.inbox(f"peer-{number:03}")).read_bytes()
        found = [line.split(b'"text":"')[1][:6].decode() for line in content.splitlines()[1:]]
        assert found == texts, f"peer-{number:03}"


@pytest.mark.parametrize("slow", [1, 4])
def test_peers_that_never_read_cost_bounded_memory_and_nothing_is_missing(
    hub: Any, crowd: Crowd, paths: ChannelPaths, slow: int
) -> None:
    """A tenth of all, and the end does not wait for them either."""
    peers, count = 40, 60
    found = storm_at(hub, crowd, peers, slow, size=16_000, count=count)
    assert found["grown"] < 16 * MIB + 4 * MIB * slow
    check_spools(paths, peers, found["texts"])
    for member in crowd.members:
        if member.reads:
            texts = [line["payload"]["text"][:6] for line in member.of("chat")]
            assert texts[1:] == found["texts"]
    one = found["hub"]
    began = time.monotonic()
    one.process.terminate()
    assert one.process.wait(timeout=60) == 0
    took = time.monotonic() - began
    assert took < 10.0, f"it promises two seconds and took {took:.1f}"


@pytest.mark.slow
@pytest.mark.usefixtures("roomy")
def test_half_of_two_hundred_never_read_a_hundred_megabytes(
    hub: Any, crowd: Crowd, paths: ChannelPaths, tmp_path: Path
) -> None:
    peers = 2 * SLOW
    alone = storm_at(hub, crowd, peers, 0, size=16_000, count=32)
    alone["hub"].stop()
    crowd.close()
    for file in Path(paths.directory).glob("*_peer-*"):
        file.unlink()
    count = 100 * MIB // (16_000 * peers) + 1
    found = storm_at(hub, crowd, peers, SLOW, size=16_000, count=max(count, 200))
    check_spools(paths, peers, found["texts"])
    figures = {name: found[name] for name in ("grown", "p99")} | {"p99 alone": alone["p99"]}
    record("slow readers", figures)
    assert found["grown"] < 4 * MIB * SLOW
    began = time.monotonic()
    found["hub"].process.terminate()
    assert found["hub"].process.wait(timeout=60) == 0
    assert time.monotonic() - began <= 3.0
