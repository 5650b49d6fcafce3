"""What every dialect has: one object a connection, one class a protocol.

Arrivals are found in the bytes themselves (:mod:`gauge.texts`), the same for all; a
dialect greets, frames, finds the server's confirmations in what a sender is told, and
says what a receiver must answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from socket import socket
from typing import Any

from intercom.wire import envelope

#: Seconds for a greeting.
GREETING = 20.0
#: The time is not what is measured.
WHEN = envelope.format_timestamp(0.0)


class Dialect:
    """One connection's protocol. The base class frames lines and expects nothing back.

    :param name: under which it sends or receives.
    :param channel: where the server has several.
    :ivar confirms: the server tells a sender that it has taken a message.
    :ivar returns: what a connection sends comes back to itself, and goes nowhere else.
    :ivar keeps: what a receiver has not read yet is brought to it whenever it reads on.
    :ivar everyone: an address that reaches all receivers at once; None where each needs
        a message of its own.
    :ivar notes: what the server said about itself, for the report.
    """

    confirms = False
    returns = False
    keeps = False
    everyone: str | None = None

    def __init__(self, sock: socket, name: str, channel: str) -> None:
        self.sock = sock
        self.name = name
        self.channel = channel
        self.notes: dict[str, Any] = {}

    def greet(self, receives: bool) -> None:
        """Make the connection ready (blocking); later bytes are read by the caller."""

    def frame(self, to: str, number: int, text: str) -> bytes:
        """What sends one message; ``number`` is unique among this connection's."""
        return self.envelope("chat", number, to, {"text": text}) + b"\n"

    def confirmed(self, data: bytes) -> Sequence[int]:
        """Find the numbers of messages that the server now says it has taken.

        A server that names none confirms in order: count on.

        :raise Broken: it refuses one.
        """
        return ()

    def replies(self, data: bytes) -> bytes:
        """What the receiver must say to these bytes."""
        return b""

    def envelope(self, kind: str, number: int, to: str, payload: dict[str, Any]) -> bytes:
        """An NDJSON line, without line feed."""
        return envelope.make(
            type=kind,
            message_id=f"msg_{number:012x}",
            from_session=self.name,
            to_session=to,
            channel=self.channel,
            payload=payload,
            timestamp=WHEN,
        )


class Echo(Dialect):
    """No protocol: a server that sends back what it reads."""

    returns = True
