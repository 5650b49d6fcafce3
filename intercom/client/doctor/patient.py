"""What the checks look at: one channel, with all that is found out about it only once."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from intercom.client.control import where
from intercom.client.doctor.inboxes import Scan, scan
from intercom.client.doctor.sight import HubState, see
from intercom.election.locks import leader
from intercom.errors import IntercomError
from intercom.names import file_name
from intercom.paths import ChannelPaths
from intercom.spool.boots import boot_id
from intercom.spool.calls import FileCalls
from intercom.spool.format import split_name
from intercom.spool.recovery import is_due

#: Prefix and ending of files that lie aside while an inbox is emptied.
KEEP = ".keep_"


def unix_socket() -> socket.socket:
    """A fresh Unix socket."""
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


@dataclass(frozen=True)
class World:
    """What surrounds a channel; tests put another in its place.

    :ivar now: epoch seconds.
    :ivar project: the project's directory, whose map of names is looked at, too.
    :ivar boot: names this start of the machine.
    :ivar mounts: where the kernel lists what is mounted.
    :ivar flock: takes a lock; ``statvfs`` tells what room there is; ``open_socket`` makes a
        Unix socket.
    """

    now: float
    environ: Mapping[str, str]
    project: str = "/"
    boot: Callable[[], str] = boot_id
    mounts: str = "/proc/self/mountinfo"
    flock: Callable[[int, int], None] = fcntl.flock
    statvfs: Callable[[str], os.statvfs_result] = os.statvfs
    open_socket: Callable[[], socket.socket] = unix_socket


class Patient:
    """One channel under examination. What it was is remembered: make another to look again.

    :param others: whether mail in other channels is of interest.
    """

    def __init__(self, paths: ChannelPaths, world: World, *, others: bool = True) -> None:
        self.paths = paths
        self.world = world
        self.others = others
        self.calls = FileCalls()

    @cached_property
    def names(self) -> list[str]:
        """Everything in the channel's directory.

        :raise OSError: it cannot be read.
        """
        return sorted(os.listdir(self.paths.directory))

    @cached_property
    def hub(self) -> HubState:
        """Whether a hub leads, and what it says."""
        return see(self.paths, self.world.environ)

    @cached_property
    def leader_pid(self) -> int | None:
        """Who leads, as the files tell it."""
        pid = leader(self.paths).get("pid")
        return pid if isinstance(pid, int) else None

    @cached_property
    def power_cut(self) -> bool:
        """Whether inboxes may lack what a journal of an earlier boot holds."""
        if self.hub.led:  # that one has recovered the channel when it began
            return False
        try:
            return is_due(self.paths, self.calls, self.world.boot())
        except (OSError, IntercomError):
            return False

    @cached_property
    def scans(self) -> list[Scan]:
        """Every inbox, and every position without one, by its encoded session."""
        encoded = set()
        for name in self.names:
            parts = split_name(name)
            if parts is not None and parts[0] in ("inbox", "offset", "meta"):
                encoded.add(parts[1])
            elif name.startswith(KEEP):
                encoded.add(name[len(KEEP) :])
        return [scan(self.paths, one, self.calls) for one in sorted(encoded)]

    @property
    def where(self) -> str:
        """The options by which a command finds this channel, as a shell takes them."""
        return where(self.paths)

    def has_file(self, kind: str, session: str, ending: str = ".json") -> bool:
        """Whether a session has one of its small files."""
        return f"{kind}_{file_name(session)}{ending}" in self.names
