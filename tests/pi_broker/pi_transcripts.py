"""Golden transcripts over real sockets: what connections say, and all that the hub answers.

Inputs, one a line::

    ada > {...}        ada says a frame; the first time, it connects before that
    ada >> {...}       the same, but it leaves in one write with what ada says next
    ada > register {}  short for a register as ada; keys given are added, null takes one away
    ada > send bob m1 {}   short for a message; keys are the message's, or of an exact target
    ada > receipt m1 injected   ; ada > list
    ada hangs up       ada says no more and waits for the end
    wait 1100          milliseconds pass
    files pending-asks  shows the files of a directory of pi-intercom's
    restart            the broker is ended and started again; ``kill``: the same with SIGKILL

What follows an input stands below it, connection by connection: ``bob < {...}`` is a frame as
it came, ``bob is closed``, and for files ``= name mode`` and ``| line``. What is new at each run
has a stable name: ``<uuid 1>`` (numbered by first appearance), ``<now>`` and ``<now+10>`` for
times of the broker's clock in ms, ``<dir>`` for the test's directory. Inputs may use those names
(not the times).

After each input every connection asks something more and waits for the answer, which is not
shown: what the hub says to an input is there by then. A transcript is written anew, and is to
be read by somebody then, when the tests run with PI_BROKER_TRANSCRIPTS=write.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import time
from pathlib import Path
from typing import Any

from pi_broker_process import BrokerProcess
from pi_frames_client import Ended, Frame, PiClient, message, register_frame

_OUTPUT = re.compile(r"(\w+ (< |is closed$)|= |\| )")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_TIME = re.compile(r"(?<![\w.-])\d{13}(?![\w.])")
#: How far a time of the hub may be from ours; both read the same clock, which may be set.
_SLACK_MS = 120_000
_OF_A_TARGET = ("targetId", "targetEpoch")


class Names:
    """Stable names for what is new at each run."""

    def __init__(self, directory: str, ask_ms: int) -> None:
        self._directory = directory
        self._ask_ms = ask_ms
        self._uuids: dict[str, str] = {}

    def hide(self, text: str) -> str:
        text = text.replace(self._directory, "<dir>")
        text = _UUID.sub(lambda found: self._name(found[0]), text)
        return _TIME.sub(lambda found: self._time(int(found[0])), text)

    def show(self, text: str) -> str:
        for uuid, name in self._uuids.items():
            text = text.replace(name, uuid)
        return text.replace("<dir>", self._directory)

    def _name(self, uuid: str) -> str:
        return self._uuids.setdefault(uuid, f"<uuid {len(self._uuids) + 1}>")

    def _time(self, said: int) -> str:
        for later in (0, self._ask_ms):
            if abs(said - later - time.time() * 1000) < _SLACK_MS:
                return f"<now+{later}>" if later else "<now>"
        return str(said)


class Transcript:
    """Runs one transcript against a broker."""

    def __init__(self, broker: BrokerProcess, ask_ms: int = 600_000) -> None:
        self.broker = broker
        self.names = Names(str(broker.root), ask_ms)
        self.people: dict[str, PiClient] = {}
        self.closed: set[str] = set()
        self.pending: dict[str, list[Frame]] = {}
        self.lines: list[str] = []
        self.barriers = 0

    def run(self, text: str) -> str:
        """Carry out the inputs; the whole transcript as it has become."""
        for line in text.removesuffix("\n").split("\n"):
            if _OUTPUT.match(line):
                continue
            self.lines.append(line)
            if line and not line.startswith("#"):
                self._input(self.names.show(line))
        assert not self.pending, "something was not sent"
        return "\n".join(self.lines) + "\n"

    # -- inputs

    def _input(self, line: str) -> None:
        who, _, said = line.partition(" ")
        if who in ("restart", "kill"):
            self.broker.restart(signal.SIGTERM if who == "restart" else signal.SIGKILL)
            self.people.clear()
            self.closed.clear()
        elif who == "wait":
            time.sleep(int(said) / 1000)
        elif who == "files":
            self._files(said)
        elif said == "hangs up":
            self.people[who].socket.shutdown(socket.SHUT_WR)
            self._settle(who)
        elif said.startswith(">> "):
            self.pending.setdefault(who, []).append(self._frame(who, said[3:]))
        else:
            assert said.startswith("> "), line
            self._say(who, self._frame(who, said[2:]))
            self._settle(who)

    def _frame(self, who: str, said: str) -> Any:
        word, _, rest = said.partition(" ")
        if word == "register":
            more = json.loads(rest) if rest else {}
            frame = {**register_frame(who), **more}
            frame["session"] = {**register_frame()["session"], **more.get("session", {})}
            return {name: value for name, value in frame.items() if value is not None}
        if word == "send":
            to, message_id, *others = rest.split(" ", 2)
            fields = json.loads(others[0]) if others else {}
            exact = {name: fields.pop(name) for name in _OF_A_TARGET if name in fields}
            return {"type": "send", "to": to, "message": message(message_id, **fields), **exact}
        if word == "receipt":
            message_id, status = rest.split(" ")
            said_of = {"messageId": message_id, "status": status, "timestamp": 6}
            return {"type": "message_receipt", "receipt": said_of}
        if word == "list":
            return {"type": "list", "requestId": "r"}
        return json.loads(said)

    def _say(self, who: str, frame: Frame) -> None:
        if who not in self.people or who in self.closed:
            self.closed.discard(who)
            self.people[who] = self.broker.connect()
        self.people[who].write(*self.pending.pop(who, []), frame)

    # -- what follows

    def _settle(self, first: str) -> None:
        """Wait until the hub has said all that it says, to the speaker first, and show it."""
        here = [who for who in self.people if who not in self.closed]
        for who in sorted(here, key=lambda who: who != first):
            self._hear_out(who)
        for who in here:
            client = self.people[who]
            self.lines += [f"{who} < {self.names.hide(text)}" for text in client.texts]
            client.arrived.clear()
            client.texts.clear()
            if who in self.closed:
                self.lines.append(f"{who} is closed")
                client.close()

    def _hear_out(self, who: str) -> None:
        """Read until a question is answered that was put after all else, or until the end."""
        client = self.people[who]
        self.barriers += 1
        question = {"requestId": f"barrier {self.barriers}"}
        kind = "sessions" if client.joined else "health_ok"
        with contextlib.suppress(OSError):  # it ended, or we say no more
            client.write({"type": "list" if kind == "sessions" else "health", **question})
        try:
            client.take(kind, **question)
        except Ended:
            self.closed.add(who)

    def _files(self, name: str) -> None:
        directory = self.broker.directory / name
        self.lines.append(f"= {name} {_mode(directory)}")
        for path in sorted(directory.iterdir()):
            self.lines.append(f"= {name}/{self.names.hide(path.name)} {_mode(path)}")
            text = path.read_text()
            assert text.endswith("\n") or path.parent.name != "pending-asks", text
            self.lines += [
                f"| {self.names.hide(line)}" for line in text.removesuffix("\n").split("\n")
            ]


def _mode(path: Path) -> str:
    return f"{os.lstat(path).st_mode & 0o7777:04o}"


def played(path: Path) -> str:
    """A transcript as it becomes with a broker of its own."""
    root = Path(tempfile.mkdtemp(prefix="pb-", dir="/tmp"))
    broker = BrokerProcess(root)
    try:
        try:
            return Transcript(broker.start()).run(path.read_text())
        finally:
            broker.finish()
    except Exception as error:
        error.add_note(f"standard error of the broker:\n{broker.words()}")
        raise
    finally:
        shutil.rmtree(root)
