"""The broker and a plain transcription of pi-intercom's own one, told the same, say the same."""

from __future__ import annotations

from typing import Any

from bus_scene import SESSION, Scene
from bus_seed_model import SeedModel
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from intercom.core.bus.limits import Limits

ASK_MS = 1000
LIMITS = Limits(ask_ms=ASK_MS, burst=10**6)
_SHORT = {
    "registered": ("sessionId",),
    "session_left": ("sessionId",),
    "delivered": ("messageId", "delivery"),
    "delivery_failed": ("messageId", "code"),
}


def short(frame: dict[str, Any]) -> tuple[Any, ...]:
    """A frame as the model says it."""
    kind = frame["type"]
    match kind:
        case "session_joined":
            return (kind, frame["session"]["id"])
        case "message":
            return (kind, frame["from"]["id"], frame["message"]["id"])
        case "message_control":
            return (kind, frame["control"]["messageId"])
        case "message_receipt":
            return (kind, frame["receipt"]["messageId"])
    return (kind, *(frame[name] for name in _SHORT[kind] if name in frame))


class BusMachine(RuleBasedStateMachine):
    """A few sessions with few names, so that they meet."""

    connections = Bundle("connections")
    messages = Bundle("messages")

    def __init__(self) -> None:
        super().__init__()
        self.scene = Scene(limits=LIMITS)
        self.scene.said.clear()
        self.model = SeedModel(ASK_MS)
        self.count = 0
        self.epochs: dict[str, str] = {}
        self.ids: dict[str, str] = {}
        self.sent: dict[str, tuple[str, str, dict[str, Any]]] = {}

    def check(self) -> None:
        """Both said the same; and every message that came is received at once."""
        while True:
            got = [(who, short(what)) for who, what in self.scene.said if isinstance(what, dict)]
            assert got == self.model.said
            self.scene.said.clear()
            self.model.said.clear()
            came = [(who, what[2]) for who, what in got if what[0] == "message"]
            if not came:
                return
            for who, message_id in came:
                receipt = {"messageId": message_id, "status": "queued", "timestamp": 1}
                self.scene.say(who, {"type": "message_receipt", "receipt": receipt})
                self.model.receipt(who, message_id)

    @rule(
        target=connections,
        session_id=st.sampled_from(["ab1", "ab2", "c", "bob"]),
        name=st.sampled_from(["bob", "bob", "BOB", "c", None]),
        cwd=st.sampled_from(["/w", "/w", "/w/", "/x"]),
        alias=st.sampled_from([False, False, False, True]),
        scope=st.sampled_from([None] * 5 + ["s"]),
    )
    def register(
        self, session_id: str, name: str | None, cwd: str, alias: bool, scope: str | None
    ) -> str:
        self.count += 1
        conn = f"n{self.count}"
        session = {**SESSION, "cwd": cwd}
        if name is not None:
            session |= {"name": name, "runtimeFallbackAlias": alias}
        frame = {"type": "register", "sessionId": session_id, "session": session}
        if scope is not None:
            frame["scopeId"] = scope
        self.ids[conn] = session_id
        self.scene.connect(conn)
        self.epochs[conn] = f"u{self.scene.drawn + 1}"
        self.scene.say(conn, frame)
        info = {"id": session_id, "name": name, "cwd": cwd, "alias": alias, "scope": scope}
        self.model.register(conn, info)
        self.check()
        return conn

    @rule(conn=connections)
    def leave(self, conn: str) -> None:
        self.scene.do("gone", conn)
        self.model.leave(conn)
        self.check()

    @rule(
        target=messages,
        conn=connections,
        to=st.sampled_from(["ab1", "ab2", "ab", "c", "C", "bob", "Bob", "x"]),
        asks=st.booleans(),
    )
    def send_new(self, conn: str, to: str, asks: bool) -> str:
        self.count += 1
        return self.send(conn, to, f"m{self.count}", asks=asks)

    @rule(target=messages, conn=connections, peer=connections, asks=st.booleans())
    def send_peer(self, conn: str, peer: str, asks: bool) -> str:
        """Between two that are, or were, there."""
        self.count += 1
        return self.send(conn, self.ids[peer], f"m{self.count}", asks=asks)

    @rule(target=messages, conn=connections, peer=connections)
    def mail(self, conn: str, peer: str) -> str:
        """To one that has just left."""
        self.leave(peer)
        return self.send_peer(conn, peer, asks=False)

    @rule(target=messages, other=messages)
    def ask_back(self, other: str) -> str:
        """Answer with a question, whoever has the message."""
        holder = next((k for _, k in [self.model.routes.get(other, (0, 0))] if k), None)
        found = [one["conn"] for key, one in self.model.sessions.items() if key == holder]
        conn = found[0] if found else self.sent[other][0]
        return self.answer(other, conn, asks=True)

    @rule(target=messages, other=messages, asks=st.booleans())
    def supersede(self, other: str, asks: bool) -> str:
        """Say something else instead, to the same."""
        self.count += 1
        conn, _, fields = self.sent[other]
        return self.send(conn, fields["to"], f"m{self.count}", supersedes=other, asks=asks)

    @rule(other=messages, what=st.sampled_from(["message", "ask"]))
    def take_back(self, other: str, what: str) -> None:
        self.cancel_by(self.sent[other][0], other, what)

    @rule(
        target=messages,
        conn=connections,
        to=st.sampled_from(["ab1", "ab2", "c", "bob"]),
        other=messages,
        what=st.sampled_from(["replyTo", "supersedes"]),
        asks=st.booleans(),
    )
    def send_about(self, conn: str, to: str, other: str, what: str, asks: bool) -> str:
        self.count += 1
        return self.send(conn, to, f"m{self.count}", asks=asks, **{what: other})

    @rule(target=messages, other=messages, conn=connections, asks=st.booleans())
    def answer(self, other: str, conn: str, asks: bool) -> Any:
        """Reply where that may well be right: to who sent it."""
        self.count += 1
        asker = self.sent[other][1]
        return self.send(conn, asker, f"m{self.count}", replyTo=other, asks=asks)

    @rule(
        target=messages,
        conn=connections,
        at=connections,
        to=st.sampled_from(["ab1", "ab2", "c", "bob"]),
    )
    def send_exact(self, conn: str, at: str, to: str) -> str:
        self.count += 1
        return self.send(conn, to, f"m{self.count}", exact=(to, at))

    @rule(other=messages, changed=st.booleans(), conn=connections)
    def repeat(self, other: str, changed: bool, conn: str) -> None:
        """Say it again, from the same session (perhaps by another connection)."""
        sender, _, fields = self.sent[other]
        if self.key_of(conn) != self.key_of(sender):
            conn = sender
        to, exact = fields["to"], fields["exact"]
        message = {**fields["message"], "text": "changed" if changed else "text"}
        self.say_send(conn, to, message, exact)

    @rule(conn=connections, other=messages, what=st.sampled_from(["message", "ask"]))
    def cancel(self, conn: str, other: str, what: str) -> None:
        self.cancel_by(conn, other, what)

    def cancel_by(self, conn: str, other: str, what: str) -> None:
        if self.scene.numbers[conn] in self.scene.closed:
            return
        self.scene.say(conn, {"type": f"cancel_{what}", "messageId": other})
        getattr(self.model, f"cancel_{what}")(conn, other)
        self.check()

    @rule(ms=st.sampled_from([400, 1100]))
    def wait(self, ms: int) -> None:
        self.scene.tick(ms)
        self.model.now += ms
        self.check()

    # -- how

    def key_of(self, conn: str) -> Any:
        sessions = self.model.sessions.values()
        return next((one["key"] for one in sessions if one["conn"] == conn), None)

    def send(
        self,
        conn: str,
        to: str,
        message_id: str,
        *,
        asks: bool = False,
        exact: tuple[str, str] | None = None,
        **about: str,
    ) -> str:
        message = {"id": message_id, "text": "text", "expectsReply": asks}
        message |= {"replyTo": None, "supersedes": None, **about}
        key = self.key_of(conn)
        fields = {"to": to, "exact": exact, "message": message}
        self.sent[message_id] = (conn, key[1] if key else "x", fields)
        self.say_send(conn, to, message, exact)
        return message_id

    def say_send(
        self, conn: str, to: str, message: dict[str, Any], exact: tuple[str, str] | None
    ) -> None:
        if self.scene.numbers[conn] in self.scene.closed:
            return
        wire = {key: value for key, value in message.items() if value is not None}
        wire |= {"timestamp": 1, "content": {"text": wire.pop("text")}}
        frame = {"type": "send", "to": to, "message": wire}
        if exact is not None:
            frame |= {"targetId": exact[0], "targetEpoch": self.epochs[exact[1]]}
        self.scene.say(conn, frame)
        self.model.send(conn, to, message, exact)
        self.check()

    @invariant()
    def files_are_what_is_pending(self) -> None:
        """The files of asks are those of the asks that wait, once time was looked at."""
        world = self.scene.broker._world
        assert set(self.scene.files.asks) == set(world.asks._asks)
        assert self.scene.broker.pending == 0

    @invariant()
    def what_is_settled_is_forgotten(self) -> None:
        """Letters are kept for what waits in the model's mailbox, and for nothing else."""
        mailbox = self.scene.broker._world.mailbox
        waiting = {one.message_id for box in mailbox.boxes() for one in box.waiting.values()}
        assert waiting == {entry["id"] for entry in self.model.mail}
        assert not mailbox._held


TestBusMachine = BusMachine.TestCase
TestBusMachine.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
