"""Inboxes that are locked, full, unfinished, or read by many at once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox
from intercom.wire import envelope

TIME = "2026-01-01T00:00:00.000000+00:00"


def message(paths: ChannelPaths, message_id: str, text: str = "x") -> bytes:
    """A line of an inbox, with its end."""
    line = envelope.make(
        type="chat",
        message_id=message_id,
        from_session="ada",
        to_session="bob",
        channel=paths.name,
        payload={"text": text},
        timestamp=TIME,
    )
    return line + b"\n"


def ids(polled: dict[str, Any]) -> list[str]:
    return [one["id"] for one in polled["messages"]]


def test_a_line_that_is_still_being_written_is_left_for_the_next_poll(
    intercom: Any, paths: ChannelPaths
) -> None:
    """It is neither shown in part nor passed over."""
    whole, last = message(paths, "m1"), message(paths, "m2")
    inbox = Path(paths.inbox("bob"))
    for cut in (1, len(last) // 2, len(last) - 1):
        inbox.write_bytes(whole + last[:cut])
        Path(paths.offset("bob")).unlink(missing_ok=True)
        polled = intercom("poll", session="bob").ok()
        assert ids(polled) == ["m1"]
        assert json.loads(Path(paths.offset("bob")).read_bytes())["offset"] == len(whole)
        inbox.write_bytes(whole + last)
        assert ids(intercom("poll", session="bob").ok()) == ["m2"]


def test_eight_polls_at_once_lose_nothing_and_leave_nothing_unread(
    intercom: Any, paths: ChannelPaths
) -> None:
    """A message may be shown by several, since each was shown before it counts as read."""
    count = 2000
    Path(paths.inbox("bob")).write_bytes(b"".join(message(paths, f"m{n:04}") for n in range(count)))

    def poll_to_the_end() -> list[str]:
        shown: list[str] = []
        while more := ids(intercom("poll", "--limit", "2000", session="bob").ok()):
            shown += more
        return shown

    with ThreadPoolExecutor(8) as pool:
        shown = [poll.result() for poll in [pool.submit(poll_to_the_end) for _ in range(8)]]
    for one in shown:
        assert one == sorted(set(one)), "the position has gone back"
    assert set().union(*shown) == {f"m{n:04}" for n in range(count)}
    with Inbox(paths, "bob") as inbox:
        assert inbox.unread() == 0
        assert inbox.read().start.offset == inbox.size()


HOLD = """
import fcntl, sys, time
file = open(sys.argv[1], "ab+")
fcntl.flock(file, fcntl.LOCK_SH)
print("locked", flush=True)
time.sleep(600)
"""


@pytest.fixture
def stopped_reader(paths: ChannelPaths) -> Iterator[Callable[[str], None]]:
    """Readers that hold an inbox's lock and are stopped, as by Ctrl-Z."""
    started: list[subprocess.Popen[bytes]] = []

    def start(session: str) -> None:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLD, paths.inbox(session)], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        process.send_signal(signal.SIGSTOP)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_a_stopped_reader_that_holds_a_lock_delays_its_own_inbox_only(
    hub: Any, intercom: Any, stopped_reader: Any, stored: Any
) -> None:
    """Its senders are told within the patience; nobody else waits, nor does the end."""
    one = hub()
    stopped_reader("bob")
    ada, eve = one.connect("ada", "receipts"), one.connect("eve", "receipts")
    pool = ThreadPoolExecutor(1)
    by_command = pool.submit(
        intercom, "send", "--to", "bob", "--text", "by command", session="dora"
    )
    began = time.monotonic()
    ada.chat("bob", "blocked")
    quick, told = 0, 0
    while not told:
        eve.chat("carol", "quick")
        assert eve.until("receipt")["payload"]["state"] == "stored"
        quick += 1
        ada.socket.settimeout(0.01)
        try:
            told = len(ada.socket.recv(1, socket.MSG_PEEK))
        except TimeoutError:
            assert time.monotonic() - began < 20
    ada.socket.settimeout(60)
    refused = ada.until("receipt")["payload"]
    assert (refused["state"], refused["code"]) == ("refused", "INBOX_LOCKED")
    assert refused["retryable"]
    assert 1.5 < time.monotonic() - began < 20
    assert quick > 3, "others wait for a lock that is waited for"
    pool.shutdown()
    ended = by_command.result()
    assert (ended.status, ended.result["code"]) == (75, "INBOX_LOCKED")
    ada.chat("bob", "still blocked while the hub ends")
    assert one.stop() < 10.0
    assert Path(ada.paths.inbox("bob")).read_bytes() == b""
    assert set(stored("carol")) == {"quick"}


def test_no_command_removes_a_socket_that_nobody_answers(
    intercom: Any, paths: ChannelPaths
) -> None:
    """A hub may be about to listen there; only the holder of its lock replaces it."""
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(paths.socket)
    identity = os.lstat(paths.socket).st_ino
    assert intercom("send", "--to", "bob", "--text", "x").ok()["cause"] == "refused"
    assert intercom("peers").status == 69
    intercom("init")
    intercom("poll").ok()
    intercom("listen", "--timeout", "0.2")
    assert os.lstat(paths.socket).st_ino == identity


#: Runs a program whose files cannot grow past 4,000 bytes.
SMALL_FILES = (
    sys.executable,
    "-c",
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); "
    "os.execv(sys.argv[1], sys.argv[1:])",
)


def test_a_file_size_limit_refuses_a_message_and_leaves_the_inbox_as_it_was(
    intercom: Any, paths: ChannelPaths
) -> None:
    """Without a hub: the kernel writes a part of the line and then no more."""
    small = intercom("send", "--to", "bob", "--text", "first").ok()
    inbox = Path(paths.inbox("bob"))
    before = inbox.read_bytes()

    full = intercom("send", "--to", "bob", "--text", "y" * 5000, under=SMALL_FILES)
    assert (full.status, full.result["code"]) == (73, "DISK_FULL")
    assert full.result["remedy"] == "free some space: df -h"
    assert inbox.read_bytes() == before
    last = intercom("send", "--to", "bob", "--text", "last").ok()
    polled = intercom("poll", session="bob").ok()
    assert ids(polled) == [small["envelope"]["id"], last["envelope"]["id"]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for 256 KiB."""
    if os.geteuid() != 0:
        pytest.skip("not run: needs root")
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k,mode=0700", "tmpfs", str(place)],
        capture_output=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"not run: no file system can be mounted here ({made.stderr.decode()})")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_refuses_messages_until_there_is_room_again(
    hub: Any, intercom: Any, small_disk: Path, stored: Any
) -> None:
    """With a hub: what was called stored is there, what was refused is not."""
    where = ChannelPaths(str(small_disk / "base"), "default")
    where.prepare()
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * 65536)
    one = hub(where=where)
    ada = one.connect("ada", "receipts")
    texts = [f"{n} " + "z" * 20_000 for n in range(24)]
    states = Counter[str]()
    kept = []
    for text in texts:
        ada.chat("bob", text)
        receipt = ada.until("receipt")["payload"]
        states[receipt["state"]] += 1
        if receipt["state"] == "stored":
            assert receipt["level"] == "process", "nothing on this disk survives the power"
            kept.append(text)
        else:
            assert receipt["code"] == "DISK_FULL"
            assert receipt["retryable"]
    assert states["stored"] > 3
    assert states["refused"] > 3
    assert stored("bob", where) == kept
    ended = intercom("send", "--to", "bob", "--text", "w" * 60_000, "--dir", where.base)
    assert (ended.status, ended.result["code"]) == (73, "DISK_FULL")
    ballast.unlink()
    ada.chat("bob", "room again")
    assert ada.until("receipt")["payload"]["state"] == "stored"
    assert stored("bob", where) == [*kept, "room again"]
    polled = intercom("poll", "--dir", where.base, session="bob").ok()
    assert [m["payload"]["text"] for m in polled["messages"]] == [*kept, "room again"]
    assert one.stop() < 10.0
