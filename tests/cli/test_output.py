"""Results leave whole or not at all, and errors have one shape."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import threading

import click
import pytest

from intercom.cli import group, output
from intercom.errors import AlreadyLed, IntercomError


def test_objects_are_joined_with_json_that_exists_already() -> None:
    """So that what a sender wrote is printed byte for byte."""
    raw = b'{"a":1.10}'
    assert output.to_json({"x": "ü"}, envelope=raw) == '{"x":"ü","envelope":{"a":1.10}}'.encode()
    assert output.to_json({}, envelope=raw) == b'{"envelope":{"a":1.10}}'
    assert json.loads(output.to_json({"x": "\udc80"})) == {"x": "\udc80"}


def test_all_is_written_even_to_a_slow_pipe_that_does_not_block() -> None:
    """Somebody who shares the pipe may have made it non-blocking."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_NONBLOCK)
    got = bytearray()

    def read() -> None:
        while part := os.read(reader, 1000):
            got.extend(part)

    thread = threading.Thread(target=read)
    thread.start()
    output.write(b"x" * 1_000_000, writer)
    os.close(writer)
    thread.join()
    os.close(reader)
    assert len(got) == 1_000_000


def test_an_error_is_a_sentence_a_remedy_and_an_object(capfd: pytest.CaptureFixture[str]) -> None:
    """People read standard error, programs standard output; the status is the code's."""
    error = IntercomError("no", code="INBOX_LOCKED", remedy="wait", details={"pid": 7})
    assert output.fail(error, as_json=True) == 75
    out, err = capfd.readouterr()
    assert err == "intercom: no\n  wait\n"
    assert json.loads(out) == {
        "status": "error",
        "code": "INBOX_LOCKED",
        "message": "no",
        "remedy": "wait",
        "pid": 7,
    }
    assert output.fail(error, as_json=False) == 75
    assert capfd.readouterr().out == ""


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_place_without_locks_is_refused_as_such(
    capfd: pytest.CaptureFixture[str], number: int
) -> None:
    """Whatever it was that wanted the lock; standard output has nothing to do with it."""
    assert output.fail(OSError(number, os.strerror(number)), as_json=True) == 77
    out, err = capfd.readouterr()
    assert json.loads(out)["code"] == "UNSAFE_PLACE"
    assert f"refuses locks ({os.strerror(number)})" in err
    assert "intercom doctor" in err


def test_what_the_hub_says_cannot_move_the_cursor(capfd: pytest.CaptureFixture[str]) -> None:
    """An error may quote what a stranger wrote."""
    output.note("a \x1b[2J b\nc")
    assert capfd.readouterr().err == "intercom: a \\x1b[2J b\nc\n"


def test_expected_failures_have_a_status_and_bugs_have_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage is 2, a full disk 74, a closed pipe is quiet, losing an election no failure."""
    monkeypatch.setattr(output, "_silence_stdout", lambda: None)
    assert group.fail_usage(click.UsageError("how?"), as_json=True) == 2
    assert json.loads(capfd.readouterr().out)["code"] == "USAGE"
    assert output.fail(OSError(errno.ENOSPC, "No space left on device"), as_json=False) == 74
    assert "No space" in capfd.readouterr().err
    assert output.fail(BrokenPipeError(), as_json=True) == 1
    assert capfd.readouterr() == ("", "")
    assert output.fail(AlreadyLed("another leads"), as_json=True) == 0
    assert output.fail(ZeroDivisionError(), as_json=True) is None
