"""The broker and a plain transcription of pi-subagents' own one, told the same, say the same."""

from __future__ import annotations

from typing import Any

from bus_scene import PLAIN, Scene
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)
from plain_seed_model import PlainSeedModel

IDS = st.sampled_from(["worker-01", "worker-02", "worker-03"])
TOPICS = st.sampled_from(["t", "u"])
STATUS = st.sampled_from(["idle", "idle since", "idler", "busy"])
EVENTS = st.sampled_from(["update", "update", "update", "blocker", "decision", "release"])
REPLACE = {"delivery": "queue", "queueMode": "replace"}


@st.composite
def updates(draw: Any) -> dict[str, Any]:
    event = draw(EVENTS)
    update = {"topic": draw(TOPICS), "text": draw(st.sampled_from(["x", "yy", " "]))}
    update |= {"event": event, "revision": draw(st.integers(1, 4)), "updatedAt": 7}
    if event == "release" and draw(st.sampled_from([True, True, False])):
        update |= {"resource": "db", "ownership": "released"}
    return update


@st.composite
def subscriptions(draw: Any) -> dict[str, Any]:
    await_release = draw(st.sampled_from([None, True, False]))
    known = {"topic": draw(TOPICS)}
    return known if await_release is None else {**known, "awaitRelease": await_release}


class PlainMachine(RuleBasedStateMachine):
    """A few sessions, a few topics, and time that passes in steps about the length of a wait."""

    connections = Bundle("connections")

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene()
        self.scene.said.clear()
        self.drawn = 0
        self.model = PlainSeedModel(self.draw)
        self.model.now = self.scene.now
        self.count = 0

    def draw(self) -> str:
        self.drawn += 1
        return f"u{self.drawn}"

    def check(self, in_order: bool = True) -> None:
        """Both said the same; and every message that came is read at once."""
        got = [(who, what) for who, what in self.scene.said if isinstance(what, dict)]
        want = self.model.said
        if not in_order:  # all of it messages: the wait of several threads ended together
            got.sort(key=lambda said: said[1]["message"]["id"])
            want.sort(key=lambda said: said[1]["message"]["id"])
        assert got == want
        for who in {who for who, what in got if what["type"] == "message"}:
            self.scene.do("taken", who)
        self.scene.said.clear()
        self.model.said.clear()

    def is_open(self, conn: str) -> bool:
        return self.scene.numbers[conn] not in self.scene.closed

    def say(self, conn: str, frame: dict[str, Any]) -> None:
        if self.is_open(conn):
            self.scene.say(conn, frame)
        self.check()

    @initialize(target=connections)
    def two_come(self) -> Any:
        entries = [{"topic": "t"}]
        return multiple(
            self.register("worker-01", None, "idle", True, entries),
            self.register("worker-02", "Wu", "idle", False, entries),
        )

    @rule(
        target=connections,
        wished=IDS,
        name=st.sampled_from(["Wu", "wu", "worker-02", None]),
        status=st.none() | STATUS,
        topic_frames=st.sampled_from([True, True, True, False]),
        entries=st.none() | st.lists(subscriptions(), max_size=1),
    )
    def register(
        self,
        wished: str,
        name: str | None,
        status: str | None,
        topic_frames: bool,
        entries: list[Any] | None,
    ) -> str:
        self.count += 1
        conn = f"n{self.count}"
        said = {"name": name, "status": status, "subscriptions": entries}
        session = {**PLAIN, **{key: value for key, value in said.items() if value is not None}}
        frame = {"type": "register", "requestedId": wished, "session": session}
        if topic_frames:
            frame["topicFrames"] = True
        self.scene.connect(conn)
        self.model.register(conn, wished, session, topic_frames)
        self.say(conn, frame)
        return conn

    @rule(conn=connections)
    def leave(self, conn: str) -> None:
        self.scene.do("gone", conn)
        self.model.leave(conn)
        self.check()

    @rule(conn=connections, status=STATUS, accepts=st.none() | st.booleans())
    def presence(self, conn: str, status: str, accepts: bool | None) -> None:
        changes = {"status": status, **({} if accepts is None else {"acceptsAsks": accepts})}
        self.model.presence(conn, changes)
        self.say(conn, {"type": "presence", **changes})

    @rule(
        conn=connections,
        to=IDS | st.sampled_from(["wu", "work", "worker"]),
        mode=st.sampled_from([{}, {"delivery": "steer"}, REPLACE, REPLACE, REPLACE]),
        thread=TOPICS,
        asks=st.booleans(),
    )
    def send(self, conn: str, to: str, mode: dict[str, Any], thread: str, asks: bool) -> None:
        self.count += 1
        message = {"id": f"m{self.count}", "timestamp": 1, "content": {"text": "t"}, **mode}
        if mode is REPLACE:
            message["threadId"] = thread
        if asks:
            message["expectsReply"] = True
        if self.is_open(conn):
            self.model.send(conn, to, message)
        self.say(conn, {"type": "send", "to": to, "message": message})

    @precondition(lambda self: self.model.staged)
    @rule(data=st.data(), asks=st.booleans(), waits=st.lists(st.sampled_from([1, 500, 1000])))
    def replace(self, data: st.DataObject, asks: bool, waits: Any) -> None:
        """Say something else, again and again, in a thread in which something waits."""
        sender, to, thread = data.draw(st.sampled_from(sorted(self.model.staged)))
        session = self.model.sessions.get(sender)
        for ms in waits:
            if session is not None and thread in ("t", "u"):
                self.send(session["conn"], to, REPLACE, thread, asks)
            self.wait(ms)

    @rule(conn=connections, stream=st.booleans())
    def list(self, conn: str, stream: bool) -> None:
        self.say_list(conn, stream, None)

    @rule(conn=connections, stream=st.booleans(), topic=updates())
    def publish(self, conn: str, stream: bool, topic: dict[str, Any]) -> None:
        self.say_list(conn, stream, {"action": "publish", "topic": topic})

    @rule(conn=connections, entry=subscriptions(), restored=st.booleans())
    def subscribe(self, conn: str, entry: dict[str, Any], restored: bool) -> None:
        action = "restore" if restored else "subscribe"
        self.say_list(conn, True, {"action": action, "subscription": entry})

    @rule(conn=connections, topic=TOPICS)
    def unsubscribe(self, conn: str, topic: str) -> None:
        self.say_list(conn, False, {"action": "unsubscribe", "topic": topic})

    @rule(conn=connections, topic=updates())
    def restore(self, conn: str, topic: dict[str, Any]) -> None:
        self.say_list(conn, True, {"action": "restore", "topic": topic})

    def say_list(self, conn: str, stream: bool, change: dict[str, Any] | None) -> None:
        self.count += 1
        request = f"r{self.count}"
        if self.is_open(conn):
            self.model.list(conn, request, stream, change)
        frame = {"type": "list", "requestId": request, **({"stream": True} if stream else {})}
        self.say(conn, frame if change is None else {**frame, "change": change})

    @rule(ms=st.sampled_from([1, 499, 500, 1000, 1500]))
    def wait(self, ms: int) -> None:
        self.scene.tick(ms)
        self.model.wait(ms)
        self.check(in_order=False)

    @invariant()
    def what_waits_is_what_the_model_has(self) -> None:
        stage = self.scene.broker._staging._stage
        assert len(stage) == len(self.model.staged)
        assert sum(stage._of.values()) == len(stage)
        assert self.scene.broker.pending == 0
        assert not self.scene.broker._world.turns._early


TestPlainMachine = PlainMachine.TestCase
TestPlainMachine.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
