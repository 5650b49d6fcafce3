"""MQTT 3.1.1 at QoS 1, from the sender to the broker and from the broker to the receiver."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from socket import socket

from gauge.dialects.base import GREETING, Dialect
from gauge.texts import Broken

_CONNECT, _CONNACK, _PUBLISH, _PUBACK = 0x10, b"\x20\x02\x00\x00", 0x32, b"\x40\x02"
_SUBSCRIBE, _SUBACK = 0x82, b"\x90\x04\x00\x01\x01\x01"
#: Packet identifiers are 1 to this.
_IDS = 65535


class Mqtt(Dialect):
    """The broker confirms each message; a receiver confirms each, as the protocol wants it."""

    confirms = True
    keeps = True
    everyone = "all"

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        super().__init__(sock, name, channel)
        self._rest = b""
        self._told = 0

    def greet(self, receives: bool) -> None:
        """Connect; a receiver subscribes to its own topic and to that of all."""
        self.sock.settimeout(GREETING)
        # a clean session, without a keep-alive
        self.sock.sendall(packet(_CONNECT, string("MQTT") + b"\4\2\0\0" + string(self.name)))
        self._expect(_CONNACK)
        if receives:
            topics = (string(f"inbox/{one}") + b"\1" for one in (self.name, "all"))
            self.sock.sendall(packet(_SUBSCRIBE, b"\0\1" + b"".join(topics)))
            self._expect(_SUBACK)
            self.notes["acks"] = True

    def _expect(self, answer: bytes) -> None:
        data = b""
        while len(data) < len(answer):
            more = self.sock.recv(len(answer) - len(data))
            data += more
            if not more or not answer.startswith(data):
                raise Broken(f"the broker does not welcome {self.name}: {data!r}")

    def frame(self, to: str, number: int, text: str) -> bytes:
        """See :meth:`Dialect.frame`."""
        body = self.envelope("chat", number, to, {"text": text})
        identifier = struct.pack(">H", number % _IDS + 1)
        return packet(_PUBLISH, string(f"inbox/{to}") + identifier + body)

    def confirmed(self, data: bytes) -> Sequence[int]:
        """Confirmations are four bytes each, and come in the order of the messages."""
        data = self._rest + data
        end = len(data) - len(data) % 4
        self._rest = data[end:]
        before = self._told
        for kind, identifier in struct.iter_unpack(">2sH", data[:end]):
            if (kind, identifier) != (_PUBACK, self._told % _IDS + 1):
                raise Broken(f"the broker told {self.name}: {data[:2000]!r}")
            self._told += 1
        return range(before, self._told)

    def replies(self, data: bytes) -> bytes:
        """A confirmation of each message in these bytes."""
        data = self._rest + data
        at, size, answers = 0, len(data), []
        while True:
            body, length = header(data, at)
            if body < 0 or body + length > size:
                break
            if data[at] & 0xF6 != _PUBLISH:
                raise Broken(f"the broker told {self.name}: {data[at : at + 200]!r}")
            topic = int.from_bytes(data[body : body + 2]) + body + 2
            answers.append(_PUBACK + data[topic : topic + 2])
            at = body + length
        self._rest = data[at:]
        return b"".join(answers)


def header(data: bytes, at: int) -> tuple[int, int]:
    """Where the body of the packet begins that begins at ``at``, and its length; -1 if cut."""
    length = shift = 0
    for n in range(at + 1, min(at + 5, len(data))):
        length |= (data[n] & 0x7F) << shift
        shift += 7
        if data[n] < 0x80:
            return n + 1, length
    return -1, 0


def string(text: str) -> bytes:
    """A string with its length before it."""
    data = text.encode()
    return len(data).to_bytes(2) + data


def packet(kind: int, body: bytes) -> bytes:
    """A packet as it goes over the wire."""
    head, left = bytearray([kind]), len(body)
    while True:
        left, digit = left >> 7, left & 0x7F
        head.append(digit | (0x80 if left else 0))
        if not left:
            return bytes(head) + body
