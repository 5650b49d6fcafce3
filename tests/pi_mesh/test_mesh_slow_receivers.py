"""A receiver of any dialect that does not read, while senders of all three talk to it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from mesh_hub import Hub
from mesh_members import KINDS, Heard, Member, member

MESSAGES = 24
SIZE = 200_000
MAX_GROWTH_KIB = 24 * 1024


def text_of(name: str) -> str:
    return f"{name:>20}" * (SIZE // 20)


def resident_kib(pid: int) -> int:
    """How much memory a process has now."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def in_turn(senders: dict[str, Member], to: str, numbers: range) -> list[str]:
    """Have each say one after the other; the names of what was said."""
    names = []
    for number in numbers:
        for kind, sender in senders.items():
            name = f"{to}-{kind}-{number}"
            assert sender.send(to, name, text_of(name)) in ("delivered", "waits")
            names.append(name)
    return names


@pytest.mark.parametrize("other", KINDS)
def test_it_gets_everything_when_it_reads_and_holds_up_nobody(hub: Hub, other: str) -> None:
    senders = {kind: member(hub, kind) for kind in KINDS}
    deaf, listener = member(hub, other), member(hub, other)
    names = in_turn(senders, deaf.id, range(4))
    before = resident_kib(hub.pid)
    names += in_turn(senders, deaf.id, range(4, MESSAGES))
    assert resident_kib(hub.pid) - before < MAX_GROWTH_KIB
    for kind, sender in senders.items():
        assert sender.send(listener.id, f"hello-{listener.id}-{kind}") == "delivered"
        assert listener.ids(f"hello-{listener.id}-{kind}") == [f"hello-{listener.id}-{kind}"]
    heard: list[Heard] = deaf.hears(*names)
    assert [one.id for one in heard] == names
    assert all(one.text == text_of(one.id) for one in heard)
    deaf.leave()
    deaf.come()
    assert deaf.hears() == []
