"""Golden transcripts over real sockets with clients of both pi kinds.

First it is said who is who, then come inputs, one a line::

    wu is a pi-subagents client        ; or: an older pi-subagents client, a pi-intercom client
    wu > {...}         wu says a frame; the first time, it connects before that
    wu >> {...}        the same, but it leaves in one write with what wu says next
    wu > register {}   short for a register as wu-session (a pi-intercom client: as wu); the
                       object is of the session, and null takes a key away
    wu > send vi-session m1 {}   short for a message; the object's keys are the message's
    wu > list          ; wu > list in parts, wu > list in parts {"action": ...} with a change
    wu > receipt m1 injected     a pi-intercom client has received a message
    wu hears text of m1          a message with this text has to come to wu; with ``, and``
                       behind it what follows is shown below the next line
    wu hangs up        wu says no more and waits for the end
    wu is left alone   wu waits until the hub ends it
    wait 1900          milliseconds pass, in which there is nothing to wait for
    restart            the broker is ended and started again; ``kill``: the same with SIGKILL
    files pending-asks shows the names of the files of a directory of pi-intercom's

What follows an input stands below it, connection by connection: ``wu < {...}`` is a frame as
it came, ``wu is closed``. What is new at each run has a stable name: ``<uuid 1>`` (numbered by
first appearance), ``<epoch 1>`` likewise, and ``<now>`` for times of the broker's clock in ms.
Inputs may use the names of uuids.

After each input every session asks who is here and waits for the answer, which is not shown:
what the hub says to an input is there by then. A transcript is written anew, and is to be read
by somebody then, when the tests run with PI_MESH_TRANSCRIPTS=write.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mesh_subagents_client import SubagentsClient, register_frame
from pi_broker_process import BrokerProcess
from pi_connection import Ended
from pi_frames_client import PiClient
from pi_frames_client import register_frame as intercom_register
from pi_player import Names, Player, play

Client = SubagentsClient | PiClient
KINDS = {
    "is a pi-subagents client": "new",
    "is an older pi-subagents client": "old",
    "is a pi-intercom client": "intercom",
}
_EPOCH = re.compile(r'(?<="endpointEpoch":")[^"]+')


class MeshNames(Names):
    """With those of epochs."""

    def __init__(self) -> None:
        super().__init__()
        self._epochs: dict[str, str] = {}

    def hide(self, text: str) -> str:
        return super().hide(_EPOCH.sub(lambda found: self._epoch(found[0]), text))

    def _epoch(self, epoch: str) -> str:
        return self._epochs.setdefault(epoch, f"<epoch {len(self._epochs) + 1}>")


class Transcript(Player):
    """Runs one transcript against a broker."""

    output = re.compile(r"(\w+ (< |is closed$)|= )")

    def __init__(self, broker: BrokerProcess) -> None:
        super().__init__(broker, MeshNames())
        self.kinds: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.heard: dict[str, set[str]] = {}
        self.requests = 0

    # -- inputs

    def _input(self, line: str) -> None:
        who, _, said = line.partition(" ")
        if said in KINDS:
            self.kinds[who] = KINDS[said]
        elif said == "is left alone":
            self.people[who].write(*self.pending.pop(who, []))
            self._end(who)
        elif said.startswith("hears "):
            text = said[6:].removesuffix(", and")
            if text not in self.heard.get(who, ()):
                self._await(who, lambda one: _text_of(one) == text)
            if text == said[6:]:
                self._settle("")
        else:
            super()._input(line)

    def _waited(self) -> None:
        self._settle("")

    def _hung_up(self, who: str) -> None:
        self._end(who)

    def _files(self, name: str) -> None:
        found = (self.broker.directory / name).iterdir()
        self.lines += [f"= {one}" for one in sorted(self.names.hide(one.name) for one in found)]

    def _frame(self, who: str, said: str) -> Any:
        word, _, rest = said.partition(" ")
        if word == "register":
            more = json.loads(rest) if rest else {}
            if self.kinds[who] == "intercom":
                frame = intercom_register(who, session=more)
            else:
                frame = register_frame(f"{who}-session", self.kinds[who] == "new", **more)
            session = {name: one for name, one in frame["session"].items() if one is not None}
            return {**frame, "session": session}
        if word == "list":
            self.requests += 1
            asked: dict[str, Any] = {"type": "list", "requestId": f"r{self.requests}"}
            if rest.startswith("in parts"):
                asked["stream"] = True
            change = rest.removeprefix("in parts").strip()
            return {**asked, "change": json.loads(change)} if change else asked
        return super()._frame(who, said)

    def _say(self, who: str, frame: Any) -> None:
        super()._say(who, frame)
        if frame == {"type": "unregister"}:  # no question is answered after it
            for other in self.people.keys() - self.closed - {who}:
                left = {"type": "session_left", "sessionId": self.ids[who]}
                self._await(other, left.__eq__)

    def _await(self, who: str, wanted: Callable[[Any], bool]) -> None:
        """Wait until a frame has come, and keep it."""
        client = self.people[who]
        while not any(map(wanted, client.arrived)):
            client._receive()

    def _connect(self, who: str) -> Client:
        kind = self.kinds[who]
        if kind == "intercom":
            return PiClient(self.broker.socket)
        return SubagentsClient(self.broker.subagents_socket, topics=kind == "new")

    # -- what follows

    def _end(self, who: str) -> None:
        client = self.people[who]
        try:
            while True:
                client._receive()
        except Ended:
            self.closed.add(who)
        self._settle("")

    def _settle(self, first: str) -> None:
        """Wait until the hub has said all that it says, to the speaker first, and show it."""
        here = [who for who in self.people if who not in self.closed]
        for who in sorted(here, key=lambda who: who != first):
            if self.people[who].joined:
                self._hear_out(who)
        for who, client in self.people.items():
            for frame in client.arrived:
                if frame["type"] == "registered":
                    self.ids[who] = frame["sessionId"]
                self.heard.setdefault(who, set()).add(_text_of(frame))
            self.lines += [f"{who} < {self.names.hide(text)}" for text in client.texts]
            client.arrived.clear()
            client.texts.clear()
        for who in sorted(self.closed & self.people.keys()):
            self.lines.append(f"{who} is closed")
            self.people.pop(who).close()


def _text_of(frame: Any) -> str:
    """What a message says, nothing for another frame."""
    return str(frame["message"]["content"]["text"]) if frame["type"] == "message" else ""


def played(path: Path) -> str:
    """A transcript as it becomes with a broker of its own."""
    return play(path, "pm-", Transcript)
