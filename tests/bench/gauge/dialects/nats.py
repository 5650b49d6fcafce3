"""NATS: core, which keeps nothing, and JetStream, which keeps a stream in a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from socket import socket
from typing import Any

from gauge.dialects.base import GREETING, Dialect
from gauge.texts import Broken

_STREAM = "BENCH"
_HELLO = {"verbose": False, "pedantic": False, "lang": "bench", "version": "1", "protocol": 1}
_TAKEN = re.compile(rb'MSG taken\.\S+\.(\d+) 1 +\d+\r\n\{"stream":"BENCH", ?"seq":\d+')
_TO_ANSWER = re.compile(rb"MSG \S+ 1 (\$JS\.ACK\.\S+) \d+\r\n")
_ERROR = b"-ERR"


class Nats(Dialect):
    """Core NATS: publish and subscribe. Nothing is kept, nothing is confirmed."""

    everyone = "all"

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        super().__init__(sock, name, channel)
        self._rest = b""

    def greet(self, receives: bool) -> None:
        """Connect, and subscribe to what this end needs."""
        self.sock.settimeout(GREETING)
        self._until(b"\r\n")
        hello = json.dumps({**_HELLO, "name": self.name})
        self._do(f"CONNECT {hello}")
        self.subscribe(receives)

    def subscribe(self, receives: bool) -> None:
        """A receiver subscribes to its own subject and to that of all."""
        if receives:
            self._do(f"SUB inbox.{self.name} 1", "SUB inbox.all 2")

    def frame(self, to: str, number: int, text: str) -> bytes:
        """See :meth:`Dialect.frame`."""
        body = self.envelope("chat", number, to, {"text": text})
        subject = f"inbox.{to}{self.answer_to(number)}"
        return b"PUB %s %d\r\n%s\r\n" % (subject.encode(), len(body), body)

    def answer_to(self, number: int) -> str:
        """The subject under which a message is to be confirmed, behind a blank."""
        return ""

    def replies(self, data: bytes) -> bytes:
        """Nothing, but a server may say that it is unhappy."""
        self.check(data)
        return b""

    def check(self, data: bytes) -> None:
        """:raise Broken: the server refuses something."""
        at = data.find(_ERROR)
        if at >= 0:
            raise Broken(f"nats told {self.name}: {data[at : at + 200]!r}")

    def _until(self, end: bytes) -> bytes:
        data = b""
        while not data.endswith(end):
            more = self.sock.recv(65536)
            if not more:
                raise Broken(f"nats closed before it welcomed {self.name}: {data!r}")
            data += more
            self.check(data)
        return data

    def _do(self, *lines: str) -> bytes:
        """Say something, and hear what comes before all of it is done."""
        self.sock.sendall("".join(f"{line}\r\n" for line in (*lines, "PING")).encode())
        return self._until(b"PONG\r\n")


class JetStream(Nats):
    """A stream in a file, each message confirmed; push consumers that acknowledge nothing.

    So the server remembers of no receiver how far it is: JetStream at its fastest.
    """

    confirms = True
    keeps = True
    policy = "none"

    def subscribe(self, receives: bool) -> None:
        """A receiver has one consumer for what is sent to it, another for what is sent to all."""
        stream = {"name": _STREAM, "subjects": ["inbox.>"], "storage": "file"}
        self._request(f"$JS.API.STREAM.CREATE.{_STREAM}", stream | {"retention": "limits"})
        if not receives:
            self._do(f"SUB taken.{self.name}.* 1")
            return
        self._do(f"SUB to.{self.name} 1")
        for subject in (f"inbox.{self.name}", "inbox.all"):
            config: dict[str, Any] = {
                "deliver_subject": f"to.{self.name}",
                "deliver_policy": "all",
                "ack_policy": self.policy,
                "filter_subject": subject,
            }
            if self.policy != "none":
                config["max_ack_pending"] = -1
            request = {"stream_name": _STREAM, "config": config}
            self._request(f"$JS.API.CONSUMER.CREATE.{_STREAM}", request)

    def _request(self, subject: str, body: dict[str, Any]) -> None:
        data = json.dumps(body)
        self.sock.sendall(b"SUB answer.%s 9\r\n" % self.name.encode())
        self.sock.sendall(f"PUB {subject} answer.{self.name} {len(data)}\r\n{data}\r\n".encode())
        answer = self._until(b"}\r\n")
        if b'"error"' in answer:
            raise Broken(f"nats told {self.name}: {answer!r}")
        self._do("UNSUB 9")

    def answer_to(self, number: int) -> str:
        """See :meth:`Nats.answer_to`."""
        return f" taken.{self.name}.{number}"

    def confirmed(self, data: bytes) -> Sequence[int]:
        """Each confirmation comes under a subject that names its message."""
        self.check(data)
        data = self._rest + data
        end = data.rfind(b"}\r\n") + 3 if b"}\r\n" in data else 0
        self._rest = data[end:]
        numbers = _TAKEN.findall(data, 0, end)
        if len(numbers) != data.count(b"MSG ", 0, end):
            raise Broken(f"not every message was taken: {data[:2000]!r}")
        return [int(number) for number in numbers]


class JetStreamAcks(JetStream):
    """The same with consumers that acknowledge, once for all that one read brought."""

    policy = "all"

    def replies(self, data: bytes) -> bytes:
        """An acknowledgement of the last message of each consumer in these bytes."""
        self.check(data)
        data = self._rest + data
        end = data.rfind(b"\r\n") + 2 if b"\r\n" in data else 0
        self._rest = data[end:]
        last = {one.split(b".", 4)[3]: one for one in _TO_ANSWER.findall(data, 0, end)}
        self.notes["acks"] = True
        return b"".join(b"PUB %s 4\r\n+ACK\r\n" % subject for subject in last.values())
