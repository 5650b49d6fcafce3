"""The hub's own log: JSON lines that hold ids and never bodies."""

from __future__ import annotations

import faulthandler
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from twisted.logger import Logger, LogLevel, globalLogPublisher
from twisted.python import log as legacy
from twisted.python.failure import Failure

from intercom.errors import UnsafePlace
from intercom.hub.log import KEPT, ROTATE_AT, ChannelLog, format_line
from intercom.paths import ChannelPaths


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@pytest.fixture
def paths(channel_dir: Path) -> ChannelPaths:
    paths = ChannelPaths(str(channel_dir), "logs")
    paths.prepare()
    return paths


@pytest.fixture
def log(paths: ChannelPaths) -> Iterator[ChannelLog]:
    made = ChannelLog(paths)
    made.listen()
    yield made
    made.close()


def lines(paths: ChannelPaths) -> list[dict[str, Any]]:
    with open(paths.log, "rb") as file:
        return [json.loads(line) for line in file]


def test_an_event_is_a_line_with_its_time_level_origin_words_and_fields(
    paths: ChannelPaths, log: ChannelLog
) -> None:
    log.open()
    Logger(namespace="here").warn(
        "{session} left", session="rosa-ü", connection=3, peers=["a", "b"]
    )
    (line,) = lines(paths)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warn",
        "namespace": "here",
        "text": "rosa-ü left",
        "session": "rosa-ü",
        "connection": 3,
        "peers": ["a", "b"],
    }


def test_what_happened_before_the_election_is_written_after_it_is_won(
    paths: ChannelPaths, log: ChannelLog
) -> None:
    logger = Logger(namespace="here")
    for number in range(150):
        logger.info("early {number}", number=number)
    assert not os.path.exists(paths.log), "a hub that does not lead writes nothing"
    log.open()
    logger.info("late")
    assert [line["text"] for line in lines(paths)] == [
        *(f"early {number}" for number in range(50, 150)),
        "late",
    ]


def test_the_log_is_private_even_where_the_umask_is_open(
    paths: ChannelPaths, log: ChannelLog
) -> None:
    before = os.umask(0)
    try:
        log.open()
    finally:
        os.umask(before)
    assert os.stat(paths.log).st_mode & 0o777 == 0o600


def test_a_log_goes_on_where_the_last_hub_ended(paths: ChannelPaths, log: ChannelLog) -> None:
    with open(paths.log, "w") as file:
        file.write('{"text": "before"}\n')
    log.open()
    Logger(namespace="here").info("after")
    assert [line["text"] for line in lines(paths)] == ["before", "after"]


def test_it_is_rotated_at_five_mebibytes_and_three_old_ones_are_kept(
    paths: ChannelPaths, log: ChannelLog
) -> None:
    assert (ROTATE_AT, KEPT) == (5 * 1024 * 1024, 3)
    log.open()
    event = {"log_level": LogLevel.info, "log_time": 0.0, "fields": ["x" * 2000] * 100}
    rounds = 5 * ROTATE_AT // len(format_line(event)) + 2
    for number in range(rounds):
        log({**event, "number": number})
    names = sorted(name for name in os.listdir(paths.directory) if name.startswith("hub.log"))
    assert names == ["hub.log", "hub.log.1", "hub.log.2", "hub.log.3"]
    for name in names:
        found = os.stat(paths.file(name))
        assert found.st_mode & 0o777 == 0o600
        assert found.st_size < ROTATE_AT + len(format_line(event)) + 10
    numbers = [
        json.loads(line)["number"]
        for name in reversed(names)
        for line in Path(paths.file(name)).read_bytes().splitlines()
    ]
    assert numbers == list(range(numbers[0], rounds)), "the newest lines, in order, none lost"


def test_bodies_are_not_logged_even_by_mistake(paths: ChannelPaths, log: ChannelLog) -> None:
    log.open()
    Logger(namespace="here").info(
        "got", line=b"the secret body", view=memoryview(b"secret"), nested={"payload": b"secret"}
    )
    (line,) = lines(paths)
    assert "secret" not in json.dumps(line)
    assert line["line"] == "<15 bytes>"


def test_a_failure_leaves_its_traceback(paths: ChannelPaths, log: ChannelLog) -> None:
    log.open()
    try:
        raise ValueError("it broke")
    except ValueError:
        failure = Failure()
    log({"log_level": LogLevel.critical, "log_failure": failure, "log_format": "bug"})
    (line,) = lines(paths)
    assert line["level"] == "critical"
    assert "it broke" in line["traceback"]
    assert __file__ in line["traceback"]


def test_debug_events_are_left_out(paths: ChannelPaths, log: ChannelLog) -> None:
    log.open()
    Logger(namespace="here").debug("every little thing")
    assert lines(paths) == []


def test_events_of_the_old_logging_are_lines_too(paths: ChannelPaths, log: ChannelLog) -> None:
    log.open()
    legacy.msg("old words", number=7)
    (line,) = lines(paths)
    assert line["text"] == "old words"
    assert line["number"] == 7
    assert not line.keys() & {"message", "isError", "system", "format"}


ODD_VALUES = (
    *(Unprintable(), {1: Unprintable()}, object(), {"a", "b"}, ("a", b"b")),
    *(float("nan"), float("inf"), 2**100, "\udc80", "line\nfeed", "x" * 10000),
)


@pytest.mark.parametrize("value", ODD_VALUES)
def test_whatever_an_event_holds_it_is_one_line_of_json(value: object) -> None:
    line = format_line({"log_format": "{value}", "value": value, "log_time": 1.0})
    assert line.count(b"\n") == 1
    found = json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert len(line) < 5000
    assert "value" in found


def test_a_field_cannot_take_the_place_of_the_time_or_the_text() -> None:
    found = json.loads(format_line({"log_format": "words", "text": "forged", "level": "forged"}))
    assert (found["text"], found["level"]) == ("words", "info")


def test_threads_write_whole_lines(paths: ChannelPaths, log: ChannelLog) -> None:
    log.open()
    logger = Logger(namespace="here")

    def write(name: int) -> None:
        for number in range(200):
            logger.info("x" * 500, name=name, number=number)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lines(paths)) == 800


def test_a_full_disk_stops_nobody(log: ChannelLog, monkeypatch: pytest.MonkeyPatch) -> None:
    log.open()
    with open("/dev/full", "wb", buffering=0) as full:
        monkeypatch.setattr(log._file, "_file", full)
        Logger(namespace="here").info("nobody will read this")
        monkeypatch.undo()


def test_a_linked_log_is_refused(paths: ChannelPaths, log: ChannelLog, tmp_path: Path) -> None:
    target = tmp_path / "other"
    os.symlink(target, paths.log)
    with pytest.raises(UnsafePlace):
        log.open()
    assert not target.exists()


def test_closing_twice_or_unopened_is_fine_and_nothing_is_heard_after(
    paths: ChannelPaths, log: ChannelLog
) -> None:
    log.open()
    log.close()
    log.close()
    Logger(namespace="here").info("too late")
    assert lines(paths) == []
    assert log not in globalLogPublisher._observers


def test_a_program_that_has_its_crashes_written_elsewhere_keeps_that(log: ChannelLog) -> None:
    """pytest is such a program, and so may be one that embeds a hub."""
    if not faulthandler.is_enabled():
        pytest.skip("nobody has crashes written here")
    log.open()
    log.close()
    assert faulthandler.is_enabled()
