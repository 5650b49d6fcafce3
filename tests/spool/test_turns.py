"""Who reads a session: kernel locks, their holders, take-overs, and the fence of a commit."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from intercom.errors import IntercomError, UnsafePlace
from intercom.paths import ChannelPaths
from intercom.records import Position
from intercom.spool import turns
from intercom.spool.files import Inbox
from intercom.spool.turns import Holder

ROOT = str(Path(__file__).resolve().parents[2])
ME = Holder(11, "intercom listen", 1000.0)
YOU = Holder(22, "intercom poll", 2000.0)

#: A process that takes bob's turn, says so, and keeps it.
KEEPER = """
import sys, time
from intercom.paths import ChannelPaths
from intercom.spool import turns
paths = ChannelPaths(sys.argv[1], "room")
holder = turns.Holder(__import__("os").getpid(), "a keeper", 5.0)
reader = turns.attend(paths, "bob", holder)
turn = turns.take(paths, "bob", holder) if "turn" in sys.argv[2:] else None
print("here", flush=True)
time.sleep(600)
"""


@contextmanager
def keeper(paths: ChannelPaths, *what: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process of its own that has bob's reader lock, and his turn if that is asked for."""
    process = subprocess.Popen(
        [sys.executable, "-c", KEEPER, paths.base, *what],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"here\n"
        yield process
    finally:
        process.kill()
        process.wait(60)
        process.stdout.close()


def mine(paths: ChannelPaths, holder: Holder = ME) -> turns.Turn:
    turn = turns.take(paths, "bob", holder)
    assert turn is not None
    return turn


def is_over(turn: turns.Turn) -> bool:
    try:
        turn.check()
    except IntercomError as error:
        return error.code == "TAKEN_OVER"
    return False


def test_one_has_the_turn_and_others_learn_who(paths: ChannelPaths) -> None:
    assert turns.turn_of(paths, "bob") is None
    turn = mine(paths)
    assert turns.take(paths, "bob", YOU, patience=0.0) is None
    assert turns.turn_of(paths, "bob") == ME
    assert turns.reader_of(paths, "bob") == ME
    assert turns.turn_of(paths, "ann") is None
    turn.close()
    turn.close()
    assert turns.turn_of(paths, "bob") is None
    mine(paths, YOU).close()


def test_a_look_at_nobody_makes_no_file(paths: ChannelPaths) -> None:
    assert turns.turn_of(paths, "bob") is None
    assert turns.reader_of(paths, "bob") is None
    assert os.listdir(paths.directory) == []


def test_lock_files_are_private(paths: ChannelPaths) -> None:
    mine(paths).close()
    turns.attend(paths, "bob", ME).close()
    for path in (paths.turn("bob"), paths.reader("bob")):
        assert os.stat(path).st_mode & 0o777 == 0o600


def test_many_may_attend_and_one_of_them_is_named(paths: ChannelPaths) -> None:
    first, second = turns.attend(paths, "bob", ME), turns.attend(paths, "bob", YOU)
    assert turns.reader_of(paths, "bob") == YOU
    assert turns.turn_of(paths, "bob") is None
    second.close()
    assert turns.reader_of(paths, "bob") is not None
    first.close()
    first.close()
    assert turns.reader_of(paths, "bob") is None


def test_a_turn_is_waited_for_as_long_as_is_asked(paths: ChannelPaths) -> None:
    turn = mine(paths)
    timer = threading.Timer(0.2, turn.close)
    timer.start()
    try:
        later = turns.take(paths, "bob", YOU, patience=60.0)
    finally:
        timer.join()
    assert later is not None
    later.close()


def test_both_vanish_with_their_holder(paths: ChannelPaths) -> None:
    with keeper(paths, "turn") as process:
        assert turns.turn_of(paths, "bob") == Holder(process.pid, "a keeper", 5.0)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(60)
        assert turns.turn_of(paths, "bob") is None
        assert turns.reader_of(paths, "bob") is None
        mine(paths).close()


def test_whoever_only_waits_is_a_reader_without_a_turn(paths: ChannelPaths) -> None:
    with keeper(paths) as process:
        assert turns.turn_of(paths, "bob") is None
        found = turns.reader_of(paths, "bob")
        assert found is not None
        assert found.pid == process.pid
        mine(paths).close()


def test_a_turn_is_seized_from_a_stopped_process(paths: ChannelPaths) -> None:
    with keeper(paths, "turn") as process:
        os.kill(process.pid, signal.SIGSTOP)
        turn = turns.seize(paths, "bob", ME)
        assert turns.turn_of(paths, "bob") == ME
        assert turns.take(paths, "bob", YOU, patience=0.0) is None
        assert not is_over(turn)
        turn.close()
    assert not [name for name in os.listdir(paths.directory) if name.startswith(".tmp-")]


def test_the_epoch_of_a_turn_ends_when_it_is_seized_and_never_comes_back(
    paths: ChannelPaths,
) -> None:
    first = mine(paths)
    second = turns.seize(paths, "bob", YOU)
    assert is_over(first)
    assert not is_over(second)
    third = turns.seize(paths, "bob", ME)
    assert (is_over(first), is_over(second), is_over(third)) == (True, True, False)
    third.close()
    second.close()
    assert is_over(first)  # nobody reads now, and still it was taken over
    fourth = mine(paths)
    assert is_over(first)
    first.close()
    assert not is_over(fourth)
    fourth.close()


def test_a_free_turn_is_seized_like_any_other(paths: ChannelPaths) -> None:
    mine(paths).close()
    before = os.stat(paths.turn("bob")).st_ino
    turn = turns.seize(paths, "bob", ME)
    assert os.stat(paths.turn("bob")).st_ino == before
    turn.close()


def test_the_end_of_an_epoch_says_who_reads_now(paths: ChannelPaths) -> None:
    first = mine(paths)
    second = turns.seize(paths, "bob", YOU)
    with pytest.raises(IntercomError, match=r"process 22 \(intercom poll\)") as caught:
        first.check()
    assert (caught.value.code, caught.value.exit_code) == ("TAKEN_OVER", 77)
    assert caught.value.remedy
    first.close()
    second.close()


def test_a_lock_file_that_is_removed_is_made_again_by_whoever_holds_it(
    paths: ChannelPaths,
) -> None:
    turn = mine(paths)
    os.unlink(paths.turn("bob"))
    assert not is_over(turn)
    assert turns.take(paths, "bob", YOU, patience=0.0) is None
    assert turns.turn_of(paths, "bob") == ME
    os.unlink(paths.turn("bob"))
    other = mine(paths, YOU)
    assert is_over(turn)
    turn.close()
    other.close()


def test_a_turn_outlives_its_channel_and_comes_back_with_it(paths: ChannelPaths) -> None:
    """Somebody removed the directory; there is nothing to read, and nothing to fail at."""
    turn = mine(paths)
    shutil.rmtree(paths.directory)
    turn.check()
    paths.prepare()
    turn.check()
    assert turns.turn_of(paths, "bob") == ME
    turn.close()


def test_of_many_at_once_one_has_the_turn(paths: ChannelPaths) -> None:
    got: list[turns.Turn] = []
    start = threading.Barrier(8)

    def run(seize: bool) -> None:
        start.wait(60)
        if seize:
            got.append(turns.seize(paths, "bob", ME))
        else:
            turn = turns.take(paths, "bob", YOU)
            if turn is not None:
                got.append(turn)

    for _ in range(20):
        threads = [threading.Thread(target=run, args=(at % 2 == 0,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [is_over(turn) for turn in got].count(False) == 1
        for turn in got:
            turn.close()
        got.clear()


# -- the fence --------------------------------------------------------------------------------


def test_a_commit_after_a_take_over_is_refused_under_the_lock(
    paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    one, two = message("m1") + b"\n", message("m2") + b"\n"
    Path(paths.inbox("bob")).write_bytes(one + two)
    turn = mine(paths)
    late = Inbox(paths, "bob", fence=turn.check)
    assert late.commit(Position(1, len(one))) == Position(1, len(one))
    successor = turns.seize(paths, "bob", YOU)
    for state in ("read", "skipped", "shown"):
        with pytest.raises(IntercomError) as caught:
            late.commit(Position(1, len(one + two)), state=state)
        assert caught.value.code == "TAKEN_OVER"
    with Inbox(paths, "bob", fence=successor.check) as inbox:
        assert inbox.read().start == Position(1, len(one))
        assert inbox.commit(Position(1, len(one + two))).offset == len(one + two)
    turn.close()
    successor.close()


def test_the_fence_is_asked_only_once_the_lock_is_held(
    paths: ChannelPaths, message: Callable[..., bytes]
) -> None:
    """A turn that is taken over while the lock is waited for commits nothing."""
    line = message("m1") + b"\n"
    Path(paths.inbox("bob")).write_bytes(line)
    turn = mine(paths)
    asked: list[bool] = []

    def fence() -> None:
        with open(paths.inbox("bob"), "rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                asked.append(False)
            except BlockingIOError:
                asked.append(True)
        turn.check()

    fd = os.open(paths.inbox("bob"), os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX)
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 1:
            successor.append(turns.seize(paths, "bob", YOU))
            os.close(fd)

    successor: list[turns.Turn] = []
    with pytest.raises(IntercomError) as caught:
        Inbox(paths, "bob", sleep=sleep, fence=fence).commit(Position(1, len(line)))
    assert caught.value.code == "TAKEN_OVER"
    assert asked == [True]
    assert not os.path.exists(paths.offset("bob"))
    turn.close()
    successor[0].close()


# -- where nothing can be locked --------------------------------------------------------------


def test_where_no_file_can_be_made_nobody_is_kept_out(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str, flags: int) -> int:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr(turns, "open_private", refuse)
    turn, reader = mine(paths), turns.attend(paths, "bob", ME)
    turn.check()
    turn.close()
    reader.close()


def test_a_lock_file_of_somebody_else_is_refused(paths: ChannelPaths, tmp_path: Path) -> None:
    os.symlink(tmp_path / "elsewhere", paths.turn("bob"))
    with pytest.raises(UnsafePlace):
        turns.take(paths, "bob", ME)
    assert turns.turn_of(paths, "bob") is None
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"{}", b'{"pid":"x","program":1,"since":null}', b"1" * 9999, b"[" * 4000],
)
def test_a_holder_that_says_nothing_usable_holds_all_the_same(
    paths: ChannelPaths, content: bytes
) -> None:
    Path(paths.turn("bob")).write_bytes(content)
    with open(paths.turn("bob"), "rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert turns.turn_of(paths, "bob") == Holder()
        assert turns.take(paths, "bob", ME, patience=0.0) is None


def test_a_full_disk_takes_no_turn_away(
    paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes, offset: int) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    turn = mine(paths)
    assert turns.turn_of(paths, "bob") == Holder()
    turn.close()


# -- removing ---------------------------------------------------------------------------------


def test_only_lock_files_that_nobody_holds_are_removed(paths: ChannelPaths) -> None:
    turn, reader = mine(paths), turns.attend(paths, "bob", ME)
    assert turns.remove(paths, "bob") == []
    turn.close()
    assert turns.remove(paths, "bob") == [paths.turn("bob")]
    reader.close()
    assert turns.remove(paths, "bob") == [paths.reader("bob")]
    assert turns.remove(paths, "bob") == []


def test_whoever_waits_for_a_lock_file_that_is_removed_gets_the_next_one(
    paths: ChannelPaths,
) -> None:
    turn = mine(paths)
    got: list[turns.Turn | None] = []
    waiting = threading.Thread(
        target=lambda: got.append(turns.take(paths, "bob", YOU, patience=60.0))
    )
    waiting.start()
    time.sleep(0.05)
    os.unlink(paths.turn("bob"))
    waiting.join(60)
    assert got[0] is not None
    got[0].check()
    assert is_over(turn)
    assert json.loads(Path(paths.turn("bob")).read_bytes())["pid"] == 22
    turn.close()
    got[0].close()


def test_lock_files_name_their_sessions() -> None:
    names = ["turn_a%2Fb.lock", "reader_ann.lock", "turn_ann.lock", "hub.lock", "turn_x"]
    assert turns.encoded_of(names) == {"a%2Fb", "ann"}
