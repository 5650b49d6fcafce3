"""Hubs as real processes: ``intercom daemon``, ``twistd intercom``, ``twist intercom``."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.wire import envelope

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0

TWISTD = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()"]
#: How each kind of process is started; what follows are the hub's own options.
HOSTS = {
    "daemon": [sys.executable, "-m", "intercom", "daemon"],
    "twistd": [*TWISTD, "intercom"],
    "twistd -n": [*TWISTD, "-n", "intercom"],
    "twist": [sys.executable, "-m", "twisted", "intercom"],
}
FOREGROUND = ("daemon", "twistd -n", "twist")


class Place:
    """One channel, and the processes that a test starts for it."""

    def __init__(self, base: Path, cwd: Path, channel: str = "hub") -> None:
        self.paths = ChannelPaths(str(base), channel)
        self.cwd = cwd
        self.started: list[subprocess.Popen[str]] = []

    def start(self, host: str = "daemon", *options: str) -> subprocess.Popen[str]:
        """Start a hub from the test's empty directory, and do not wait."""
        place = ["--dir", self.paths.base, "--channel", self.paths.name]
        return self.spawn([*HOSTS[host], *place, *options])

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        process = subprocess.Popen(
            command,
            cwd=self.cwd,
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def run(self, host: str, *options: str) -> tuple[int, str]:
        """Start a hub that is not to live; returns its exit status and what it said."""
        process = self.start(host, *options)
        said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    def serve(self, host: str = "daemon", *options: str) -> subprocess.Popen[str]:
        """Start a hub and wait until it answers."""
        process = self.start(host, *options)
        self.client(process).close()
        return process

    def client(self, hub: subprocess.Popen[str] | None = None) -> socket.socket:
        """Connect as soon as that is possible."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            client = socket.socket(socket.AF_UNIX)
            client.settimeout(PATIENCE_S)
            try:
                client.connect(self.paths.socket)
            except (FileNotFoundError, ConnectionRefusedError):
                client.close()
                if hub is not None and hub.poll():
                    pytest.fail(f"the hub ended: {hub.communicate()[0]}")
                assert time.monotonic() < deadline, "no hub answers"
                time.sleep(0.01)
            else:
                return client

    def leader(self) -> dict[str, Any]:
        """Who the lock file says leads."""
        found: dict[str, Any] = json.loads(Path(self.paths.lock).read_bytes())
        return found

    def log(self) -> list[dict[str, Any]]:
        """The channel's log; every line of it is JSON."""
        return [json.loads(line) for line in Path(self.paths.log).read_bytes().splitlines()]

    def line(self, kind: str, sender: str, to: str = "hub", **payload: Any) -> bytes:
        """One line of a client."""
        return (
            envelope.make(
                type=kind,
                message_id=envelope.format_id(os.urandom(6)),
                from_session=sender,
                to_session=to,
                channel=self.paths.name,
                payload=payload,
                timestamp=envelope.format_timestamp(time.time()),
            )
            + b"\n"
        )


def read_line(client: socket.socket) -> dict[str, Any]:
    """The next line that the hub says."""
    data = b""
    while not data.endswith(b"\n"):
        byte = client.recv(1)
        assert byte, f"the hub closed after {data!r}"
        data += byte
    found: dict[str, Any] = json.loads(data)
    return found


def until(reached: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not reached():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for a process to end; returns its status and what it said."""
    said, _ = process.communicate(timeout=PATIENCE_S)
    return process.returncode, said


def is_gone(pid: int) -> bool:
    """Whether a process that is not our child has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.fixture
def place(channel_dir: Path, tmp_path: Path) -> Iterator[Place]:
    made = Place(channel_dir, tmp_path)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.terminate()
        with contextlib.suppress(ValueError):  # what it said was read already
            process.communicate(timeout=PATIENCE_S)


# -- each way of starting one


@pytest.mark.parametrize("host", FOREGROUND)
def test_a_hub_in_the_foreground_serves_until_it_is_told_to_end(place: Place, host: str) -> None:
    hub = place.serve(host)
    assert place.leader()["pid"] == hub.pid
    with place.client() as client:
        client.sendall(place.line("register", "rosa", features=["receipts"]))
        welcome = read_line(client)
        assert welcome["type"] == "welcome"
        assert welcome["payload"]["hub"]["pid"] == hub.pid
        assert stat.S_IMODE(os.lstat(place.paths.socket).st_mode) == 0o700
        hub.send_signal(signal.SIGTERM)
        assert read_line(client)["payload"]["code"] == "SHUTTING_DOWN"
    status, _ = ended(hub)
    # twistd and twist die of the signal, once everything is done
    assert status == (0 if host == "daemon" else -signal.SIGTERM)
    assert list(place.cwd.iterdir()) == [], "something was left in the working directory"
    assert not os.path.exists(place.paths.socket)
    assert not os.path.exists(place.paths.peers)
    assert Path(place.paths.lock).read_bytes() == b""
    texts = [line["text"] for line in place.log()]
    assert any(text.startswith("leading hub at") for text in texts)
    assert texts[-1] == "left hub"
    assert stat.S_IMODE(os.stat(place.paths.log).st_mode) == 0o600


def test_twistd_daemons_leave_nothing_behind_and_two_start_from_one_directory(
    place: Place, channel_dir: Path
) -> None:
    """As typed by hand, without --pidfile and --logfile."""
    other = Place(channel_dir, place.cwd, "other")
    for each in (place, other):
        assert each.run("twistd") == (0, "")
    pids = []
    for each in (place, other):
        with each.client() as client:
            client.sendall(each.line("register", "rosa"))
            pids.append(read_line(client)["payload"]["hub"]["pid"])
        assert each.leader()["pid"] == pids[-1]
        assert any("leading" in line["text"] for line in each.log())
    assert len(set(pids)) == 2
    assert list(place.cwd.iterdir()) == []
    for pid in pids:
        os.kill(pid, signal.SIGTERM)
    until(lambda: all(is_gone(pid) for pid in pids), "the daemons do not end")
    assert list(place.cwd.iterdir()) == []


def test_files_that_are_asked_of_twistd_are_written(place: Place) -> None:
    own = ["--pidfile=my.pid", "--logfile=my.log"]
    where = ["--dir", place.paths.base, "--channel", place.paths.name]
    process = place.spawn([*TWISTD, *own, "intercom", *where])
    assert ended(process) == (0, "")
    place.client().close()
    assert (place.cwd / "my.pid").read_text() == str(place.leader()["pid"])
    assert "leading hub" in (place.cwd / "my.log").read_text()
    assert any("leading" in line["text"] for line in place.log()), "the channel's log is kept, too"


def test_a_channel_whose_name_had_to_change_is_named(place: Place) -> None:
    """Two spellings could meet by surprise."""
    where = ["--dir", place.paths.base, "--channel", "Hub!"]
    for host in ("twistd", "daemon"):
        _, said = ended(place.spawn([*HOSTS[host], *where]))  # the second finds the first
        assert "'Hub!' is called 'hub'" in said
        place.client().close()


def test_a_daemon_serves_though_nobody_hears_what_it_says(place: Place) -> None:
    command = [*HOSTS["daemon"], "--dir", place.paths.base, "--channel", place.paths.name]
    deaf, pipe = os.pipe()
    os.close(deaf)
    script = (
        "import os, sys; fd = int(sys.argv[1]); os.dup2(fd, 2); os.execv(sys.argv[2], sys.argv[2:])"
    )
    hub = subprocess.Popen(
        [sys.executable, "-c", script, str(pipe), *command],
        cwd=place.cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        pass_fds=[pipe],
        stdout=subprocess.PIPE,
        text=True,
    )
    os.close(pipe)
    place.started.append(hub)
    place.client(hub).close()
    hub.terminate()
    assert ended(hub)[0] == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_ctrl_c_and_a_closed_terminal_end_a_daemon_in_good_order(
    place: Place, number: signal.Signals
) -> None:
    hub = place.serve()
    hub.send_signal(number)
    assert ended(hub)[0] == 0
    assert not os.path.exists(place.paths.socket)


def test_options_stand_before_the_verb_too(place: Place) -> None:
    where = ["--dir", place.paths.base, "--channel", place.paths.name]
    place.client(place.spawn([sys.executable, "-m", "intercom", *where, "daemon"])).close()


# -- another leads


def test_a_second_hub_names_the_leader_and_ends_well(place: Place) -> None:
    leader = place.serve()
    losers = {host: place.start(host) for host in HOSTS}
    for host, loser in losers.items():
        status, said = ended(loser)
        assert status == 0, (host, said)
        assert f"pid {leader.pid}" in said, host
        assert "intercom 0." in said, host
        assert time.strftime("since %Y-%m-%d") in said, host
        assert "Traceback" not in said, host
    assert list(place.cwd.iterdir()) == []
    place.client().close()


def test_of_many_hubs_started_at_once_one_leads(place: Place) -> None:
    hubs = [place.start() for _ in range(4)]
    place.client(hubs[0]).close()
    until(lambda: sum(hub.poll() is None for hub in hubs) == 1, "more than one stays")
    (leader,) = (hub for hub in hubs if hub.poll() is None)
    assert place.leader()["pid"] == leader.pid
    assert {hub.returncode for hub in hubs if hub is not leader} == {0}
    place.client().close()


# -- what cannot be taken


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_a_socket_that_cannot_be_made_ends_every_hub_with_73(place: Place, kind: str) -> None:
    place.paths.prepare()
    if kind == "file":
        Path(place.paths.socket).write_text("precious")
    else:
        os.mkdir(place.paths.socket)
    for host in HOSTS if kind == "file" else ("daemon",):
        status, said = place.run(host)
        assert status == 73, (host, said)
        assert place.paths.socket in said, host
        assert f"a {kind} stands there" in said, host
        assert "Traceback" not in said, host
    assert os.path.exists(place.paths.socket)
    assert list(place.cwd.iterdir()) == []


def test_a_port_in_use_is_an_error_in_every_hub(place: Place) -> None:
    """A daemonizing twistd can only say so: its status for all that the fork finds out is 1."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"tcp:{taken.getsockname()[1]}:interface=127.0.0.1"
        for host in HOSTS:
            status, said = place.run(host, "--listen", listen)
            assert status == (1 if host == "twistd" else 73), (host, said)
            assert "in use" in said or host == "twistd", said
            assert f"cannot listen at {listen}" in said, said
    assert not os.path.exists(place.paths.socket)
    place.serve()


def test_a_hub_that_fails_once_it_runs_ends_with_73_too(place: Place) -> None:
    """Its files cannot be written: that shows when the sockets are bound already.

    The parent of a daemonizing twistd is gone by then, so there the log says it.
    """
    place.paths.prepare()
    os.mkdir(place.paths.peers)
    for host in FOREGROUND:
        status, said = place.run(host)
        assert status == 73, (host, said)
        assert "could not start" in said, host
        assert place.paths.peers in said, host
    before = len(place.log())
    assert place.run("twistd") == (0, "")
    until(lambda: any("not started" in line["text"] for line in place.log()[before:]), "no word")
    until(lambda: Path(place.paths.lock).read_bytes() == b"", "the daemon stays")
    assert not os.path.exists(place.paths.socket)


def test_a_place_that_others_can_write_is_refused_with_77(place: Place) -> None:
    place.paths.prepare()
    os.chmod(place.paths.directory, 0o777)
    status, said = place.run("daemon")
    assert status == 77, said
    assert "chmod 700" in said


@pytest.mark.parametrize(
    ("host", "options", "status"),
    [
        ("daemon", ("--idle-exit", "0"), 2),
        ("daemon", ("--durability", "paper"), 2),
        ("daemon", ("--listen", "nonsense"), 2),
        ("daemon", ("--listen", "tcp:65536"), 2),
        ("twist", ("--listen", "tcp:65536"), 64),
        ("twistd", ("--durability", "paper"), 1),
        ("twistd", ("--idle-exit", "soon"), 1),
        ("twist", ("--idle-exit", "-1"), 64),
    ],
)
def test_a_setting_that_means_nothing_is_refused_before_anything_starts(
    place: Place, host: str, options: tuple[str, ...], status: int
) -> None:
    """Each program has its own status for bad usage."""
    found, said = place.run(host, *options)
    assert found == status, said
    assert options[1] in said
    assert "Traceback" not in said


# -- deaths, deletions, idleness


def test_a_hub_ends_within_two_seconds_though_a_peer_never_reads(place: Place) -> None:
    hub = place.serve()
    with place.client() as deaf, place.client() as talker:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(place.line("register", "deaf"))
        assert read_line(deaf)["type"] == "welcome"
        talker.sendall(place.line("register", "talker", features=["receipts"]))
        assert read_line(talker)["type"] == "welcome"
        for _ in range(4):
            talker.sendall(place.line("chat", "talker", "deaf", text="x" * 500_000))
            assert read_line(talker)["type"] == "receipt"
        hub.send_signal(signal.SIGTERM)
        assert ended(hub)[0] == 0
    told, left = (
        datetime.fromisoformat(line["time"])
        for line in place.log()
        if "SIGTERM" in line["text"] or line["text"] == "left hub"
    )
    assert (left - told).total_seconds() < 2.0
    assert os.path.getsize(place.paths.inbox("deaf")) > 2_000_000


def test_after_kill_9_another_hub_takes_over_at_once(place: Place) -> None:
    first = place.serve()
    with place.client() as client:
        client.sendall(place.line("register", "rosa"))
        read_line(client)
        first.kill()
        ended(first)
    assert os.path.exists(place.paths.socket), "a killed hub leaves its socket file"
    Path(place.paths.file(".hub0000")).touch()
    second = place.serve()
    assert place.leader()["pid"] == second.pid
    assert json.loads(Path(place.paths.peers).read_bytes())["active_sessions"] == []


def test_a_deleted_socket_file_is_back_within_a_second_or_two(place: Place) -> None:
    hub = place.serve()
    with place.client() as client:
        client.sendall(place.line("register", "rosa"))
        read_line(client)
        os.unlink(place.paths.socket)
        place.client().close()
        client.sendall(place.line("heartbeat", "rosa"))
        assert read_line(client)["type"] == "heartbeat"
    assert hub.poll() is None


@pytest.mark.parametrize("how", ["unlinked", "replaced"])
def test_a_hub_whose_lock_file_is_taken_away_ends_well_and_makes_room(
    place: Place, how: str
) -> None:
    """The original programs do so at their cleanup."""
    hub = place.serve()
    os.unlink(place.paths.lock)
    if how == "replaced":
        Path(place.paths.lock).touch(0o600)
    assert ended(hub)[0] == 0
    assert any("gone or replaced" in line["text"] for line in place.log())
    assert not os.path.exists(place.paths.socket)
    place.serve()


def test_a_hub_whose_directory_is_removed_ends_well(place: Place) -> None:
    hub = place.serve()
    os.rename(place.paths.directory, place.paths.directory + ".gone")
    assert ended(hub)[0] == 0
    place.serve()


def test_a_hub_ends_when_nobody_was_connected_for_the_time_it_was_given(place: Place) -> None:
    hub = place.start("daemon", "--idle-exit", "0.5")
    with place.client(hub) as client:
        client.sendall(place.line("register", "rosa"))
        read_line(client)
        time.sleep(1.5)  # thrice its time, with somebody there
        assert hub.poll() is None
    assert ended(hub)[0] == 0
    assert any("nobody was connected" in line["text"] for line in place.log())


def test_a_crash_of_the_interpreter_leaves_a_traceback_in_the_log(place: Place) -> None:
    hub = place.serve()
    hub.send_signal(signal.SIGSEGV)
    assert ended(hub)[0] == -signal.SIGSEGV
    text = Path(place.paths.log).read_text()
    assert "Fatal Python error: Segmentation fault" in text
    assert "serving.py" in text
    place.serve()


def test_who_comes_by_tcp_must_show_the_channels_key(place: Place) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place.serve("daemon", "--listen", f"tcp:{port}:interface=127.0.0.1")
    key = Path(place.paths.key).read_text().strip()
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as friend:
        friend.sendall(place.line("auth", "rosa", key=key) + place.line("register", "rosa"))
        assert read_line(friend)["type"] == "welcome"
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as stranger:
        stranger.sendall(b"POST / HTTP/1.1\r\n\r\n" + place.line("register", "mallory"))
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            while data := stranger.recv(65536):
                heard += data
        assert b"welcome" not in heard
    assert not os.path.exists(place.paths.inbox("mallory"))
