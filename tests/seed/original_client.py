"""A stand-in for the original mesh's client, with its habits and its faults.

Standard library only, and written anew, after the protocol and what is known of the
program. It sends and closes without reading; where that fails it writes into the
recipient's inbox itself, under the same id and without a look at what is there; it
deletes a socket that refuses it; it rewrites small files in place.

    python original_client.py --dir BASE [--channel NAME] [options] VERB ...
        init [--project DIR] [--no-fresh]     send --session ME [--to ID] [--text TEXT]
        poll --session ME [--wait S] [--peek] listen --session ME [--no-fresh]
        peers                                 cleanup [--stale]

It starts no hub, but waits for one: for as long as the original waits for the one that
it has started, or for ``--patience SECONDS``. With ``--hold POINT:FILE`` it stops at a
point until that file exists (``FILE.reached`` says that it came there): ``unlink``,
before it deletes a socket that refused; ``append``, with half a line written under the
lock; ``reset``, with an emptied inbox and the old offset; ``offset``, with an emptied
offset file; ``chat``, welcomed, and about to send.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

import original_hub

CHUNK = 65536
#: The longest line that its reader of the welcome takes.
LIMIT = 65536
WELCOME_WITHIN = 2.0
#: Seconds that it gives a hub to come into being.
HUB_WITHIN = 1.5
ROSTER = ("nyota-uhura", "hoshi-sato", "seven-of-nine", "jadzia-dax", "kira-nerys")


class Client:
    """One invocation.

    :param patience: seconds for a hub to come into being.
    :param stop: the point at which to wait, and the file to wait for.
    """

    def __init__(
        self, base: str, channel: str, patience: float, stop: tuple[str, str] | None
    ) -> None:
        self._place = original_hub.Place(base, channel)
        self._patience = patience
        self._channel = channel
        self._stop = stop

    def _at(self, point: str) -> None:
        if self._stop is not None and self._stop[0] == point:
            original_hub.hold(self._stop[1])

    # -- the hub

    def _find_hub(self) -> None:
        """Probe the hub; take away a socket behind which nobody is, and wait for another."""
        path = self._place.socket
        if path.exists():
            with socket.socket(socket.AF_UNIX) as probe:
                try:
                    probe.connect(str(path))
                except (ConnectionRefusedError, FileNotFoundError):
                    self._at("unlink")
                    path.unlink(missing_ok=True)
                else:
                    return
        deadline = time.monotonic() + self._patience
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _envelope(self, kind: str, me: str, to: str, payload: dict[str, Any]) -> dict[str, Any]:
        envelope: dict[str, Any] = original_hub.make_envelope(kind, me, to, self._channel, payload)
        return envelope

    # -- verbs

    def init(self, project: str, fresh: bool) -> dict[str, Any]:
        """Take the project's name, or another if that one is said to be here."""
        file = Path(project) / ".intercom" / "session.json"
        session = self._project_name(file)
        self._find_hub()
        if fresh:
            self._place.inbox(session).open("w").close()  # emptied, and not even locked
            self._at("reset")
            self._put_offset(session, 0, reset_at=time.time())
        return {"status": "ready", "session_id": session, "inbox_reset": fresh}

    def _project_name(self, file: Path) -> str:
        active: set[str] = set()
        with contextlib.suppress(OSError, ValueError):
            active = set(json.loads(self._place.peers.read_text())["active_sessions"])
        with contextlib.suppress(OSError, ValueError):
            saved = json.loads(file.read_text()).get("session_id")
            if saved and saved not in active:
                return str(saved)
        session = next(name for name in ROSTER if name not in active)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(json.dumps({"session_id": session, "channel": self._channel}))
        return session

    def send(self, me: str, to: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Send a message: register, wait for the welcome, write, close."""
        self._find_hub()
        envelope = self._envelope("chat", me, to, payload)
        self._place.inbox(me).open("a").close()
        if not self._place.socket.exists():
            self._append(to, envelope)
            return {"status": "spooled_offline", "envelope": envelope}
        try:
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(self._place.socket))
                self._say(sock, self._envelope("register", me, "hub", {}))
                sock.settimeout(WELCOME_WITHIN)
                answer = self._read_answer(sock)
                if answer.get("payload", {}).get("code") == "SESSION_COLLISION":
                    return {"status": "error", "error": "SESSION_COLLISION"}
                sock.settimeout(None)
                self._at("chat")
                self._say(sock, envelope)
        except Exception as error:
            self._append(to, envelope)
            return {"status": "fallback_spooled", "error": str(error), "envelope": envelope}
        return {"status": "sent", "envelope": envelope}

    def _say(self, sock: socket.socket, envelope: dict[str, Any]) -> None:
        sock.sendall(json.dumps(envelope).encode() + b"\n")

    def _read_answer(self, sock: socket.socket) -> dict[str, Any]:
        """The first line, whatever it is; nothing that follows it is ever read."""
        data = b""
        while b"\n" not in data:
            if len(data) > LIMIT:
                break
            part = sock.recv(4096, socket.MSG_PEEK)
            if not part:
                return {}
            data += sock.recv(part.index(b"\n") + 1 if b"\n" in part else len(part))
        if len(data) > LIMIT:
            raise ValueError("the line is longer than the limit")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _append(self, session: str, envelope: dict[str, Any]) -> None:
        """Write a message into an inbox, whatever is there."""
        if self._stop is None or self._stop[0] != "append":
            self._place.append(session, envelope)
            return
        line = json.dumps(envelope, separators=(",", ":")) + "\n"
        with self._place.inbox(session).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(line[: len(line) // 2])
            file.flush()
            self._at("append")
            file.write(line[len(line) // 2 :])

    def poll(self, me: str, wait: float, peek: bool) -> dict[str, Any]:
        """Show what lies unread."""
        self._find_hub()
        self._place.inbox(me).open("a").close()
        deadline = time.monotonic() + wait
        while True:
            messages = self._read_unread(me, not peek)
            if messages or time.monotonic() >= deadline:
                return {"count": len(messages), "messages": messages}
            time.sleep(0.2)

    def _read_unread(self, me: str, commit: bool) -> list[Any]:
        """Read as text, to the end, over a torn line too; what is no JSON is passed over."""
        start = 0
        with contextlib.suppress(OSError, ValueError):
            start = json.loads(self._place.offset(me).read_text()).get("offset", 0)
        messages = []
        with self._place.inbox(me).open(encoding="utf-8") as file:  # a lone \r ends lines as well
            fcntl.flock(file, fcntl.LOCK_SH)
            file.seek(start)
            while line := file.readline():
                with contextlib.suppress(json.JSONDecodeError):
                    if line.strip():
                        messages.append(json.loads(line))
            end = file.tell()
        if commit and end != start:
            self._put_offset(me, end)
        return messages

    def _put_offset(self, me: str, offset: int, **more: float) -> None:
        """Rewrite the offset file in place, with nothing that others had added."""
        with self._place.offset(me).open("w") as file:
            self._at("offset")
            json.dump({"offset": offset, "updated_at": time.time(), **more}, file)

    def peers(self) -> dict[str, Any]:
        """Show the published list."""
        self._find_hub()
        listed: dict[str, Any] = {"active_sessions": []}
        if self._place.peers.exists():
            listed = json.loads(self._place.peers.read_text())
        return listed

    def cleanup(self, stale: bool) -> dict[str, Any]:
        """Remove everything, used or not; with ``stale`` a dead socket, and a lock that is free."""
        if not stale:
            for entry in self._place.directory.iterdir():
                with contextlib.suppress(OSError):
                    entry.unlink()
            return {"status": "cleaned"}
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._place.socket))
            except (ConnectionRefusedError, FileNotFoundError):
                self._place.socket.unlink(missing_ok=True)
        with contextlib.suppress(OSError), self._place.lock.open("r+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.close()
            self._place.lock.unlink(missing_ok=True)
        return {"status": "stale_cleaned"}

    def listen(self, me: str, fresh: bool) -> None:
        """Print what is pushed, for ever; come back at once whenever the hub hangs up."""
        self._find_hub()
        self._place.inbox(me).open("a").close()
        if fresh:
            self._put_offset(me, self._place.inbox(me).stat().st_size)
        self._print(self._read_unread(me, True))
        threading.Thread(target=self._take_orders, args=(me,), daemon=True).start()
        while True:
            try:
                if self._place.socket.exists():
                    self._hear(me)
                    continue
                time.sleep(0.5)
                self._print(self._read_unread(me, True))
            except OSError:
                time.sleep(1.0)

    def _hear(self, me: str) -> None:
        """One connection, to its end."""
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(str(self._place.socket))
            self._say(sock, self._envelope("announce", me, "hub", {}))
            rest = ""
            while data := sock.recv(CHUNK):
                *lines, rest = (rest + data.decode(errors="replace")).split("\n")
                for line in filter(None, map(str.strip, lines)):
                    envelope = json.loads(line)
                    if envelope.get("type") not in ("welcome", "heartbeat"):
                        self._print([envelope])

    def _print(self, messages: list[Any]) -> None:
        for message in messages:
            print(json.dumps(message), flush=True)

    def _take_orders(self, me: str) -> None:
        """Send what standard input says, over a connection of its own, which then collides."""
        for line in sys.stdin:
            with contextlib.suppress(ValueError):
                order = json.loads(line)
                payload = {**order.get("payload", {}), "text": order.get("text", "")}
                if order.get("action") == "send":
                    self.send(me, order.get("to", "*"), payload)


def main() -> None:
    """Do what the words say, and print the result as JSON; the status is always 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", required=True)
    parser.add_argument("--channel", default="default")
    parser.add_argument("--patience", type=float, default=HUB_WITHIN)
    parser.add_argument("--hold")
    verbs = parser.add_subparsers(dest="verb", required=True)
    verb = {
        name: verbs.add_parser(name)
        for name in ("init", "send", "poll", "listen", "peers", "cleanup")
    }
    for name in ("send", "poll", "listen"):
        verb[name].add_argument("--session", required=True)
    for name in ("init", "listen"):
        verb[name].add_argument("--no-fresh", dest="fresh", action="store_false")
    verb["init"].add_argument("--project", default=".")
    verb["send"].add_argument("--to", default="*")
    verb["send"].add_argument("--text", default="")
    verb["send"].add_argument("--json-payload", default="{}")
    verb["poll"].add_argument("--wait", type=float, default=0.0)
    verb["poll"].add_argument("--peek", action="store_true")
    verb["cleanup"].add_argument("--stale", action="store_true")
    words = parser.parse_args()
    point, _, file = (words.hold or "").partition(":")
    stop = (point, file) if words.hold else None
    client = Client(words.dir, words.channel, words.patience, stop)
    if words.verb == "listen":
        client.listen(words.session, words.fresh)
    do: dict[str, Any] = {
        "init": lambda: client.init(words.project, words.fresh),
        "send": lambda: client.send(
            words.session, words.to, json.loads(words.json_payload) | {"text": words.text}
        ),
        "poll": lambda: client.poll(words.session, words.wait, words.peek),
        "peers": client.peers,
        "cleanup": lambda: client.cleanup(words.stale),
    }
    print(json.dumps(do[words.verb]()))


if __name__ == "__main__":
    main()
