"""A broker, and a shell that does in memory what its effects ask, one after the other."""

from __future__ import annotations

import json
import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from intercom.core.bus import effects as fx
from intercom.core.bus.broker import Broker
from intercom.core.bus.directory import Known
from intercom.core.bus.limits import Limits
from intercom.records import Appeared, Batch, Entry, Position, Record, Refused, Written
from intercom.wire.envelope import format_timestamp, make
from intercom.wire.pi.fields import Variant
from intercom.wire.pi.replies import may_be_sent
from intercom.wire.pi.sessions import variant_of

Frame = dict[str, Any]
SESSION = {"cwd": "/w", "model": "m", "pid": 1, "startedAt": 2, "lastActivity": 3}
PLAIN = {"cwd": "/w", "model": "m"}
STATE_ID = "the-state-id"


class Files:
    """What outlives a broker: inboxes, their positions, asks, states."""

    def __init__(self) -> None:
        self.inboxes: dict[str, list[Record]] = {}
        self.positions: dict[str, int] = {}
        self.keys: dict[tuple[str, str, str], tuple[bytes, Record]] = {}
        self.skipped: set[tuple[str, int]] = set()
        self.asks: dict[tuple[str | None, str], dict[str, Any]] = {}
        self.states: dict[str, tuple[int, Any]] = {}
        self.roll: list[Known] = []
        self.staged: dict[str, Entry] = {}

    def append(self, inbox: str, line: bytes) -> Record:
        lines = self.inboxes.setdefault(inbox, [])
        start = lines[-1].end if lines else 0
        record = Record(start, start + len(line) + 1, line)
        lines.append(record)
        return record

    def read(self, inbox: str, start: tuple[int, int] | None, lines: int = 3) -> Batch:
        begin = self.positions.get(inbox, 0) if start is None else start[1]
        behind = [one for one in self.inboxes.get(inbox, []) if one.start >= begin]
        some = behind[:lines]
        after = Position(1, some[-1].end if some else begin)
        shown = [one for one in some if (inbox, one.start) not in self.skipped]
        return Batch(Position(1, begin), shown, after, len(some) == len(behind), [])


class Scene:
    """A broker and its shell. ``said`` holds what was said and done, in order.

    :ivar failing: kinds of effects that fail: ``ask``, ``state``, ``keep``, ``read``.
    :ivar held: kinds of effects that are not answered until :meth:`let_go`.
    """

    def __init__(self, files: Files | None = None, limits: Limits | None = None) -> None:
        self.files = files or Files()
        self.limits = limits
        self.now = 1_000_000
        self.drawn = self.life = 0
        self.numbers: dict[str, int] = {}
        self.names: dict[int, str] = {}
        self.variants: dict[int, Variant] = {}
        self.closed: set[int] = set()
        self.said: list[tuple[str, Any]] = []
        self.failing: set[str] = set()
        self.held: set[str] = set()
        self.kept_back: list[tuple[str, Callable[[], list[fx.Effect]]]] = []
        self.rows: dict[str, Frame] = {}
        self.since: dict[str, int] = {}
        self._last = 0
        self.open()

    def open(self) -> None:
        """Begin, or begin again with the same files."""
        self.life += 1
        self.broker = Broker(
            draw=self.draw,
            resolve=posixpath.normpath,
            channel="c",
            state_id=STATE_ID,
            limits=self.limits,
        )
        records = [(scope, record) for (scope, _), record in self.files.asks.items()]
        self.run(self.broker.restored_asks(records, self.now))
        self.run(self.broker.restored_roll(self.files.roll, self.now))
        for inbox in list(self.broker.inboxes):
            batch = self.files.read(inbox, None, lines=10_000)
            self.run(self.broker.found(inbox, batch, self.now))
        self.run(self.broker.restored_staged(list(self.files.staged.items()), self.now))
        self.run(self.broker.opened(self.now))

    def restart(self) -> None:
        """The hub dies, and another one begins."""
        self.numbers.clear()
        self.kept_back.clear()
        self.open()
        self.said.clear()

    def draw(self) -> str:
        self.drawn += 1
        return f"u{self.drawn}"

    # -- inputs

    def connect(self, name: str, trusted: bool = True) -> None:
        self._last += 1
        self.numbers[name] = self._last
        self.names[self._last] = name
        self.run(self.broker.connected(self._last, trusted, self.now))

    def say(self, name: str, frame: Frame) -> None:
        number = self.numbers[name]
        if self.variants.get(number) == "subagents":
            self.rows[name] = {**self.rows[name], "lastSeen": self.now}
        if frame["type"] == "register":
            variant = variant_of(frame.get("session")) or "intercom"
            self.variants.setdefault(number, variant)
            if variant == "intercom":
                self._expect_row(name, frame)
            else:
                self._expect_plain_row(name, frame)
        self.run(self.broker.received(number, frame, self.now))

    def join(self, name: str, session: Frame | None = None, **fields: Any) -> None:
        """Connect and register; what comes of it is not kept."""
        self.connect(name)
        fields.setdefault("sessionId", name)
        self.say(name, {"type": "register", "session": {**SESSION, **(session or {})}, **fields})
        self.said.clear()

    def join_plain(self, name: str, session: Frame | None = None, **fields: Any) -> None:
        """The same for a pi-subagents client."""
        self.connect(name)
        fields.setdefault("requestedId", f"{name}-session")
        self.say(name, {"type": "register", "session": {**PLAIN, **(session or {})}, **fields})
        self.said.clear()

    def do(self, verb: str, name: str) -> None:
        self.run(getattr(self.broker, verb)(self.numbers[name], self.now))

    def elsewhere(self, name: str, info: Frame | None) -> None:
        """A session that speaks lines comes or changes, or goes (None)."""
        broker = self.broker
        if info is None:
            self.run(broker.left_elsewhere(name, self.now))
            return
        times = {"startedAt": self.now, "lastActivity": self.now}
        unknown = {"cwd": "unknown", "model": "unknown", "pid": 0, **times}
        self.rows[name] = {"id": name, **unknown, **info}
        self.run(broker.joined_elsewhere(name, info, self.now))

    def write(self, sender: str, to: str, message_id: str, payload: Frame) -> None:
        """The hub core stores a line of such a session, and tells of it."""
        line = make(
            type="chat",
            message_id=message_id,
            from_session=sender,
            to_session=to,
            channel="c",
            payload=payload,
            reply_to=payload.pop("reply_to", None),
            timestamp=format_timestamp(self.now / 1000),
        )
        self.files.append(to, line)
        self.run(self.broker.written([Appeared(to, 1, [])], self.now))

    def closing(self) -> None:
        self.run(self.broker.closing(self.now))

    def tick(self, ms: int = 0) -> None:
        self.now += ms
        self.run(self.broker.tick(self.now))

    def _expect_row(self, name: str, frame: Frame) -> None:
        """The row that others will see, if the register is taken."""
        session = frame.get("session", {})
        drawn = self.drawn + (0 if "sessionId" in frame else 1)
        self.rows[name] = {
            "id": frame.get("sessionId", f"u{self.drawn + 1}"),
            "endpointEpoch": f"u{drawn + 1}",
            **{key: value for key, value in session.items() if key != "extensions"},
            "trustedLocal": True,
        }

    def _expect_plain_row(self, name: str, frame: Frame) -> None:
        """What its own kind will see of a pi-subagents client."""
        session, wished = frame["session"], frame.get("requestedId", "")
        free = len(wished) >= 8 and wished not in {row["id"] for row in self.rows.values()}
        session_id = wished if free else f"u{self.drawn + 1}"
        self.rows[name] = {"lastSeen": self.now, **session, "id": session_id}
        self.since[name] = self.now

    def seen(self, name: str) -> Frame:
        """What pi-intercom clients see of a session."""
        row = self.rows[name]
        if name not in self.since:
            return row
        kept = {key: row[key] for key in ("id", "name", "cwd", "model", "status") if key in row}
        times = {"startedAt": self.since[name], "lastActivity": row["lastSeen"]}
        return {**kept, "pid": row.get("pid", 0), **times}

    # -- effects

    def run(self, effects: Iterable[fx.Effect]) -> None:
        """Do what is asked, and what comes of that."""
        todo = deque(effects)
        while todo:
            effect = todo.popleft()
            if isinstance(effect, fx.SaveRoll):
                self.files.roll = self.broker.roll
            if isinstance(effect, fx.SaveStaged | fx.DropStaged):
                answer = self._remember(effect)
            else:
                answer = self._perform(effect)
            kind = _KINDS.get(type(effect), "")
            if answer is None:
                continue
            if kind in self.held:
                self.kept_back.append((kind, answer))
            else:
                todo.extend(answer())

    def let_go(self, kind: str) -> None:
        """Answer what was held of this kind, in order; no longer hold it."""
        self.held.discard(kind)
        now, self.kept_back = self.kept_back, []
        for what, answer in now:
            if what == kind:
                self.run(answer())
            else:
                self.kept_back.append((what, answer))

    def _perform(self, effect: fx.Effect) -> Callable[[], list[fx.Effect]] | None:
        match effect:
            case fx.Say(number, data):
                self._heard(number, data)
            case fx.Close(number, after_flush):
                self.closed.add(number)
                self.said.append((self.names[number], "ends" if after_flush else "closes"))
            case fx.Keep():
                return self._keep(effect)
            case fx.Read(inbox, start):
                return self._read(inbox, start)
            case fx.Commit(ticket, inbox, _, offset):
                assert offset >= self.files.positions.get(inbox, 0)
                assert offset in {0, *(one.end for one in self.files.inboxes.get(inbox, []))}
                self.files.positions[inbox] = offset
                left = [one for one in self.files.inboxes[inbox] if one.start >= offset]
                self._did("commit", inbox, len(left))
                return lambda: self.broker.saved(ticket, True, self.now)
            case fx.Skip(ticket, inbox, _, start, _, code):
                self.files.skipped.add((inbox, start))
                self._did("skip", inbox, code)
                return lambda: self.broker.saved(ticket, True, self.now)
            case fx.Discard(inbox):
                self.files.inboxes.pop(inbox, None)
                self._did("discard", inbox)
            case fx.SaveAsk() | fx.RemoveAsk() | fx.SaveState() | fx.LoadState():
                return self._file(effect)
            case fx.Hold(number) | fx.Release(number) | fx.Watch(number):
                self._did(type(effect).__name__.lower(), self.names[number])
            case fx.Wake(at):
                self._did("wake", at - self.now)
            case fx.Leave():
                self._did("leave")
        return None

    def _did(self, *what: Any) -> None:
        self.said.append(("!", what))

    def _heard(self, number: int, data: bytes) -> None:
        frame = json.loads(data[4:])
        assert int.from_bytes(data[:4]) == len(data) - 4 <= 1 << 20
        if number in self.closed:
            return
        variant = self.variants.get(number)
        assert may_be_sent(frame, variant), frame
        self.said.append((self.names[number], _without_our_epochs(frame)))

    def _keep(self, effect: fx.Keep) -> Callable[[], list[fx.Effect]]:
        entry, broker, files = effect.entry, self.broker, self.files
        self._did("keep", entry.inbox, entry.message_id)
        if "keep" in self.failing:
            refused = Refused(entry.ticket, entry.inbox, "DISK_FULL", "no room")
            return lambda: broker.written([refused], self.now)
        key = (entry.inbox, entry.sender, entry.message_id)
        known = files.keys.get(key)
        if known is not None and known[0] != entry.digest:
            refused = Refused(entry.ticket, entry.inbox, "MESSAGE_ID_REUSE", "spent")
            return lambda: broker.written([refused], self.now)
        record = known[1] if known else files.append(entry.inbox, entry.line)
        files.keys[key] = (entry.digest, record)
        written = Written(entry.ticket, entry.inbox, record, 1, duplicate=known is not None)

        def answer() -> list[fx.Effect]:
            first = broker.written([written], self.now)
            return [*first, *broker.stored([entry.ticket], self.now)]

        return answer

    def _read(self, inbox: str, start: tuple[int, int] | None) -> Callable[[], list[fx.Effect]]:
        broker = self.broker
        if "read" in self.failing:
            return lambda: broker.unreadable(inbox, self.now)
        batch = self.files.read(inbox, start)
        return lambda: broker.found(inbox, batch, self.now)

    def _remember(
        self, effect: fx.SaveStaged | fx.DropStaged
    ) -> Callable[[], list[fx.Effect]] | None:
        mark = effect.mark
        named = mark if isinstance(mark, str) else f"{self.life}:{mark}"
        if isinstance(effect, fx.DropStaged):
            self.files.staged.pop(named, None)
            return None
        ok = "staged" not in self.failing
        if ok:
            self.files.staged[named] = effect.entry
        return lambda: self.broker.saved(effect.mark, ok, self.now)

    def _file(self, effect: Any) -> Callable[[], list[fx.Effect]]:
        files, broker = self.files, self.broker
        ok = True
        match effect:
            case fx.SaveAsk(_, scope, record):
                ok = "ask" not in self.failing
                if ok:
                    files.asks[scope, record["messageId"]] = record
                self._did("ask", record["messageId"])
            case fx.RemoveAsk(_, scope, message_id):
                files.asks.pop((scope, message_id), None)
                self._did("unask", message_id)
            case fx.SaveState(_, namespace, revision, payload):
                ok = "state" not in self.failing
                if ok:
                    files.states[namespace] = (revision, payload)
                self._did("state", namespace, revision)
            case fx.LoadState(ticket, namespace):
                revision, payload = files.states.get(namespace, (0, None))
                return lambda: broker.loaded(ticket, revision, payload, self.now)
        return lambda: broker.saved(effect.ticket, ok, self.now)


def _without_our_epochs(value: Any) -> Any:
    """The same without the epochs of sessions whose own dialect has none."""
    if isinstance(value, list):
        return [_without_our_epochs(one) for one in value]
    if not isinstance(value, dict):
        return value
    ours = re.fullmatch(r"\d+-\d+", str(value.get("endpointEpoch")))
    return {
        key: _without_our_epochs(one)
        for key, one in value.items()
        if not (ours and key == "endpointEpoch")
    }


_KINDS = {
    fx.Keep: "keep",
    fx.SaveStaged: "staged",
    fx.Read: "read",
    fx.SaveAsk: "ask",
    fx.RemoveAsk: "unask",
    fx.SaveState: "state",
    fx.LoadState: "load",
}
