"""System calls that fail, of a hub that serves and of commands that work on the files.

Whatever fails: what was called stored is there, once and in order; nobody hangs; and the
next message goes its way. INTERCOM_FAULTS chooses how many of all faults the long form tries.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from storm_place import Place, record, until
from strained import Fault, injected, require_strace

from intercom.client.outbox import compose, deliver
from intercom.client.tokens import own_token
from intercom.errors import IntercomError

CALLS = ("write", "pwrite64", "fdatasync", "fsync", "rename", "ftruncate", "openat", "flock")
CALLS += ("accept4", "sendto", "recvmsg", "epoll_wait")
ERRORS = ("EIO", "ENOSPC", "EINTR", "EAGAIN", "EMFILE", "ENOMEM")
ALL = [Fault(*one) for one in itertools.product(CALLS, ERRORS, range(1, 8))]
LONG = int(os.environ.get("INTERCOM_FAULTS", "420"))
#: What goes wrong most often, or worst.
SHORT = [
    Fault("write", "ENOSPC", 1),
    Fault("write", "EIO", 2),
    Fault("write", "EAGAIN", 1),
    Fault("pwrite64", "ENOSPC", 1),
    Fault("pwrite64", "EIO", 2),
    Fault("fdatasync", "EIO", 1),
    Fault("fdatasync", "ENOSPC", 2),
    Fault("fsync", "EIO", 1),
    Fault("rename", "ENOSPC", 1),
    Fault("ftruncate", "EIO", 1),
    Fault("openat", "EMFILE", 1),
    Fault("openat", "ENOMEM", 2),
    Fault("openat", "EINTR", 3),
    Fault("flock", "ENOMEM", 1),
    Fault("flock", "EINTR", 2),
    Fault("accept4", "EMFILE", 1),
    Fault("accept4", "ENOMEM", 2),
    Fault("accept4", "EINTR", 1),
    Fault("sendto", "EAGAIN", 1),
    Fault("sendto", "EIO", 2),
    Fault("recvmsg", "EINTR", 1),
    Fault("recvmsg", "EIO", 2),
    Fault("epoll_wait", "EINTR", 1),
    Fault("epoll_wait", "EIO", 2),
]
#: Seconds in which each message has to have an end; a client promises ten.
DEADLINE = 60.0


class Trial:
    """One channel on which fault after fault is tried."""

    def __init__(self, place: Place, directory: Path) -> None:
        self.place = place
        self.log = directory / "strace"
        self.token = own_token(place.paths, "ada")
        self.count = 0
        self.slowest = 0.0
        self.figures = Counter[str]()

    def send(self, to: str = "ann") -> None:
        """Send a message as ``intercom send`` does, and note what is said of it."""
        self.count += 1
        name = f"m{self.count}"
        letter = compose(self.place.paths, "ada", to, {"text": "x" * 300}, message_id=name)
        self.place.history.sending(name, [to], letter.line)
        begun = time.monotonic()
        try:
            outcome = deliver(self.place.paths, letter, self.token, connect=self.connect)
        except IntercomError as error:  # an earlier try of it may have got through
            self.figures[error.code] += 1
            self.place.history.sent(name, "info")
        else:
            assert outcome.state == "stored", outcome
            self.figures[outcome.status] += 1
            self.place.history.sent(name, "ok")
        took = time.monotonic() - begun
        self.slowest = max(self.slowest, took)
        assert took < DEADLINE, f"{name} took {took:.0f} s"

    def connect(self, paths: Any) -> Any:
        """As every client does, with this place's environment for hubs that it starts."""
        from intercom.client.spawn import ensure_hub

        return ensure_hub(paths, environ=self.place.environ)

    def suffer(self, fault: Fault) -> bool:
        """Send while calls fail, then when none do; whether any did fail."""
        pid = self.place.serving()
        with injected(pid, fault, self.log) as faults:
            for to in ("ann", f"new-{self.count}", "ann"):
                self.send(to)
        if Path(f"/proc/{pid}").exists():
            self.figures["survived"] += 1
        else:
            self.figures["left"] += 1
        self.send()
        return faults.times > 0


def suffer_all(place: Place, faults: list[Fault], directory: Path) -> tuple[Trial, list[Fault]]:
    """Try them one after another; those that never came about."""
    require_strace()
    place.enrol("ann")
    trial = Trial(place, directory)
    idle = []
    for fault in faults:
        try:
            if not trial.suffer(fault):
                idle.append(fault)
        except BaseException:
            print(f"while {fault} was tried; the last words of the hub:")
            for file in (place.paths.log, place.paths.spawn_output):
                print(Path(file).read_text()[-3000:])
            raise
    place.serving()
    report = place.judge()
    print(report, dict(trial.figures), f"slowest {trial.slowest:.1f} s", "never:", *idle, sep="; ")
    place.require(report, acked=3 * len(faults))
    assert trial.figures["INTERNAL"] == 0
    return trial, idle


def test_whatever_fails_in_a_hub_nothing_acknowledged_is_lost(
    storm: Callable[..., Place], tmp_path: Path
) -> None:
    trial, idle = suffer_all(storm("disk"), SHORT, tmp_path)
    assert len(idle) <= len(SHORT) // 3, f"these never came about: {idle}"
    assert trial.figures["survived"] > len(SHORT) // 2
    assert trial.figures["left"] >= 1, "it goes on though a sync has failed"


@pytest.mark.slow
def test_many_faults_in_a_hub(storm: Callable[..., Place], tmp_path: Path) -> None:
    chosen = random.Random(1).sample(ALL, min(LONG, len(ALL)))
    trial, idle = suffer_all(storm("disk"), chosen, tmp_path)
    record("syscall faults", dict(trial.figures) | {"idle": len(idle), "slowest": trial.slowest})
    assert len(idle) < len(chosen) * 2 // 3


def test_a_sync_that_fails_gives_no_receipt_and_the_hub_leaves(
    storm: Callable[..., Place], tmp_path: Path
) -> None:
    """By the kernel's own word: what may not be on the disk is never called stored."""
    require_strace()
    place = storm("disk")
    place.enrol("ann")
    with place.connection("ada") as hub:
        assert hub.pid is not None
        letter = compose(place.paths, "ada", "ann", {"text": "x"}, message_id="m1")
        with injected(hub.pid, Fault("fdatasync", "EIO", 1), tmp_path / "strace") as faults:
            hub.send_line(letter.line)
            said = []
            try:
                while received := hub.receive(20.0):
                    said.append((received.type, received.payload.get("state")))
            except IntercomError as ended:
                said.append((ended.code, None))
            assert faults.times == 1
        assert ("receipt", "stored") not in said, said
        pid = hub.pid
        until(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the hub's end")


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended and only waits to be told so to its parent."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return True


# -- commands on files -------------------------------------------------------------------------

#: The calls that a command makes for its message and not for its own beginning.
SENDING = [
    *(Fault("fdatasync", error, 1) for error in ("EIO", "EDQUOT", "EINTR")),
    *(Fault("write", error, number) for error in ("EIO", "EDQUOT") for number in (1, 2)),
    *(Fault("flock", error, 1) for error in ("ENOLCK", "EINTR")),
]
READING = [
    Fault("write", "EIO", 1),
    Fault("write", "ENOSPC", 1),
    Fault("pread64", "EIO", 1),
    Fault("rename", "EIO", 1),
    Fault("rename", "ENOSPC", 1),
    Fault("flock", "ENOLCK", 1),
]


def under(fault: Fault, log: Path) -> list[str]:
    """The words before a command that has it fail."""
    return [require_strace(), *fault.words, "-o", str(log)]


@pytest.mark.parametrize("fault", SENDING, ids=str)
def test_a_send_whose_calls_fail_says_what_became_of_the_message(
    intercom: Any, stored: Any, paths: Any, tmp_path: Path, fault: Fault
) -> None:
    """Stored is stored; what was refused is not there, and goes the next time under its id."""
    log = tmp_path / "strace"
    words = ("send", "--to", "bob", "--text", "hello", "--id", "m1")
    tried = intercom(*words, under=under(fault, log))
    if "(INJECTED)" not in log.read_text():
        pytest.fail(f"{fault} never came about")
    there = stored("bob") if os.path.exists(paths.inbox("bob")) else []
    if tried.status == 0:
        assert tried.result["state"] == "stored"
        assert there == ["hello"]
    else:
        assert tried.status in (73, 74, 75, 77), (tried.status, tried.err)
        assert "Traceback" not in tried.err
    again = intercom(*words).ok()
    assert again["state"] == "stored"
    assert stored("bob") == ["hello"]


@pytest.mark.parametrize("fault", READING, ids=str)
def test_a_poll_whose_calls_fail_loses_nothing(
    intercom: Any, paths: Any, tmp_path: Path, fault: Fault
) -> None:
    """What was not shown for certain is shown by the next one."""
    intercom("send", "--to", "bob", "--text", "hello").ok()
    log = tmp_path / "strace"
    tried = intercom("poll", session="bob", under=under(fault, log))
    if "(INJECTED)" not in log.read_text():
        pytest.fail(f"{fault} never came about")
    shown = b'"hello"' in tried.out
    later = [one["payload"]["text"] for one in intercom("poll", session="bob").ok()["messages"]]
    assert shown or later == ["hello"], (tried.status, tried.out, tried.err)
    if tried.status == 0:
        assert shown
    assert intercom("poll", session="bob").ok()["messages"] == []
