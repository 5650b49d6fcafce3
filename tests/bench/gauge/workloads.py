"""The workloads: who sends how much to whom, and what is asked of the outcome."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A load through connections. A sender's messages go to the receivers in turn.

    :ivar figure: the one by which servers are compared, a key of the load's result.
    :ivar window: messages that a sender has under way at most: sent, but not yet arrived
        or, where the server confirms, not yet confirmed.
    :ivar size: characters of a text. :ivar messages: of all senders together.
    :ivar rate: messages a second of each sender; 0 sends as fast as the window allows.
    :ivar fan_out: each message goes to all receivers.
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

    @property
    def title(self) -> str:
        """In words."""
        way = "each to all of" if self.fan_out else "to"
        pace = f"{self.rate:g} a second" if self.rate else f"window {self.window}"
        return (
            f"{self.senders} {way} {self.receivers}, {pace}, {self.size} B texts, "
            f"{self.messages} messages"
        )


_SPEED, _DELAY = "messages_per_s", "arrival_p50_us"

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
    )
}
#: Workloads of whole processes, see :mod:`gauge.processes`.
PROCESSES = ("send", "cold-start")

GROUPS = {
    "throughput": ("bulk", "bulk-4k", "chatty", "fan-out", "fan-out-100"),
    "latency": ("ping-pong", "ping-pong-4k", "paced", "paced-4k"),
    "processes": PROCESSES,
    "all": (*LOADS, *PROCESSES),
}
