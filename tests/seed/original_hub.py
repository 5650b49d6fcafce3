"""A stand-in for the original mesh's hub, with its habits and its faults. Standard library only.

Written anew, after the protocol and what is known of the program. What it does worse
than ours is the point of it: it waits for readers that do not read, registers whatever
comes first, grants nothing, answers no mistake, and unlinks the lock file behind itself.

    python original_hub.py --dir BASE --channel NAME [--heard FILE] [--hold FILE]

``--heard`` keeps every line that a client sent, as it came; ``--hold`` makes the
shutdown stop between letting go of the lock and unlinking it until that file exists
(``FILE.reached`` says that it has come so far).
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import signal
import socket
import sys
import threading
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

CHUNK = 65536


class AnotherLeads(Exception):
    """Somebody else serves this channel; this one is to be a client."""


class Place:
    """The files of a channel, found and made as the original programs do."""

    def __init__(self, base: str, channel: str) -> None:
        clean = "".join(c for c in channel if c.isalnum() or c in "-_").lower() or "default"
        self.directory = Path(base) / clean
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.socket = self.directory / "hub.sock"
        self.lock = self.directory / "hub.lock"
        self.peers = self.directory / "peers.json"

    def inbox(self, session: object) -> Path:
        """A session's messages; its id is taken as it is."""
        return self.directory / f"inbox_{session}.ndjson"

    def offset(self, session: str) -> Path:
        """How far a session has read."""
        return self.directory / f"offset_{session}.json"

    def append(self, session: object, envelope: object) -> None:
        """Add a message to an inbox; it waits for the lock, and looks at nothing that is there."""
        with self.inbox(session).open("a", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(json.dumps(envelope, separators=(",", ":")) + "\n")


class Member:
    """One connection, and the thread that reads it."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.session: Any = None
        self._writing = threading.Lock()

    def write(self, envelope: object) -> None:
        """Write a line, for as long as that takes."""
        with self._writing:
            self.socket.sendall(json.dumps(envelope).encode() + b"\n")

    def has_left(self) -> bool:
        """Whether its end was seen, which unread input hides."""
        try:
            return not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True


class Hub:
    """Serves one channel until it is told to stop.

    :param heard: where the lines of clients are kept, or None.
    :param hold: see the module.
    """

    def __init__(self, place: Place, channel: str, heard: str | None, hold: str | None) -> None:
        self._place = place
        self._channel = channel
        self._heard = heard
        self._hold = hold
        self._members: dict[Any, Member] = {}
        self._guard = threading.RLock()
        self._lock_fd = -1
        self._listener = socket.socket(socket.AF_UNIX)

    def lead(self) -> None:
        """Take the lock, then the socket's place."""
        self._lock_fd = os.open(self._place.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AnotherLeads("the lock is held") from None
        if self._place.socket.exists():
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(self._place.socket))
                except (ConnectionRefusedError, FileNotFoundError):
                    self._place.socket.unlink(missing_ok=True)
                else:
                    raise AnotherLeads("the socket answers")
        self._listener.bind(str(self._place.socket))  # from here on it refuses ...
        self._listener.listen(100)  # ... and from here on it does not
        self._publish()

    def serve(self) -> None:
        """Take connections for ever."""
        while True:
            sock, _address = self._listener.accept()
            threading.Thread(target=self._attend, args=(Member(sock),), daemon=True).start()

    def leave(self) -> None:
        """Take away socket, list, lock and the lock's file, whosever that is by now."""
        self._place.socket.unlink(missing_ok=True)
        self._place.peers.unlink(missing_ok=True)
        os.close(self._lock_fd)
        hold(self._hold)
        self._place.lock.unlink(missing_ok=True)

    def _publish(self) -> None:
        """Write who is here."""
        with self._guard:
            listed = {
                "channel": self._channel,
                "hub_pid": os.getpid(),
                "active_sessions": list(self._members),
                "updated_at": datetime.now(UTC).isoformat(),
            }
            temporary = self._place.peers.with_suffix(".tmp")
            temporary.write_text(json.dumps(listed, indent=2))
            temporary.replace(self._place.peers)

    def _attend(self, member: Member) -> None:
        """Read one connection to its end; a line that is no object ends it."""
        rest = ""
        try:
            while data := member.socket.recv(CHUNK):
                *lines, rest = (rest + data.decode(errors="replace")).split("\n")
                for line in filter(None, map(str.strip, lines)):
                    with contextlib.suppress(json.JSONDecodeError):
                        self._hear(member, json.loads(line), line)
        except (OSError, EOFError, AttributeError, TypeError, RecursionError):
            pass
        finally:
            with self._guard:
                if self._members.get(member.session) is member:
                    del self._members[member.session]
                    self._publish()
            member.socket.close()

    def _hear(self, member: Member, envelope: dict[str, Any], line: str) -> None:
        """Deal with one line, whoever it says that it comes from."""
        if self._heard is not None:
            with self._guard, open(self._heard, "a", encoding="utf-8") as file:
                file.write(line + "\n")
        kind, sender = envelope.get("type"), envelope.get("from_session", "unknown")
        if kind in ("register", "announce") or member.session is None:
            self._register(member, sender)
        if kind == "chat":
            self._route(sender, envelope.get("to_session", "*"), envelope)

    def _register(self, member: Member, session: Any) -> None:
        """Enter a session; the name that a connection had before stays entered, too."""
        with self._guard:
            holder = self._members.get(session)
            taken = holder is not None and holder is not member and not holder.has_left()
            if not taken:
                member.session = session
                self._members[session] = member
                self._place.inbox(session).open("a").close()
                self._publish()
            peers = list(self._members)
        if taken:
            words = f"{session} is connected already"
            fault = {"code": "SESSION_COLLISION", "message": words}
            member.write(self._envelope("error", session, fault))
            raise EOFError
        member.write(self._envelope("welcome", session, {"peers": peers, "status": "connected"}))

    def _route(self, sender: Any, to: Any, envelope: dict[str, Any]) -> None:
        """Store a message for each recipient, then write it to who is connected, and wait."""
        with self._guard:
            everybody = [name for name in self._members if name != sender]
        for session in everybody if to in ("*", "all") else [to]:
            self._place.append(session, envelope)
            member = self._members.get(session)
            if member is not None:
                with contextlib.suppress(OSError):
                    member.write(envelope)

    def _envelope(self, kind: str, to: object, payload: dict[str, Any]) -> dict[str, Any]:
        return make_envelope(kind, "hub", to, self._channel, payload)


def make_envelope(
    kind: str, sender: str, to: object, channel: str, payload: dict[str, Any]
) -> dict[str, Any]:
    """A line of the original protocol: these fields, and in this order."""
    return {
        "id": "msg_" + uuid.uuid4().hex[:12],
        "type": kind,
        "from_session": sender,
        "to_session": to,
        "channel": channel,
        "reply_to": None,
        "payload": payload,
        "timestamp": datetime.now(UTC).isoformat(),
    }


def hold(path: str | None, seconds: float = 60.0) -> None:
    """Wait at this point until a file exists, if one is named; for tests of races."""
    if path is not None:
        Path(path + ".reached").touch()
        deadline = time.monotonic() + seconds
        while not os.path.exists(path) and time.monotonic() < deadline:
            time.sleep(0.005)


def main() -> None:
    """Lead the channel, or say that another does and end well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", default="default")
    parser.add_argument("--heard")
    parser.add_argument("--hold")
    words = parser.parse_args()
    hub = Hub(Place(words.dir, words.channel), words.channel, words.heard, words.hold)

    def end(*_: object) -> None:
        hub.leave()
        os._exit(0)

    try:
        hub.lead()
    except AnotherLeads as reason:
        print(f"not leading: {reason}", file=sys.stderr)
        return
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    hub.serve()


if __name__ == "__main__":
    main()
