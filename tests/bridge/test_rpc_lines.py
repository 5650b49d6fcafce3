"""JSON-RPC lines: whatever a host writes has a meaning, and none of it raises."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intercom.bridge import rpc
from intercom.bridge.rpc import Malformed, Notification, Request, Response, read

GOOD = [
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', Request(1, "ping", {})),
    (b'{"jsonrpc":"2.0","id":"a","method":"m","params":null}', Request("a", "m", {})),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"m","params":{"x":1}}', Request(1.5, "m", {"x": 1})),
    (b'{"jsonrpc":"2.0","method":"m"}', Notification("m", {})),
    (b'{"jsonrpc":"2.0","id":7,"result":{}}', Response()),
    (b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}', Response()),
]
BAD = [
    (b"hello", rpc.PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,', rpc.PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', rpc.PARSE_ERROR, None),
    (b'{"jsonrpc":"2.0","id":NaN,"method":"m"}', rpc.PARSE_ERROR, None),
    (b"[" * 100_000, rpc.PARSE_ERROR, None),
    (b'{"id":1,"method":"m","x":' + b"9" * 10_000 + b"}", rpc.PARSE_ERROR, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', rpc.INVALID_REQUEST, None),
    (b"[]", rpc.INVALID_REQUEST, None),
    (b'"ping"', rpc.INVALID_REQUEST, None),
    (b'{"id":1,"method":"ping"}', rpc.INVALID_REQUEST, 1),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', rpc.INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1}', rpc.INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', rpc.INVALID_REQUEST, 1),
    (b'{"jsonrpc":"2.0","id":null,"method":"m"}', rpc.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"m"}', rpc.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', rpc.INVALID_REQUEST, None),
    (b'{"jsonrpc":"2.0","id":3,"method":"m","params":[1]}', rpc.INVALID_PARAMS, 3),
]


@pytest.mark.parametrize(("line", "message"), GOOD)
def test_good_lines(line: bytes, message: rpc.Message) -> None:
    assert read(line) == message


@pytest.mark.parametrize(("line", "code", "about"), BAD)
def test_bad_lines_say_what_is_wrong(line: bytes, code: int, about: object) -> None:
    message = read(line)
    assert isinstance(message, Malformed)
    assert (message.code, message.id) == (code, about)
    assert len(message.text) < 300


@settings(max_examples=60)
@given(
    st.binary()
    | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(
        lambda value: json.dumps({"jsonrpc": "2.0", "id": value, "method": value}).encode()
    )
)
def test_any_line_is_something(line: bytes) -> None:
    assert isinstance(read(line), Request | Notification | Response | Malformed)


def test_what_is_written_is_one_line_of_ascii() -> None:
    line = rpc.result("é", {"text": "a\nb\u2028c\ud800\U0001f600"})
    assert line.isascii()
    assert b"\n" not in line
    assert json.loads(line)["result"]["text"] == "a\nb\u2028c\ud800\U0001f600"
    assert json.loads(rpc.error(None, -1, "no", {"x": 1}))["error"]["data"] == {"x": 1}
