"""The workloads: who sends how much to whom, and what is asked of the outcome."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Workload:
    """A load through connections. A sender's messages go to the receivers in turn.

    :ivar figure: the one by which servers are compared, a key of the load's result.
    :ivar window: messages that a sender has under way at most: sent, but not yet arrived
        or, where the server confirms, not yet confirmed.
    :ivar size: characters of a text. :ivar messages: of all senders together.
    :ivar rate: messages a second of each sender; 0 sends as fast as the window allows.
    :ivar fan_out: each message goes to all receivers.
    :ivar reads: the receivers read; otherwise they do so only when all is sent.
    :ivar parts: so many parts, one after another, each with a time of its own.
    :ivar idle: connections that say nothing; they come when a part of this load has
        been measured without them.
    :ivar beside: a load that goes on beside this one, likewise; this one ends with it.
    """

    name: str
    figure: str
    messages: int
    senders: int = 1
    receivers: int = 1
    window: int = 1
    size: int = 200
    rate: float = 0.0
    fan_out: bool = False
    reads: bool = True
    parts: int = 1
    idle: int = 0
    beside: Workload | None = None

    @property
    def disturbed(self) -> bool:
        """Whether this load is measured twice: by itself, and with something beside it."""
        return bool(self.idle or self.beside)

    @property
    def stalls(self) -> bool:
        """Whether a receiver does not read."""
        return self.beside is not None and not self.beside.reads

    @property
    def title(self) -> str:
        """In words."""
        way = "each to all of" if self.fan_out else "to"
        stalled = "" if self.reads else " that do not read" if self.receivers > 1 else " stalled"
        pace = f"{self.rate:g} a second" if self.rate else f"window {self.window}"
        told = f"{self.senders} {way} {self.receivers}{stalled}, {pace}, {self.size} B texts"
        told += f", {self.messages} messages"
        if self.parts > 1:
            told += f" in {self.parts} parts"
        if self.idle:
            told += f", with {self.idle} idle connections"
        return told + (f"; beside {self.beside.title}" if self.beside is not None else "")

    def changed(self, **changes: Any) -> Workload:
        """Another of the same shape; what is None stays, and a load beside it changes, too."""
        changes = {name: value for name, value in changes.items() if value is not None}
        beside = self.beside and dataclasses.replace(self.beside, **changes)
        return dataclasses.replace(self, **changes, beside=beside)

    @classmethod
    def from_fields(cls, fields: dict[str, Any]) -> Workload:
        """From what ``dataclasses.asdict`` has made of one."""
        beside = fields["beside"]
        return cls(**{**fields, "beside": beside and cls.from_fields(beside)})


_SPEED, _DELAY = "messages_per_s", "arrival_p50_us"

_FLOOD = Workload("flood", _SPEED, 80_000, senders=8, receivers=8, window=64)
# 32 MiB of texts: an inbox takes 64 MiB, as we ship it.
_INTO_NOTHING = Workload("flood", _SPEED, 8_000, window=64, size=4096, reads=False)

LOADS = {
    load.name: load
    for load in (
        Workload("bulk", _SPEED, 40_000, senders=8, receivers=8, window=64),
        Workload("bulk-4k", _SPEED, 16_000, senders=8, receivers=8, window=64, size=4096),
        Workload("chatty", _SPEED, 16_000, senders=64, receivers=32),
        Workload("fan-out", _SPEED, 3_000, receivers=10, window=64, fan_out=True),
        Workload("fan-out-100", _SPEED, 600, receivers=100, window=64, fan_out=True),
        Workload("ping-pong", _DELAY, 2_000),
        Workload("ping-pong-4k", _DELAY, 2_000, size=4096),
        Workload("paced", _DELAY, 1_500, window=64, rate=500.0),
        Workload("paced-4k", _DELAY, 1_500, window=64, rate=500.0, size=4096),
        Workload("idle-1000", _DELAY, 2_000, idle=1_000),
        Workload("idle-5000", _DELAY, 2_000, idle=5_000),
        Workload("stalled", _DELAY, 40_000, beside=_INTO_NOTHING),
        Workload("probe", _DELAY, 3_000, window=64, rate=200.0, beside=_FLOOD),
        Workload("decay", "kept", 200_000, senders=8, receivers=8, window=64, parts=10),
    )
}
#: Workloads of whole processes, see :mod:`gauge.processes`.
PROCESSES = ("send", "poll", "cold-start")

GROUPS = {
    "throughput": ("bulk", "bulk-4k", "chatty", "fan-out", "fan-out-100"),
    "latency": ("ping-pong", "ping-pong-4k", "paced", "paced-4k"),
    "strain": ("idle-1000", "idle-5000", "stalled", "probe", "decay"),
    "processes": PROCESSES,
    "all": (*LOADS, *PROCESSES),
}
