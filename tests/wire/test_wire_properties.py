"""Whatever bytes come: a message or a refusal; and what is accepted harms no reader."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

from hypothesis import example, given, settings
from hypothesis import strategies as st

from intercom.errors import ProtocolError
from intercom.messages import Envelope, Message
from intercom.wire import ndjson
from intercom.wire.envelope import MAX_LINE, Identity, digest, identify, parse
from intercom.wire.ndjson import Decoder

#: Every code that a line by itself can cause.
CODES = {
    "BAD_JSON",
    "BAD_ENVELOPE",
    "LINE_TOO_LONG",
    "BAD_SESSION_ID",
    "CHANNEL_MISMATCH",
}

NAMES = st.sampled_from(["nyota", "seven", "*", "all", "hub", "", "é🙂", "x" * 129, "a\tb"])
KEYS = (
    ["id", "type", "from_session", "to_session", "channel", "reply_to", "payload", "timestamp"],
    ["trace", "strict", 'quote"', "", "naïve", "Type"],
)
TEXTS = st.text(st.sampled_from('ab"\\{}[]:,é🙂\u2028\x00\r\n') | st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.sampled_from([None, True, False, 0, -1.5, 1e300, 10**30, "", "strict"]) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["strict", "text", 'a"b']) | TEXTS, inner, max_size=3)
    ),
    max_leaves=8,
)
PAYLOADS = st.dictionaries(
    st.sampled_from(["text", "strict", "durability", "features"]) | TEXTS,
    VALUES | st.sampled_from(["memory", "process", "disk"]),
    max_size=3,
)
TYPES = st.sampled_from(["chat"] * 6 + ["register", "ack", "heartbeat", "auth", "list", "odd"])
GOOD = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["m1", "é" * 128]),
        "type": st.just("chat"),
        "from_session": st.just("nyota"),
        "to_session": st.sampled_from(["seven", "*", "all", "é🙂"]),
        "channel": st.sampled_from(["collab", "Col lab"]),
        "reply_to": st.none() | TEXTS,
        "payload": PAYLOADS,
        "timestamp": TEXTS,
    }
)
FULL = st.fixed_dictionaries(
    {
        "id": TEXTS,
        "type": TYPES,
        "from_session": NAMES,
        "to_session": NAMES,
        "channel": st.sampled_from(["collab", "other"]),
        "reply_to": st.none() | TEXTS,
        "payload": PAYLOADS,
        "timestamp": TEXTS,
    }
)
PARTIAL = st.dictionaries(st.sampled_from(KEYS[0] + KEYS[1]), VALUES | PAYLOADS | NAMES, max_size=9)
MEMBERS = st.one_of(
    GOOD.map(lambda good: list(good.items())),
    FULL.map(lambda full: list(full.items())),
    # some fields twice, or of another type
    st.tuples(GOOD, PARTIAL).map(lambda two: list({**two[0], **two[1]}.items())),
    st.tuples(GOOD, PARTIAL).map(lambda two: [*two[0].items(), *two[1].items()]),
    # some fields missing, some unknown
    st.tuples(TYPES, PARTIAL).map(lambda two: [("type", two[0]), *two[1].items()]),
    st.tuples(GOOD, st.sets(st.sampled_from(KEYS[0]))).map(
        lambda two: [(key, value) for key, value in two[0].items() if key not in two[1]]
    ),
)


@st.composite
def envelopes(draw: st.DrawFn) -> bytes:
    """Envelopes, most of them good or nearly so, in all the spellings that JSON allows."""
    members = draw(st.permutations(draw(MEMBERS)))
    ascii_only, space = draw(st.booleans()), draw(st.sampled_from(["", " ", "\r", "\t \r\n"]))
    written = []
    for key, value in members:
        name = json.dumps(key, ensure_ascii=ascii_only)
        if key and draw(st.integers(0, 9)) == 0:
            name = f'"\\u{ord(key[0]):04x}{name[2:]}' if key[0].isascii() else name
        text = json.dumps(value, ensure_ascii=ascii_only, separators=("," + space, ":" + space))
        written.append(f"{space}{name}{space}:{space}{text}{space}")
    line = (space + "{" + ",".join(written) + "}" + space).encode()
    return line.replace("é".encode(), b"\xe9") if draw(st.booleans()) else line


PIECES = st.sampled_from(
    [
        *(b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"-", b"0", b" ", b"\r", b"\n", b"\x00"),
        *(b"\\ud800", b"\\u0022", b"NaN", b"1e999", b"null", b"[" * 70, b"1" * 4400),
        *(b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf"),
        *(b'"id":1,', b'"type":"chat",', b'"payload":{},', b'"x":"'),
    ]
)


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Envelopes with something cut out, put in, or put in another place."""
    line = draw(envelopes())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(line)))
        end = min(len(line), at + draw(st.integers(0, 6)))
        line = line[:at] + draw(st.just(b"") | PIECES | st.binary(max_size=3)) + line[end:]
    return line


TOKENS = st.lists(
    PIECES | st.sampled_from([b'"type"', b'"chat"', b'"to_session"', b'"a"', b"true", b"5"]),
    max_size=25,
).map(b"".join)

LINES = st.one_of(envelopes(), damaged(), TOKENS, st.binary(max_size=80))


def decoder() -> Decoder:
    return Decoder("collab", lambda: "msg_000000000001", lambda: "now")


def outcome(line: bytes, session: str | None = "nyota") -> Message | tuple[str, str | None]:
    """What a line comes to; anything but a message or a refusal is an error of the test."""
    try:
        return decoder().decode(line, session)
    except ProtocolError as error:
        return error.code, error.message_id


def refusal(line: bytes) -> str | None:
    """The code with which a command refuses a line."""
    try:
        parse(line)
    except ProtocolError as error:
        return error.code
    return None


def without_short_cut(line: bytes) -> Message | tuple[str, str | None]:
    """The same, every line read closely."""
    with mock.patch.object(ndjson, "_read_plain", return_value=None):
        return outcome(line)


@settings(max_examples=300)
@given(LINES)
def test_any_line_is_a_message_or_a_refusal_with_a_known_code(line: bytes) -> None:
    found = outcome(line, session=None)
    if isinstance(found, tuple):
        assert found[0] in CODES


@settings(max_examples=300)
@given(LINES)
@example(
    b'{"id":"m1","type":"chat","from_session":"nyota","to_session":"hub","channel":"other",'
    b'"reply_to":null,"payload":{"durability":"tape"},"timestamp":""}'
)
def test_the_short_cut_never_changes_the_outcome(line: bytes) -> None:
    """Counting bytes finds every line that needs a closer look, whatever is wrong with it."""
    assert outcome(line) == without_short_cut(line)


@settings(max_examples=200)
@given(LINES)
def test_hub_and_commands_refuse_the_same_lines(line: bytes) -> None:
    """What the hub takes, a command reads; what it calls broken, a command cannot read."""
    found, refused = outcome(line), refusal(line)
    code = found[0] if isinstance(found, tuple) else None
    if refused is None:
        assert code not in {"BAD_JSON", "LINE_TOO_LONG"}
    else:
        assert code in {refused, "BAD_SESSION_ID"}  # a reader need not know about names


@settings(max_examples=300)
@given(st.one_of(envelopes(), damaged()))
def test_what_is_accepted_is_forwarded_as_one_good_line_that_says_the_same(line: bytes) -> None:
    message = outcome(line)
    if not isinstance(message, Envelope):
        return
    out = message.line
    assert b"\n" not in out
    assert b"\r" not in out
    assert len(out) <= MAX_LINE
    said: dict[str, Any] = json.loads(out.decode("utf-8"))
    heard: dict[str, Any] = json.loads(line.decode("utf-8", "replace"))
    kept = {key: value for key, value in heard.items() if value is not None or key == "reply_to"}
    assert {key: said[key] for key in kept} == kept
    assert not said.keys() - heard.keys() - set(KEYS[0])
    if kept.keys() >= set(KEYS[0]):
        assert said == heard
    assert (said["id"], said["to_session"], said["reply_to"]) == (
        message.id,
        message.to_session,
        message.reply_to,
    )
    assert said["from_session"] == (message.speaker or "nyota")
    assert json.loads(message.payload) == said["payload"]
    assert message.strict is (said["payload"].get("strict") is True)
    assert message.durability == said["payload"].get("durability")


@settings(max_examples=200)
@given(st.one_of(envelopes(), damaged()))
def test_a_forwarded_line_is_accepted_again_unchanged(line: bytes) -> None:
    """A hub that reads what another wrote, or what it wrote itself, changes nothing more."""
    message = outcome(line)
    if isinstance(message, Envelope):
        again = outcome(message.line, session=None)
        assert isinstance(again, Envelope)
        assert again.line == message.line
        assert again.payload == message.payload
        sender = again.speaker
        assert sender == (message.speaker or "nyota")
        content = digest("chat", message.to_session, message.reply_to, message.payload)
        assert identify(message.line) == Identity(sender, message.id, content)
