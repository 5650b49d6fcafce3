"""Signals at any moment, closed and full outputs, and no input: no traceback, and nothing lost.

The long forms take INTERCOM_SIGNALS rounds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from intercom.spool.files import Inbox

Agent = Any
Make = Callable[[str], Agent]
ROUNDS = int(os.environ.get("INTERCOM_SIGNALS", "200"))
#: What a busy terminal and a busy parent send; none of them asks for anything.
HARMLESS = (signal.SIGWINCH, signal.SIGCHLD, signal.SIGURG, signal.SIGCONT)


@contextmanager
def pelted(pid: int, rate: float = 1000.0) -> Iterator[Counter[str]]:
    """Send a process harmless signals, about so many a second, until the ``with`` ends."""
    sent: Counter[str] = Counter()
    done = threading.Event()

    def pelt() -> None:
        number = 0
        while not done.wait(1 / rate):
            try:
                os.kill(pid, HARMLESS[number % len(HARMLESS)])
            except ProcessLookupError:
                return
            sent["signals"] += 1
            number += 1

    thread = threading.Thread(target=pelt)
    thread.start()
    try:
        yield sent
    finally:
        done.set()
        thread.join()


def fill(ada: Agent, count: int, to: str = "bob", size: int = 10) -> list[str]:
    """Leave messages without a hub; their texts."""
    texts = [f"{number} " + "x" * size for number in range(count)]
    for text in texts:
        ada.run("send", "--to", to, "--text", text, INTERCOM_NO_SPAWN="1").ok()
    return texts


def unread(bob: Agent) -> list[str]:
    """What is still to be shown."""
    return [text[:5] for text in bob.texts("--limit", "1000")]


def test_a_hub_that_is_pelted_with_signals_serves(hub: Any, stored: Any) -> None:
    one = hub()
    ada, bob = one.connect("ada", "receipts"), one.connect("bob", "cursor")
    count = 0
    with pelted(one.pid) as sent:
        while count < 300 or sent["signals"] < 100:
            ada.chat("bob", f"{count}")
            assert ada.until("receipt")["payload"]["state"] == "stored"
            assert bob.until("chat")["payload"]["text"] == f"{count}"
            count += 1
    assert stored("bob") == [str(number) for number in range(count)]
    assert not any("log_failure" in line or "traceback" in line for line in one.log())
    assert one.stop() < 10.0


@pytest.mark.parametrize(
    "words", [("send", "--to", "bob", "--text", "x"), ("poll",), ("peers",), ("init",)]
)
def test_a_command_that_is_pelted_with_signals_does_its_work(
    agent: Make, hub: Any, words: tuple[str, ...]
) -> None:
    hub()
    process = agent("ada").start(*words, stdin=subprocess.DEVNULL)
    with pelted(process.pid):
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert b"Traceback" not in err
    assert out


def test_a_listener_that_is_pelted_with_signals_hears_everything(agent: Make, hub: Any) -> None:
    one = hub()
    process = agent("bob").start("listen", "--timeout", "60", stdin=subprocess.DEVNULL)
    try:
        ada = one.connect("ada", "receipts")
        heard = b""
        with pelted(process.pid) as sent:
            for number in range(100):
                ada.chat("bob", f"text-{number}-")
                ada.until("receipt")
            deadline = time.monotonic() + 60
            while heard.count(b"text-") < 100 and time.monotonic() < deadline:
                heard += os.read(process.stdout.fileno(), 1 << 16)
        assert sent["signals"] > 10
        assert [heard.count(b"text-%d-" % number) for number in range(100)] == [1] * 100
    finally:
        process.terminate()
        _out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err


# -- outputs -----------------------------------------------------------------------------------


def test_what_a_closed_pipe_did_not_take_is_not_read(agent: Make) -> None:
    """``poll | head -0``: the reader is gone before the first byte, or in the middle."""
    ada, bob = agent("ada"), agent("bob")
    texts = fill(ada, 3, size=60_000)  # more than a pipe holds
    for _ in range(5):
        reader, writer = os.pipe()
        process = bob.start("poll", "--json", stdin=subprocess.DEVNULL, stdout=writer)
        os.close(writer)
        os.close(reader)
        _out, err = process.communicate(timeout=60)
        assert process.returncode == 1, err
        assert b"Traceback" not in err
        assert b"BrokenPipe" not in err
    assert unread(bob) == [text[:5] for text in texts]
    assert unread(bob) == []


def test_a_shells_head_takes_nothing_away(agent: Make) -> None:
    """As people and agents write it."""
    ada, bob = agent("ada"), agent("bob")
    texts = fill(ada, 2, size=100_000)
    line = " ".join([*bob.program, "poll", "--json", "--full"])
    for count in ("-c 0", "-c 100"):
        done = subprocess.run(
            ["bash", "-c", f"{line} | head {count}; exit ${{PIPESTATUS[0]}}"],
            cwd=bob.project,
            env=bob.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert b"Traceback" not in done.stderr
        assert done.returncode == 1, done.stderr
    assert unread(bob) == [text[:5] for text in texts]


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_full_disk_did_not_take_is_not_read(agent: Make, form: str) -> None:
    ada, bob = agent("ada"), agent("bob")
    texts = fill(ada, 2)
    bob.environ["INTERCOM_FORMAT"] = form
    with open("/dev/full", "wb") as full:
        process = bob.start("poll", stdin=subprocess.DEVNULL, stdout=full)
        _out, err = process.communicate(timeout=60)
    assert process.returncode not in (0, 70), err
    assert b"Traceback" not in err
    assert b"No space left" in err
    bob.environ["INTERCOM_FORMAT"] = "json"
    assert unread(bob) == [text[:5] for text in texts]


CLOSED = {"input": "<&-", "output": ">&-", "error": "2>&-", "all": "<&- >&- 2>&-"}
SENDING = "send --to bob --text x"


@pytest.mark.parametrize(
    ("verb", "which"),
    [*(("poll", which) for which in CLOSED), (SENDING, "all"), ("peers", "all"), ("init", "all")],
)
def test_a_command_whose_descriptors_are_closed_harms_no_file(
    agent: Make, verb: str, which: str
) -> None:
    """None of ours gets the number of an output, and what cannot be shown is not read."""
    ada = agent("ada")
    before = fill(ada, 1, to="ada")
    line = " ".join([*ada.program, verb, CLOSED[which]])
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=ada.project,
        env=ada.environ | {"INTERCOM_NO_SPAWN": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert b"Traceback" not in done.stderr, done.stderr
    content = Path(ada.paths.inbox("ada")).read_bytes()
    assert content.count(b"\n") == 1
    assert content.startswith(b"{")
    shown = which in ("input", "error")
    if verb == "poll":
        assert unread(ada) == ([] if shown else [text[:5] for text in before])


# -- an interrupted reader ---------------------------------------------------------------------


def interrupted(agent: Make, rounds: int, seed: int) -> Counter[str]:
    """Interrupt a poll at any moment; what was shown whole, or comes again, is everything."""
    chance = random.Random(seed)
    ada, bob = agent("ada"), agent("bob")
    figures: Counter[str] = Counter()
    for number in range(rounds):
        fill(ada, 1, size=100 + number)
        process = bob.start("poll", "--json", stdin=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.0, 0.4))
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        # Python itself shows where it was interrupted as long as nothing of ours runs yet.
        ours = b"Traceback" in err and b"in invoke" in err
        assert not ours, err
        was_shown = out.count(b"\n") == 1 and b'"text":"0 x' in out
        again = unread(bob)
        figures["shown" if was_shown else "not shown"] += 1
        if not was_shown:
            assert again == ["0 xxx"], (process.returncode, out, err)
        else:
            figures["shown twice"] += bool(again)
        assert unread(bob) == []
        with Inbox(bob.paths, "bob") as inbox:
            assert inbox.unread() == 0
    return figures


def test_an_interrupted_poll_has_read_only_what_it_has_shown(agent: Make) -> None:
    figures = interrupted(agent, 6, seed=1)
    assert figures["shown"] + figures["not shown"] == 6


@pytest.mark.slow
def test_many_interrupted_polls(agent: Make) -> None:
    figures = interrupted(agent, ROUNDS, seed=2)
    print(figures)
    assert figures["not shown"] > 0
    assert figures["shown"] > 0
