"""Channels to be broken, and looks at them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from intercom.client.doctor import examination
from intercom.client.doctor.findings import Finding
from intercom.client.doctor.patient import World
from intercom.paths import ChannelPaths
from intercom.spool.files import Inbox
from intercom.wire import envelope

BOOT = "boot-of-today"


class Clinic:
    """One channel, and what a look at it brings to light."""

    def __init__(self, paths: ChannelPaths, world: World) -> None:
        self.paths = paths
        self.world = world

    def line(self, text: str, session: str = "bob", age: float = 0.0) -> bytes:
        """A message from ann, without its line feed."""
        return envelope.make(
            type="chat",
            message_id=f"msg_{text}",
            from_session="ann",
            to_session=session,
            channel=self.paths.name,
            payload={"text": text},
            timestamp=envelope.format_timestamp(self.world.now - age),
        )

    def leave(self, *texts: str, session: str = "bob", age: float = 0.0) -> None:
        """Append messages to an inbox, as a command without a hub does."""
        with Inbox(self.paths, session) as inbox:
            for text in texts:
                inbox.append(self.line(text, session, age), sender="ann", message_id=f"msg_{text}")

    def read(self, session: str = "bob", count: int | None = None) -> None:
        """Read so many messages of an inbox, or all."""
        with Inbox(self.paths, session) as inbox:
            batch = inbox.read()
            inbox.commit(
                batch.next
                if count is None
                else batch.start._replace(offset=batch.records[count - 1].end if count else 0)
            )

    def unread(self, session: str = "bob") -> list[bytes]:
        """The lines that lie unread."""
        with Inbox(self.paths, session) as inbox:
            return [record.line for record in inbox.read().records]

    def file(self, name: str) -> Path:
        """A file of the channel."""
        return Path(self.paths.file(name))

    def found(self, **changes: Any) -> dict[str, Finding]:
        """What a look finds that is not as it should be, by code."""
        world = World(**(vars(self.world) | changes))
        findings = examination.examine(self.paths, world)
        return {one.code: one for one in findings if one.severity != "ok"}

    def cure(self, **changes: Any) -> examination.Cured:
        """Cure what can be cured, and look again."""
        return examination.cure(self.paths, World(**(vars(self.world) | changes)))

    def snapshot(self) -> dict[str, Any]:
        """All that a look must not change."""
        found: dict[str, Any] = {}
        for path in sorted([Path(self.paths.base), *Path(self.paths.base).rglob("*")]):
            info = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path)] = (info.st_mode, info.st_ino, info.st_mtime_ns, info.st_size, data)
        return found


@pytest.fixture
def clinic(channel_dir: Path, tmp_path: Path) -> Clinic:
    """A channel without a hub, in which ann and bob have taken places."""
    paths = ChannelPaths(str(channel_dir), "default")
    paths.prepare()
    for session in ("ann", "bob"):
        with Inbox(paths, session) as inbox:
            inbox.enrol()
    environ = {"XDG_CONFIG_HOME": os.devnull, "XDG_STATE_HOME": str(tmp_path / "state")}
    project = tmp_path / "project"
    project.mkdir()
    world = World(now=time.time(), environ=environ, project=str(project), boot=lambda: BOOT)
    return Clinic(paths, world)


Break = Callable[[Clinic], None]
