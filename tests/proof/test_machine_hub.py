"""A whole hub in memory against a simple model of what its clients are to hear.

After every step each client has heard exactly what the model says: every message that it is
to be pushed, in order, every receipt and every error. Several hubs and crashes are the
simulation's affair (``test_simulation.py``).
"""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
    run_state_machine_as_test,
)

from intercom.testing import MemoryClient, MemoryHub

#: Of the long form: how many runs.
RUNS = int(os.environ.get("INTERCOM_MACHINE_RUNS", "20000"))
#: Whether a failing run is made small, which takes minutes.
SHRINK = bool(os.environ.get("INTERCOM_MACHINE_SHRINK"))
NAMES = ("ada", "bob", "eve", "joe")
#: Large enough for a few to pass the limit at which pushes stop.
LARGE = "x" * 300_000


class Peer:
    """A connection, and what the model says that it has heard.

    :ivar session: whom it speaks for; None once it was refused, taken over or given back.
    :ivar pushes: ids that it was to be pushed, in order.
    :ivar receipts: short forms of what it was to be told of its messages, in order.
    :ivar errors: the codes that it was to be told, in order.
    """

    def __init__(self, client: MemoryClient) -> None:
        self.client = client
        self.session: str | None = None
        self.features: tuple[str, ...] = ()
        self.sender = False
        self.proven = False
        self.closed = False
        self.pushes: list[str] = []
        self.missable: set[str] = set()
        self.receipts: list[tuple[Any, ...]] = []
        self.errors: list[str] = []
        self.lists: list[tuple[list[str], list[str]]] = []
        self.lagged = False

    @property
    def receives(self) -> bool:
        """Whether an inbox is pushed to it."""
        return self.session is not None and not self.sender

    def tell(self, message_id: str, receipt: tuple[Any, ...]) -> None:
        """It is told what became of a message, in the way that it asked for."""
        if "receipts" in self.features:
            self.receipts.append((message_id, *receipt))
        elif receipt[0] == "refused":
            self.errors.append(receipt[1])


class Outcome:
    """What is remembered of a message: its content, and what a repetition is told."""

    def __init__(self, to: str, text: str, receipt: tuple[Any, ...]) -> None:
        self.content = (to, text)
        self.receipt = receipt


class HubMachine(RuleBasedStateMachine):
    """The rules."""

    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.hub = MemoryHub()
        self.hub.registry.tokens = {name: f"secret of {name}" for name in NAMES}
        self.all: list[Peer] = []
        self.holders: dict[str, Peer] = {}
        self.known: set[str] = set()
        self.reading: set[str] = set()
        self.inboxes: dict[str, list[tuple[str, int]]] = {name: [] for name in NAMES}
        self.read: dict[str, int] = dict.fromkeys(NAMES, 0)
        self.outcomes: dict[tuple[str, str], Outcome] = {}
        self.refusing: set[str] = set()
        self.ids = 0

    # -- coming and going ---------------------------------------------------------------------

    @rule(
        target=peers,
        name=st.sampled_from(NAMES),
        features=st.sets(st.sampled_from(["receipts", "cursor"])),
        role=st.sampled_from(["session", "session", "sender"]),
        token=st.sampled_from([None, "right", "right", "wrong"]),
        takeover=st.booleans(),
    )
    def connect(
        self, name: str, features: set[str], role: str, token: str | None, takeover: bool
    ) -> Peer:
        peer = Peer(self.hub.connect())
        self.all.append(peer)
        payload: dict[str, Any] = {"features": sorted(features), "role": role}
        if token is not None:
            payload["token"] = f"secret of {name}" if token == "right" else "a guess"
        if takeover:
            payload["takeover"] = True
        peer.client.say({"type": "register", "from_session": name, "payload": payload})
        code = self.admission(name, role == "sender", token, takeover)
        if code:
            peer.errors.append(code)
            peer.closed = True
            return peer
        peer.session, peer.features = name, tuple(sorted(features))
        peer.sender, peer.proven = role == "sender", token == "right"
        if not peer.sender:
            before = self.holders.get(name)
            if before is not None:
                before.errors.append("TAKEN_OVER")
                self.end(before)
            self.holders[name] = peer
            self.known.add(name)
            if "cursor" in features:
                backlog = [i for i, end in self.inboxes[name] if end > self.read[name]]
                peer.pushes += backlog
        return peer

    def admission(self, name: str, sender: bool, token: str | None, takeover: bool) -> str:
        """Why a claim is refused, or nothing."""
        holder = self.holders.get(name)
        taken = holder is not None and not takeover and not sender
        if taken or (token is None and (sender or holder is not None)):
            return "SESSION_COLLISION"
        if token == "wrong":
            return "UNAUTHORIZED"
        beside = sender or holder is not None
        if beside and not (token == "right" and (holder is None or holder.proven)):
            return "SESSION_COLLISION"
        return ""

    def end(self, peer: Peer) -> None:
        """It speaks for nobody any more; its connection is closed by the hub or itself."""
        peer.session = None
        peer.closed = True

    @rule(peer=consumes(peers))
    def hang_up(self, peer: Peer) -> None:
        peer.client.transport.stalled = False
        assert peer.client.lines is not None  # what was there to be heard is heard
        self.heard(peer)
        self.leave(peer)
        self.end(peer)
        peer.client.hang_up()
        self.all.remove(peer)

    @rule(peer=peers)
    def unregister(self, peer: Peer) -> None:
        if peer.session is not None:
            peer.client.say({"type": "unregister"})
            self.leave(peer)
            peer.session, peer.features = None, ()
            peer.sender = peer.proven = False

    def leave(self, peer: Peer) -> None:
        """Its session is free again."""
        if peer.session is not None and self.holders.get(peer.session) is peer:
            del self.holders[peer.session]
            if "cursor" in peer.features:
                self.reading.add(peer.session)

    # -- messages -----------------------------------------------------------------------------

    @rule(
        peer=peers,
        to=st.sampled_from([*NAMES, "*", "nobody"]),
        text=st.sampled_from(["hi", "é", LARGE]),
        strict=st.booleans(),
    )
    def chat(self, peer: Peer, to: str, text: str, strict: bool) -> None:
        self.ids += 1
        self.send(peer, f"m{self.ids}", to, text, strict)

    @rule(peer=peers, number=st.integers(1, 12), other=st.booleans())
    def send_again(self, peer: Peer, number: int, other: bool) -> None:
        """The same message again, or another under its id."""
        outcome = self.outcomes.get((peer.session or "", f"m{number}"))
        if outcome is not None:
            to, text = outcome.content
            self.send(peer, f"m{number}", to, "another" if other else text, strict=False)

    def send(self, peer: Peer, message_id: str, to: str, text: str, strict: bool) -> None:
        """Say it, in the model too."""
        if peer.closed:
            return
        if peer.session is None:
            peer.client.say({"type": "chat", "id": message_id, "to_session": to})
            peer.errors.append("NOT_REGISTERED")
            return
        payload: dict[str, Any] = {"text": text}
        if strict:
            payload["strict"] = True
        line = {
            "type": "chat",
            "id": message_id,
            "from_session": peer.session,
            "to_session": to,
            "channel": "test",
            "reply_to": None,
            "payload": payload,
            "timestamp": "t",
        }
        raw = json.dumps(line).encode()
        peer.client.say(raw + b"\n")
        key = (peer.session, message_id)
        before = self.outcomes.get(key)
        if before is not None:
            if before.content == (to, text):
                peer.tell(message_id, before.receipt)
            else:
                peer.tell(message_id, ("refused", "MESSAGE_ID_REUSE"))
            return
        self.deliver(peer, message_id, to, text, strict, len(raw) + 1)

    def deliver(
        self, peer: Peer, message_id: str, to: str, text: str, strict: bool, size: int
    ) -> None:
        """A new message, in the model."""
        assert peer.session is not None
        known = to == "*" or to in self.known
        if strict and not known:
            peer.tell(message_id, ("refused", "TARGET_NOT_FOUND"))
            return None
        audience = ({*self.holders} | self.reading) - {peer.session}
        targets = sorted(audience) if to == "*" else [to]
        held = [target for target in targets if target not in self.refusing]
        live = 0
        for target in held:
            live += self.push(target, message_id, size)
        if targets and not held:
            peer.tell(message_id, ("refused", "DISK_FULL"))
            return None
        receipt = ("stored", len(held), len(targets) - len(held), known)
        content = (to, text)
        if strict:
            return peer.tell(message_id, (*receipt, False))  # its payload is another, so not again
        self.outcomes[peer.session, message_id] = Outcome(*content, (*receipt, True))
        peer.tell(message_id, (*receipt, False))
        return None

    def push(self, target: str, message_id: str, size: int) -> int:
        """Into the inbox, and to whoever holds it; whether anybody does."""
        inbox = self.inboxes.setdefault(target, [])
        inbox.append((message_id, (inbox[-1][1] if inbox else 0) + size))
        holder = self.holders.get(target)
        if holder is None:
            return 0
        holder.pushes.append(message_id)
        if holder.client.transport.stalled and "cursor" not in holder.features:
            holder.missable.add(message_id)  # it may be over its limit
        return 1

    # -- what clients do with them ------------------------------------------------------------

    @rule(peer=peers)
    def acknowledge(self, peer: Peer) -> None:
        """What the last cursor named."""
        cursors = peer.client.heard("cursor")
        if peer.receives and "cursor" in peer.features and cursors:
            payload = cursors[-1]["payload"]
            peer.client.say({"type": "ack", "payload": payload})
            assert peer.session is not None
            self.read[peer.session] = max(self.read[peer.session], payload["offset"])

    @rule(peer=peers, by=st.integers(-300, 300).filter(bool), generation=st.integers(1, 2))
    def acknowledge_anything(self, peer: Peer, by: int, generation: int) -> None:
        """A place that no cursor named."""
        if peer.session is None or peer.closed:
            return
        if not peer.receives or "cursor" not in peer.features:
            peer.client.say({"type": "ack", "payload": {"offset": 0, "generation": 1}})
            peer.errors.append("BAD_ENVELOPE")
            return
        ends = [0, *(end for _, end in self.inboxes[peer.session])]
        cursors = peer.client.heard("cursor")
        offset = (cursors[-1]["payload"]["offset"] if cursors else 0) + by
        if offset < 0 or (generation == 1 and offset in ends):
            return
        payload = {"offset": offset, "generation": generation}
        peer.client.say({"type": "ack", "payload": payload})
        peer.errors.append("STALE_POSITION")

    @rule(peer=peers)
    def list_sessions(self, peer: Peer) -> None:
        if peer.session is not None and not peer.closed:
            peer.client.say({"type": "list"})
            absent = (self.known | self.reading) - {*self.holders}
            peer.lists.append((sorted(self.holders), sorted(absent)))

    @rule(peer=peers)
    def stall(self, peer: Peer) -> None:
        """It reads nothing for a while, or reads again."""
        transport = peer.client.transport
        transport.stalled = not transport.stalled

    @rule(peer=peers, line=st.sampled_from([b"{\n", b"[1]\n", b'{"type":"dance"}\n', b"\n"]))
    def murmur(self, peer: Peer, line: bytes) -> None:
        if peer.session is not None and not peer.closed:
            peer.client.say(line)
            peer.errors.append("UNKNOWN_TYPE" if b"dance" in line else "BAD_JSON")

    @rule(peer=peers)
    def speak_for_another(self, peer: Peer) -> None:
        if peer.session is not None and not peer.closed:
            peer.client.say({"type": "chat", "from_session": "boss", "to_session": "ada"})
            peer.errors.append("FROM_MISMATCH")

    # -- misfortunes --------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def refuse(self, name: str) -> None:
        """An inbox has no room, or has room again."""
        if name in self.refusing:
            self.refusing.discard(name)
            del self.hub.spool.refusals[name]
        else:
            self.refusing.add(name)
            self.hub.spool.refusals[name] = ("DISK_FULL", "no room")

    @rule(seconds=st.sampled_from([0.1, 1.5]))
    def wait(self, seconds: float) -> None:
        self.hub.advance(seconds)

    # -- always -------------------------------------------------------------------------------

    @invariant()
    def everybody_has_heard_what_is_true(self) -> None:
        for peer in self.all:
            if not peer.client.transport.stalled:
                self.heard(peer)

    def heard(self, peer: Peer) -> None:
        """One client has heard what the model says."""
        client = peer.client
        pushed = [line["id"] for line in client.heard("chat")]
        expected = [i for i in peer.pushes if i not in peer.missable or i in pushed]
        assert pushed == expected, peer.session
        receipts = [_short(line["reply_to"], line["payload"]) for line in client.heard("receipt")]
        assert receipts == peer.receipts
        errors = [line["payload"]["code"] for line in client.heard("error")]
        assert [code for code in errors if code != "LAGGED"] == peer.errors
        lists = [
            ([row["session"] for row in line["payload"]["sessions"]], line["payload"]["absent"])
            for line in client.heard("sessions")
        ]
        assert lists == peer.lists
        cursors = [line["payload"]["offset"] for line in client.heard("cursor")]
        assert cursors == sorted(set(cursors))
        if peer.receives and "cursor" in peer.features:
            inbox = self.inboxes[peer.session or ""]
            assert cursors, "a cursor is told at once"
            assert cursors[-1] == (inbox[-1][1] if inbox else 0)

    @invariant()
    def files_are_what_they_should_be(self) -> None:
        for name, inbox in self.inboxes.items():
            lines = [json.loads(line)["id"] for line in self.hub.spool.lines(name)]
            assert lines == [message_id for message_id, _end in inbox]
            assert self.hub.spool.inbox(name).offset == self.read.get(name, 0)

    @invariant()
    def who_is_live_is_published(self) -> None:
        assert self.hub.registry.sessions == tuple(sorted(self.holders))


def _short(message_id: str, payload: dict[str, Any]) -> tuple[Any, ...]:
    """A receipt as the model has it."""
    if payload["state"] == "refused":
        return (message_id, "refused", payload["code"])
    assert payload["state"] == "stored"
    assert payload["level"] == "disk"
    return (
        message_id,
        "stored",
        payload["recipients"],
        len(payload.get("failed", ())),
        payload.get("known", True),
        payload.get("duplicate", False),
    )


def go(runs: int, steps: int) -> None:
    """So many runs of so many steps."""
    run_state_machine_as_test(
        HubMachine,
        settings=settings(
            phases=[phase for phase in Phase if phase is not Phase.shrink or SHRINK],
            max_examples=runs,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_a_hub_says_what_the_model_says() -> None:
    go(60, 40)


@pytest.mark.slow
def test_a_hub_says_what_the_model_says_in_very_many_runs() -> None:
    go(RUNS, 50)
