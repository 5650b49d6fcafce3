"""Processes as the kernel shows them: whose they are, and whether one has certainly ended.

A pid alone says little: it is given again, and means another process in another
namespace or after a restart of the machine. Here a process is its pid with its start
time, and what is said of it is said of the namespace and boot in which it was seen.
Standard library only; without ``/proc`` little is known, and never more is claimed.
"""

from __future__ import annotations

import os

from intercom.tuples import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

#: No line of ancestors is followed further than this.
MOST_ANCESTORS = 64


class Process(NamedTuple):
    """A process, told apart from every other that had its pid.

    :ivar start: ticks from boot to its start, 0 if not known.
    :ivar boot: which start of the machine its numbers belong to, and ``space`` which process
        namespace; empty if not known.
    :ivar machine: the machine's name.
    """

    pid: int
    start: int
    boot: str
    space: str
    machine: str


class Status(NamedTuple):
    """What the kernel says of a process now.

    :ivar terminal: device number of the controlling terminal, 0 for none.
    :ivar session: pid of the session's leader; 0 if that is in an outer namespace.
    """

    state: str
    parent: int
    session: int
    terminal: int
    start: int


class Table:
    """The processes that we can see.

    :param root: where the kernel shows them.
    """

    def __init__(self, root: str = "/proc") -> None:
        self._root = root
        self._boot = self._line("sys/kernel/random/boot_id")
        self._machine = os.uname().nodename
        try:
            self._space = os.readlink(os.path.join(root, "self/ns/pid"))
        except OSError:
            self._space = ""

    @property
    def own(self) -> int:
        """Our own pid as it stands here: as another namespace has it, if that one was mounted."""
        try:
            return int(os.readlink(os.path.join(self._root, "self")))
        except (OSError, ValueError):
            return os.getpid()

    def status(self, pid: int) -> Status | None:
        """What there is to know of a process, None if it is not to be seen."""
        text = self._line(f"{pid}/stat")
        fields = text[text.rfind(")") + 1 :].split()  # its name may hold anything
        try:
            return Status(
                fields[0], int(fields[1]), int(fields[3]), int(fields[4]), int(fields[19])
            )
        except (IndexError, ValueError):
            return None

    def environ(self, pid: int) -> frozenset[bytes]:
        """The variables that a process was started with, as far as we may see them."""
        try:
            with open(os.path.join(self._root, str(pid), "environ"), "rb") as file:
                return frozenset(file.read().split(b"\0"))
        except OSError:
            return frozenset()

    def ancestors(self, pid: int) -> Iterator[int]:
        """A process, its parent, and so on, as far as they are to be seen."""
        for _ in range(MOST_ANCESTORS):
            found = self.status(pid)
            if found is None:
                return
            yield pid
            pid = found.parent

    def process(self, pid: int) -> Process | None:
        """A process of which we see at least that it is there."""
        found = self.status(pid)
        if found is None and (self._boot or not _exists(pid)):
            return None
        start = found.start if found is not None else 0
        return Process(pid, start, self._boot, self._space, self._machine)

    def has_ended(self, process: Process) -> bool | None:
        """Whether a process is certainly gone; None if that cannot be told from here.

        False means that it runs. After a restart of its machine none of its processes does.
        """
        if process.machine != self._machine:
            return None
        if process.boot != self._boot:
            return True if process.boot and self._boot else None
        if process.space != self._space:
            return None
        found = self.status(process.pid)
        if found is None:
            return None if _exists(process.pid) else True
        if not process.start:
            return None
        return found.start != process.start or found.state in "ZX"

    def _line(self, name: str) -> str:
        """The content of a small file, empty if there is none."""
        try:
            with open(os.path.join(self._root, name), encoding="utf-8", errors="replace") as file:
                return file.read().strip()
        except OSError:
            return ""


def _exists(pid: int) -> bool:
    """Whether some process has this pid."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def dump(process: Process | None) -> dict[str, Any] | None:
    """Write a process for a file."""
    return None if process is None else process._asdict()


def parse(fields: object) -> Process | None:
    """Read a process from a file.

    :raise ValueError: it is none.
    """
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise ValueError("a process must be an object")
    pid, start = fields.get("pid"), fields.get("start")
    names = [fields.get(name) for name in ("boot", "space", "machine")]
    if type(pid) is not int or type(start) is not int or not 0 < pid < 1 << 31:
        raise ValueError("a process must have pid and start")
    if not all(isinstance(name, str) for name in names):
        raise ValueError("a process must have boot, space and machine")
    return Process(pid, start, *map(str, names))
