"""Bounds of a hub that runs: connections, descriptors, a file system that is full."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

MakeAgent = Callable[[str], Any]
PATIENCE_S = 60.0


class Client:
    """A raw connection, with blocking reads."""

    def __init__(self, path: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE_S)
        self.socket.connect(path)
        self.lines: BinaryIO = self.socket.makefile("rb")

    def say(self, **line: Any) -> None:
        self.socket.sendall(json.dumps(line).encode() + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next line, empty at the end."""
        line = self.lines.readline()
        found: dict[str, Any] = json.loads(line) if line else {}
        return found

    def register(self, session: str, *features: str) -> dict[str, Any]:
        self.say(type="register", from_session=session, payload={"features": features})
        return self.hear()

    def send(self, to: str, text: str) -> dict[str, Any]:
        """What the receipt says."""
        self.say(type="chat", to_session=to, payload={"text": text})
        while (line := self.hear())["type"] != "receipt":
            assert line["type"] != "error", line
        payload: dict[str, Any] = line["payload"]
        return payload

    def close(self) -> None:
        self.lines.close()
        self.socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class Hub:
    """One hub in a process of its own."""

    def __init__(self, agent: Any, files: int | None = None, **settings: str) -> None:
        self.path = agent.paths.socket
        agent.environ |= settings

        def lower() -> None:
            if files is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

        self.process: subprocess.Popen[bytes] = agent.start(
            "daemon", stdin=subprocess.DEVNULL, preexec_fn=lower
        )

    def wait_until_ready(self) -> None:
        assert self.process.stderr is not None
        said = self.process.stderr.readline()
        assert b"is ready" in said, said

    def connect(self) -> Client:
        return Client(self.path)

    def sockets(self) -> int:
        """How many it has open."""
        found = 0
        for fd in Path(f"/proc/{self.process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += os.readlink(fd).startswith("socket:")
        return found

    def busy_for(self) -> float:
        """Seconds of processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> float:
        """Tell it to go; how many seconds it took."""
        began = time.monotonic()
        if self.process.poll() is not None:
            return 0.0
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=PATIENCE_S)
        return time.monotonic() - began


@pytest.fixture
def hub(agent: MakeAgent) -> Iterator[Callable[..., Hub]]:
    started: list[Hub] = []

    def start(files: int | None = None, of: Any = None, **settings: str) -> Hub:
        started.append(Hub(of or agent("ann"), files, **settings))
        started[-1].wait_until_ready()
        return started[-1]

    yield start
    for one in started:
        one.end()


# -- connections ------------------------------------------------------------------------------


def test_one_connection_too_many_is_told_so_at_once_and_closed(hub: Callable[..., Hub]) -> None:
    """Whether it speaks first or listens; who is there goes on; a place that is free counts."""
    running = hub(INTERCOM_CONNECTIONS="5")
    with ExitStack() as stack:
        served = [stack.enter_context(running.connect()) for _ in range(5)]
        for number, client in enumerate(served):
            assert client.register(f"s{number}", "receipts")["type"] == "welcome"
        before = running.sockets()
        for speaks in (False, True) * 20:
            began = time.monotonic()
            with running.connect() as late:
                if speaks:
                    with suppress(BrokenPipeError):
                        late.say(type="register", from_session="late")
                assert late.hear()["payload"]["code"] == "TOO_MANY_SESSIONS"
                assert late.lines.read() == b""
            assert time.monotonic() - began < 5
        assert running.sockets() == before
        assert served[0].send("s1", "hello")["state"] == "stored"
        served.pop().close()
        with running.connect() as next_one:
            assert next_one.register("next")["type"] == "welcome"
    log = Path(running.path).with_name("hub.log").read_text()
    assert log.count("no room for another connection: 5") == 1


def test_a_command_that_finds_no_place_says_so(hub: Callable[..., Hub], agent: MakeAgent) -> None:
    """A message to one session needs no connection, and is stored through the inbox file."""
    running = hub(INTERCOM_CONNECTIONS="1")
    with running.connect() as only:
        assert only.register("bob")["type"] == "welcome"
        looked = agent("ann").run("peers")
        assert looked.status == 75
        assert "as many connections" in looked.err
        assert (
            agent("ann").run("send", "--to", "bob", "--text", "hi").ok()["status"]
            == "spooled_offline"
        )
        heard = only.hear()
        while heard["type"] != "chat":
            heard = only.hear()
        assert heard["payload"]["text"] == "hi"


def test_a_storm_of_connections_is_served(hub: Callable[..., Hub]) -> None:
    """Many at once, each of which registers before it is accepted."""
    running = hub()
    with ExitStack() as stack:
        storm = [stack.enter_context(running.connect()) for _ in range(300)]
        for number, client in enumerate(storm):
            client.say(type="register", from_session=f"s{number}")
        assert {client.hear()["type"] for client in storm} == {"welcome"}


def test_strangers_that_say_nothing_are_sent_away_and_stop_nobody(
    hub: Callable[..., Hub],
) -> None:
    running = hub(INTERCOM_UNREGISTERED="3", INTERCOM_REGISTER_WITHIN="4")
    with ExitStack() as stack:
        silent = [stack.enter_context(running.connect()) for _ in range(10)]
        with running.connect() as client:
            assert client.register("bob")["type"] == "welcome"
        for one in silent:
            assert one.hear()["payload"]["code"] == "TOO_MANY_SESSIONS"
            assert one.hear() == {}


# -- descriptors ------------------------------------------------------------------------------


def test_a_hub_lets_itself_open_as_many_files_as_it_may(agent: MakeAgent) -> None:
    """The daemon and Twisted's plugin alike; a shell's usual limit is a low one."""
    for words in (["-m", "intercom", "daemon"], ["-m", "twisted", "intercom"]):
        one = agent("ann")
        hard = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 3000)

        def lower(hard: int = hard) -> None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))

        process = subprocess.Popen(
            [sys.executable, *words],
            env=one.environ,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            preexec_fn=lower,
        )
        try:
            assert process.stderr is not None
            assert b"is ready" in process.stderr.readline()
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (hard, hard)
        finally:
            process.terminate()
            process.communicate(timeout=PATIENCE_S)


def test_out_of_descriptors_a_hub_goes_on_for_those_whom_it_serves(
    hub: Callable[..., Hub],
) -> None:
    """Sixty-four files, three hundred callers: most are told that there is no room, none waits."""
    running = hub(64, INTERCOM_IDLE_EXIT="never")
    with ExitStack() as stack:
        first = stack.enter_context(running.connect())
        assert first.register("first", "receipts")["type"] == "welcome"
        callers = [stack.enter_context(running.connect()) for _ in range(300)]
        heard = []
        for number, caller in enumerate(callers):
            with suppress(BrokenPipeError):
                caller.say(type="register", from_session=f"c{number}", payload={})
            heard.append(caller.hear())
        served = [line for line in heard if line.get("type") == "welcome"]
        refused = [line for line in heard if line.get("type") == "error"]
        assert len(served) >= 15
        assert len(served) + len(refused) == 300  # nobody was closed without a word
        for number in range(40):  # each a new inbox: more than can be open
            assert first.send(f"nobody-{number}", "kept")["state"] == "stored"
        before = running.busy_for()
        time.sleep(1.0)
        assert running.busy_for() - before < 0.3  # an accept that fails for ever would take it all
    with running.connect() as later:
        assert later.register("later", "receipts")["type"] == "welcome"
        assert later.send("first", "still here")["state"] == "stored"
    assert running.end() < 10
    log = Path(running.path).with_name("hub.log").read_bytes()
    assert b"Traceback" not in log
    assert b"left ann" in log or b"left default" in log


# -- a file system that is full ---------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path, agent: MakeAgent) -> Iterator[Any]:
    """An agent whose channel lies on a file system of 128 KiB."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a file system")
    place = Path("/tmp") / f"ic-small-{os.getpid()}"
    place.mkdir(mode=0o700)
    options = "size=128k,mode=0700"
    mount = ["mount", "-t", "tmpfs", "-o", options, "intercom-test", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        place.rmdir()
        pytest.skip("this place lets nobody mount a file system")
    one = agent("ann")
    try:
        yield type(one)(place, one.project, "ann")
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
        place.rmdir()


def test_a_small_disk_is_filled_and_freed_and_nothing_is_lost(
    small_disk: Any, hub: Callable[..., Hub]
) -> None:
    """What was called stored is read whole; what was refused is nowhere; then all is well again."""
    ballast = small_disk.base / "ballast"
    ballast.write_bytes(b"x" * 64 * 1024)
    running = hub(of=small_disk)
    inbox = Path(small_disk.paths.inbox("bob"))
    with running.connect() as client:
        assert client.register("ann", "receipts")["type"] == "welcome"
        stored, refused = [], []
        for number in range(60):
            text = f"{number} " + "x" * 1500
            receipt = client.send("bob", text)
            if receipt["state"] == "stored":
                stored.append(text)
            else:
                refused.append(text)
                assert (receipt["code"], receipt["retryable"]) == ("DISK_FULL", True), receipt
        assert len(stored) >= 3
        assert len(refused) >= 30
        assert [json.loads(line)["payload"]["text"] for line in _lines(inbox)] == stored
        offline = small_disk.run("send", "--to", "bob", "--text", "x" * 20_000)
        assert offline.status == 73  # its own files find no place either, and it says so
        assert [json.loads(line)["payload"]["text"] for line in _lines(inbox)] == stored
        ballast.unlink()
        small_disk.environ["INTERCOM_SESSION"] = "bob"
        assert _drained(small_disk) == stored
        assert client.send("bob", "after")["state"] == "stored"
        assert _drained(small_disk) == ["after"]
    assert running.end() < 10


def _drained(disk: Any) -> list[str]:
    """All that lies unread.

    A few blocks are all there is. Where one is missing for a moment, for the position, that
    is said, and what was shown is shown again.
    """
    got: list[str] = []
    for _ in range(200):
        shown = disk.run("poll")
        texts = [one["payload"]["text"] for one in shown.result["messages"]]
        if shown.status == 0 and not texts:
            return got
        if shown.status == 0:
            got += texts
        else:
            assert (shown.status, "shown again" in shown.err) == (73, True), shown.err
            time.sleep(0.1)
    raise AssertionError("there is no end of it")


def _lines(inbox: Path) -> list[bytes]:
    data = inbox.read_bytes()
    assert data.endswith(b"\n")
    return data.splitlines()


def test_a_disk_that_others_fill_refuses_and_is_noticed_when_it_is_free(
    small_disk: Any, hub: Callable[..., Hub]
) -> None:
    """Down to the last byte, past the floor: the file is as it was, the hub goes on."""
    running = hub(of=small_disk, INTERCOM_FREE_SPACE="0", INTERCOM_FREE_INODES="0")
    with running.connect() as client:
        assert client.register("ann", "receipts")["type"] == "welcome"
        assert client.send("bob", "before")["state"] == "stored"
        inbox = Path(small_disk.paths.inbox("bob"))
        filler = small_disk.base / "filler"
        with filler.open("wb", buffering=0) as file:
            for size in (4096, 512, 1):
                try:
                    while file.write(b"x" * size) == size:
                        pass
                except OSError:
                    continue
        before = inbox.read_bytes()
        receipts = [client.send("bob", "x" * 6000) for _ in range(3)]
        assert {receipt.get("code") for receipt in receipts} == {"DISK_FULL"}
        assert inbox.read_bytes() == before
        filler.unlink()
        assert client.send("bob", "after")["state"] == "stored"
        texts = [json.loads(line)["payload"]["text"] for line in _lines(inbox)]
        assert texts == ["before", "after"]
    assert running.end() < 10


# -- what an inbox takes, and for how long ----------------------------------------------------


def test_a_full_inbox_is_told_to_whoever_sends_and_is_well_when_it_is_read(
    hub: Callable[..., Hub], agent: MakeAgent
) -> None:
    """Others' inboxes are not concerned."""
    hub(INTERCOM_INBOX_SIZE="8KiB")
    ann, bob = agent("ann"), agent("bob")
    text = "x" * 3000
    for _ in range(2):
        assert ann.run("send", "--to", "bob", "--text", text).ok()["status"] == "sent"
    full = ann.run("send", "--to", "bob", "--text", text)
    assert (full.status, json.loads(full.out)["code"]) == (75, "INBOX_FULL")
    assert ann.run("send", "--to", "eve", "--text", text).ok()["status"] == "sent"
    assert bob.texts() == [text, text]
    assert ann.run("send", "--to", "bob", "--text", text).ok()["status"] == "sent"
    assert bob.texts() == [text]


def test_old_mail_becomes_dead_letters_and_its_senders_are_told(
    hub: Callable[..., Hub], agent: MakeAgent
) -> None:
    """Also mail that lay there before the hub came; young mail stays, in its order."""
    ann, bob = agent("ann"), agent("bob")
    for one in (ann, bob):
        one.run("init", INTERCOM_NO_SPAWN="1").ok()
    ann.run("send", "--to", "bob", "--text", "young", INTERCOM_TRANSPORT="spool").ok()
    inbox = Path(bob.paths.inbox("bob"))
    young = inbox.read_bytes()
    old = json.loads(young) | {"timestamp": "2020-01-01T00:00:00+00:00"}
    lines = [json.dumps(old | {"id": f"old-{number}"}) for number in range(3)]
    inbox.write_text("".join(line + "\n" for line in lines) + young.decode())
    hub(INTERCOM_RETENTION_AGE="3600")
    told: list[dict[str, Any]] = []

    def notice() -> object:
        told.extend(ann.run("poll").ok()["messages"])
        return told

    ann.wait_until(notice, PATIENCE_S)
    assert len(told) == 1
    assert told[0]["from_session"] == "hub"
    said = told[0]["payload"]["notice"]
    assert (said["code"], said["session"], said["count"]) == ("EXPIRED", "bob", 3)
    assert said["ids"] == ["old-0", "old-1", "old-2"]
    letters = ann.run("dead").ok()["letters"]
    assert [(one["why"], one["id"]) for one in letters] == [
        ("expired", f"old-{n}") for n in range(3)
    ]
    assert bob.texts() == ["young"]


# -- leaving ----------------------------------------------------------------------------------


def test_a_hub_that_looks_for_old_mail_leaves_in_time(
    hub: Callable[..., Hub], agent: MakeAgent
) -> None:
    """Half a hundred mebibytes of it; what it had begun is whole afterwards."""
    one = agent("ann")
    one.paths.prepare()
    line = json.dumps(
        {
            "id": "m",
            "type": "chat",
            "from_session": "ann",
            "to_session": "bob",
            "channel": "default",
            "reply_to": None,
            "payload": {"text": "x" * 1000},
            "timestamp": "2020-01-01T00:00:00+00:00",
        }
    )
    with open(one.paths.inbox("bob"), "w") as file:
        for number in range(40_000):
            file.write(line.replace('"m"', f'"m{number}"', 1) + "\n")
    running = hub(INTERCOM_RETENTION_AGE="3600")
    assert running.end() < 10
    unread = one.run("poll", "--session", "bob", "--peek", "--limit", "1")
    assert unread.status == 0, unread.err


def test_many_peers_that_never_read_do_not_keep_a_hub(hub: Callable[..., Hub]) -> None:
    running = hub()
    with ExitStack() as stack:
        ann = stack.enter_context(running.connect())
        ann.register("ann", "receipts")
        for number in range(30):
            assert stack.enter_context(running.connect()).register(f"s{number}")
        text = "x" * 100_000
        for number in range(20):
            ann.say(type="chat", to_session="*", id=f"m{number}", payload={"text": text})
        told = 0
        while told < 20:
            told += ann.hear()["type"] == "receipt"
        assert running.end() < 10
