"""Whatever dies, fails or waits, in whatever order: what was confirmed arrives, in its order."""

from __future__ import annotations

from typing import Any

from bus_scene import SESSION, Scene
from bus_trouble import Trouble
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from intercom.core.bus.limits import Limits
from intercom.records import Appeared, Record
from intercom.wire.envelope import make, parse

NAMES = ("a", "b", "c")
LIMITS = Limits(burst=10**6)
sessions = st.sampled_from(NAMES)


class ChaosMachine(Trouble):
    """Three sessions that write to one another while the hub has every kind of trouble."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(limits=LIMITS)
        self.scene.said.clear()
        self.count = 0
        self.target: dict[str, str] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.confirmed: set[str] = set()
        self.withdrawn: set[str] = set()
        self.got: dict[str, list[str]] = {name: [] for name in NAMES}
        self.here: dict[str, str] = {}
        self.open_sends: dict[str, str] = {}

    def look(self) -> None:
        """Take note of what was said, and that no send is answered twice."""
        for who, what in self.scene.said:
            if not isinstance(what, dict):
                continue
            if what["type"] == "message":
                self.got[who[0]].append(what["message"]["id"])
                if what["message"].get("expectsReply"):
                    self.asked.append((who[0], what["from"]["id"], what["message"]["id"]))
            elif what["type"] in ("delivered", "delivery_failed") and "delivery" in what:
                message_id = what["messageId"]
                assert self.open_sends.pop(message_id) == who
                if what["type"] == "delivered":
                    self.confirmed.add(message_id)
        self.scene.said.clear()

    def conn(self, name: str) -> str | None:
        return self.here.get(name)

    @rule(name=sessions)
    def register(self, name: str) -> None:
        """It comes, or comes again by another connection."""
        self.count += 1
        conn = self.here[name] = f"{name}{self.count}"
        for message_id, sender in list(self.open_sends.items()):
            if sender[0] == name:
                del self.open_sends[message_id]  # its connection is closed: it hears nothing
        self.scene.connect(conn)
        self.scene.say(conn, {"type": "register", "sessionId": name, "session": SESSION})
        self.look()

    @initialize()
    def all_come(self) -> None:
        for name in NAMES:
            self.register(name)

    @rule(name=sessions)
    def leave(self, name: str) -> None:
        conn = self.here.pop(name, None)
        if conn is not None:
            self.scene.do("gone", conn)
            self.look()

    @rule(name=sessions, to=sessions, ask=st.booleans(), times=st.integers(1, 5))
    def send(self, name: str, to: str, ask: bool, times: int) -> None:
        for _ in range(times):
            self.say(name, to, {"expectsReply": True} if ask else {})

    @rule(to=sessions, told=st.booleans())
    def others_append(self, to: str, told: bool) -> None:
        """Another program writes to an inbox; the hub hears of it, or will find it."""
        self.count += 1
        message_id = f"m{self.count:04}"
        self.target[message_id] = to
        self.confirmed.add(message_id)
        line = make(
            type="chat",
            message_id=message_id,
            from_session="x",
            to_session=to,
            channel="c",
            payload={"text": "t"},
            timestamp="2026-01-01T00:00:00Z",
        )
        self.scene.files.append(to, line)
        if told:
            self.scene.run(self.scene.broker.written([Appeared(to, 1, [])], self.scene.now))
            self.look()

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        name, to, message_id = data.draw(st.sampled_from(self.asked))
        self.say(name, to, {"replyTo": message_id})

    def say(self, name: str, to: str, fields: dict[str, Any]) -> None:
        conn = self.conn(name)
        if conn is None:
            self.register(name)
            conn = self.here[name]
        self.count += 1
        message_id = f"m{self.count:04}"
        self.target[message_id] = to
        self.open_sends[message_id] = conn
        message = {"id": message_id, "timestamp": 1, "content": {"text": "t"}, **fields}
        self.scene.say(conn, {"type": "send", "to": to, "message": message})
        self.look()

    @rule(name=sessions, data=st.data())
    def receive(self, name: str, data: st.DataObject) -> None:
        conn = self.conn(name)
        if conn is not None and self.got[name]:
            message_id = data.draw(st.sampled_from(self.got[name]))
            receipt = {"messageId": message_id, "status": "queued", "timestamp": 1}
            self.scene.say(conn, {"type": "message_receipt", "receipt": receipt})
            self.look()

    @precondition(lambda self: self.target)
    @rule(name=sessions, data=st.data())
    def cancel(self, name: str, data: st.DataObject) -> None:
        conn, message_id = self.conn(name), data.draw(st.sampled_from(sorted(self.target)))
        if conn is not None:
            self.withdrawn.add(message_id)
            self.scene.say(conn, {"type": "cancel_message", "messageId": message_id})
            self.look()

    @rule(name=sessions, verb=st.sampled_from(["paused", "drained"]))
    def flow(self, name: str, verb: str) -> None:
        if self.conn(name) is not None:
            self.scene.do(verb, self.here[name])
            self.look()

    @rule(ms=st.sampled_from([1, 30, 1100]))
    def wait(self, ms: int) -> None:
        self.scene.tick(ms)
        self.look()

    @rule()
    def restart(self) -> None:
        self.open_sends.clear()
        self.here.clear()
        self.scene.restart()

    def teardown(self) -> None:
        """All trouble ends, all are here: what was confirmed is there."""
        self.scene.failing.clear()
        for _ in range(5):
            for kind in ("keep", "read", "ask", "unask"):
                self.scene.let_go(kind)
                self.look()
        for name in NAMES:
            self.register(name)
        self.scene.tick(10)
        self.look()
        assert not self.open_sends
        assert self.scene.broker.pending == 0
        for message_id in self.confirmed - self.withdrawn:
            assert message_id in self.got[self.target[message_id]], message_id
        for name in NAMES:
            first = list(dict.fromkeys(self.got[name]))
            lines = self.scene.files.inboxes.get(name, [])
            assert first == [at for at in map(id_of, lines) if at in first]  # none out of order
            assert all(self.target[message_id] == name for message_id in first)
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        """Everything received, nothing is kept of it."""
        for _ in range(2):
            for name in NAMES:
                for message_id in dict.fromkeys(self.got[name]):
                    receipt = {"messageId": message_id, "status": "queued", "timestamp": 1}
                    frame = {"type": "message_receipt", "receipt": receipt}
                    self.scene.say(self.here[name], frame)
        for inbox, lines in self.scene.files.inboxes.items():
            assert self.scene.files.positions.get(inbox, 0) == lines[-1].end
        world = self.scene.broker._world
        assert set(self.scene.files.asks) == set(world.asks._asks)
        assert not any(box.letters for box in world.mailbox.boxes())
        assert not world.turns._early


def id_of(record: Record) -> str:
    return str(parse(record.line)["id"])


TestBusChaos = ChaosMachine.TestCase
TestBusChaos.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
