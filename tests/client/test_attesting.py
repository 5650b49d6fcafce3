"""Who sent a message is said by the hub's notes, never by the message."""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Any

import pytest

from intercom.client.attesting import Shown, known_of
from intercom.errors import SpoolError
from intercom.paths import ChannelPaths
from intercom.records import Entry
from intercom.showing.blocks import UNVERIFIED, Known
from intercom.spool import history
from intercom.spool.calls import FileCalls
from intercom.spool.store import Store
from intercom.wire import envelope

NOW = 1_800_000_000.0


class Hub:
    """What writes inboxes and history, without a hub around it."""

    def __init__(self, paths: ChannelPaths) -> None:
        self.paths = paths
        self.now = NOW
        self.store = Store(paths, FileCalls(), lambda: self.now)
        self.store.start()

    def store_line(self, line: bytes, **how: bool) -> None:
        """Store a line as if its sender's connection had said it."""
        identity = envelope.identify(line)
        assert identity is not None
        self.store.append_batch([Entry(1, "bob", line, *identity, "process", **how)])


@pytest.fixture
def hub(paths: ChannelPaths) -> Any:
    made = Hub(paths)
    yield made
    made.store.close()


def line_of(text: str = "hi", message_id: str = "m", sender: str = "ann", **payload: Any) -> bytes:
    """A message to bob."""
    return envelope.make(
        type="chat",
        message_id=message_id,
        from_session=sender,
        to_session="bob",
        channel="default",
        payload={"text": text, **payload},
        timestamp=envelope.format_timestamp(NOW),
    )


def known(paths: ChannelPaths, *lines: bytes, **more: Any) -> list[Known]:
    shown = [Shown(line, envelope.parse(line)) for line in lines]
    return known_of(paths, "bob", shown, environ={}, now=lambda: NOW, **more)


def append(paths: ChannelPaths, line: bytes) -> None:
    """Write into bob's inbox as anybody could."""
    with open(paths.inbox("bob"), "ab") as file:
        file.write(line + b"\n")


def test_what_the_hub_stored_is_attested_with_its_time(hub: Hub) -> None:
    """Whatever the message says of when that was."""
    hub.store_line(line_of())
    hub.now += 7
    hub.store_line(line_of("other", "m2"))
    found = known(hub.paths, line_of("other", "m2"), line_of())
    assert [one.stored_at for one in found] == [NOW + 7, NOW]


def test_what_others_wrote_is_not(hub: Hub) -> None:
    """A line that a hub finds is noted as found; a known id with other words is another."""
    hub.store_line(line_of())
    append(hub.paths, line_of("forged", "m2", "ceo"))
    append(hub.paths, line_of("forged", "m"))
    hub.store_line(line_of("left for the hub", "m5"), left=True)
    hub.store_line(line_of("last", "m3"))
    found = known(
        hub.paths,
        line_of("forged", "m2", "ceo"),
        line_of("forged", "m"),
        line_of("hi", "m", "eve"),
        line_of("never seen", "m9"),
        line_of("left for the hub", "m5"),
        b'{"type":"chat"}',
        line_of("last", "m3"),
    )
    assert [one.stored_at for one in found] == [None] * 6 + [NOW]


def test_what_was_stored_for_another_is_not_ours(hub: Hub) -> None:
    """A copy of what was said to somebody else."""
    hub.store_line(line_of())
    shown = [Shown(line_of(), envelope.parse(line_of()))]
    assert known_of(hub.paths, "cy", shown, environ={}, now=lambda: NOW) == [UNVERIFIED]


def test_a_message_that_names_its_own_hash_has_to_stand_where_the_hub_put_it(hub: Hub) -> None:
    """Those of pi's clients do; the hash can be copied into other words."""
    named = {"digest": blake2b(b"x", digest_size=16).hexdigest()}
    hub.store_line(line_of("true", pi=named))
    append(hub.paths, line_of("forg", pi=named))
    found = known(hub.paths, line_of("true", pi=named), line_of("forg", pi=named))
    assert [one.stored_at for one in found] == [NOW, None]
    os.truncate(hub.paths.inbox("bob"), 0)
    assert known(hub.paths, line_of("true", pi=named))[0].stored_at is None


def test_a_hub_that_runs_is_given_a_moment_to_note(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader may be quicker than the hub that has just stored; without one nobody waits."""
    line = line_of()
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            hub.store_line(line)

    assert known(hub.paths, line, sleep=sleep) == [UNVERIFIED]
    assert slept == []
    monkeypatch.setattr("intercom.client.attesting.is_led", lambda paths: True)
    assert known(hub.paths, line, sleep=sleep)[0].stored_at == NOW
    assert len(slept) == 3
    assert known(hub.paths, line_of("x", "m4"), sleep=slept.append, patience=0.05) == [UNVERIFIED]
    assert len(slept) == 8


def test_a_session_says_itself_where_it_works_and_what_it_is(hub: Hub, tmp_path: Any) -> None:
    """By its claim and its project's map; whatever is odd there says nothing."""
    project = tmp_path / "api"
    (project / ".intercom").mkdir(parents=True)
    book = {"format": 2, "tree": "t1", "project": str(project), "base": "ann", "names": []}
    name = {"session": "ann", "since": 1.0, "used_at": 1.0, "process": None, "channel": None}
    inode = [1, 2]

    def write(caller: str, at: str = str(project)) -> list[Known]:
        written = {**book, "names": [{**name, "caller": caller}]}
        path = project / ".intercom" / "session.json"
        path.write_text(json.dumps(written))
        path.chmod(0o600)
        claim = {"session": "ann", "tree": "t1", "project": at, "inode": inode, "claimed_at": 1.0}
        with open(hub.paths.claim("ann"), "w", opener=private) as file:
            json.dump(claim, file)
        return known(hub.paths, line_of())

    assert write("codex:0198") == [Known(None, "codex", "api")]
    assert write("terminal:/dev/pts/1") == [Known(None, "", "api")]
    assert write("<boss>:1") == [Known(None, "", "api")]
    assert write("codex:1", "/nowhere/at/all") == [Known(None, "", "all")]
    (project / ".intercom" / "session.json").write_text("{")
    assert known(hub.paths, line_of()) == [Known(None, "", "all")]
    with open(hub.paths.claim("ann"), "w", opener=private) as file:
        file.write("{")
    assert known(hub.paths, line_of()) == [UNVERIFIED]


def private(path: str, flags: int) -> int:
    """Open a file as ours are made."""
    return os.open(path, flags, 0o600)


def test_recent_lines_are_found_from_the_end_across_windows_and_files(
    hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole lines, however they lie; no more of the file than is needed."""
    monkeypatch.setattr(history, "_WINDOW", 100)
    for number in range(20):
        hub.store_line(line_of(str(number), f"m{number}"))
    young, old = hub.paths.file("history.ndjson"), hub.paths.file("history.1.ndjson")
    os.rename(young, old)
    hub.store.close()
    again = Hub(hub.paths)
    again.store_line(line_of("20", "m20"))
    again.store.close()
    lines = [line_of(str(number), f"m{number}") for number in range(21)]
    assert {one.stored_at for one in known(hub.paths, *lines)} == {NOW}
    monkeypatch.setattr(history, "RECENT", 1)
    assert known(hub.paths, lines[0])[0].stored_at is None


def test_it_never_fails(paths: ChannelPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that cannot be read attests nothing."""

    def refuse(*_args: object) -> None:
        raise SpoolError("no")

    monkeypatch.setattr(history, "recent", refuse)
    assert known(paths, line_of()) == [UNVERIFIED]
