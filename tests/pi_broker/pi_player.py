"""What the players of golden transcripts have in common; see ``pi_transcripts``."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pi_broker_process import BrokerProcess
from pi_connection import Ended
from pi_frames_client import message

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
#: Inputs that wait for the hub, which then may take its time.
_WAITING = re.compile(r"(restart|kill|wait .*|\w+ hears .*)$")
_TIME = re.compile(r"(?<![\w.-])\d{13}(?![\w.])")
#: How far a time of the hub may be from ours; both read the same clock, which may be set.
_SLACK_MS = 120_000
#: Shorter than anything that the hub waits for. What is said within it is said at once.
AT_ONCE_S = 0.9
#: How often a transcript is played on a machine that is too busy to say at once what has to be.
TRIES = 10
#: Transcripts that are played while one is looked at.
AHEAD = 6


class Names:
    """Stable names for what is new at each run.

    :param later: how far from now a time may be that has a name, in ms.
    """

    def __init__(self, *later: int) -> None:
        self._later = (0, *later)
        self._uuids: dict[str, str] = {}

    def hide(self, text: str) -> str:
        text = _UUID.sub(lambda found: self._name(found[0]), text)
        return _TIME.sub(lambda found: self._time(found[0]), text)

    def show(self, text: str) -> str:
        for uuid, name in self._uuids.items():
            text = text.replace(name, uuid)
        return text

    def _name(self, uuid: str) -> str:
        return self._uuids.setdefault(uuid, f"<uuid {len(self._uuids) + 1}>")

    def _time(self, said: str) -> str:
        for later in self._later:
            if abs(int(said) - later - time.time() * 1000) < _SLACK_MS:
                return f"<now+{later}>" if later else "<now>"
        return said


class Player:
    """Runs one transcript against a broker.

    :ivar slowest: the longest time, in seconds, in which nobody was to wait for the hub.
    """

    #: How a line begins that is not an input.
    output: re.Pattern[str]

    def __init__(self, broker: BrokerProcess, names: Names) -> None:
        self.broker = broker
        self.names = names
        self.people: dict[str, Any] = {}
        self.closed: set[str] = set()
        self.pending: dict[str, list[Any]] = {}
        self.lines: list[str] = []
        self.barriers = 0
        self.slowest = 0.0

    def run(self, text: str) -> str:
        """Carry out the inputs; the whole transcript as it has become."""
        began = time.monotonic()
        try:
            for line in text.removesuffix("\n").split("\n"):
                if self.output.match(line):
                    continue
                self.lines.append(line)
                if line and not line.startswith("#"):
                    self._input(self.names.show(line))
                if _WAITING.match(line):
                    began = time.monotonic()
                self.slowest = max(self.slowest, time.monotonic() - began)
        finally:
            self._close_all()
        assert not self.pending, "something was not sent"
        return "\n".join(self.lines) + "\n"

    def _close_all(self) -> None:
        for client in self.people.values():
            client.close()

    # -- inputs

    def _input(self, line: str) -> None:
        who, _, said = line.partition(" ")
        if who in ("restart", "kill"):
            self.broker.restart(signal.SIGTERM if who == "restart" else signal.SIGKILL)
            self._close_all()
            self.people.clear()
            self.closed.clear()
        elif who == "wait":
            time.sleep(int(said) / 1000)
            self._waited()
        elif who == "files":
            self._files(said)
        elif said == "hangs up":
            self.people[who].socket.shutdown(socket.SHUT_WR)
            self._hung_up(who)
        elif said.startswith(">> "):
            self.pending.setdefault(who, []).append(self._frame(who, said[3:]))
        else:
            assert said.startswith("> "), line
            self._say(who, self._frame(who, said[2:]))
            self._settle(who)

    def _waited(self) -> None:
        """Time has passed."""

    def _hung_up(self, who: str) -> None:
        """One says no more."""
        raise NotImplementedError

    def _files(self, name: str) -> None:
        """Show a directory."""
        raise NotImplementedError

    def _frame(self, who: str, said: str) -> Any:
        """What the short forms stand for that all have."""
        word, _, rest = said.partition(" ")
        if word == "send":
            to, message_id, *others = rest.split(" ", 2)
            fields = json.loads(others[0]) if others else {}
            return {"type": "send", "to": to, "message": message(message_id, **fields)}
        if word == "receipt":
            message_id, status = rest.split(" ")
            receipt = {"messageId": message_id, "status": status, "timestamp": 6}
            return {"type": "message_receipt", "receipt": receipt}
        return json.loads(said)

    def _say(self, who: str, frame: Any) -> None:
        if who not in self.people or who in self.closed:
            self.closed.discard(who)
            self.people[who] = self._connect(who)
        self.people[who].write(*self.pending.pop(who, []), frame)

    def _connect(self, who: str) -> Any:
        raise NotImplementedError

    # -- what follows

    def _settle(self, first: str) -> None:
        """Wait until the hub has said all that it says, to the speaker first, and show it."""
        raise NotImplementedError

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


def play(path: Path, prefix: str, player: Callable[[BrokerProcess], Player]) -> str:
    """A transcript as it becomes with a broker of its own.

    Where the hub may have waited long enough before all was said, it is played once more.
    """
    recorded = path.read_text()
    for _ in range(TRIES):
        found, slowest = _play_once(recorded, prefix, player)
        if found == recorded or slowest < AT_ONCE_S:
            break
    return found


def _play_once(
    recorded: str, prefix: str, player: Callable[[BrokerProcess], Player]
) -> tuple[str, float]:
    """What becomes of a transcript, and how long it took to say what is to be said at once."""
    root = Path(tempfile.mkdtemp(prefix=prefix, dir="/tmp"))
    broker = BrokerProcess(root)
    try:
        try:
            playing = player(broker.start())
            return playing.run(recorded), playing.slowest
        finally:
            broker.finish()
    except Exception as error:
        error.add_note(f"standard error of the broker:\n{broker.words()}")
        raise
    finally:
        shutil.rmtree(root)


class Plays:
    """What becomes of transcripts, some of which are played while another is looked at.

    They wait more than they do anything, and each has a broker of its own.

    :param paths: all of them, in the order in which they are asked for.
    """

    def __init__(
        self, paths: list[Path], played: Callable[[Path], str], pool: ThreadPoolExecutor
    ) -> None:
        self._paths = paths
        self._played = played
        self._pool = pool
        self._begun: dict[Path, Future[str]] = {}

    def __getitem__(self, path: Path) -> str:
        at = self._paths.index(path)
        for one in self._paths[at : at + 1 + AHEAD]:
            if one not in self._begun:
                self._begun[one] = self._pool.submit(self._played, one)
        return self._begun[path].result()


def plays_of(test: str, here: str, played: Callable[[Path], str]) -> Any:
    """A fixture: what becomes of the transcripts that are asked for.

    :param test: the name of the test that asks for them, below the directory ``here``.
    """

    @pytest.fixture(scope="session")
    def plays(request: pytest.FixtureRequest) -> Iterator[Plays]:
        wanted: list[Any] = [
            item.callspec.params["path"]
            for item in request.session.items
            if isinstance(item, pytest.Function)
            and item.originalname == test
            and str(item.path).startswith(here)
        ]
        with ThreadPoolExecutor(3) as pool:
            yield Plays(wanted, played, pool)

    return plays
