"""Envelopes as commands make and read them, with the standard library alone."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import ProtocolError
from intercom.wire.envelope import (
    MAX_LINE,
    Identity,
    digest,
    format_id,
    format_timestamp,
    identify,
    in_ascii,
    make,
    parse,
)

FIELDS: dict[str, Any] = {
    "type": "chat",
    "message_id": "msg_a1b2c3d4e5f6",
    "from_session": "nyota-uhura",
    "to_session": "seven-of-nine",
    "channel": "collab",
    "payload": {"text": "hail"},
    "timestamp": "2026-08-26T15:30:00.000000+00:00",
}

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
PAYLOADS = st.dictionaries(
    TEXTS,
    st.recursive(TEXTS | st.integers(), lambda inner: st.lists(inner, max_size=3)),
    max_size=4,
)


def made(**fields: Any) -> bytes:
    return make(**{**FIELDS, **fields})


def refusal(line: bytes, limit: int = MAX_LINE) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        parse(line, limit)
    return caught.value


# -- making -----------------------------------------------------------------------------------


def test_an_envelope_has_the_eight_fields_in_the_order_everybody_knows() -> None:
    assert made(reply_to="msg_000000000000") == (
        b'{"id":"msg_a1b2c3d4e5f6","type":"chat","from_session":"nyota-uhura",'
        b'"to_session":"seven-of-nine","channel":"collab","reply_to":"msg_000000000000",'
        b'"payload":{"text":"hail"},"timestamp":"2026-08-26T15:30:00.000000+00:00"}'
    )


def test_text_is_written_as_it_is_and_fits_on_one_line() -> None:
    text = "`$(rm)` \"quotes\" 'and' \\ 🙂 é\r\n\u2028\u0085\x00\x7f"
    line = made(payload={"text": text})
    assert "🙂 é".encode() in line
    assert not {b"\n", b"\r"} & {line[at : at + 1] for at in range(len(line))}
    assert parse(line)["payload"] == {"text": text}


@given(PAYLOADS, TEXTS, st.none() | TEXTS)
def test_what_was_made_is_read_back(
    payload: dict[str, Any], name: str, reply_to: str | None
) -> None:
    fields = parse(made(payload=payload, from_session=name, reply_to=reply_to))
    assert (fields["payload"], fields["from_session"], fields["reply_to"]) == (
        payload,
        name,
        reply_to,
    )


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        ({"text": "\ud83d"}, "surrogate"),
        ({"\udc00": 1}, "surrogate"),
        ({"x": float("nan")}, "not JSON compliant"),
        ({"x": float("-inf")}, "not JSON compliant"),
        ({"x": deep(63)}, "nested over 64 deep"),
        ({"x": deep(5000)}, "nested over 64 deep"),
        ({"x": 10**5000}, "4300 digits"),
    ],
)
def test_what_a_hub_would_refuse_is_not_made(payload: dict[str, Any], words: str) -> None:
    with pytest.raises(ProtocolError, match=words) as caught:
        made(payload=payload)
    assert caught.value.code == "BAD_JSON"
    assert caught.value.message_id == FIELDS["message_id"]


def test_the_deepest_payload_that_a_hub_takes_can_be_made() -> None:
    assert parse(made(payload={"x": deep(62)}))


def test_a_line_of_exactly_the_limit_can_be_made_and_one_byte_more_names_the_limit() -> None:
    room = MAX_LINE - len(made(payload={"text": ""}))
    assert len(made(payload={"text": "x" * room})) == MAX_LINE
    with pytest.raises(ProtocolError, match=f"at most {MAX_LINE} bytes") as caught:
        made(payload={"text": "x" * (room + 1)})
    assert caught.value.code == "LINE_TOO_LONG"
    assert caught.value.exit_code == 65


def test_ids_are_twelve_hex_digits_of_what_was_drawn() -> None:
    assert format_id(bytes(range(10, 16))) == "msg_0a0b0c0d0e0f"
    assert format_id(bytes(range(10, 30))) == "msg_0a0b0c0d0e0f"
    with pytest.raises(ValueError, match="6 random bytes"):
        format_id(b"12345")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "1970-01-01T00:00:00.000000+00:00"),
        (1787758200.0, "2026-08-26T15:30:00.000000+00:00"),
        (1787758200.25, "2026-08-26T15:30:00.250000+00:00"),
        (951782399.999999, "2000-02-28T23:59:59.999999+00:00"),
    ],
)
def test_times_are_utc_with_microseconds(seconds: float, text: str) -> None:
    assert format_timestamp(seconds) == text


# -- reading ----------------------------------------------------------------------------------


def test_missing_fields_stay_missing_and_unknown_ones_are_kept() -> None:
    assert parse(b' {"type":"x","future":[1,{"a":null}]}\r') == {
        "type": "x",
        "future": [1, {"a": None}],
    }


def test_null_stands_for_a_missing_field() -> None:
    line = b'{"type":"chat","id":null,"payload":null,"reply_to":null,"channel":null}'
    assert parse(line)["payload"] is None


def test_invalid_utf8_is_read_as_the_replacement_character() -> None:
    assert parse(b'{"type":"chat","payload":{"text":"a\xffb"}}')["payload"] == {"text": "a\ufffdb"}


def test_the_limit_counts_every_byte() -> None:
    line = b'{"type":"x"}'
    assert parse(line, len(line))
    error = refusal(line, len(line) - 1)
    assert (error.code, error.details) == ("LINE_TOO_LONG", {"limit": len(line) - 1})


def test_places_are_told_in_bytes() -> None:
    error = refusal('{"id":"m1","grüße":"🙂","x":NaN}'.encode())
    assert (error.code, error.details, error.message_id) == ("BAD_JSON", {"byte": 32}, "m1")
    assert "byte 32: NaN" in error.text


def test_the_id_of_a_broken_line_is_told_if_it_stands_before_the_fault() -> None:
    assert refusal(b'{"id":"m1","type":').message_id == "m1"
    assert refusal(b'{"type":,"id":"m1"}').message_id is None
    assert refusal(b'{"payload":{"id":"m2"},"x":').message_id is None


@pytest.mark.parametrize(
    "field", ["type", "from_session", "to_session", "channel", "reply_to", "timestamp", "payload"]
)
@pytest.mark.parametrize("value", [b"5", b"true", b'["x"]', b"1e999"])
def test_a_field_of_the_wrong_type_is_named(field: str, value: bytes) -> None:
    rest = b"" if field == "type" else b',"type":"chat"'
    error = refusal(b'{"id":"m1","%b":%b%b}' % (field.encode(), value, rest))
    assert (error.code, error.details["field"], error.message_id) == ("BAD_ENVELOPE", field, "m1")
    assert field in error.text


@pytest.mark.parametrize("value", [b"5", b'""', b'"' + b"i" * 129 + b'"', b"{}"])
def test_a_bad_id_is_named_and_not_repeated(value: bytes) -> None:
    error = refusal(b'{"type":"chat","id":%b}' % value)
    assert (error.code, error.details["field"], error.message_id) == ("BAD_ENVELOPE", "id", None)


def test_an_id_may_have_128_characters_of_any_script() -> None:
    assert parse(json.dumps({"type": "chat", "id": "é" * 128}).encode())


# -- recognising ------------------------------------------------------------------------------


def test_a_stored_line_is_recognised_by_sender_id_and_content() -> None:
    content = digest("chat", "seven-of-nine", None, b'{"text":"hail"}')
    assert identify(made()) == Identity("nyota-uhura", "msg_a1b2c3d4e5f6", content)


def test_the_time_of_sending_and_unknown_fields_do_not_change_the_content() -> None:
    later = made(timestamp="2027-01-01T00:00:00.000000+00:00")
    assert identify(later) == identify(made()) == identify(made()[:-1] + b',"trace":"x"}')


@pytest.mark.parametrize(
    "change",
    [
        {"type": "notice"},
        {"to_session": "all"},
        {"reply_to": "msg_000000000000"},
        {"reply_to": ""},
        {"payload": {"text": "hail "}},
        {"payload": {}},
    ],
)
def test_other_content_has_another_digest(change: dict[str, Any]) -> None:
    ours, theirs = identify(made()), identify(made(**change))
    assert ours
    assert theirs
    assert ours.digest != theirs.digest


def test_the_payload_counts_as_it_was_written() -> None:
    spaced = made().replace(b'{"text":"hail"}', b'{"text": "hail"}')
    assert identify(spaced) != identify(made())


def test_digests_never_mix_up_neighbouring_fields() -> None:
    seen = {
        digest("a", "b", None, b"c"),
        digest("ab", "", None, b"c"),
        digest("", "ab", None, b"c"),
        digest("a", "b", "", b"c"),
        digest("a", "b", "c", b""),
        digest("a", "bc", None, b""),
        digest("a", "b", "-", b"c"),
    }
    assert len(seen) == 7
    assert {len(one) for one in seen} == {16}


def test_lines_of_the_original_programs_are_recognised_though_they_are_not_strict() -> None:
    """Python's own ``json.dumps`` writes NaN, and a hand-written line may lack fields."""
    line = b'{"type": "chat", "id": "m", "payload": {"x": NaN}, "to_session": null}'
    assert identify(line) == Identity("unknown", "m", digest("chat", "*", None, b'{"x": NaN}'))
    bare = b'{"type":"chat","id":"m"}'
    assert identify(bare) == Identity("unknown", "m", digest("chat", "*", None, b"{}"))


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"torn",
        b'{"type":"chat","id":"m","payload":{"te',
        b"[1]",
        b'{"type":"chat"}',
        b'{"id":"m"}',
        b'{"type":"chat","id":5}',
        b'{"type":"chat","id":""}',
        b'{"type":"chat","id":"m","from_session":[]}',
        b'{"type":"chat","id":"m","reply_to":[]}',
        b'{"type":"chat","id":"m","payload":"x"}',
        b'{"type":"chat","id":"\\ud800"}',
        b'{"type":"chat","id":"m","from_session":"\\ud800"}',
        b'{"type":"chat","id":"m","reply_to":"\\ud800"}',
        b'{"type":"chat","id":"m","payload":' + b"[" * 200_000,
        b'{"type":"chat","id":"m","payload":{"x":' + b"1" * 5000 + b"}}",
        b'{"type":"chat","id":"m"}{}',
    ],
    ids=lambda line: line[:40].decode(),
)
def test_what_is_no_envelope_is_not_recognised(line: bytes) -> None:
    assert identify(line) is None


@given(st.binary(max_size=60))
def test_recognising_never_fails(line: bytes) -> None:
    found = identify(line)
    assert found is None or found.message_id


def test_the_module_loads_little() -> None:
    """Commands that must start fast import it: the standard library only, and few of that."""
    code = "import sys, intercom.wire.envelope; print(*sorted(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    slow = {"msgspec", "click", "twisted", "zope", "typing_extensions", "asyncio", "dataclasses"}
    assert "intercom.wire.envelope" in loaded
    assert not loaded & slow


def test_a_line_in_ascii_says_the_same() -> None:
    text = "é\u2028 \U0001f98a\U0001f44b\u200d z\uffff\ufeff"
    line = json.dumps({"a": text, "é": [1e2, "\\u00e9", 1.0]}, ensure_ascii=False).encode()
    plain = in_ascii(line)
    assert plain.isascii()
    assert json.loads(plain) == json.loads(line)
    assert in_ascii(plain) is plain
    assert in_ascii(b'{"a":"\xff"}') == b'{"a":"\xff"}'
