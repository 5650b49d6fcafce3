"""What processes and the machine used: processor time, memory. Linux."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process with all its threads, living and ended.

    The kernel numbers the clock of each process: its pid's complement, and 2 for
    "scheduled time" (what ``clock_getcpuclockid`` computes).
    """
    return time.clock_gettime((~pid << 3) | 2)


def memory_mib(pid: int) -> float:
    """Resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def peak_mib(pid: int) -> float:
    """The most resident memory since :func:`reset_peak`, or since the process began."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return memory_mib(pid)


def reset_peak(pid: int) -> None:
    """Have the peak counted from now on, where we may: another user's process stays as it is."""
    with suppress(OSError):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


def _machine() -> float:
    """Seconds that all processors together were busy since the start of the machine."""
    user, nice, system, _, _, irq, softirq = map(
        int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    )
    return (user + nice + system + irq + softirq) / _TICKS


class Meter:
    """Reads, between its making and :meth:`read`, who used the processors.

    :param pid: the server's process; this process is the load generator.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._begun = self._now()

    def _now(self) -> tuple[float, float, float, float]:
        return time.perf_counter(), cpu_seconds(self._pid), time.process_time(), _machine()

    def read(self) -> dict[str, float]:
        """Shares of one processor: server, load generator, everything else on the machine."""
        wall, server, own, machine = (
            now - then for now, then in zip(self._now(), self._begun, strict=True)
        )
        return {
            "seconds": wall,
            "server_cpu_s": server,
            "server_busy": server / wall,
            "load_busy": own / wall,
            "others_busy": max(0.0, machine - server - own) / wall,
        }
