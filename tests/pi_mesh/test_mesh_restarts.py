"""What a restart must not lose, for every pair of dialects at once."""

from __future__ import annotations

import signal

import pytest
from mesh_hub import Hub
from mesh_members import KINDS, Member, member
from pi_broker_process import until

ENDS = [signal.SIGTERM, signal.SIGKILL]
#: Those whose mail waits for who is absent.
MAILERS = ("intercom", "lines")


def all_kinds(hub: Hub) -> dict[str, Member]:
    return {kind: member(hub, kind) for kind in KINDS}


@pytest.mark.parametrize("end", ENDS)
def test_mail_and_positions_survive(own_hub: Hub, end: signal.Signals) -> None:
    senders, readers = all_kinds(own_hub), all_kinds(own_hub)
    for reader in readers.values():
        for kind in KINDS:
            assert senders[kind].send(reader.id, f"{reader.id}-{kind}") == "delivered"
            assert reader.ids(f"{reader.id}-{kind}") == [f"{reader.id}-{kind}"]
        reader.leave()
    waiting = [(kind, number) for number in range(2) for kind in MAILERS]
    others = {"key": {"of": ["one", 2]}}
    for reader in readers.values():
        for kind, number in waiting:
            word = senders[kind].send(reader.id, f"{reader.id}-{kind}-{number}", others=others)
            assert word == "waits"
        assert senders["subagents"].send(reader.id, "m") == "Session not found"
    own_hub.restart(end)
    witness = member(own_hub, "intercom")
    for reader in readers.values():
        reader.come()
        expected = [f"{reader.id}-{kind}-{number}" for kind, number in waiting]
        heard = reader.hears(*expected)
        assert [one.id for one in heard] == expected
        assert [one.sender for one in heard] == [senders[kind].id for kind, _ in waiting]
        assert [one.others for one in heard] == [others] * 4
        assert witness.send(reader.id, f"after-{reader.id}") == "delivered"
        assert reader.ids(f"after-{reader.id}") == [f"after-{reader.id}"]
    own_hub.restart(end)
    for reader in readers.values():
        reader.come()
        assert reader.hears() == []


@pytest.mark.parametrize("end", ENDS)
def test_what_was_delivered_and_not_read_survives(own_hub: Hub, end: signal.Signals) -> None:
    """The receivers are here, and do not look."""
    senders, readers = all_kinds(own_hub), all_kinds(own_hub)
    for reader in readers.values():
        for kind in KINDS:
            assert senders[kind].send(reader.id, f"{reader.id}-{kind}") == "delivered"
    own_hub.restart(end)
    for reader in readers.values():
        reader.come()
        expected = [f"{reader.id}-{kind}" for kind in KINDS]
        assert reader.ids(*expected) == expected


@pytest.mark.parametrize("end", ENDS)
def test_questions_are_answered_after_it(own_hub: Hub, end: signal.Signals) -> None:
    askers, asked = all_kinds(own_hub), all_kinds(own_hub)
    names = {(a, b): f"q-{a}-{b}" for a in KINDS for b in KINDS}
    for (a, b), name in names.items():
        assert askers[a].ask(asked[b].id, name) == "delivered"
        asked[b].hears(name)
    until(lambda: own_hub.pending() == set(names.values()), "they are not pending")
    files = {one.name: one.read_bytes() for one in own_hub.asks.iterdir()}
    own_hub.restart(end)
    assert {one.name: one.read_bytes() for one in own_hub.asks.iterdir()} == files
    for one in (*askers.values(), *asked.values()):
        one.come()
    for (a, b), name in names.items():
        back = asked[b].ask(askers[a].id, f"back-{a}-{b}")
        assert back == ("delivered" if b == "subagents" else "MUTUAL_ASK")
        assert asked[b].send(askers[a].id, f"r-{a}-{b}", reply_to=name) == "delivered"
        heard = askers[a].hears(f"r-{a}-{b}")
        assert (heard[-1].sender, heard[-1].reply_to) == (asked[b].id, name)
        until(lambda name=name: name not in own_hub.pending(), "it stays pending")
    until(lambda: own_hub.pending() == {f"back-{a}-subagents" for a in KINDS}, "others are")


@pytest.mark.parametrize("end", ENDS)
def test_nothing_that_was_confirmed_is_lost_in_mid_traffic(
    own_hub: Hub, end: signal.Signals
) -> None:
    """What was not confirmed may have arrived or not, but nothing arrives twice or mixed up."""
    senders, readers = all_kinds(own_hub), all_kinds(own_hub)
    confirmed: dict[str, list[str]] = {reader.id: [] for reader in readers.values()}
    for number in range(12):
        for kind, sender in senders.items():
            for reader in readers.values():
                name = f"m-{kind}-{number:02d}-{reader.kind}"
                assert sender.send(reader.id, name) in ("delivered", "waits")
                confirmed[reader.id].append(name)
    own_hub.restart(end)
    for reader in readers.values():
        reader.come()
        found = reader.ids(*confirmed[reader.id])
        assert found == confirmed[reader.id]
