"""What ``listen`` says of lines on its standard input: JSON for programs, words for people."""

from __future__ import annotations

import json

import pytest

from intercom.cli.listen import _Printer
from intercom.client.outbox import Letter, Outcome
from intercom.errors import ProtocolError
from intercom.paths import ChannelPaths
from intercom.showing.blocks import TOOLS
from intercom.wire import envelope

LINE = envelope.make(
    type="chat",
    message_id="m1",
    from_session="me",
    to_session="web",
    channel="default",
    payload={"text": "x"},
    timestamp="2026-01-01T00:00:00.000000+00:00",
)
LETTER = Letter(LINE, "m1", "me", "web", 0)


def _printer(*, as_json: bool) -> _Printer:
    """One that is asked for no messages."""
    return _Printer(as_json, ChannelPaths("/nowhere", "default"), "me", TOOLS)


def test_programs_get_one_json_line_each(capfd: pytest.CaptureFixture[str]) -> None:
    printer = _printer(as_json=True)
    printer.report(LETTER, Outcome("sent", "stored", "disk", live=1))
    printer.report(None, ProtocolError("no JSON", code="BAD_JSON"))
    out, err = capfd.readouterr()
    sent, refused = map(json.loads, err.splitlines())
    assert out == ""
    assert (sent["status"], sent["envelope"]["id"]) == ("sent", "m1")
    assert (refused["status"], refused["code"]) == ("error", "BAD_JSON")


def test_people_get_words_and_are_told_how_to_write_an_order(
    capfd: pytest.CaptureFixture[str],
) -> None:
    printer = _printer(as_json=False)
    printer.report(LETTER, Outcome("sent", "stored", "disk", live=1))
    printer.report(None, ProtocolError("no JSON", code="BAD_JSON"))
    out, err = capfd.readouterr()
    assert out == ""
    assert "m1 to web: stored (disk), 1 listening" in err
    assert '{"action":"send"' in err
    assert "status" not in err
