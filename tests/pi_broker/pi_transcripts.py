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

import json
import os
import re
from pathlib import Path
from typing import Any

from pi_broker_process import BrokerProcess
from pi_frames_client import PiClient, register_frame
from pi_player import Names, Player, play

_OF_A_TARGET = ("targetId", "targetEpoch")


class PlacedNames(Names):
    """With one for the directory of a test.

    :param ask_ms: how long the broker keeps an ask.
    """

    def __init__(self, directory: str, ask_ms: int) -> None:
        super().__init__(ask_ms)
        self._directory = directory

    def hide(self, text: str) -> str:
        return super().hide(text.replace(self._directory, "<dir>"))

    def show(self, text: str) -> str:
        return super().show(text).replace("<dir>", self._directory)


class Transcript(Player):
    """Runs one transcript against a broker."""

    output = re.compile(r"(\w+ (< |is closed$)|= |\| )")

    def __init__(self, broker: BrokerProcess, ask_ms: int = 600_000) -> None:
        super().__init__(broker, PlacedNames(str(broker.root), ask_ms))

    # -- inputs

    def _hung_up(self, who: str) -> None:
        self._settle(who)

    def _frame(self, who: str, said: str) -> Any:
        word, _, rest = said.partition(" ")
        if word == "register":
            more = json.loads(rest) if rest else {}
            frame = {**register_frame(who), **more}
            frame["session"] = {**register_frame()["session"], **more.get("session", {})}
            return {name: value for name, value in frame.items() if value is not None}
        if word == "list":
            return {"type": "list", "requestId": "r"}
        frame = super()._frame(who, said)
        if word == "send":
            said_of = frame["message"]
            exact = {name: said_of.pop(name) for name in _OF_A_TARGET if name in said_of}
            return {**frame, **exact}
        return frame

    def _connect(self, who: str) -> PiClient:
        return self.broker.connect()

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
    return play(path, "pb-", Transcript)
