"""``intercom hub logs``: the hub's JSON log, for people and for programs."""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from intercom.cli import logs
from intercom.errors import HubUnavailable
from intercom.paths import ChannelPaths

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]


@pytest.fixture
def paths(channel_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChannelPaths]:
    """A channel, in a time zone that is known."""
    made = ChannelPaths(str(channel_dir), "default")
    made.prepare()
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield made
    monkeypatch.undo()
    time.tzset()


def entry(text: str, **more: Any) -> bytes:
    """One line of the log."""
    fields = {"time": "2026-01-02T03:04:05.678+00:00", "level": "info", "namespace": "x"}
    return json.dumps(fields | {"text": text} | more).encode() + b"\n"


def write(path: str, *lines: bytes) -> None:
    """Write a file as a hub does."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(fd, b"".join(lines))
    os.close(fd)


def shown(paths: ChannelPaths, count: int, capfd: pytest.CaptureFixture[str], raw: bool) -> str:
    """What is printed."""
    logs.show(paths, count, follow=False, raw=raw)
    return capfd.readouterr().out


def test_people_see_time_level_and_text(
    paths: ChannelPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    """And the fields that the text does not say; a traceback stands behind a bar."""
    write(paths.log, entry("leading a", channel="a", pid=7, nothing=None))
    write(paths.log, entry("bug", level="critical", traceback="Traceback:\n  line\nError: x\n"))
    assert shown(paths, 9, capfd, raw=False) == (
        "2026-01-02 03:04:05 info  leading a pid=7\n"
        "2026-01-02 03:04:05 critical bug\n| Traceback:\n|   line\n| Error: x\n"
    )


def test_nothing_in_a_log_moves_the_cursor(
    paths: ChannelPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    """It holds names that strangers chose; what is no JSON is shown as it is."""
    write(
        paths.log, entry("a\x1b[2J\u202eb\nc", session="x\x07"), b"Fatal \x1b error\xff\n", b"[1]\n"
    )
    assert shown(paths, 9, capfd, raw=False).splitlines() == [
        r"2026-01-02 03:04:05 info  a\x1b[2J\u202eb\nc session=x\x07",
        r"Fatal \x1b error\xff",
        "[1]",
    ]


def test_programs_get_the_lines_as_they_are(
    paths: ChannelPaths, capfd: pytest.CaptureFixture[str]
) -> None:
    """Byte for byte; one that is being written is not shown yet."""
    write(paths.log, entry("ü"), entry("b"), b'{"time": "20')
    assert shown(paths, 9, capfd, raw=True).encode() == entry("ü") + entry("b")


@pytest.mark.parametrize(("count", "first"), [(0, None), (1, 6), (2, 5), (5, 2), (50, 1)])
def test_the_last_lines_are_found_in_older_files_too(
    paths: ChannelPaths, capfd: pytest.CaptureFixture[str], count: int, first: int | None
) -> None:
    """In their order; a file is missing only behind the oldest."""
    for name, numbers in ((".2", (1, 2)), (".1", (3, 4)), ("", (5, 6))):
        write(paths.log + name, *(entry(str(number)) for number in numbers))
    lines = shown(paths, count, capfd, raw=True).splitlines()
    expected = [] if first is None else list(range(first, 7))
    assert [int(json.loads(line)["text"]) for line in lines] == expected


def test_without_a_log_it_is_said_how_to_get_one(paths: ChannelPaths) -> None:
    """No hub ever led the channel."""
    with pytest.raises(HubUnavailable) as caught:
        logs.show(paths, 1, follow=False, raw=True)
    assert "hub start" in caught.value.remedy
    assert caught.value.exit_code == 69


def next_line(stream: IO[bytes] | None) -> str:
    """The next line of a process, whose pipes are not buffered."""
    assert stream is not None
    assert select.select((stream,), (), (), 60.0)[0], "the line did not come"
    return stream.readline().decode()


def test_following_goes_on_through_rotations_and_ends_with_its_reader(
    agent: Make, paths: ChannelPaths
) -> None:
    """Each line once, whole, as it is written."""
    ann = agent("ann")
    write(paths.log, entry("old"), entry("one"))
    process: subprocess.Popen[bytes] = ann.start("hub", "logs", "-f", "-n", "1")
    try:
        assert json.loads(next_line(process.stdout))["text"] == "one"
        half = entry("two")
        write(paths.log, half[:20])
        time.sleep(3 * logs.INTERVAL)  # it may look meanwhile, and must not show half a line
        write(paths.log, half[20:], entry("three"))
        assert json.loads(next_line(process.stdout))["text"] == "two"
        assert json.loads(next_line(process.stdout))["text"] == "three"
        write(paths.log, entry("four"))
        os.rename(paths.log, paths.log + ".1")
        write(paths.log, entry("five"))
        assert json.loads(next_line(process.stdout))["text"] == "four"
        assert json.loads(next_line(process.stdout))["text"] == "five"
        assert process.stdout
        process.stdout.close()
        process.stdout = None
        assert process.wait(60) == 1
        assert process.stderr
        assert process.stderr.read() == b""
    finally:
        process.kill()
        process.communicate()


def test_a_real_hub_s_log_is_readable(agent: Make) -> None:
    """By the command as it is typed."""
    ann = agent("ann")
    ann.run("send", "--to", "ann", "--text", "secret words").ok()
    said = ann.run("hub", "logs", "--format", "text").out.decode()
    assert "leading default at " in said
    assert "registered session=ann" in said
    assert "secret" not in said
    raw = ann.run("hub", "logs", "-n", "1").out
    assert json.loads(raw)["level"] == "info"
