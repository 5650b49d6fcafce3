"""Redis streams: one for each receiver, as an inbox is a file for each with us."""

from __future__ import annotations

import re
from collections.abc import Sequence
from socket import socket

from gauge.dialects.base import Dialect
from gauge.texts import Broken

#: Entries that a reader takes at once.
_AT_ONCE = b"512"
_STREAMS = re.compile(rb"\*(\d+)\r\n")
_STREAM = re.compile(rb"\*2\r\n\$\d+\r\n(inbox\.[^\r]+)\r\n\*(\d+)\r\n")
_ENTRY = re.compile(rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n")
_IDS = re.compile(rb"[0-9$\r\n-]*")


class RedisStreams(Dialect):
    """``XADD`` to the receiver's stream, whose reply confirms; a blocking ``XREAD`` of it.

    A reader remembers itself how far it is, and says so with its next ``XREAD``: once for
    all that one reply brought. The server keeps no position for it.
    """

    confirms = True
    keeps = True
    shared: tuple[str, ...] = ()

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        super().__init__(sock, name, channel)
        self._told = 0
        self._heard = b""
        self._reached = {f"inbox.{one}".encode(): b"0-0" for one in (name, *self.shared)}

    def greet(self, receives: bool) -> None:
        """A sender needs no greeting, a receiver asks for what there is."""
        if receives:
            self.sock.sendall(self._ask())

    def _ask(self) -> bytes:
        return command(
            *(b"XREAD", b"COUNT", _AT_ONCE, b"BLOCK", b"0", b"STREAMS"),
            *self._reached.keys(),
            *self._reached.values(),
        )

    def frame(self, to: str, number: int, text: str) -> bytes:
        """See :meth:`Dialect.frame`."""
        body = self.envelope("chat", number, to, {"text": text})
        return command(b"XADD", b"inbox." + to.encode(), b"*", b"d", body)

    def confirmed(self, data: bytes) -> Sequence[int]:
        """Replies come in the order of the commands, each an id."""
        if not _IDS.fullmatch(data):
            raise Broken(f"redis told {self.name}: {data[:2000]!r}")
        before = self._told
        self._told += data.count(b"$")
        return range(before, self._told)

    def replies(self, data: bytes) -> bytes:
        """When a reply is there to its end, the next question."""
        self._heard += data
        if not self._heard.endswith(b"}\r\n"):
            return b""
        streams = _STREAM.findall(self._heard)
        entries = _ENTRY.findall(self._heard)
        wanted = _STREAMS.match(self._heard)
        if wanted is None:
            raise Broken(f"redis told {self.name}: {self._heard[:2000]!r}")
        if len(streams) < int(wanted[1]) or len(entries) < sum(int(n) for _, n in streams):
            return b""
        self._heard = b""
        at = 0
        for stream, count in streams:
            at += int(count)
            self._reached[stream] = entries[at - 1]
        return self._ask()


class RedisShared(RedisStreams):
    """The same, and one more stream that all receivers read: a message to all is kept once."""

    shared = ("all",)
    everyone = "all"


def command(*words: bytes) -> bytes:
    """A command as it goes over the wire."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
