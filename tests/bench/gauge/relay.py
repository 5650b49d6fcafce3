"""Two servers to compare with, of nothing but the standard library.

``echo`` sends back what it reads: what sockets and an event loop cost by themselves.
``relay`` is the least that could be called a hub: it registers names, finds the
recipient in each line and passes the line on. It keeps nothing, checks nothing, confirms
nothing. What a hub needs beyond it is what its guarantees cost.

    python -m gauge.relay (echo | relay) SOCKET
"""

from __future__ import annotations

import select
import sys
from socket import AF_UNIX, SOCK_STREAM, socket

_WELCOME = (
    b'{"id":"msg_000000000000","type":"welcome","from_session":"hub","to_session":"%s",'
    b'"channel":"","reply_to":null,"payload":{"status":"connected","peers":[]},'
    b'"timestamp":"1970-01-01T00:00:00.000000+00:00"}\n'
)


class Peer:
    """One connection: what it sent of an unfinished line, what it is still to be sent."""

    def __init__(self, sock: socket) -> None:
        self.sock = sock
        self.name = b""
        self.begun = b""
        self.waiting: list[bytes] = []
        self.unsent = b""


class Server:
    """Serves one Unix socket for ever."""

    def __init__(self, path: str) -> None:
        self._listening = socket(AF_UNIX, SOCK_STREAM)
        self._listening.bind(path)
        self._listening.listen(256)
        self._poll = select.epoll()
        self._poll.register(self._listening, select.EPOLLIN)
        self._peers: dict[int, Peer] = {}

    def serve(self) -> None:
        """Take turns."""
        while True:
            for fd, event in self._poll.poll():
                peer = self._peers.get(fd)
                if peer is None:
                    self._accept()
                    continue
                if event & select.EPOLLOUT:
                    self.flush(peer)
                if event & ~select.EPOLLOUT:
                    self._read(peer)

    def heard(self, peer: Peer, data: bytes) -> None:
        """Send back what was read."""
        peer.waiting.append(data)
        self.flush(peer)

    def left(self, peer: Peer) -> None:
        """A connection has ended."""

    def flush(self, peer: Peer) -> None:
        """Send what waits, as one write."""
        before = bool(peer.unsent)
        data = peer.unsent + b"".join(peer.waiting)
        peer.waiting.clear()
        try:
            sent = peer.sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            return  # it has gone, and reading from it will say so
        peer.unsent = data[sent:]
        if before != bool(peer.unsent):
            out = select.EPOLLOUT if peer.unsent else 0
            self._poll.modify(peer.sock, select.EPOLLIN | out)

    def _accept(self) -> None:
        sock, _ = self._listening.accept()
        sock.setblocking(False)
        self._peers[sock.fileno()] = Peer(sock)
        self._poll.register(sock, select.EPOLLIN)

    def _read(self, peer: Peer) -> None:
        try:
            data = peer.sock.recv(65536)
        except OSError:
            data = b""
        if data:
            self.heard(peer, data)
            return
        self._poll.unregister(peer.sock)
        del self._peers[peer.sock.fileno()]
        peer.sock.close()
        self.left(peer)


class Relay(Server):
    """Passes lines on, by the names that their recipients registered under."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._names: dict[bytes, Peer] = {}

    def heard(self, peer: Peer, data: bytes) -> None:
        """Pass on each whole line; what one read brought leaves in one write for each peer."""
        *lines, peer.begun = (peer.begun + data).split(b"\n")
        touched: dict[Peer, None] = {}
        for line in lines:
            if not peer.name:
                self._register(peer, line)
                continue
            for recipient in self.recipients(peer, line):
                recipient.waiting.append(line + b"\n")
                touched[recipient] = None
        for recipient in touched:
            self.flush(recipient)

    def recipients(self, sender: Peer, line: bytes) -> list[Peer]:
        """Whom a line is for."""
        to = _member(line, b"to_session")
        if to == b"*":
            return [peer for peer in self._names.values() if peer is not sender]
        found = self._names.get(to)
        return [] if found is None else [found]

    def left(self, peer: Peer) -> None:
        """Forget a name."""
        self._names.pop(peer.name, None)

    def _register(self, peer: Peer, line: bytes) -> None:
        peer.name = _member(line, b"from_session")
        self._names[peer.name] = peer
        peer.waiting.append(_WELCOME % peer.name)
        self.flush(peer)


def _member(line: bytes, key: bytes) -> bytes:
    """A string of a line, found where our own clients write it."""
    start = line.find(b'"%s":"' % key) + len(key) + 4
    return line[start : line.find(b'"', start)]


if __name__ == "__main__":
    {"echo": Server, "relay": Relay}[sys.argv[1]](sys.argv[2]).serve()
