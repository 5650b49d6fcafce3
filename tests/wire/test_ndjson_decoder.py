"""What the hub makes of the lines that clients say."""

from __future__ import annotations

import base64
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import ProtocolError
from intercom.messages import (
    Ack,
    Auth,
    Envelope,
    Heartbeat,
    ListSessions,
    Message,
    Register,
    Unknown,
    Unregister,
)
from intercom.records import Position
from intercom.wire.envelope import MAX_LINE, Identity, digest, identify
from intercom.wire.ndjson import Decoder

NOW = "2026-08-26T15:30:00.000000+00:00"
FULL = (
    b'{"id":"m1","type":"chat","from_session":"nyota","to_session":"seven","channel":"collab",'
    b'"reply_to":null,"payload":{"text":"hail"},"timestamp":"then"}'
)
BAD_LINES = json.loads((Path(__file__).parents[1] / "data" / "bad_lines.json").read_text("utf-8"))


def decoder(channel: str = "collab", limit: int = MAX_LINE) -> Decoder:
    numbers = itertools.count(1)
    return Decoder(channel, lambda: f"msg_{next(numbers):012x}", lambda: NOW, limit)


def decode(line: bytes | dict[str, Any], session: str | None = "nyota") -> Message:
    if isinstance(line, dict):
        line = json.dumps(line, ensure_ascii=False).encode()
    return decoder().decode(line, session)


def chat(line: bytes | dict[str, Any], session: str | None = "nyota") -> Envelope:
    message = decode(line, session)
    assert isinstance(message, Envelope)
    return message


def refusal(line: bytes | dict[str, Any], session: str | None = "nyota") -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        decode(line, session)
    return caught.value


# -- a chat that lacks nothing ----------------------------------------------------------------


def test_a_chat_keeps_the_bytes_that_its_sender_wrote() -> None:
    assert chat(FULL) == Envelope(
        id="m1",
        speaker="nyota",
        to_session="seven",
        reply_to=None,
        payload=b'{"text":"hail"}',
        line=FULL,
        strict=False,
    )


def test_a_usual_line_is_read_without_a_closer_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close reading takes ten times as long; whoever says nothing odd must not pay for it."""
    monkeypatch.delattr(Decoder, "_decode_closely")
    code = FULL.replace(b"hail", b'if (a[0]) { b(\\"x\\"); }\\n' * 50 + "🙂é".encode())
    for line in (FULL, code, FULL.replace(b":null", b':"m0"'), FULL.replace(b'"chat"', b'"list"')):
        decode(line)
    with pytest.raises(AttributeError):
        decode(FULL[:-1] + b',"new":1}')


def test_odd_spacing_order_and_unknown_fields_are_the_senders_business() -> None:
    line = (
        b'{ "timestamp" : "" ,"zeta": [1, {"NaN": "Infinity"}],"payload" :  {"b" :1.0e5, "a":[ ]} ,'
        b'"reply_to":"m0","to_session":"*","channel":"Coll ab!","from_session":"nyota","id":"m1",'
        b'"type":"chat" }'
    )
    message = chat(line)
    assert message.line == line
    assert message.payload == b'{"b" :1.0e5, "a":[ ]}'
    assert (message.to_session, message.reply_to) == ("*", "m0")


def test_white_space_around_the_object_is_stripped() -> None:
    assert chat(b" \t\r" + FULL + b"\r \t").line == FULL


def test_fields_written_with_escapes_mean_the_same() -> None:
    line = FULL.replace(b'"type"', b'"\\u0074ype"').replace(b"seven", b"se\\u0076en")
    message = chat(line)
    assert (message.to_session, message.line) == ("seven", line)


def test_quotes_in_the_header_are_no_reason_to_refuse() -> None:
    line = FULL.replace(b'"then"', b'"\\"then\\""')
    assert chat(line).line == line


@pytest.mark.parametrize("name", ["x", "É" * 128, "a b", "../../etc", "all.", "Hub", "🙂"])
def test_any_printable_name_is_an_address(name: str) -> None:
    line = FULL.replace(b'"seven"', json.dumps(name, ensure_ascii=False).encode())
    assert chat(line).to_session == name


@pytest.mark.parametrize("channel", ["collab", "COLLAB", "c/o.l l@a:b", "cóllab"])
def test_the_channel_counts_as_it_is_once_sanitised(channel: str) -> None:
    line = FULL.replace(b'"collab"', json.dumps(channel, ensure_ascii=False).encode())
    if channel == "cóllab":
        assert refusal(line).code == "CHANNEL_MISMATCH"
    else:
        assert chat(line).line == line


def test_a_hub_of_the_default_channel_takes_lines_without_a_usable_name() -> None:
    for name in (b'""', b'"!!"', b'"default"'):
        line = FULL.replace(b'"collab"', name)
        assert decoder("default").decode(line, None)


# -- bytes that would break a reader ----------------------------------------------------------


def test_invalid_utf8_becomes_the_replacement_character() -> None:
    message = chat(FULL.replace(b"hail", b"h\xffa\xed\xa0\x80l"))
    assert message.line == FULL.replace(b"hail", "h\ufffda\ufffd\ufffd\ufffdl".encode())
    assert message.payload == "{'text':'h\ufffda\ufffd\ufffd\ufffdl'}".replace("'", '"').encode()


def test_a_repair_that_makes_the_line_too_long_is_told() -> None:
    assert decoder(limit=len(FULL)).decode(FULL, None)
    with pytest.raises(ProtocolError) as caught:
        decoder(limit=len(FULL)).decode(FULL.replace(b"hail", b"hai\xff"), None)
    assert caught.value.code == "LINE_TOO_LONG"


@pytest.mark.parametrize("mark", [b"\r", b"\n", b"\r\n"])
def test_a_line_end_between_tokens_becomes_a_space(mark: bytes) -> None:
    message = chat(FULL.replace(b":{", b":" + mark + b"{" + mark).replace(b",", b"," + mark))
    spaces = b" " * len(mark)
    assert message.line == FULL.replace(b":{", b":" + spaces + b"{" + spaces).replace(
        b",", b"," + spaces
    )
    assert message.payload == b"{" + spaces + b'"text":"hail"}'


def test_a_carriage_return_between_tokens_of_an_incomplete_line_becomes_a_space_too() -> None:
    message = chat(b'{"type":\r"chat","payload":{\r"text":"\xff"}}')
    assert message.payload == '{ "text":"\ufffd"}'.encode()
    assert message.line.startswith(b'{"type": "chat","payload":{ "text"')


def test_raw_separators_of_other_programs_stay_in_strings() -> None:
    line = FULL.replace(b"hail", "\u2028\u2029\u0085\x7f".encode())
    assert chat(line).line == line


# -- a chat that leaves things out ------------------------------------------------------------


def test_what_a_chat_leaves_out_is_filled_in() -> None:
    message = chat(b'{"type":"chat"}')
    assert message == Envelope(
        id="msg_000000000001",
        speaker=None,
        to_session="*",
        reply_to=None,
        payload=b"{}",
        line=b'{"type":"chat","id":"msg_000000000001","from_session":"nyota","to_session":"*",'
        b'"channel":"collab","payload":{},"timestamp":"2026-08-26T15:30:00.000000+00:00",'
        b'"reply_to":null}',
    )


def test_before_it_registered_a_nameless_sender_is_unknown() -> None:
    message = chat(b'{"type":"chat"}', session=None)
    assert message.speaker is None
    assert json.loads(message.line)["from_session"] == "unknown"


@pytest.mark.parametrize(
    "name", ["id", "from_session", "channel", "payload", "timestamp", "reply_to", "to_session"]
)
@pytest.mark.parametrize("null", [False, True])
def test_one_field_is_filled_in_and_the_rest_kept_as_it_was(name: str, null: bool) -> None:
    if null and name == "to_session":
        assert refusal(FULL.replace(b'"seven"', b"null")).code == "BAD_SESSION_ID"
        return
    full = json.loads(FULL)
    line = {**full, name: None} if null else {key: full[key] for key in full if key != name}
    message = chat(line, session="nyota")
    filled = json.loads(message.line)
    default: dict[str, Any] = {
        "id": "msg_000000000001",
        "from_session": "nyota",
        "to_session": "*",
        "channel": "collab",
        "payload": {},
        "timestamp": NOW,
        "reply_to": None,
    }
    assert filled == {**full, name: default[name]}
    assert list(filled) == list(line) + ([] if null else [name])


def test_other_fields_keep_their_bytes_when_a_line_is_completed() -> None:
    message = chat(b'{ "n" : 1.50,\t"payload":{ "a" : 1e2 }  , "\\u0069d":null,"type" :"chat"}')
    assert message.payload == b'{ "a" : 1e2 }'
    assert message.line.startswith(
        b'{"n" : 1.50,"payload":{ "a" : 1e2 },"id":"msg_000000000001","type" :"chat",'
    )


def test_a_line_that_filling_in_makes_too_long_is_refused() -> None:
    line = FULL.replace(b',"timestamp":"then"', b"")
    short = decoder(limit=len(line))
    with pytest.raises(ProtocolError) as caught:
        short.decode(line, "nyota")
    assert (caught.value.code, caught.value.message_id) == ("LINE_TOO_LONG", "m1")


# -- how large, how deep ----------------------------------------------------------------------


def test_a_line_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    room = MAX_LINE - len(FULL)
    line = FULL.replace(b"hail", b"hail" + b"x" * room)
    assert chat(line).line == line
    assert refusal(line.replace(b"hail", b"hail!")).code == "LINE_TOO_LONG"


def payload_line(value: bytes) -> bytes:
    return FULL.replace(b'"hail"', value)


def test_the_envelope_and_62_levels_below_its_payload_are_allowed() -> None:
    line = payload_line(b"[" * 62 + b"]" * 62)
    assert chat(line).line == line
    assert refusal(payload_line(b"[" * 63 + b"]" * 63)).code == "BAD_JSON"


@pytest.mark.parametrize(
    "value",
    [
        b'"' + b"[{" * 500 + b'"',
        b'"' + b'\\"[' * 500 + b'"',
        b"[" + b"[],{}," * 500 + b'"\\\\"]',
        b'"' + b"7" * 20_000 + b'"',
        b"0." + b"7" * 20_000,
        b"7" * 4300,
        b"-1e400",
        b'"\\\\ud800 \\ud83d\\ude00"',
        b'{"type":"a","id":"b","payload":{},"type":"c"}',
    ],
    ids=lambda value: value[:16].decode(),
)
def test_what_only_looks_suspicious_passes_unchanged(value: bytes) -> None:
    line = payload_line(value)
    assert chat(line).line == line


@pytest.mark.parametrize("digits", [4301, 9000])
def test_an_integer_that_not_every_reader_reads_is_refused(digits: int) -> None:
    for value in (b"7" * digits, b"[-" + b"7" * digits + b"]"):
        error = refusal(payload_line(value))
        assert (error.code, error.message_id) == ("BAD_JSON", "m1")


@pytest.mark.parametrize("key", [*json.loads(FULL), "\\u0074ype", "new"])
def test_a_key_that_stands_there_twice_is_refused_wherever_it_stands(key: str) -> None:
    """Two readers could take different ones of the two."""
    value = json.dumps(json.loads(FULL).get(key, "chat"))
    twice = f'"{key}":{value},' if key != "new" else '"new":1,"new":{},'
    front, back = (
        FULL[:1] + twice.encode() + FULL[1:],
        FULL[:-1] + b"," + twice[:-1].encode() + b"}",
    )
    for line in (front, back):
        error = refusal(line)
        assert (error.code, error.message_id) == ("BAD_JSON", "m1")
        assert "twice" in error.text


@pytest.mark.parametrize("count", [100, 200_000])
@pytest.mark.parametrize("piece", [b"[", b'{"a":', b'[{"a":'])
def test_a_tower_of_brackets_is_an_error_and_not_a_crash(piece: bytes, count: int) -> None:
    for line in (piece * count, payload_line(piece * count), b'{"id":"m1","x":' + piece * count):
        error = refusal(line[:MAX_LINE])
        assert error.code == "BAD_JSON"
        assert error.message_id == ("m1" if b"m1" in line else None)


# -- refusals ---------------------------------------------------------------------------------


def test_there_are_enough_bad_lines() -> None:
    assert len(BAD_LINES) >= 60
    assert {"BAD_JSON", "BAD_ENVELOPE", "BAD_SESSION_ID", "CHANNEL_MISMATCH"} == {
        bad["code"] for bad in BAD_LINES
    }


@pytest.mark.parametrize("bad", BAD_LINES, ids=lambda bad: bad["why"])
def test_a_bad_line_is_answered_with_its_code_and_its_id(bad: dict[str, Any]) -> None:
    line = bad["line"].encode() if "line" in bad else base64.b64decode(bad["line_b64"])
    error = refusal(line, session=None)
    assert (error.code, error.message_id) == (bad["code"], bad["id"])
    assert 0 < len(error.text) < 300
    if error.code == "BAD_ENVELOPE":
        assert error.details["field"] in error.text


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("from_session", "hub", "BAD_SESSION_ID"),
        ("from_session", "", "BAD_SESSION_ID"),
        ("to_session", "hub", "BAD_SESSION_ID"),
        ("to_session", "", "BAD_SESSION_ID"),
        ("to_session", "a\tb", "BAD_SESSION_ID"),
        ("channel", "other", "CHANNEL_MISMATCH"),
        ("payload", [], "BAD_ENVELOPE"),
        ("type", 5, "BAD_ENVELOPE"),
    ],
)
def test_a_line_that_lacks_nothing_is_refused_for_one_bad_field(
    field: str, value: Any, code: str
) -> None:
    error = refusal({**json.loads(FULL), field: value})
    assert (error.code, error.message_id) == (code, "m1")


def test_a_request_that_lacks_nothing_is_refused_by_its_id() -> None:
    error = refusal({**json.loads(FULL), "type": "ack"})
    assert (error.code, error.message_id) == ("BAD_ENVELOPE", "m1")


@pytest.mark.parametrize("name", ["*", "all"])
def test_everybody_is_an_address(name: str) -> None:
    assert chat({**json.loads(FULL), "to_session": name}).to_session == name
    assert chat({"type": "chat", "to_session": name}).to_session == name


def test_an_empty_line_is_bad_json() -> None:
    assert refusal(b"").code == refusal(b"  \r").code == "BAD_JSON"


# -- strict -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "strict"),
    [
        (b'{"strict":true}', True),
        (b'{"text":"x","strict" : true }', True),
        (b'{"\\u0073trict":true}', True),
        (b'{"strict":false}', False),
        (b'{"strict":"true"}', False),
        (b'{"strict":1}', False),
        (b'{"strict":1e999}', False),
        (b'{"text":"\\"strict\\":true"}', False),
        (b'{"deeper":{"strict":true}}', False),
        (b'{"strict":false,"strict":true}', True),
        (b'{"text":"na\\u00efve"}', False),
        (b"{}", False),
    ],
)
def test_a_sender_may_ask_for_known_recipients_only(payload: bytes, strict: bool) -> None:
    assert chat(FULL.replace(b'{"text":"hail"}', payload)).strict is strict
    assert chat(b'{"type":"chat","payload":' + payload + b"}").strict is strict


# -- durability -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "level"),
    [
        (b'{"durability":"memory"}', "memory"),
        (b'{"text":"x","durability" : "process" }', "process"),
        (b'{"strict":true,"durability":"disk"}', "disk"),
        (b'{"\\u0064urability":"d\\u0069sk"}', "disk"),
        (b'{"durability":"disk","durability":"memory"}', "memory"),
        (b'{"deeper":{"durability":"tape"}}', None),
        (b'{"text":"\\"durability\\":\\"tape\\""}', None),
        (b'{"text":"na\\u00efve"}', None),
        (b"{}", None),
    ],
)
def test_a_sender_may_name_the_level_of_one_message(payload: bytes, level: str | None) -> None:
    for line in (
        FULL.replace(b'{"text":"hail"}', payload),
        b'{"type":"chat","payload":' + payload + b"}",
    ):
        message = chat(line)
        assert message.durability == level
        assert message.payload == payload
        assert message.strict is (b'"strict":true' in payload)


@pytest.mark.parametrize(
    "value",
    [b'"tape"', b'"Disk"', b'""', b"null", b"1", b"1e999", b"true", b"[]", b'["disk"]', b"{}"],
)
def test_a_level_that_is_none_is_refused_by_its_name(value: bytes) -> None:
    payload = b'{"durability":' + value + b"}"
    whole = FULL.replace(b'{"text":"hail"}', payload)
    closely = b'{"type":"chat","id":"m1","payload":' + payload + b"}"
    for line in (whole, closely):
        error = refusal(line)
        assert (error.code, error.message_id) == ("BAD_ENVELOPE", "m1")
        assert error.details == {"field": "payload.durability"}
        for word in ("payload.durability", "memory", "process", "disk"):
            assert word in error.text


def test_a_level_in_another_type_means_nothing() -> None:
    line = {"type": "heartbeat", "id": "h", "payload": {"durability": "tape"}}
    assert decode(line) == Heartbeat("h")


# -- the other types --------------------------------------------------------------------------


@pytest.mark.parametrize("type_", ["register", "announce"])
def test_a_register_claims_an_id_and_nothing_else_by_itself(type_: str) -> None:
    assert decode({"type": type_, "from_session": "nyota"}) == Register(speaker="nyota")
    assert decode({"type": type_}) == Register()
    assert decode({"type": type_, "from_session": None, "payload": None}) == Register()


def test_a_register_may_ask_for_features_a_role_and_an_id_in_use() -> None:
    said = {
        "features": ["receipts", "telepathy", "cursor", "receipts", "presence"],
        "role": "sender",
        "token": "s3cret",
        "takeover": True,
        "mood": [1],
    }
    assert decode({"type": "register", "id": "r1", "payload": said}) == Register(
        id="r1",
        features=("receipts", "cursor"),
        role="sender",
        token="s3cret",
        takeover=True,
    )


def test_null_in_a_register_is_as_good_as_nothing() -> None:
    said = dict.fromkeys(["features", "role", "token", "takeover"])
    assert decode({"type": "register", "payload": said}) == Register()


def test_an_ack_names_a_position() -> None:
    said: dict[str, Any] = {"offset": 0, "generation": 1}
    assert decode({"type": "ack", "payload": said}) == Ack(Position(1, 0))
    said = {"offset": 2**63 - 1, "generation": 7, "state": "shown"}
    assert decode({"type": "ack", "id": "a", "from_session": "x", "payload": said}) == Ack(
        Position(7, 2**63 - 1), "shown", "a", "x"
    )


@pytest.mark.parametrize(
    ("type_", "kind"),
    [("heartbeat", Heartbeat), ("list", ListSessions), ("unregister", Unregister)],
)
def test_a_bare_request_needs_its_type_only(
    type_: str, kind: type[Heartbeat | ListSessions | Unregister]
) -> None:
    assert decode({"type": type_}) == kind()
    full = {**json.loads(FULL), "type": type_, "to_session": "hub"}
    assert decode(full) == kind(id="m1", speaker="nyota")


def test_the_key_of_the_channel_is_shown_in_an_auth() -> None:
    assert decode({"type": "auth", "payload": {"key": "k"}}) == Auth("k")
    assert refusal({"type": "auth"}).details == {"field": "payload.key"}


@pytest.mark.parametrize("type_", ["", "Chat", "chat ", "welcome", "presence", "x" * 5000])
def test_a_type_that_the_hub_does_not_take_is_passed_on_as_unknown(type_: str) -> None:
    assert decode({"type": type_, "id": "u"}) == Unknown(type_, "u", None)
    assert decode({**json.loads(FULL), "type": type_}) == Unknown(type_, "m1", "nyota")


# -- as others see the line -------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        FULL,
        FULL.replace(b"hail", b"\xff").replace(b'{"t', b'{\r"t'),
        b'{"type":"chat","payload":{ "a":"\xff" },"reply_to":"m0"}',
        b'{"type":"chat","from_session":null,"id":null,"payload":null}',
    ],
)
def test_a_stored_line_is_recognised_as_what_was_decoded(line: bytes) -> None:
    """Looked up in an inbox file later, it has the same sender, id and content."""
    message = chat(line)
    content = digest("chat", message.to_session, message.reply_to, message.payload)
    assert identify(message.line) == Identity("nyota", message.id, content)
