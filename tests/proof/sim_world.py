"""A channel with its agents, its network and its misfortunes, all drawn from one seed.

Everything that happens is chosen by one generator of numbers and done in one thread, with
the hub's own clock: the same seed is the same run, byte for byte, which :attr:`World.mark`
shows. What clients may rely on is asserted as it happens; the rest is judged at the end.
"""

from __future__ import annotations

import json
import random
from hashlib import blake2b
from typing import Any

from sim_agents import NAMES, Agent, Connection, Sent, Witness
from sim_hub import SimHub, all_lines

from intercom.wire.envelope import make

FEATURES = ("receipts", "cursor", "heartbeat", "progress")
#: Of each kind of step, how often it is drawn.
STEPS = {
    "say": 300,
    "up": 250,
    "down": 250,
    "turn": 200,
    "flow": 60,
    "wait": 40,
    "connect": 100,
    "hang_up": 25,
    "stall": 30,
    "ack": 100,
    "murmur": 20,
    "offline": 30,
    "torn": 8,
    "lock": 30,
    "refuse": 10,
    "poll": 40,
    "compact": 30,
    "crash": 10,
    "restart": 4,
    "break_sync": 4,
}


class World(Witness):
    """One run.

    :param seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.chance = random.Random(f"intercom {seed}")
        self.durability = self.chance.choice(("disk", "disk", "process", "memory"))
        self.agents = {name: Agent(name) for name in NAMES}
        self._hash = blake2b()
        self._lives = self._numbers = 0
        self.hub = self._live(None)
        self._steps = (list(STEPS), list(STEPS.values()))
        for name in NAMES[:3]:
            self._connect(self.agents[name])

    @property
    def mark(self) -> str:
        """Stands for everything that was exchanged and that became of it."""
        return self._hash.hexdigest()

    def note(self, *what: object) -> None:
        """Let something be part of the mark."""
        self._hash.update(repr(what).encode())

    def run(self, steps: int) -> None:
        """So many steps; then everything heals, and comes to rest."""
        for _ in range(steps):
            name = self.chance.choices(*self._steps)[0]
            agent = self.agents[self.chance.choice(NAMES)]
            self.note(name, agent.name)
            getattr(self, f"_{name}")(agent)
            self._observe()
        self._heal()

    # -- the hub -----------------------------------------------------------------------------

    def _live(self, before: Any) -> SimHub:
        self._lives += 1
        self.counts["lives"] += 1
        return SimHub(self.durability, before, self._lives)

    def _crash(self, _agent: Agent) -> None:
        """The hub dies between two turns; what it had written stays."""
        for agent in self.agents.values():
            if agent.connection is not None:
                self._lose(agent, read=self.chance.random() < 0.5)
        before, self.hub = self.hub, self._live(self.hub.spool)
        self.note("died", before.clock.seconds())

    def _restart(self, _agent: Agent) -> None:
        """The hub leaves in good order, and another comes."""
        left = self.hub.hub.shut_down()
        for _ in range(60):
            self.hub.advance(0.1)
            for agent in self.agents.values():
                if agent.connection is not None and not agent.connection.stalled:
                    self._hear(agent, 1 << 20)
            if left.called:
                break
        assert left.called, "the hub does not leave within six seconds"
        self._crash(_agent)

    def _turn(self, _agent: Agent) -> None:
        """A few turns."""
        for _ in range(self.chance.randint(1, 6)):
            if not self.hub.step():
                break

    def _wait(self, _agent: Agent) -> None:
        self._pass(self.chance.choice((0.1, 0.1, 0.6, 1.1, 2.2)))

    def _flow(self, _agent: Agent) -> None:
        """Everything that is under way arrives, of those who read."""
        for agent in self.agents.values():
            if agent.connection is not None and self.chance.random() < 0.8:
                self._lift(agent.connection, 1 << 20)
        self.hub.pump()
        for agent in self.agents.values():
            if agent.connection is not None and not agent.connection.stalled:
                self._hear(agent, 1 << 20)

    def _pass(self, seconds: float) -> None:
        step = 0.1 if seconds < 3 else 1.0
        for _ in range(round(seconds / step)):
            self.hub.clock.advance(step)
            self.hub.pump()
        if self.hub.left:
            self.counts["left"] += 1
            self._crash(self.agents["ada"])

    def _lock(self, agent: Agent) -> None:
        """Another program takes, or gives back, the lock of an inbox."""
        locked = self.hub.spool.locked
        (locked.remove if agent.name in locked else locked.add)(agent.name)

    def _refuse(self, agent: Agent) -> None:
        """An inbox cannot be written, or can again."""
        refusals = self.hub.spool.refusals
        if agent.name in refusals:
            del refusals[agent.name]
        else:
            refusals[agent.name] = ("DISK_FULL", "no room")

    def _break_sync(self, _agent: Agent) -> None:
        if self.chance.random() < 0.3:
            self.hub.spool.sync_failure = "the disk is broken"

    # -- the network -------------------------------------------------------------------------

    def _connect(self, agent: Agent) -> None:
        """A new connection, in the place of the one before it."""
        if agent.connection is not None:
            if self.chance.random() < 0.7:
                return
            self._hang_up(agent)
        self._dial(agent, [name for name in FEATURES if self.chance.random() < 0.6])

    def _dial(self, agent: Agent, features: list[str]) -> Connection:
        self._numbers += 1
        self.counts["connections"] += 1
        stored = self._inbox(agent.name).position
        connection = Connection(self._numbers, self.hub.dial(), features, stored)
        agent.connection = connection
        said = {"type": "register", "from_session": agent.name}
        self._say_line(agent, said | {"payload": {"features": features}})
        if self.chance.random() < 0.8:
            for sent in agent.sent.values():
                if sent.state == "unknown" and sent.tries != [0]:
                    self._send(agent, sent)
        return connection

    def _hang_up(self, agent: Agent) -> None:
        if agent.connection is not None:
            self._lose(agent, read=self.chance.random() < 0.7)

    def _lose(self, agent: Agent, read: bool) -> None:
        """A connection ends; of what the hub had written some may arrive, of ours some may not."""
        connection = agent.connection
        assert connection is not None
        if read:
            self._hear(agent, self.chance.randint(0, 3000))
        if self.chance.random() < 0.5:
            self._lift(connection, self.chance.randint(0, len(connection.upward)))
        agent.connection = None
        connection.transport.hang_up()

    def _stall(self, agent: Agent) -> None:
        if agent.connection is not None:
            agent.connection.stalled = not agent.connection.stalled

    def _up(self, agent: Agent) -> None:
        """Some bytes of an agent reach the hub."""
        if agent.connection is not None:
            self._lift(agent.connection, self.chance.choice((1, 100, 1000, 5000)))

    def _lift(self, connection: Connection, count: int) -> None:
        """So many bytes of an agent reach the hub, a few at a time."""
        most = self.chance.choice((1, 7, 40, 3000))
        while count > 0 and connection.upward:
            size = min(count, self.chance.randint(1, most))
            piece = bytes(connection.upward[:size])
            del connection.upward[:size]
            count -= size
            self._hash.update(b"%d<%b" % (connection.number, piece))
            connection.transport.receive(piece)

    def _down(self, agent: Agent) -> None:
        """An agent reads some of what the hub has written."""
        if agent.connection is not None and not agent.connection.stalled:
            most = 40 if self.chance.random() < 0.3 else 6000
            self._hear(agent, self.chance.randint(1, most))

    def _hear(self, agent: Agent, count: int) -> None:
        connection = agent.connection
        assert connection is not None
        piece = connection.transport.take_some(count)
        self._hash.update(b"%d>%b" % (connection.number, piece))
        *whole, connection.rest = (connection.rest + piece).split(b"\n")
        for line in whole:
            self._heard(agent, connection, line)

    # -- what agents say ---------------------------------------------------------------------

    def _say(self, agent: Agent) -> None:
        """A chat: new, again, or another under an old id."""
        connection = agent.connection
        if connection is None:
            return
        kind = self.chance.random()
        if agent.sent and kind < 0.15:
            sent = self.chance.choice(list(agent.sent.values()))
            if sent.tries != [0]:
                self._send(agent, sent)
        elif agent.sent and kind < 0.2:
            sent = self.chance.choice(list(agent.sent.values()))
            if not sent.holders:
                return  # it may be lost, and then the other is the first
            other = self._line(agent.name, sent.message_id, sent.to, "something else")
            connection.upward += other + b"\n"
            self.counts["reused ids"] += 1
        else:
            self._send(agent, self._compose(agent))

    def _compose(self, agent: Agent) -> Sent:
        to = self.chance.choice((*NAMES, "*"))
        number = len(self.messages) + 1
        message_id = f"m{number}"
        text = self.chance.choice("aé}\\💥") * self.chance.choice((0, 1, 20, 400))
        level = self.chance.choice((None, None, None, "memory", "process", "disk"))
        line = self._line(agent.name, message_id, to, text, level)
        sent = Sent(agent.name, message_id, to, line, number)
        agent.sent[message_id] = self.messages[agent.name, message_id] = sent
        return sent

    def _line(
        self, sender: str, message_id: str, to: str, text: str, level: str | None = None
    ) -> bytes:
        payload = {"text": text} if level is None else {"text": text, "durability": level}
        return make(
            type="chat",
            message_id=message_id,
            from_session=sender,
            to_session=to,
            channel="test",
            payload=payload,
            timestamp="t",
        )

    def _send(self, agent: Agent, sent: Sent) -> None:
        connection = agent.connection
        assert connection is not None
        sent.tries.append(connection.number)
        connection.upward += sent.line + b"\n"
        self.counts["sent"] += 1

    def _say_line(self, agent: Agent, fields: dict[str, Any]) -> None:
        assert agent.connection is not None
        agent.connection.upward += json.dumps(fields).encode() + b"\n"

    def _murmur(self, agent: Agent) -> None:
        """Something else than a chat."""
        if agent.connection is not None:
            says = ({"type": "list"}, {"type": "heartbeat"}, {"type": "dance"}, {"type": 5})
            self._say_line(agent, self.chance.choice(says))

    def _ack(self, agent: Agent) -> None:
        """Acknowledge what a cursor named, or (shown) say that it was seen."""
        connection = agent.connection
        if connection is not None and connection.cursor is not None:
            generation, offset = connection.cursor
            payload: dict[str, Any] = {"offset": offset, "generation": generation}
            if self.chance.random() < 0.2:
                payload["state"] = "shown"
            self._say_line(agent, {"type": "ack", "payload": payload})
            self.counts["acks"] += 1

    # -- what others do ----------------------------------------------------------------------

    def _offline(self, agent: Agent) -> None:
        """An agent appends a message to an inbox itself."""
        sent = self._compose(agent)
        inbox = self.chance.choice(NAMES)
        sent.to = inbox
        sent.tries.append(0)
        sent.state, sent.level = "stored", "disk"
        self._end_torn_line(inbox)
        self.hub.spool.others_append(inbox, sent.line + b"\n")
        self.counts["offline"] += 1

    def _torn(self, agent: Agent) -> None:
        """A writer dies in the middle of a line."""
        self._end_torn_line(agent.name)
        self.hub.spool.others_append(agent.name, b'{"id":"torn","type":"ch')
        self.counts["torn"] += 1

    def _end_torn_line(self, inbox: str) -> None:
        data = self._inbox(inbox).data
        if data and data[-1:] != b"\n":
            self.hub.spool.others_append(inbox, b"\n")

    def _poll(self, agent: Agent) -> None:
        """A command reads the inbox, shows what is there, and commits."""
        if agent.connection is None:
            self._read_from(agent, self.chance.choice((1, 500, 1 << 20)))

    def _read_from(self, agent: Agent, limit: int) -> int:
        inbox = self._inbox(agent.name)
        batch = inbox.read(None, limit)
        places = [(inbox.generation, record.start, record.end) for record in batch.records]
        records = zip(places, (record.line for record in batch.records), strict=True)
        self.story.poll(agent.name, "command", self.now(), records)
        inbox.offset = max(inbox.offset, batch.next.offset)
        self.note("polled", agent.name, batch.next)
        self.counts["polled"] += len(batch.records)
        return len(batch.records)

    def _compact(self, agent: Agent) -> None:
        self.hub.spool.compact(agent.name).addErrback(lambda _failure: None)

    # -- the end -----------------------------------------------------------------------------

    def _heal(self) -> None:
        """Nothing is locked, full or broken any more; everybody comes back and sends again."""
        self.hub.spool.locked.clear()
        self.hub.spool.refusals.clear()
        self._crash(self.agents["ada"])
        for agent in self.agents.values():
            self._dial(agent, ["receipts", "cursor"])
            for sent in agent.sent.values():
                if sent.tries != [0] and sent.state != "stored":
                    self._send(agent, sent)
        quiet = 0
        for _ in range(300):
            moved = False
            for agent in self.agents.values():
                assert agent.connection is not None
                moved = moved or bool(agent.connection.upward or agent.connection.transport.unread)
                self._lift(agent.connection, 1 << 20)
                self._hear(agent, 1 << 20)
            self._pass(0.2)
            self._observe()
            quiet = 0 if moved else quiet + 1
            if quiet > 12:  # longer than a hub's tick
                break
        assert quiet > 12, "the channel never comes to rest"
        for agent in self.agents.values():
            connection = agent.connection
            assert connection is not None
            inbox = self._inbox(agent.name)
            last = max((end for _, end, _ in all_lines(bytes(inbox.data))), default=0)
            caught_up = connection.cursor is not None and connection.cursor.offset >= last
            assert caught_up, (agent.name, connection.cursor, last)
            silent = [sent.message_id for sent in agent.sent.values() if sent.state != "stored"]
            assert not silent, f"{agent.name} never heard what became of {silent}"
        self._tell_all()

    def _tell_all(self) -> None:
        """Complete the story: what was sent, how it ended, and what stands in every inbox."""
        for name in NAMES:
            for generation, data in self._all(name).items():
                lines = [((generation, start, end), line) for start, end, line in all_lines(data)]
                self.story.poll(name, "observer", self.now(), lines, start="start")
                for _place, line in lines:
                    said = json.loads(line)
                    if said["from_session"] == "hub":
                        self.story.send("hub", said["id"], line, [name], "info")
        for sent in self.messages.values():
            plain = len(sent.tries) == 1
            who = f"{sent.sender} {sent.tries}" if plain else f"{sent.sender} {sent.number}"
            if sent.tries == [0]:
                who += sent.to
            end = "ok" if sent.state == "stored" and sent.level != "memory" else "info"
            to = {sent.to}
            if sent.to == "*" and end == "ok":
                key = (sent.sender, sent.message_id)
                to = sent.holders | {name for name in NAMES if self._places(name, key)}
            elif sent.to == "*":
                to = {name for name in NAMES if name != sent.sender}
            self.story.send(who, sent.message_id, sent.line, sorted(to), end)
