"""The agents of a simulation, and what they are owed: each line that they hear is judged."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from sim_hub import SimHub, SimTransport, past_of, stored_lines
from sim_story import Story

from intercom.records import Position
from intercom.wire.envelope import in_ascii

NAMES = ("ada", "bob", "eve", "joe")
#: Codes that say nothing of the message under this id: another had it, or the connection goes.
UNDECIDED = ("MESSAGE_ID_REUSE", "SHUTTING_DOWN", "TOO_MANY_SESSIONS")


class Sent:
    """One message of an agent.

    :ivar tries: connections on which it was sent (numbers); 0 stands for the inbox file.
    :ivar state: ``unknown``, ``stored`` or ``refused``, as its sender was told last.
    """

    def __init__(self, sender: str, message_id: str, to: str, line: bytes, number: int) -> None:
        self.sender = sender
        self.message_id = message_id
        self.to = to
        self.line = line
        self.number = number
        self.tries: list[int] = []
        self.state = "unknown"
        self.level = ""
        self.holders: set[str] = set()


class Connection:
    """An agent's end of one connection.

    :ivar upward: bytes on their way to the hub.
    :ivar pushed: lines pushed since the last cursor.
    """

    def __init__(
        self, number: int, transport: SimTransport, features: list[str], stored: Position
    ) -> None:
        self.number = number
        self.transport = transport
        self.features = features
        self.stored = stored
        self.upward = bytearray()
        self.pushed: list[bytes] = []
        self.last: tuple[int, int] = (0, -1)
        self.cursor: Position | None = None
        self.rest = b""
        self.welcome = False
        self.stalled = False
        self.over = False
        self.progress: Counter[tuple[str, str, str]] = Counter()


class Agent:
    """A session: what it sent, and its connection."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connection: Connection | None = None
        self.sent: dict[str, Sent] = {}


class Witness:
    """Judges what agents hear by what stands in the inboxes, as it is heard.

    :ivar hub: the one that lives now.
    :ivar counts: how often what happened.
    :ivar story: what agents saw, for the checker.
    :ivar messages: every message by its sender and id.
    :ivar positions: how far each inbox was read, ever.
    """

    hub: SimHub

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.story = Story()
        self.messages: dict[tuple[str, str], Sent] = {}
        self.positions: dict[str, list[Position]] = {name: [Position(1, 0)] for name in NAMES}
        self._time = 0

    def now(self) -> int:
        """A time that never stands still, for the story."""
        self._time += 1
        return self._time

    # -- what agents hear --------------------------------------------------------------------

    def _heard(self, agent: Agent, connection: Connection, line: bytes) -> None:
        said = json.loads(line)
        kind = said["type"]
        self.counts[f"heard {kind}"] += 1
        assert set(said) >= {"id", "type", "from_session", "to_session", "channel", "payload"}
        if kind == "chat":
            self._got(agent, connection, line, said)
        elif kind == "receipt":
            self._receipt(agent, connection, said["reply_to"], said["payload"])
        elif kind == "cursor":
            payload = said["payload"]
            self._caught_up(agent, connection, Position(payload["generation"], payload["offset"]))
        elif kind == "welcome":
            assert not connection.welcome or not connection.over
            connection.welcome = True
            assert set(said["payload"]["features"]) <= set(connection.features)
            connection.features = said["payload"]["features"]
        elif kind == "error":
            self._error(agent, said["reply_to"], said["payload"]["code"])
        else:
            assert kind in ("heartbeat", "sessions"), kind

    def _got(self, agent: Agent, connection: Connection, line: bytes, said: dict[str, Any]) -> None:
        """A pushed message: one that was sent, byte for byte, in the file's order."""
        assert connection.welcome, "a message before the welcome"
        key = (said["from_session"], said["id"])
        if key in self.messages:
            sent = self.messages[key]
            expected = sent.line if connection.features else in_ascii(sent.line)
            assert line == expected, (line, expected)
            assert sent.to in ("*", agent.name), f"{key} was for {sent.to}, not {agent.name}"
            assert sent.to != "*" or sent.sender != agent.name, "a broadcast came back"
        else:
            assert said["from_session"] == "hub", f"nobody sent {line!r}"
        places = self._places(agent.name, key, whole=True)
        assert places, f"{key} was pushed to {agent.name}, and is not in its inbox"
        later = [place for place in places if place > connection.last]
        assert later, f"{key} came again, or out of order: {places} after {connection.last}"
        connection.last = later[0]
        connection.pushed.append(line)
        self.counts["delivered"] += 1
        self.story.poll(agent.name, f"connection {connection.number}", self.now(), [(None, line)])

    def _caught_up(self, agent: Agent, connection: Connection, position: Position) -> None:
        """A cursor: what was pushed is exactly what stands between the last one and this."""
        assert "cursor" in connection.features
        lines = self._lines(agent.name, position.generation)
        before = connection.cursor
        pushed, connection.pushed = connection.pushed, []
        connection.cursor = position
        if before is None:
            there = [line for line in lines if line[0] < position.offset]
            earlier = len(there) - len(pushed)
            assert [line for _start, _end, line in there[earlier:]] == pushed, (there, pushed)
            # It began anywhere behind the message before these, and before the first of them.
            low = Position(position.generation, there[earlier - 1][1] if earlier else 0)
            high = Position(position.generation, there[earlier][0] if pushed else position.offset)
            now, first = self._inbox(agent.name).position, connection.stored
            anew = first.generation != position.generation or not earlier
            assert anew or (low <= now and first <= high), (first, now, low, high)
            return
        assert position > before, (before, position)
        since = before
        for generation in range(before.generation, position.generation):
            cut = past_of(self._inbox(agent.name))[generation][1]
            since = Position(generation + 1, max(0, since.offset - cut))
        expected = [line for start, _end, line in lines if since.offset <= start < position.offset]
        assert pushed == expected, f"{agent.name} got {pushed} up to {position}, not {expected}"

    def _receipt(
        self, agent: Agent, connection: Connection, message_id: str, payload: dict[str, Any]
    ) -> None:
        state = payload["state"]
        self.counts[f"receipt {state}"] += 1
        sent = agent.sent[message_id]
        progress = state in ("pushed", "shown", "read", "skipped")
        assert ("progress" if progress else "receipts") in connection.features
        if progress:
            self._progress(connection, sent, payload)
        elif state == "refused":
            self._refused(sent, payload["code"])
        else:
            assert connection.number in sent.tries
            sent.state, sent.level = "stored", payload["level"]
            if sent.level != "memory":
                key = (agent.name, message_id)
                sent.holders = {name for name in NAMES if self._places(name, key)}
                assert len(sent.holders) >= payload["recipients"], (message_id, payload)

    def _progress(self, connection: Connection, sent: Sent, payload: dict[str, Any]) -> None:
        state, inbox = payload["state"], payload["session"]
        key = (sent.message_id, inbox, state)
        connection.progress[key] += 1
        assert connection.progress[key] == 1, f"{key} was told twice"
        places = self._places(inbox, (sent.sender, sent.message_id))
        assert places, f"{key}, and it is not there"
        if state in ("read", "skipped"):
            now = self._inbox(inbox).position
            assert any((g, end) <= now for g, end in places), f"{key}, at {places}, but {now}"

    def _error(self, agent: Agent, message_id: str | None, code: str) -> None:
        self.counts[f"error {code}"] += 1
        assert code != "INTERNAL", code
        if message_id in agent.sent:
            self._refused(agent.sent[message_id], code)

    def _refused(self, sent: Sent, code: str) -> None:
        """A refusal is said of what is not in the file; a reused id says nothing of the first."""
        if sent.state == "stored" or code in UNDECIDED:
            return
        assert code in ("INBOX_LOCKED", "DISK_FULL", "SPOOL_FAILED"), code
        sent.state = "refused"

    # -- what is there -----------------------------------------------------------------------

    def _inbox(self, name: str) -> Any:
        return self.hub.spool.inbox(name)

    def _lines(self, name: str, generation: int) -> list[tuple[int, int, bytes]]:
        """What a reader of a generation was to be given."""
        inbox = self._inbox(name)
        current = generation == inbox.generation
        data = bytes(inbox.data) if current else past_of(inbox)[generation][0]
        return stored_lines(data)

    def _all(self, name: str, whole: bool = False) -> dict[int, bytes]:
        """Every generation of an inbox, without (or with) what went on into the next one."""
        inbox = self._inbox(name)
        past = {
            generation: data if whole else data[:cut]
            for generation, (data, cut) in past_of(inbox).items()
        }
        return {**past, inbox.generation: bytes(inbox.data)}

    def _places(
        self, name: str, key: tuple[str, str], whole: bool = False
    ) -> list[tuple[int, int]]:
        """Where a message stands, or stood: generations and ends."""
        sent = self.messages.get(key)
        found = []
        for generation, data in self._all(name, whole).items():
            for _start, end, line in stored_lines(data):
                if line == sent.line if sent else json.loads(line)["id"] == key[1]:
                    found.append((generation, end))
        return found

    def _observe(self) -> None:
        """See that positions only go forward."""
        for name in NAMES:
            inbox = self._inbox(name)
            before = self.positions[name][-1]
            if inbox.position != before:
                assert inbox.position > before, (name, before, inbox.position)
                self.positions[name].append(inbox.position)
                self.story.commit(name, self.now(), inbox.position)
