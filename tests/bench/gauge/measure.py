"""One measurement: the load generator's process, ``python -m gauge.measure``.

It reads a :class:`Job` as JSON from standard input and writes its figures as JSON to
standard output.
"""

from __future__ import annotations

import gc
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

from gauge.flows import Flow
from gauge.load import Job, Load
from gauge.texts import Broken
from gauge.usage import Meter, memory_mib, peak_mib, reset_peak

#: Seconds to go on listening at the end for what must not come.
AFTERMATH = 0.1
#: Of each sender's messages, the part that is sent before times are taken: by then inboxes
#: exist and caches are warm.
WARM_UP = 0.05
#: And the part that is measured before something comes beside it.
CALM = 0.25
#: Seconds for a server to see to a thousand connections that have just come.
SETTLING = 0.5


class Measurement:
    """A job while it is done.

    :ivar figures: what was found.
    """

    def __init__(self, job: Job, load: Load) -> None:
        self._job = job
        self._load = load
        self._work = job.workload
        self.figures: dict[str, Any] = {"rest_mib": memory_mib(job.pid)}
        reset_peak(job.pid)
        self._main = load.flow(self._work)

    def take(self) -> None:
        """Warm up, and do what the workload wants.

        :raise Broken: a message was lost, repeated, damaged, out of order or refused.
        """
        each = self._work.messages // self._work.senders
        warm = int(each * WARM_UP)
        self._run(self._main, warm)
        self._main.forget()
        left = each - warm
        if self._work.disturbed:
            messages = self._with_something_beside(left)
        elif self._work.parts > 1:
            messages = self._in_parts(left // self._work.parts)
        else:
            messages = self._plainly(left)
        self.figures |= {
            "messages": messages,
            "messages_per_s": messages / self.figures["seconds"],
            "cpu_s_per_100k": self.figures["server_cpu_s"] * 1e5 / messages,
            **times(self._main),
            "memory_mib": memory_mib(self._job.pid),
            "peak_mib": peak_mib(self._job.pid),
            "notes": self._load.notes,
        }

    def _run(self, flow: Flow, each: int) -> None:
        flow.fill(each)
        self._load.run(self._job.seconds, flow)

    def _plainly(self, each: int) -> int:
        """The whole load at once; how many messages that was."""
        self._main.fill(each)
        meter = Meter(self._job.pid)
        self._load.run(self._job.seconds, self._main)
        used = meter.read()
        self._load.listen_on(AFTERMATH)
        # Positions that were acknowledged last are still being written when all has arrived.
        used["server_cpu_s"] = meter.read()["server_cpu_s"]
        self.figures |= used
        return self._main.arrived * (self._work.receivers if self._work.fan_out else 1)

    def _in_parts(self, each: int) -> int:
        """One part after another: does the server get slower, or larger?"""
        pid, parts = self._job.pid, []
        messages = 0
        for _ in range(self._work.parts):
            messages += self._plainly(each)
            parts.append(dict(self.figures, arrived=self._main.arrived, mib=memory_mib(pid)))
        first, last = parts[0], parts[-1]
        for key in ("seconds", "server_cpu_s"):
            self.figures[key] = sum(part[key] for part in parts)
        for key in ("server_busy", "load_busy", "others_busy"):
            self.figures[key] = statistics.mean(part[key] for part in parts)
        self.figures |= {
            "kept": (last["arrived"] / last["seconds"]) / (first["arrived"] / first["seconds"]),
            "cpu_grown": (last["server_cpu_s"] / last["arrived"])
            / (first["server_cpu_s"] / first["arrived"]),
            "grown_mib": last["mib"] - first["mib"],
        }
        return messages

    def _with_something_beside(self, each: int) -> int:
        """A part by itself, and the rest beside what disturbs it."""
        calm = max(1, int(each * CALM))
        if self._work.rate:  # a second is enough
            calm = min(calm, int(self._work.rate))
        elif self._work.beside is not None:
            calm = min(calm, 1000)
        self._run(self._main, calm)
        calm_us = self.figures["calm_us"] = delays("", self._main.arrival_s)["_p50_us"]
        self._main.forget()
        pid = self._job.pid
        reset_peak(pid)
        before = memory_mib(pid)
        if self._work.idle:
            self._add_idle(before)
            messages = self._plainly(each - calm)
        else:
            messages = self._beside(each - calm, before)
        self.figures["times_calm"] = delays("", self._main.arrival_s)["_p50_us"] / calm_us
        return messages

    def _add_idle(self, before: float) -> None:
        count = self._work.idle
        begun = time.perf_counter()
        self._load.idle(count)
        self.figures["connects_per_s"] = count / (time.perf_counter() - begun)
        self._load.listen_on(SETTLING * (1 + count / 1000))
        grown = memory_mib(self._job.pid) - before
        self.figures["kib_each"] = grown * 1024 / count

    def _beside(self, each: int, before: float) -> int:
        """The rest of the load, for as long as another one lasts."""
        shape = self._work.beside
        assert shape is not None
        flood = self._load.flow(shape)
        flood.fill(shape.messages // shape.senders)
        self._main.fill(each)
        meter = Meter(self._job.pid)
        self._load.run(self._job.seconds, self._main, flood)
        used = meter.read()
        flooded = sum(sender.sent for sender in flood.senders)
        if not shape.reads:
            self._load.wake(flood)
            self.figures["fate"] = flood.fate or "all came later"
            self.figures["stalled_mib"] = peak_mib(self._job.pid) - before
        self._load.listen_on(AFTERMATH)
        self.figures |= used
        self.figures["flood_per_s"] = flooded / used["seconds"]
        return self._main.arrived + flooded


def times(flow: Flow) -> dict[str, float]:
    """How long things took."""
    return {
        **delays("arrival", flow.arrival_s),
        **delays("receipt", flow.receipt_s),
        **delays("late", flow.late_s),
    }


def delays(name: str, seconds: list[float]) -> dict[str, float]:
    """Percentiles, in microseconds."""
    ordered = sorted(seconds)
    return {
        f"{name}_{mark}_us": ordered[min(len(ordered) - 1, int(len(ordered) * part))] * 1e6
        for mark, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
        if ordered
    }


def measure(job: Job) -> dict[str, Any]:
    """Do a job.

    :raise Broken: a message was lost, repeated, damaged, out of order or refused.
    """
    with closing(Load(job)) as load:
        measurement = Measurement(job, load)
        measurement.take()
        return measurement.figures


def main(read: Callable[[], str] = sys.stdin.read) -> int:
    """Do the job on standard input; a server that failed is told on standard error, status 1."""
    gc.disable()  # its pauses would be taken for the server's
    try:
        result = measure(Job.from_json(read()))
    except (Broken, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
