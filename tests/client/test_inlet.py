"""Orders on standard input."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import pytest

from intercom.client.inlet import Inlet, Order
from intercom.errors import IntercomError


@pytest.fixture
def pipe() -> Iterator[tuple[Inlet, int]]:
    """An inlet, and the descriptor that feeds it."""
    reader, writer = os.pipe()
    yield Inlet(reader), writer
    os.close(reader)


def test_a_line_asks_for_a_message(pipe: tuple[Inlet, int]) -> None:
    """Text, payload, reply and id are taken over; everybody is the default."""
    inlet, writer = pipe
    with open(writer, "wb") as file:
        file.write(b'{"action":"send","to":"bob","text":"hi","reply_to":"msg_1","id":"msg_2"}\n\n')
        file.write(b'{"action":"send","payload":{"x":1},"strict":true}\n{"action":"send",')
        file.flush()
        orders = inlet.read()
        assert orders == [
            Order("bob", {"text": "hi"}, "msg_1", "msg_2", False),
            Order("*", {"x": 1}, None, None, True),
        ]
        file.write(b'"text":"late"}')
    assert inlet.read() == []
    assert inlet.read() == [Order("*", {"text": "late"}, None, None, False)]
    assert inlet.fd is None


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("nonsense", "BAD_JSON"),
        ("[1]", "BAD_ENVELOPE"),
        ('{"action":"dance"}', "BAD_ENVELOPE"),
        ('{"action":"send"}', "BAD_ENVELOPE"),
        ('{"action":"send","text":7}', "BAD_ENVELOPE"),
        ('{"action":"send","to":7,"text":"x"}', "BAD_ENVELOPE"),
        ('{"action":"send","payload":"x"}', "BAD_ENVELOPE"),
        ('{"action":"send","text":"a","payload":{"text":"b"}}', "BAD_ENVELOPE"),
        ("[" * 100_000, "BAD_JSON"),
    ],
)
def test_a_bad_line_is_told_and_the_next_is_read(
    pipe: tuple[Inlet, int], line: str, code: str
) -> None:
    """No line ends the listening."""
    inlet, writer = pipe
    good = json.dumps({"action": "send", "text": "good"})
    found: list[Order | IntercomError] = []
    with open(writer, "w") as file:
        for start in range(0, len(line), 30_000):
            file.write(line[start : start + 30_000])
            file.flush()
            found += inlet.read()
        file.write(f"\n{good}\n")
    while inlet.fd is not None:
        found += inlet.read()
    assert isinstance(found[0], IntercomError)
    assert found[0].code == code
    assert found[1:] == [Order("*", {"text": "good"}, None, None, False)]


def test_a_closed_standard_input_is_its_end() -> None:
    """Started with ``<&-`` a listener has nothing to send."""
    reader, writer = os.pipe()
    os.close(writer)
    os.close(reader)
    inlet = Inlet(reader)
    assert inlet.read() == []
    assert inlet.fd is None
