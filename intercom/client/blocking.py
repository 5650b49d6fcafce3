"""A blocking connection to a channel's hub; every call has a deadline. Standard library only."""

from __future__ import annotations

import _socket as socket  # the compiled part, which is all that is needed
import os
import time

from intercom import __version__
from intercom.client.dial import ConnectionLost, peer_credentials, silent
from intercom.errors import CLOSING_CODES, IntercomError, ProtocolError
from intercom.paths import ChannelPaths
from intercom.plain import suppress
from intercom.tuples import TYPE_CHECKING, NamedTuple
from intercom.wire import envelope
from intercom.wire.framing import LineCutter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Any

#: Seconds to wait for the welcome, and for room to write.
WELCOME_TIMEOUT = 2.0
SEND_TIMEOUT = 5.0
#: Longest line taken from a hub: a full-size message, and room for what a hub adds.
MAX_INPUT = 2 * envelope.MAX_LINE
_CHUNK = 1 << 16


class Received(NamedTuple):
    """One line from the hub.

    :ivar line: its bytes, without line feed.
    :ivar envelope: what it says, or None if it cannot be read.
    """

    line: bytes
    envelope: dict[str, Any] | None

    @property
    def type(self) -> str:
        """The line's type, empty if it cannot be read."""
        return str(self.envelope["type"]) if self.envelope else ""

    @property
    def payload(self) -> dict[str, Any]:
        """The line's payload, empty if it cannot be read."""
        return dict(self.envelope["payload"]) if self.envelope else {}


class HubConnection:
    """One connection of one session, over a socket that ``dial.connect`` gave.

    Not for use by several threads. ``features`` is what the hub granted, ``peers``
    who else was there at the welcome, ``hub`` its pid and version. A hub that names
    no protocol is an original one (``original``), and grants nothing.
    """

    def __init__(self, sock: socket.socket, paths: ChannelPaths, session: str) -> None:
        self.session = session
        self.features: frozenset[str] = frozenset()
        self.peers: list[str] = []
        self.hub: dict[str, Any] = {}
        self.original = False
        self._socket = sock
        self._socket.setblocking(False)
        self._paths = paths
        self._cutter = LineCutter(MAX_INPUT)
        self._lines: list[Received] = []
        self._ended = False

    def __enter__(self) -> HubConnection:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def fileno(self) -> int:
        """The socket's descriptor, for ``select`` and ``poll``."""
        return self._socket.fileno()

    def close(self) -> None:
        """End the connection. Idempotent; what was sent still arrives."""
        self._socket.close()

    def register(
        self,
        *,
        features: Sequence[str] = (),
        role: str | None = None,
        token: str | None = None,
        takeover: bool = False,
        timeout: float = WELCOME_TIMEOUT,
    ) -> None:
        """Claim the session and wait for the welcome.

        :param role: ``sender`` to speak beside another connection of the session.
        :param takeover: end another connection of it that showed the token, too.
        :raise HubUnavailable: no answer in time (``cause`` is ``silent``).
        :raise ConnectionLost: the hub hung up.
        :raise IntercomError: the claim is refused (``SESSION_COLLISION`` ...).
        """
        payload: dict[str, Any] = {"features": list(features)}
        if role is not None:
            payload["role"] = role
        if token is not None:
            payload["token"] = token
        if takeover:
            payload["takeover"] = True
        deadline = time.monotonic() + timeout
        message_id = self.say("register", payload, timeout=timeout)
        while True:
            received = self.receive(deadline - time.monotonic())
            if received is None:
                raise silent(self._paths, self.pid)
            if received.type == "welcome":
                return self._welcomed(received.payload)
            self._raise_if_refused(received, message_id)

    def _welcomed(self, payload: dict[str, Any]) -> None:
        """Remember what was granted."""
        self.original = "protocol" not in payload
        if not self.original:
            self.features = frozenset(_texts(payload.get("features")))
            hub = payload.get("hub")
            self.hub = hub if isinstance(hub, dict) else {}
        self.peers = _texts(payload.get("peers"))

    @property
    def outdated(self) -> str:
        """What to say of a hub that is older than this program, empty where it is not."""
        version = str(self.hub.get("version", ""))
        if not _numbers(version) or _numbers(version) >= _numbers(__version__):
            return ""
        return (
            f"the hub of channel {self._paths.name!r} ({version}, pid {self.pid}) is older than "
            f"this command ({__version__})\n  replace it: intercom --dir {self._paths.base} "
            f"--channel {self._paths.name} hub restart"
        )

    @property
    def pid(self) -> int | None:
        """The process that listens at the other end, None where the kernel cannot say."""
        credentials = peer_credentials(self._socket)
        if credentials is not None and credentials[0]:
            return credentials[0]
        from intercom.election.locks import leader  # where the kernel does not tell

        found: int | None = leader(self._paths).get("pid")
        return found

    def say(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        reply_to: str | None = None,
        timeout: float = SEND_TIMEOUT,
    ) -> str:
        """Send the hub a line of its own protocol; return the line's id."""
        message_id, line = line_to_hub(kind, payload, self.session, self._paths.name, reply_to)
        self.send_line(line, timeout)
        return message_id

    def send_line(self, line: bytes, timeout: float = SEND_TIMEOUT) -> None:
        """Write one line; what arrives meanwhile is kept.

        It reads while it writes, because an original hub waits for peers that do not.

        :raise ConnectionLost: the hub hung up, or took nothing for ``timeout`` seconds.
        :raise IntercomError: it hung up with a reason.
        """
        rest = memoryview(line + b"\n")
        deadline = time.monotonic() + timeout
        while rest:
            writable = self._wait(deadline - time.monotonic(), to_write=True)
            if writable is None:
                raise ConnectionLost(
                    f"the hub of channel {self._paths.name!r} takes no more input",
                    details={"cause": "silent"},
                )
            if writable:
                try:
                    rest = rest[self._socket.send(rest) :]
                    deadline = time.monotonic() + timeout
                except BlockingIOError:
                    continue
                except OSError as error:
                    self._fill()  # why, it may have said before
                    raise self._lost() from error
            if self._ended:
                raise self._lost()

    def finish(self) -> None:
        """Say that nothing more will be sent; what the hub still says can be received."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def receive(self, timeout: float) -> Received | None:
        """The next line, or None if none came within ``timeout`` seconds (0: do not wait).

        :raise ConnectionLost: the hub hung up, and all its lines were handed out.
        """
        deadline = time.monotonic() + timeout
        while not self._lines:
            if self._ended:
                raise self._lost()
            if self._wait(deadline - time.monotonic()) is None:
                return None
        return self._lines.pop(0)

    def answer_to(self, message_id: str, timeout: float) -> Received:
        """Wait for the hub's answer to a line; everything else that arrives is passed over.

        :raise ConnectionLost: none came in time, or the hub hung up or is about to.
        :raise IntercomError: the answer is an error.
        """
        deadline = time.monotonic() + timeout
        while True:
            received = self.receive(deadline - time.monotonic())
            if received is None:
                raise ConnectionLost(
                    f"the hub of channel {self._paths.name!r} did not answer within "
                    f"{timeout:.0f} s",
                    details={"cause": "silent", "pid": self.pid},
                )
            self._raise_if_refused(received, message_id)
            if received.envelope and received.envelope["reply_to"] == message_id:
                return received

    def _raise_if_refused(self, received: Received, message_id: str) -> None:
        """Raise an error line that answers ``message_id``, or that ends the connection."""
        if received.type == "error" and received.envelope:
            error = refusal(received.payload)
            about = received.envelope["reply_to"]
            if error.code == "SHUTTING_DOWN":
                raise ConnectionLost(error.text, details={"cause": "refused"})
            if about == message_id or error.code in CLOSING_CODES:
                raise error

    def _lost(self) -> IntercomError:
        """Why the connection ended: the hub's own last word if it said one."""
        for received in self._lines:
            if received.type == "error":
                error = refusal(received.payload)
                if error.code != "SHUTTING_DOWN":
                    return error
        return ConnectionLost(
            f"the hub of channel {self._paths.name!r} hung up", details={"cause": "refused"}
        )

    def _wait(self, timeout: float, to_write: bool = False) -> bool | None:
        """Wait until something can be done, and take in what has arrived.

        :return: None if nothing could be done in time, else whether writing will not block.
        """
        import select  # not before there is something to wait for

        poller = select.poll()
        poller.register(self._socket, select.POLLIN | (select.POLLOUT if to_write else 0))
        ready = poller.poll(max(0.0, timeout) * 1000)
        if not ready:
            return None
        events = ready[0][1]
        if events & ~select.POLLOUT:
            self._fill()
        return bool(events & select.POLLOUT)

    def _fill(self) -> None:
        """Take in what the kernel holds for us."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended = True
            return
        for line in self._cutter.feed(data):
            if line is None:
                self._lines.append(Received(b"", None))
            elif line:
                self._lines.append(read_line(line))


def _texts(found: object) -> list[str]:
    """The members of a list as texts; none, where a hub wrote something else."""
    return [str(one) for one in found] if isinstance(found, list) else []


def _numbers(version: str) -> list[int]:
    """The numbers that a version begins with, by which versions compare; empty if it has none."""
    numbers = []
    for part in version.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if digits:
            numbers.append(int(digits))
        if not digits or digits != part:
            break
    return numbers


def read_line(line: bytes) -> Received:
    """Parse a line from the hub."""
    with suppress(ProtocolError):
        found = envelope.parse(line, MAX_INPUT)
        if isinstance(found.get("payload"), dict):
            return Received(line, {"reply_to": None, "type": "", **found})
    return Received(line, None)


def refusal(payload: dict[str, Any]) -> IntercomError:
    """Make an exception of what an ``error`` line or a refusing receipt says."""
    known = {"code", "message"}
    return IntercomError(
        str(payload.get("message") or payload.get("code") or "the hub refused it"),
        code=str(payload.get("code") or "INTERNAL"),
        details={key: value for key, value in payload.items() if key not in known},
    )


def line_to_hub(
    kind: str, payload: dict[str, Any], session: str, channel: str, reply_to: str | None = None
) -> tuple[str, bytes]:
    """A line of the hub's own protocol, said now: its id, and its bytes."""
    message_id = new_id()
    line = envelope.make(
        type=kind,
        message_id=message_id,
        from_session=session,
        to_session="hub",
        channel=channel,
        payload=payload,
        timestamp=envelope.format_timestamp(time.time()),
        reply_to=reply_to,
    )
    return message_id, line


def new_id() -> str:
    """Draw a message id."""
    return envelope.format_id(os.urandom(6))
