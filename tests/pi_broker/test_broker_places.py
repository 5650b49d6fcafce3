"""Files and directories: their modes, who else's they may be, and that they go at the end."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pi_broker_process import BrokerProcess, until
from pi_frames_client import PiClient

KEPT = {"pending-asks", "extension-state"}


def mode(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


def owned(path: str | Path) -> bool:
    """Whether something is real, and ours."""
    found = os.lstat(path)
    return found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode)


def sockets(broker: BrokerProcess) -> list[str]:
    return [broker.socket, broker.subagents_socket, broker.probed_socket]


# -- while it serves


def test_every_place_is_there_and_private_when_it_is_ready(broker: BrokerProcess) -> None:
    for path in sockets(broker):
        assert owned(path)
        assert stat.S_ISSOCK(os.lstat(path).st_mode)
        assert mode(path) == 0o600
        with PiClient(path) as client:
            assert client.health()["protocol"] == "pi-intercom"
    directories = [broker.directory, Path(broker.subagents_socket).parent]
    for directory in [*directories, broker.asks, broker.states]:
        assert owned(directory)
        assert stat.S_ISDIR(os.lstat(directory).st_mode)
        assert mode(directory) == 0o700
    assert mode(broker.pid_file) == 0o600
    assert broker.pid_file.read_text().splitlines()[0] == str(broker.pid)
    assert not broker.port_file.exists()
    assert {one.name for one in broker.directory.iterdir()} == KEPT | {"broker.sock", "broker.pid"}


def test_umask_and_modes_of_old_directories_do_not_matter(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker()
    for directory in (broker.directory, broker.asks, Path(broker.subagents_socket).parent):
        directory.mkdir(parents=True)
        directory.chmod(0o755)
    broker.agent.chmod(0o755)
    broker.launch(umask=0)
    broker.ready()
    assert {mode(path) for path in sockets(broker)} == {0o600}
    for directory in (broker.directory, broker.asks, Path(broker.subagents_socket).parent):
        assert mode(directory) == 0o700, directory
    broker.join("bob")
    broker.join("ada").ask("bob", "m1")
    assert mode(broker.asks / "m1.json") == 0o600


def test_the_agent_directory_is_below_home_unless_it_is_named(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker(PI_CODING_AGENT_DIR="  ")
    broker.agent = broker.home / ".pi" / "agent"
    broker.start()
    for path in sockets(broker):
        with PiClient(path) as client:
            client.health()


def test_a_link_where_pi_subagents_has_its_directory_is_refused(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker = make_broker()
    directory = Path(broker.subagents_socket).parent
    elsewhere = broker.root / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    directory.symlink_to(elsewhere)
    broker.launch()
    assert broker.ended() > 0
    assert f"Unsafe intercom socket directory: {directory}" in broker.words()
    assert "Traceback" not in broker.words()
    assert list(elsewhere.iterdir()) == []
    assert not os.path.lexists(broker.socket)
    assert not broker.pid_file.exists()


# -- others' files


@pytest.mark.parametrize("written", ["{pid}\nmore\n", "no pid"])
def test_a_pid_that_is_not_ours_blocks_nothing(
    make_broker: Callable[..., BrokerProcess], written: str
) -> None:
    """Neither one that lives, such as that of this test."""
    broker = make_broker()
    broker.directory.mkdir(parents=True, mode=0o700)
    broker.pid_file.write_text(written.format(pid=os.getpid()))
    broker.start()
    assert broker.pid_file.read_text().splitlines()[0] == str(broker.pid)
    assert mode(broker.pid_file) == 0o600
    broker.join("ada")


def test_what_is_not_the_brokers_is_left_alone(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker()
    broker.directory.mkdir(parents=True, mode=0o700)
    lock, config = broker.directory / "broker.spawn.lock", broker.directory / "config.json"
    lock.write_text(f"{os.getpid()}\n")
    config.write_text("{}")
    broker.start()
    broker.join("ada")
    assert broker.stop() == 0
    assert lock.read_text() == f"{os.getpid()}\n"
    assert config.read_text() == "{}"


# -- at the end


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_at_the_end_everything_is_removed(broker: BrokerProcess, number: signal.Signals) -> None:
    assert broker.stop(number) == 0
    assert {one.name for one in broker.directory.iterdir()} == KEPT
    assert [one for one in broker.temporary.rglob("*") if not one.is_dir()] == []


def test_it_starts_again_in_the_same_places_right_after_the_exit(broker: BrokerProcess) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGKILL):
        broker.join("ada")
        broker.restart(number)
        assert broker.pid_file.read_text().splitlines()[0] == str(broker.pid)
        for path in sockets(broker):
            with PiClient(path) as client:
                client.health()
    assert {one.name for one in broker.directory.iterdir()} == KEPT | {"broker.sock", "broker.pid"}


def test_what_a_cleaner_of_temporary_files_removed_comes_back(broker: BrokerProcess) -> None:
    with broker.join("ada") as client:
        os.unlink(broker.socket)
        shutil.rmtree(Path(broker.subagents_socket).parent)
        for path in (broker.socket, broker.subagents_socket):
            until(lambda path=path: os.path.exists(path), f"{path} does not come back")
            with PiClient(path) as other:
                other.health()
        assert mode(Path(broker.subagents_socket).parent) == 0o700
        assert mode(broker.socket) == 0o600
        assert client.ids() == ["ada"]


# -- who is the broker


def test_of_many_that_start_at_once_one_serves_and_all_say_which(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    """Each client waits for the one that it started."""
    brokers = [make_broker() for _ in range(3)]
    for one in brokers:
        one.launch()
    said = {one.ready() for one in brokers}
    pid = int(brokers[0].pid_file.read_text().splitlines()[0])
    assert said == {f"Intercom broker started (pid: {pid})\n"}
    (hub,) = (one for one in brokers if one.pid == pid)
    others = [one for one in brokers if one is not hub]
    with hub.join("ada") as client:
        assert others[0].stop() == 0
        assert client.ids() == ["ada"], "only the hub serves, and it stays"
    assert hub.stop() == 0
    assert others[1].ended() == 0, "who waits for the hub goes with it"
    assert not os.path.lexists(hub.socket)


def test_a_broker_of_another_channel_does_not_get_the_places(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    broker, other = make_broker().start(), make_broker("other")
    other.launch()
    assert other.ended() > 0
    assert broker.socket in other.words()
    assert "Traceback" not in other.words()
    assert broker.pid_file.read_text().splitlines()[0] == str(broker.pid)
    broker.join("ada")


def test_a_hub_that_leads_the_channel_takes_the_places(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    """The command stays, says the hub's pid, and goes with the hub."""
    broker = make_broker()
    words = ["--dir", str(broker.channels), "--channel", "pi", "daemon"]
    hub = subprocess.Popen(
        [sys.executable, "-m", "intercom", *words],
        cwd=broker.home,
        env=broker.surroundings(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: os.path.exists(broker.hub_socket), "the hub does not come")
        broker.launch()
        assert f"Intercom broker started (pid: {hub.pid})" in broker.ready()
        assert broker.pid_file.read_text().splitlines()[0] == str(hub.pid)
        with broker.join("ada") as client:
            assert client.ids() == ["ada"]
            assert broker.process is not None
            assert broker.process.poll() is None
        hub.terminate()
        assert hub.wait(60) == 0
        assert broker.ended() == 0
        assert not os.path.lexists(broker.socket)
        assert not broker.pid_file.exists()
    finally:
        if hub.poll() is None:
            hub.kill()
            hub.wait()
