"""The extension bus: each fault in the order of the client's own broker, and its words."""

from __future__ import annotations

from typing import Any

import pytest

from intercom.wire.pi.extensions import commit_fault, publish_fault
from intercom.wire.pi.requests import (
    CommitRefusal,
    ExtensionPublish,
    Peer,
    Refusal,
    StateCommit,
)
from intercom.wire.pi.schema import parse

NOBODY = Peer("intercom", registered=True)
PEER = Peer("intercom", registered=True, namespaces=frozenset({"a/b"}))
PUBLISH = {"type": "extension_publish", "namespace": "a/b", "audience": "capable", "payload": None}
COMMIT = {
    "type": "extension_state_commit",
    "namespace": "a/b",
    "ownerEpoch": "e",
    "expectedRevision": 3,
    "payload": {"x": 1},
}
#: JSON adds two quotes to it, and each character is two bytes.
FULL = "é" * (8 * 1024 - 1)
TOO_BIG = "Invalid extension payload or payload exceeds 16 KiB limit"


@pytest.mark.parametrize(
    ("changes", "peer", "reason"),
    [
        ({"namespace": 5}, NOBODY, "Session has not advertised extension capability"),
        ({"namespace": 5, "audience": 5}, PEER, "Invalid namespace"),
        ({"namespace": "A"}, PEER, "Invalid namespace"),
        ({"audience": "all", "payload": FULL + "x"}, PEER, "Invalid audience"),
        ({"audience": ["owner"]}, PEER, "Invalid audience"),
        ({"payload": FULL + "x", "namespace": "c"}, PEER, TOO_BIG),
        ({"namespace": "c"}, PEER, "Sender does not have capability for this namespace"),
    ],
)
def test_faults_of_a_publish(changes: dict[str, Any], peer: Peer, reason: str) -> None:
    assert parse({**PUBLISH, **changes}, peer) == Refusal(
        reason, {"type": "error", "error": reason}
    )


def test_a_payload_must_be_there_and_fit() -> None:
    without = {key: PUBLISH[key] for key in PUBLISH if key != "payload"}
    assert parse(without, PEER) == Refusal(TOO_BIG, {"type": "error", "error": TOO_BIG})
    request = parse({**PUBLISH, "payload": FULL}, PEER)
    assert isinstance(request, ExtensionPublish)
    assert request.payload == FULL


def publish(**changes: Any) -> ExtensionPublish:
    request = parse({**PUBLISH, **changes}, PEER)
    assert isinstance(request, ExtensionPublish)
    return request


def test_what_a_publish_says() -> None:
    assert publish(ownerOnly=1, ownerEpoch=5) == ExtensionPublish(
        "a/b", "capable", False, None, None
    )
    assert publish(ownerOnly=True, ownerEpoch="", audience="owner") == ExtensionPublish(
        "a/b", "owner", True, "", None
    )


@pytest.mark.parametrize(
    ("changes", "epoch", "owns", "fault"),
    [
        ({}, None, False, None),
        ({}, "e", False, None),
        ({"audience": "owner"}, "e", False, None),
        ({"audience": "owner"}, None, False, "No owner for this namespace"),
        ({"ownerOnly": True}, None, False, "No owner for this namespace"),
        ({"ownerOnly": True}, "e", True, "ownerEpoch required for owner-only messages"),
        ({"ownerOnly": True, "ownerEpoch": "e"}, "e", True, None),
        ({"ownerOnly": True, "ownerEpoch": "e"}, "e", False, "Owner validation failed"),
        ({"ownerOnly": True, "ownerEpoch": "f"}, "e", True, "Owner validation failed"),
    ],
)
def test_owners(changes: Any, epoch: str | None, owns: bool, fault: str | None) -> None:
    assert publish_fault(publish(**changes), epoch, owns) == fault


# -- state ------------------------------------------------------------------------------------


def test_what_a_commit_says() -> None:
    assert parse({**COMMIT, "expectedRevision": 3.0}, PEER) == StateCommit("a/b", "e", 3, {"x": 1})
    assert isinstance(parse({**COMMIT, "payload": "x" * (64 * 1024 - 2)}, PEER), StateCommit)


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        (None, ""),
        ("", ""),
        (0, ""),
        (False, ""),
        ("x", "x"),
        (5.0, "5"),
        ({}, "[object Object]"),
        ("y" * 5000, "y" * 1000),
    ],
)
def test_who_has_no_extension_is_told_so(namespace: Any, said: str) -> None:
    reason = "Session has not advertised extension capability"
    refusal = CommitRefusal(said, reason, tells_revision=False)
    assert parse({**COMMIT, "namespace": namespace}, NOBODY) == refusal


@pytest.mark.parametrize(
    ("namespace", "said"),
    [
        (None, "null"),
        ("", ""),
        ("A", "A"),
        (False, "false"),
        ([1, 2], "1,2"),
        ({}, "[object Object]"),
    ],
)
def test_a_bad_namespace_is_said_back(namespace: Any, said: str) -> None:
    refusal = CommitRefusal(said, "Invalid namespace", tells_revision=False)
    assert parse({**COMMIT, "namespace": namespace}, PEER) == refusal


def test_a_missing_namespace_is_undefined() -> None:
    without = {key: COMMIT[key] for key in COMMIT if key != "namespace"}
    refusal = parse(without, PEER)
    assert refusal == CommitRefusal("undefined", "Invalid namespace", tells_revision=False)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ownerEpoch": None, "expectedRevision": -1}, "Invalid ownerEpoch"),
        ({"expectedRevision": -1, "payload": "x" * 70000}, "Invalid expectedRevision"),
        ({"expectedRevision": 1.5}, "Invalid expectedRevision"),
        ({"expectedRevision": 2.0**53}, "Invalid expectedRevision"),
        ({"expectedRevision": "3"}, "Invalid expectedRevision"),
        ({"expectedRevision": None}, "Invalid expectedRevision"),
        (
            {"payload": "x" * (64 * 1024 - 1)},
            "Invalid extension state or payload exceeds 64 KiB limit",
        ),
    ],
)
def test_faults_of_a_commit(changes: dict[str, Any], reason: str) -> None:
    assert parse({**COMMIT, **changes}, PEER) == CommitRefusal("a/b", reason, tells_revision=True)


def test_a_namespace_that_the_session_does_not_have() -> None:
    reason = "Sender does not have capability for this namespace"
    assert parse({**COMMIT, "namespace": "c"}, PEER) == CommitRefusal("c", reason, True)


@pytest.mark.parametrize(
    ("epoch", "owns", "fault"),
    [
        (None, False, "No owner for this namespace"),
        ("e", True, None),
        ("e", False, "Owner validation failed"),
        ("f", True, "Owner validation failed"),
    ],
)
def test_only_the_owner_commits(epoch: str | None, owns: bool, fault: str | None) -> None:
    commit = parse(COMMIT, PEER)
    assert isinstance(commit, StateCommit)
    assert commit_fault(commit, epoch, owns) == fault
