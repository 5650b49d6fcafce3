"""Lines and small files that are broken in many ways: a corpus, and what can be made of it.

Everything follows from a seed, so that what once broke something can be made again.
"""

from __future__ import annotations

import json
import random

LINE = (
    b'{"id":"m1","type":"chat","from_session":"ada","to_session":"bob","channel":"default",'
    b'"reply_to":null,"payload":{"text":"hello \xc3\xa9","strict":true},"timestamp":"t"}'
)
#: Lines that have broken programs of this kind, each alone.
LINES = (
    LINE,
    b"",
    b" ",
    b"\r",
    b"{",
    b"}",
    b"[1]",
    b"5",
    b"null",
    b'""',
    b"NaN",
    b"-",
    b'{"type":[]}',
    b'{"type":"chat","payload":NaN}',
    b'{"type":"chat","type":"register"}',
    b'{"a":1}{"b":2}',
    b"[" * 20_000,
    b'{"a":' * 5_000,
    b'{"id":' + b"9" * 5_000 + b"}",
    b'{"x":1e400}',
    b'{"type":"chat","payload":{"text":"\\ud800"}}',
    b"\xff\xfe{\x00}\x00",
    b"\xef\xbb\xbf{}",
    b'{"type":"chat"\x00}',
    b'{"type":"\xc3"}',
    b"GET / HTTP/1.1\r",
    b'{"type":"chat","id":"\xe2\x80\xa8","to_session":"../../x"}',
    b'{"type":"ack","payload":{"offset":-1,"generation":1e99}}',
    b'{"type":"ack","payload":{"offset":99999999999999999999}}',
    b'{"type":"register","from_session":"hub","payload":{"features":[[]]}}',
    b'{"type":"register","from_session":"x","payload":{"features":"receipts","token":7}}',
    b'{"type":"auth","payload":{"key":null}}',
    b'{"type":"welcome","payload":{"hub":7,"features":7,"peers":7}}',
    b'{"type":"welcome","payload":{"protocol":1,"features":{"a":[]},"peers":{},"hub":{"pid":"x"}}}',
    b'{"type":"receipt","reply_to":"m1","payload":{"state":[],"failed":7,"nearest":7}}',
    b'{"type":"error","reply_to":"m1","payload":{"code":[],"message":{}}}',
    b'{"type":"sessions","reply_to":7,"payload":{"sessions":7}}',
    b'{"type":"cursor","payload":{"offset":"7"}}',
)
#: What small files may hold, each alone.
FILES = (
    b"",
    b"[]",
    b"7",
    b'"7"',
    b"null",
    b"{}",
    b"{",
    b"\x00" * 64,
    b"\xff",
    b'{"offset":-5,"generation":1}',
    b'{"offset":1e400,"generation":1}',
    b'{"offset":7,"generation":0,"session":7}',
    b'{"offset":true,"generation":true}',
    b'{"offset":99999999999999999999,"generation":99999999999999999999}',
    b'{"offset":3,"updated_at":"x","generation":1,"session":"bob"}',
    b'{"format":1,"session":"bob","generation":3,"mark":{"size":-1}}',
    b'{"format":99,"session":[],"generation":[]}',
    b'{"pid":1,"version":[],"started":"x"}',
    b'{"hub_pid":"x","active_sessions":{"a":1},"updated_at":[]}',
    b'{"at":1,"state":"read","generation":1,"start":0,"end":99}\n{"at":',
    b'{"durability":[],"listen":7,"idle_exit":{}}',
    b"[" * 20_000,
)
_PIECES = (
    b"\x00", b"\xff", b"\\u0000", b'"', b"{", b"}", b"[", b"]", b",", b":", b"\r", b"\xe2\x80\xa8",
    b"null", b"true", b"-0", b"1e999", b"9" * 40, b'"type":', b'"payload":', b"\\ud83d",
)  # fmt: skip


def changed(chance: random.Random, seed: bytes) -> bytes:
    """Something like ``seed`` with a few changes; it has no line feed."""
    data = bytearray(seed[: 1 << 14])
    for _ in range(chance.randint(1, 4)):
        at = chance.randint(0, len(data))
        choice = chance.randrange(5)
        if choice == 0 and data:
            data[at - 1] ^= 1 << chance.randrange(8)
        elif choice == 1:
            del data[at : at + chance.randint(1, 12)]
        elif choice == 2:
            data[at:at] = chance.choice(_PIECES)
        elif choice == 3:
            data[at:at] = data[: chance.randint(0, len(data))]
        else:
            del data[at:]
    return bytes(data).replace(b"\n", b" ")


def line(chance: random.Random) -> bytes:
    """A line that may be broken."""
    return changed(chance, chance.choice(LINES) if chance.random() < 0.5 else LINE)


def bad_line(chance: random.Random) -> bytes:
    """A line that is no JSON object for certain, so that it has to be refused."""
    while True:
        found = line(chance)
        if not found.strip():
            continue
        try:
            known = json.loads(found.decode("utf-8", "replace"))  # which a hub would mend
        except (ValueError, RecursionError):
            return found
        if not isinstance(known, dict):
            return found


def file(chance: random.Random) -> bytes:
    """What a small file may hold."""
    seed = chance.choice(FILES)
    return seed if chance.random() < 0.2 else changed(chance, seed)
