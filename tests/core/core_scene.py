"""A core and the little that a shell would do for it, for the tests of this directory."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

from intercom.core import effects as fx
from intercom.core.hub import HubCore
from intercom.messages import Credentials, Envelope, Register, Welcome
from intercom.records import Batch, Position, Record, Written
from intercom.settings.limits import DEFAULTS, Limits
from intercom.wire import envelope as wire
from intercom.wire.notices import NoticeWriter


class Scene:
    """A core and the little that a shell would do for it, step by step."""

    credentials = Credentials(uid=1, pid=2)

    def __init__(
        self, durability: str = "disk", key: str | None = None, limits: Limits = DEFAULTS
    ) -> None:
        self.notices = itertools.count(1)
        notice = NoticeWriter("c", lambda: f"notice-{next(self.notices)}", lambda: "now")
        self.core = HubCore(durability, wire.digest, wire.identify, notice, key, limits)
        self.now = 1000.0
        self.tokens: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.numbers = 0

    def connect(self, needs_key: bool = False) -> int:
        self.numbers += 1
        self.core.connected(self.numbers, self.credentials, needs_key, self.now)
        return self.numbers

    def say(self, connection: int, message: Any) -> list[fx.Effect]:
        return self.core.submit(connection, message, self.now)

    def admit(self, effects: Iterable[fx.Effect]) -> list[fx.Effect]:
        """Do what each Admit asks."""
        out: list[fx.Effect] = []
        for effect in effects:
            if isinstance(effect, fx.Admit):
                token = self.tokens.get(effect.token_of) if effect.token_of else None
                out += self.core.admitted(effect.connection, token, self.now)
            else:
                out.append(effect)
        return out

    def join(self, session: str, *features: str, **options: Any) -> int:
        """Connect and register; its inbox is empty and read to the end."""
        number = self.connect()
        register = Register("r", session, tuple(features), **options)
        effects = self.admit(self.say(number, register))
        assert one(effects, fx.Answer, number, Welcome), effects
        if any(isinstance(e, fx.ReadInbox) for e in effects):
            end = Position(1, self.sizes.get(session, 0))
            self.core.inbox_read(number, Batch(end, [], end, True, []), self.now)
        return number

    def write(self, effects: Iterable[fx.Effect], **how: Any) -> list[fx.Effect]:
        """Append what is asked, and report it written."""
        outcomes = []
        for effect in effects:
            if isinstance(effect, fx.AppendEntry):
                entry = effect.entry
                outcomes.append(
                    Written(entry.ticket, entry.inbox, self.grow(entry.inbox, entry.line), 1, **how)
                )
        return self.core.written(outcomes, self.now)

    def grow(self, inbox: str, line: bytes) -> Record:
        start = self.sizes.get(inbox, 0)
        end = self.sizes[inbox] = start + len(line) + 1
        return Record(start, end, line)

    def store(self, effects: Iterable[fx.Effect], level: str = "disk") -> list[fx.Effect]:
        """Report what was appended as safe."""
        tickets = [e.entry.ticket for e in effects if isinstance(e, fx.AppendEntry)]
        return self.core.stored(tickets, level, self.now)


def chat(
    sender: str | None, to: str, message_id: str = "m1", text: str = "hi", **fields: Any
) -> Envelope:
    """A chat as the dialect would decode it."""
    line = wire.make(
        type="chat",
        message_id=message_id,
        from_session=sender or "x",
        to_session=to,
        channel="c",
        payload={"text": text},
        timestamp="2026-01-01T00:00:00.000000+00:00",
    )
    payload = b'{"text":"' + text.encode() + b'"}'
    return Envelope(message_id, sender, to, fields.pop("reply_to", None), payload, line, **fields)


def answers(effects: Iterable[fx.Effect], connection: int, kind: type = object) -> list[Any]:
    """What a connection is told."""
    return [
        e.reply
        for e in effects
        if isinstance(e, fx.Answer) and e.connection == connection and isinstance(e.reply, kind)
    ]


def one(effects: Iterable[fx.Effect], effect: type, connection: int, kind: type) -> Any:
    """The only such answer."""
    found = answers(effects, connection, kind)
    assert len(found) == 1, found
    return found[0]


def pushes(effects: Iterable[fx.Effect], connection: int) -> list[bytes]:
    """What is pushed to a connection."""
    return [e.line for e in effects if isinstance(e, fx.Push) and e.connection == connection]


def kinds(effects: Iterable[fx.Effect], kind: type) -> list[Any]:
    return [e for e in effects if isinstance(e, kind)]


def batch(scene: Scene, inbox: str, lines: list[bytes], at_end: bool = True) -> Batch:
    """What a read of an inbox finds, once these lines are appended."""
    start = Position(1, scene.sizes.get(inbox, 0))
    records = [scene.grow(inbox, line) for line in lines]
    return Batch(start, records, Position(1, scene.sizes.get(inbox, 0)), at_end, [])
