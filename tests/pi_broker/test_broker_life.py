"""How it begins and ends: ready line, signals, idleness, deaf output, bad settings."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from pi_broker_process import BrokerProcess, until

IDLE_S = 5


# -- the beginning


@pytest.mark.parametrize("words", [(), ("/a path/with spaces/broker.ts",)])
def test_it_says_that_it_is_ready_in_one_write(
    make_broker: Callable[..., BrokerProcess], words: tuple[str, ...]
) -> None:
    """What the client appends to the command is not looked at."""
    broker = make_broker()
    process = broker.launch(*words)
    assert process.stdout is not None
    said = os.read(process.stdout.fileno(), 4096)
    assert said == f"Intercom broker started (pid: {process.pid})\n".encode()
    # all is there by now
    assert broker.pid_file.read_text().splitlines()[0] == str(process.pid)
    for path in (broker.socket, broker.subagents_socket):
        broker.connect(path).register("ada")


def test_it_stays_in_the_group_that_it_was_started_in(broker: BrokerProcess) -> None:
    """The client signals the group, and wants to meet the broker there."""
    assert os.getpgid(broker.pid) == os.getpgid(0)
    assert os.getsid(broker.pid) == os.getsid(0)


def test_it_serves_a_channel_by_another_name(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker("other").start()
    with broker.join("ada") as client:
        broker.connect(broker.hub_socket).register("bob")
        client.take("session_joined")


@pytest.mark.parametrize("value", ["bad", "0", "-1", "1.5"])
def test_a_bad_ask_timeout_is_refused_at_the_start(
    make_broker: Callable[..., BrokerProcess], value: str
) -> None:
    broker = make_broker(PI_INTERCOM_ASK_TIMEOUT_MS=value)
    process = broker.launch()
    assert process.stdout is not None
    assert b"started" not in process.stdout.read()
    assert broker.ended() > 0
    said = "PI_INTERCOM_ASK_TIMEOUT_MS must be a positive integer number of milliseconds"
    assert said in broker.words()
    assert "Traceback" not in broker.words()
    assert not os.path.lexists(broker.socket)
    assert not broker.pid_file.exists()


# -- nobody hears it


def deaf_pipe() -> int:
    """The end of a pipe that nobody reads."""
    deaf, pipe = os.pipe()
    os.close(deaf)
    return pipe


@pytest.mark.parametrize("end", ["pipe", "full", "closed"])
def test_it_serves_though_nobody_hears_what_it_says(
    make_broker: Callable[..., BrokerProcess], end: str
) -> None:
    broker = make_broker()
    if end == "closed":
        command = broker.command
        broker.command = lambda *words: [  # type: ignore[method-assign]
            "sh",
            "-c",
            'exec "$@" >&- 2>&-',
            "sh",
            *command(*words),
        ]
    output = deaf_pipe() if end == "pipe" else os.open("/dev/full", os.O_WRONLY)
    try:
        broker.launch(stdout=output, stderr=output)
    finally:
        os.close(output)
    until(lambda: os.path.exists(broker.socket), "it does not come")
    ada, bob = broker.join("ada"), broker.join("bob")
    assert ada.ask("bob", "m1")["delivery"] == "socket_delivered"
    bob.write_bytes(bytes(4))  # which is worth a word
    bob.ended()
    assert ada.ids() == ["ada"]
    assert broker.stop() == 0


# -- the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_well_though_clients_are_there(
    broker: BrokerProcess, number: signal.Signals
) -> None:
    """A silent one, one that begins, one that reads nothing of much, and one that talks."""
    silent, half = broker.connect(), broker.connect()
    half.write_bytes(b"\0\0\1")
    talker, deaf = broker.join("talker"), broker.join("deaf")
    for count in range(20):
        talker.send("deaf", f"m{count}", "x" * 200_000)
    deaf.presence(status="says something, and reads nothing")
    assert broker.stop(number) == 0
    for client in (silent, talker):
        client.ended()
    assert not os.path.lexists(broker.socket)


def test_a_second_signal_changes_nothing(broker: BrokerProcess) -> None:
    broker.join("ada")
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        os.kill(broker.pid, number)
    assert broker.ended() == 0
    assert not os.path.lexists(broker.socket)


def test_signals_up_to_the_last_moment_change_nothing(broker: BrokerProcess) -> None:
    broker.join("ada")
    process = broker.process
    assert process is not None
    while process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.002)
    assert broker.ended() == 0
    assert not os.path.lexists(broker.socket)


def test_its_group_ends_it(make_broker: Callable[..., BrokerProcess]) -> None:
    """As a client that was started in a group of its own ends it."""
    broker = make_broker()
    process = broker.launch(start_new_session=True)
    broker.ready()
    os.killpg(process.pid, signal.SIGTERM)
    assert broker.ended() == 0


def outlived() -> float:
    """Of two brokers one is never used, and one has a session while the other goes.

    :return: for how long the unused one lived, in seconds.
    """
    roots = [Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp")) for _ in range(2)]
    unused, used = map(BrokerProcess, roots)
    try:
        begun = time.monotonic()
        client = used.start().join("ada")
        unused.start()
        assert unused.ended() == 0
        lived = time.monotonic() - begun
        assert not os.path.lexists(unused.socket)
        assert not unused.pid_file.exists()
        assert client.ids() == ["ada"]
        client.unregister()
        client.health()
        assert used.ended() == 0
        assert not os.path.lexists(used.socket)
        return lived
    finally:
        for one in (used, unused):
            one.finish()
            shutil.rmtree(one.root)


@pytest.fixture(scope="module", autouse=True)
def idleness(request: pytest.FixtureRequest) -> Iterator[Future[float] | None]:
    """Idle brokers, if they are asked for: others of this module are busy meanwhile."""
    wanted = any(item.name == "test_it_goes_when_nobody_is_left" for item in request.session.items)
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(outlived) if wanted else None


def test_it_goes_when_nobody_is_left(idleness: Future[float]) -> None:
    assert idleness.result() > IDLE_S
