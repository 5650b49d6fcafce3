"""Servers that others made, from Debian's packages, each with a configuration of its own.

Each runs as we run it, in a fresh directory: no service of the machine is touched. What
is not said here is as the program has it by default.
"""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from gauge.addresses import free_port, tcp
from gauge.server import Target, program


class Lines(Target):
    """The hub that one writes first with Twisted, see :mod:`gauge.lines`."""

    name = "line-receiver"
    dialect = "Ndjson"

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [sys.executable, "-m", "gauge.lines", self.address(place)]


class Redis(Target):
    """Redis streams on a Unix socket.

    :param fsync: when the append-only file is synced: ``everysec``, ``always``.
    :param shared: a message to all goes into one stream that all read, and not into each's.
    """

    def __init__(self, fsync: str, shared: bool = False) -> None:
        self.name = f"redis-{fsync}" + ("-shared" if shared else "")
        self.dialect = "RedisShared" if shared else "RedisStreams"
        self.twin = shared
        self.promise = f"fsync {fsync}"
        self._fsync = fsync

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        return [
            program("redis-server", "redis-server"),
            *("--port", "0", "--unixsocket", self.address(place), "--dir", str(place)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", self._fsync),
        ]


class Nats(Target):
    """NATS on a loopback port: core, or JetStream with its stream in a file.

    :param dialect: ``Nats``, ``JetStream`` or ``JetStreamAcks``.
    """

    def __init__(self, name: str, dialect: str) -> None:
        self.name = name
        self.dialect = dialect
        self.twin = dialect == "JetStreamAcks"
        self.promise = "nothing kept" if dialect == "Nats" else "file, sync each 2 min"
        if dialect != "Nats":
            self.crowd = 1000  # two consumers each: to make 10,000 takes minutes
        self._port = 0

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        self._port = free_port()
        lines = ["host: 127.0.0.1", f"port: {self._port}"]
        if self.dialect != "Nats":
            lines.append(f'jetstream {{ store_dir: "{place / "store"}" }}')
        file = place / "nats.conf"
        file.write_text("\n".join(lines) + "\n")
        return [program("nats-server", "nats-server"), "-c", str(file)]

    def address(self, place: Path) -> str:
        """See :meth:`Target.address`."""
        return tcp(self._port)


class Mosquitto(Target):
    """The MQTT broker on a Unix socket, QoS 1; what it keeps it writes out once a second."""

    name = "mosquitto"
    dialect = "Mqtt"
    promise = "snapshot each s"

    def command(self, place: Path) -> list[str]:
        """See :meth:`Target.command`."""
        file = place / "mosquitto.conf"
        file.write_text(
            f"listener 0 {self.address(place)}\n"
            f"user {getpass.getuser()}\n"
            "allow_anonymous true\n"
            "max_inflight_messages 0\n"
            "max_queued_messages 0\n"
            "persistence true\n"
            f"persistence_location {place}/\n"
            "autosave_interval 1\n"
        )
        return [program("mosquitto", "mosquitto"), "-c", str(file)]


#: By their names on the command line.
PEERS: dict[str, Target] = {
    target.name: target
    for target in (
        Lines(),
        Redis("everysec"),
        Redis("everysec", shared=True),
        Redis("always"),
        Nats("nats", "Nats"),
        Nats("jetstream", "JetStream"),
        Nats("jetstream-acks", "JetStreamAcks"),
        Mosquitto(),
    )
}
