"""Clients of every kind, while the hub has every kind of trouble: nothing is lost unsaid.

Whatever its sender was told to be delivered arrives, in the order of its inbox; what was only
accepted (``delivery_queued``) arrives, or a later one of its thread does, or its sender hears
that it does not, or the hub died. What was refused never arrives.
"""

from __future__ import annotations

from typing import Any

from bus_scene import PLAIN, SESSION, Scene
from bus_trouble import Trouble
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from intercom.core.bus.limits import Limits
from intercom.records import Record
from intercom.wire.envelope import parse
from intercom.wire.pi.crossing import message_of

INTERCOM = ("ann", "bob")
PLAINS = ("worker-01", "worker-02")
LINES = ("nd",)
PI = INTERCOM + PLAINS
LIMITS = Limits(burst=10**6)
senders = st.sampled_from(PI)
receivers = st.sampled_from(PI + LINES)


class MixedMachine(Trouble):
    """Two clients of each pi kind, and a session that speaks lines."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(limits=LIMITS)
        self.scene.said.clear()
        self.count = 0
        self.target: dict[str, str] = {}
        self.sender: dict[str, str] = {}
        self.asked: list[tuple[str, str, str]] = []
        self.confirmed: set[str] = set()
        self.refused: set[str] = set()
        self.staged: dict[tuple[str, str, str], str] = {}
        self.threads: dict[str, tuple[str, str, str]] = {}
        self.withdrawn: set[str] = set()
        self.got: dict[str, list[str]] = {name: [] for name in PI}
        self.here: dict[str, str] = {}
        self.open_sends: dict[str, str] = {}

    # -- what is said

    def look(self) -> None:
        for who, what in self.scene.said:
            if isinstance(what, dict):
                self.note(who, who.rpartition("#")[0], what)
        self.scene.said.clear()

    def note(self, conn: str, name: str, frame: dict[str, Any]) -> None:
        kind, message_id = frame["type"], frame.get("messageId", "")
        if kind == "message":
            message = frame["message"]
            self.got[name].append(message["id"])
            if message.get("expectsReply"):
                self.asked.append((name, frame["from"]["id"], message["id"]))
        elif message_id and self.sender[message_id] != name:
            return  # to somebody who wanted to take it back
        elif kind == "delivery_failed" and message_id in self.threads:
            self.staged.pop(self.threads[message_id], None)
            self.open_sends.pop(message_id, None)
            self.refused.add(message_id)
        elif kind in ("delivered", "delivery_failed", "delivery_queued"):
            if message_id in self.withdrawn and message_id not in self.open_sends:
                return  # the answer to a cancel
            assert self.open_sends.pop(message_id) == conn
            if kind == "delivery_queued":
                self.staged[self.threads[message_id]] = message_id
            else:
                (self.confirmed if kind == "delivered" else self.refused).add(message_id)

    # -- who is here

    @initialize()
    def all_come(self) -> None:
        for name in PI + LINES:
            self.come(name)

    @rule(name=receivers)
    def come(self, name: str) -> None:
        """It comes; a pi-intercom client perhaps by another connection."""
        if name in LINES:
            self.scene.elsewhere(name, {"status": "idle"})
            self.here[name] = name
            self.look()
            return
        if name in PLAINS:
            self.go(name)
        self.count += 1
        conn = self.here[name] = f"{name}#{self.count}"
        self.forget_open(name)
        self.scene.connect(conn)
        if name in PLAINS:
            session = {**PLAIN, "status": "idle"}
            frame = {"type": "register", "requestedId": name, "session": session}
        else:
            frame = {"type": "register", "sessionId": name, "session": SESSION}
        self.scene.say(conn, frame)
        self.look()

    @rule(name=receivers)
    def go(self, name: str) -> None:
        conn = self.here.pop(name, None)
        if conn is None:
            return
        self.finish(conn)
        for thread, message_id in list(self.staged.items()):
            if thread[0] == name and message_id in {one[2] for one in self.questions}:
                del self.staged[thread]  # its own question goes with it
        if name in LINES:
            self.scene.elsewhere(name, None)
        else:
            self.scene.do("gone", conn)
        self.look()
        gone = [thread for thread in self.staged if thread[1] == name]
        for thread in gone:
            message_id = self.staged.pop(thread)
            if name in LINES and thread[0] in self.here:
                self.confirmed.add(message_id)  # it is put into the inbox
            elif name not in LINES:
                assert thread[0] not in self.here  # else it would have heard

    def finish(self, conn: str) -> None:
        """Let go what this connection waits for: before that is done its session does not end."""
        lines = self.scene.broker._lines._connections
        connection = lines.get(self.scene.numbers.get(conn, 0))
        while connection is not None and connection.busy:
            for kind in ("keep", "read", "ask", "unask"):
                self.scene.let_go(kind)
            self.scene.failing.discard("read")
            self.scene.tick(0)
        self.look()

    @property
    def questions(self) -> list[tuple[str, str, str]]:
        return [(*thread[:2], one) for one, thread in self.threads.items() if one.endswith("?")]

    def forget_open(self, name: str) -> None:
        """Its connection is closed: it hears nothing of what it sent by that."""
        for message_id, conn in list(self.open_sends.items()):
            if conn.rpartition("#")[0] == name:
                del self.open_sends[message_id]

    # -- what they send

    @rule(name=senders, to=receivers, ask=st.booleans(), times=st.integers(1, 3))
    def send(self, name: str, to: str, ask: bool, times: int) -> None:
        for _ in range(times):
            self.say(name, to, {"expectsReply": True} if ask else {})

    @rule(
        name=st.sampled_from(PLAINS),
        to=receivers,
        thread=st.sampled_from("tu"),
        ask=st.sampled_from([False, False, True]),
    )
    def stage(self, name: str, to: str, thread: str, ask: bool) -> None:
        fields = {"delivery": "queue", "queueMode": "replace", "threadId": thread}
        self.say(name, to, {**fields, **({"expectsReply": True} if ask else {})}, thread)

    @precondition(lambda self: self.asked)
    @rule(data=st.data())
    def reply(self, data: st.DataObject) -> None:
        name, to, message_id = data.draw(st.sampled_from(self.asked))
        self.say(name, to, {"replyTo": message_id})

    def say(self, name: str, to: str, fields: dict[str, Any], thread: str = "") -> None:
        if name not in self.here:
            self.come(name)
        conn = self.here[name]
        self.count += 1
        message_id = f"m{self.count:04}" + ("?" if "expectsReply" in fields else "")
        self.target[message_id] = to
        self.sender[message_id] = name
        self.open_sends[message_id] = conn
        if thread:
            self.threads[message_id] = (name, to, thread)
        message = {"id": message_id, "timestamp": 1, "content": {"text": "t"}, **fields}
        self.scene.say(conn, {"type": "send", "to": to, "message": message})
        self.look()

    @rule(to=senders, ask=st.booleans(), data=st.data())
    def write(self, to: str, ask: bool, data: st.DataObject) -> None:
        """The session that speaks lines says something; perhaps it answers a question."""
        self.count += 1
        message_id = f"m{self.count:04}"
        self.target[message_id] = to
        self.sender[message_id] = "nd"
        self.confirmed.add(message_id)
        payload: dict[str, Any] = {"text": "t", **({"expects_reply": True} if ask else {})}
        lines = map(_message, self.scene.files.inboxes.get("nd", []))
        questions = [one["id"] for one in lines if one.get("expectsReply")]
        if questions and data.draw(st.booleans()):
            payload["reply_to"] = data.draw(st.sampled_from(questions))
        self.scene.write("nd", to, message_id, payload)
        self.look()

    @rule(name=senders, data=st.data())
    def receive(self, name: str, data: st.DataObject) -> None:
        if name not in self.here or not self.got[name]:
            return
        if name in PLAINS:
            self.scene.do("taken", self.here[name])
        else:
            self.acknowledge(name, data.draw(st.sampled_from(self.got[name])))
        self.look()

    def acknowledge(self, name: str, message_id: str) -> None:
        receipt = {"messageId": message_id, "status": "queued", "timestamp": 1}
        self.scene.say(self.here[name], {"type": "message_receipt", "receipt": receipt})

    @precondition(lambda self: self.target)
    @rule(name=st.sampled_from(INTERCOM), data=st.data())
    def cancel(self, name: str, data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(sorted(self.target)))
        if name in self.here and message_id not in self.open_sends:
            self.withdrawn.add(message_id)
            self.scene.say(self.here[name], {"type": "cancel_message", "messageId": message_id})
            self.look()

    # -- trouble

    @rule(name=senders, verb=st.sampled_from(["paused", "drained"]))
    def flow(self, name: str, verb: str) -> None:
        if name in self.here:
            self.scene.do(verb, self.here[name])
            self.look()

    @rule(ms=st.sampled_from([1, 700, 1500]))
    def wait(self, ms: int) -> None:
        self.scene.tick(ms)
        for thread, message_id in list(self.staged.items()):
            if message_id not in {one[2] for one in self.waiting()}:
                del self.staged[thread]
                # If its sender is gone in the end, nobody hears that it is refused.
                if thread[0] in self.here and "keep" not in self.scene.held:
                    self.confirmed.add(message_id)
        self.look()
        self.confirmed -= self.refused

    def waiting(self) -> list[tuple[Any, Any, str]]:
        staged = self.scene.broker._staging._stage._staged.values()
        return [(one.plan.target, one.due, one.case.message["id"]) for one in staged]

    @rule(told=st.booleans())
    def restart(self, told: bool) -> None:
        """The hub dies, or is told to go and is given the time that it needs."""
        if told:
            self.all_well()
            self.scene.closing()
            self.confirmed |= set(self.staged.values())
            self.look()
        else:  # what was under way may be lost, and nobody hears of it
            self.confirmed -= set(self.threads) - {
                one for some in self.got.values() for one in some
            }
        self.staged.clear()
        self.open_sends.clear()
        self.here.clear()
        self.scene.restart()

    def all_well(self) -> None:
        self.scene.failing.clear()
        for _ in range(5):
            for kind in ("keep", "read", "ask", "unask"):
                self.scene.let_go(kind)
                self.look()
        self.confirmed -= self.refused

    # -- in the end

    def teardown(self) -> None:
        """All trouble ends, all are here: what was confirmed is there."""
        self.all_well()
        for name in PI + LINES:
            self.come(name)
        for _ in range(2):
            self.wait(1500)
        assert not self.open_sends
        assert not self.staged
        assert self.scene.broker.pending == 0
        inboxes = self.scene.files.inboxes
        arrived = {**self.got, "nd": [_message(one)["id"] for one in inboxes.get("nd", [])]}
        for message_id in self.confirmed - self.withdrawn:
            assert message_id in arrived[self.target[message_id]], message_id
        for name in PI:
            first = list(dict.fromkeys(self.got[name]))
            lines = [_message(one)["id"] for one in inboxes.get(name, [])]
            assert first == [at for at in lines if at in first]  # none out of order
            assert all(self.target[message_id] == name for message_id in first)
            assert not self.refused & set(first)
        self.nothing_is_left()

    def nothing_is_left(self) -> None:
        for name in PI:
            for message_id in dict.fromkeys(self.got[name]):
                if name in INTERCOM:
                    self.acknowledge(name, message_id)
            if name in PLAINS:
                self.scene.do("taken", self.here[name])
        for name in PI:
            lines = self.scene.files.inboxes.get(name)
            if lines:
                assert self.scene.files.positions.get(name, 0) == lines[-1].end
        assert "nd" not in self.scene.files.positions
        world = self.scene.broker._world
        assert set(self.scene.files.asks) <= set(world.asks._asks)
        assert not any(box.letters for box in world.mailbox.boxes())
        assert not world.turns._early


def _message(record: Record) -> dict[str, Any]:
    return message_of(parse(record.line), 0)


TestMixedChaos = MixedMachine.TestCase
TestMixedChaos.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
