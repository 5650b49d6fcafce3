"""Extension state on disk. The vectors were printed by Node.js."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from intercom.errors import SpoolError, UnsafePlace
from intercom.pi import statefiles
from intercom.pi.statefiles import Commit, State

NOW = 1_800_000_000_000
SPACE = "demo/x"
FILE = "e547772895e0f7046249e5d0810cfce76ab1627903a2af1ac04ea2f76ed44eb4.json"
PAYLOAD = {"b": 1.0, "a": [1e21, "é\u2028\ud800"], "10": None, "9": -0.0}
PRINTED = (
    '{"formatVersion":1,"namespace":"demo/x","revision":1,"updatedAt":1800000000000,'
    '"payloadSha256":"3041b1d81eaf6ca21711c909cea45e000c98073d5a21dd70f84075c0a168bede",'
    '"payload":{"9":0,"10":null,"b":1,"a":[1e+21,"é\u2028\\ud800"]}}'
)


@pytest.fixture
def states(private: str) -> str:
    """A directory that does not exist yet."""
    return os.path.join(private, "extension-state")


def put(states: str, expected: float, payload: Any, calls: Any) -> Commit:
    return statefiles.commit(states, SPACE, expected, payload, now=NOW, calls=calls)


def load(states: str, calls: Any) -> State | None:
    return statefiles.load(states, SPACE, calls)


def main(states: str) -> Path:
    return Path(states, FILE)


def backup(states: str) -> Path:
    return Path(states, f"{FILE}.bak")


def test_the_first_commit_is_1_and_looks_as_the_seeds(states: str, calls: Any) -> None:
    assert load(states, calls) is None
    before = os.umask(0)
    try:
        assert put(states, 0, PAYLOAD, calls) == Commit(True, 1)
    finally:
        os.umask(before)
    assert main(states).read_bytes() == PRINTED.encode()
    assert stat.S_IMODE(main(states).stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(states).st_mode) == 0o700
    assert load(states, calls) == State(1, json.loads(PRINTED)["payload"])
    assert os.listdir(states) == [FILE]


def test_the_backup_is_the_one_before(states: str, calls: Any) -> None:
    for expected in range(3):
        assert put(states, expected, [expected], calls) == Commit(True, expected + 1)
    assert json.loads(main(states).read_bytes())["payload"] == [2]
    assert json.loads(backup(states).read_bytes())["payload"] == [1]
    assert stat.S_IMODE(backup(states).stat().st_mode) == 0o600
    assert sorted(os.listdir(states)) == [FILE, f"{FILE}.bak"]


def test_scopes_have_states_of_their_own() -> None:
    team = "e88838f2051e7cc646872e1ce1eac6d5fff3903b03ef4bd4228291979f581c67"
    scoped = statefiles.state_namespace("team é", SPACE)
    assert scoped == f'["scope","{team}","demo/x"]'
    assert statefiles.state_namespace(None, SPACE) == SPACE
    assert statefiles.state_namespace("", SPACE) == SPACE
    assert statefiles.state_path("/d", scoped) == (
        "/d/8e18ad62e11a201d88d764ea7b4b2bc1b206de756f1aca87f6e991d3458593ee.json"
    )
    assert statefiles.state_path("/d", SPACE) == f"/d/{FILE}"


@pytest.mark.parametrize("payload", [None, 0, "", [], {}, "x" * 65534, "é" * 32767, "\0" * 10922])
def test_any_json_is_a_state(states: str, calls: Any, payload: Any) -> None:
    """Up to 64 KiB as JavaScript prints it, the quotes included."""
    assert put(states, 0, payload, calls).committed
    assert load(states, calls) == State(1, payload)


@pytest.mark.parametrize("payload", ["x" * 65535, "é" * 32768, "\0" * 10923])
def test_a_state_that_is_too_large_changes_nothing(states: str, calls: Any, payload: str) -> None:
    assert put(states, 0, "old", calls).committed
    reason = "Invalid extension state or payload exceeds 64 KiB limit"
    assert put(states, 1, payload, calls) == Commit(False, 1, reason)
    assert load(states, calls) == State(1, "old")


def test_another_revision_is_a_mismatch_and_tells_what_stands(states: str, calls: Any) -> None:
    assert put(states, 1, "new", calls) == Commit(False, 0, "Revision mismatch")
    assert put(states, 0, "old", calls).committed
    for expected in (0, 2):
        found = put(states, expected, "new", calls)
        assert found == Commit(False, 1, "Revision mismatch", State(1, "old"))
    for bad in (-1, 0.5, 2**53):
        assert put(states, bad, "new", calls) == Commit(False, 1, "Invalid expected revision")
    assert put(states, 1.0, "new", calls) == Commit(True, 2)


# -- damage -----------------------------------------------------------------------------------


def damages() -> dict[str, bytes]:
    """Contents that are no state of this namespace."""
    good = json.loads(PRINTED)
    changed: dict[str, dict[str, Any]] = {
        "format": {"formatVersion": 2},
        "truth": {"formatVersion": True},
        "namespace": {"namespace": "demo/y"},
        "negative": {"revision": -1},
        "fraction": {"revision": 1.5},
        "text": {"revision": "1"},
        "when": {"updatedAt": None},
        "hash": {"payloadSha256": "0" * 64},
        "unhashed": {"payloadSha256": None},
        "payload": {"payload": {"b": 2}},
    }
    found = {name: json.dumps(good | change).encode() for name, change in changed.items()}
    del good["payload"]
    found["without"] = json.dumps(good).encode()
    large = "x" * 65535
    hashed = hashlib.sha256(json.dumps(large).encode()).hexdigest()
    found["large"] = json.dumps(good | {"payload": large, "payloadSha256": hashed}).encode()
    found |= {"empty": b"", "cut": PRINTED.encode()[:-1], "binary": b"\xff", "list": b"[]"}
    return found | {"deep": b"[" * 100_000, "endless": b" " * (5 << 20)}


@pytest.mark.parametrize("damage", damages())
def test_a_damaged_file_falls_back_to_its_backup(states: str, calls: Any, damage: str) -> None:
    put(states, 0, "one", calls)
    put(states, 1, "two", calls)
    main(states).write_bytes(damages()[damage])
    assert load(states, calls) == State(1, "one")
    assert put(states, 1, "other", calls) == Commit(True, 2)
    assert load(states, calls) == State(2, "other")
    main(states).write_bytes(damages()[damage])
    assert load(states, calls) == State(1, "one")  # what was damaged never became the backup
    backup(states).write_bytes(damages()[damage])
    assert load(states, calls) is None
    assert put(states, 0, "anew", calls) == Commit(True, 1)
    assert load(states, calls) == State(1, "anew")


def test_what_the_good_content_looks_like_is_free(states: str, calls: Any) -> None:
    """Numbers and white space as another program may have written them."""
    statefiles.open_states(states, calls)
    text = json.dumps(json.loads(PRINTED) | {"revision": 4.0, "more": 1}, indent=4)
    main(states).write_text(text)
    assert load(states, calls) == State(4, json.loads(PRINTED)["payload"])
    main(states).rename(backup(states))
    assert load(states, calls) == State(4, json.loads(PRINTED)["payload"])
    assert put(states, 4, "new", calls) == Commit(True, 5)


def test_a_file_that_cannot_be_read_is_not_taken_for_damaged(states: str, calls: Any) -> None:
    """Else a commit that follows the backup would put itself in the place of a good state."""
    put(states, 0, "one", calls)
    put(states, 1, "two", calls)
    for call in ("open", "read"):
        calls.failing = {call: errno.EMFILE}
        with pytest.raises(SpoolError, match="cannot read"):
            load(states, calls)
        for expected in (0, 1, 2):
            found = put(states, expected, "x", calls)
            assert found[:3] == (False, 0, "Failed to persist extension state")
            assert "Too many open files" in found.cause
    calls.failing = {}
    assert load(states, calls) == State(2, "two")


@pytest.mark.parametrize("kind", ["link", "second name", "directory"])
def test_what_is_not_ours_alone_is_neither_read_nor_replaced(
    states: str, calls: Any, tmp_path: Path, kind: str
) -> None:
    put(states, 0, "one", calls)
    elsewhere = tmp_path / "elsewhere"
    main(states).rename(elsewhere)
    if kind == "link":
        main(states).symlink_to(elsewhere)
    elif kind == "directory":
        main(states).mkdir()
    else:
        os.link(elsewhere, main(states))
    with pytest.raises(UnsafePlace):
        load(states, calls)
    found = put(states, 1, "two", calls)
    assert found[:3] == (False, 0, "Failed to persist extension state")
    assert str(main(states)) in found.cause
    assert elsewhere.read_text().endswith('"one"}')


# -- failures and crashes ---------------------------------------------------------------------


def test_the_order_of_the_steps(states: str, calls: Any) -> None:
    """Content is stable before it gets a name, and the backup is there before the new state."""
    put(states, 0, "one", calls)
    calls.log.clear()
    put(states, 1, "two", calls)
    steps = [step.split(" .hub-tmp-")[0] for step in calls.log]
    written = ["create", "chmod", "write", "sync"]
    assert steps == [
        *written,
        *written,
        f"rename {FILE}.bak",
        f"rename {FILE}",
        "sync_directory extension-state",
    ]


def scenes(states: str, scene: str, calls: Any) -> int:
    """Lay out what a commit of "new" may meet; returns the revision that stands."""
    if scene == "first":
        return 0
    put(states, 0, "older", calls)
    put(states, 1, "old", calls)
    if scene == "damaged":
        backup(states).write_bytes(main(states).read_bytes())
        main(states).write_bytes(b"{")
    elif scene == "lost":
        main(states).rename(backup(states))
    elif scene == "alone":
        backup(states).unlink()
    return 2


SCENES = ["first", "second", "damaged", "lost", "alone"]


@pytest.mark.parametrize("scene", SCENES)
def test_each_step_that_fails_leaves_the_old_state(private: str, broken: Any, scene: str) -> None:
    at = 0
    while True:
        states = os.path.join(private, str(at))
        stands = scenes(states, scene, broken())
        before = load(states, broken())
        calls = broken()
        calls.fail_at = at
        found = put(states, stands, "new", calls)
        if found.committed:
            break
        assert found[:3] == (False, stands, "Failed to persist extension state")
        assert "Input/output error" in found.cause
        assert load(states, broken()) == before
        assert not [name for name in os.listdir(states) if not name.startswith(FILE)]
        assert put(states, stands, "again", broken()) == Commit(True, stands + 1)
        at += 1
    assert at == len(calls.log) == (11 if scene in ("second", "alone") else 6)
    assert load(states, broken()) == State(stands + 1, "new")


@pytest.mark.parametrize("scene", SCENES)
def test_a_crash_at_each_step_leaves_the_old_or_the_new(
    private: str, broken: Any, crash: type[BaseException], scene: str
) -> None:
    at = 0
    seen = set()
    while True:
        states = os.path.join(private, str(at))
        stands = scenes(states, scene, broken())
        before, new = load(states, broken()), State(stands + 1, "new")
        calls = broken()
        calls.die_at = at
        try:
            assert put(states, stands, "new", calls).committed
            break
        except crash:
            found = load(states, broken())
            seen.add("new" if found == new else "old")
            assert found in (before, new)
            if found == new and before:  # and the old one still is the backup
                main(states).write_bytes(b"")
                assert load(states, broken()) == before
            statefiles.open_states(states, broken())
            assert {*os.listdir(states)} <= {FILE, f"{FILE}.bak"}
            standing = load(states, broken())
            revision = standing.revision if standing else 0
            assert put(states, revision, "again", broken()) == Commit(True, revision + 1)
        at += 1
    assert seen == {"old", "new"}
    assert at == len(calls.log)


def test_two_crashes_in_a_row_lose_nothing_either(
    private: str, broken: Any, crash: type[BaseException]
) -> None:
    for first in range(11):
        for second in range(11):
            states = os.path.join(private, f"{first}-{second}")
            scenes(states, "second", broken())
            for at in (first, second):
                calls, standing = broken(), load(states, broken())
                assert standing is not None
                calls.die_at = at
                with pytest.raises(crash):
                    put(states, standing.revision, "new", calls)
            found = load(states, broken())
            assert found in (State(2, "old"), State(3, "new"), State(4, "new"))


def test_a_commit_that_cannot_be_taken_back_tells_what_stands(states: str, calls: Any) -> None:
    put(states, 0, "one", calls)
    calls.failing = {"sync_directory": errno.EIO, "unlink": errno.EIO}
    rename = calls.rename

    def once(source: str, target: str) -> None:
        if source.endswith(".bak"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        rename(source, target)

    calls.rename = once
    found = put(states, 1, "two", calls)
    assert found[:3] == (False, 2, "Failed to persist extension state")
    assert load(states, calls) == State(2, "two")


@pytest.mark.parametrize("length", [1, 50])
def test_short_writes_and_reads_are_continued(states: str, calls: Any, length: int) -> None:
    calls.short = length
    put(states, 0, "x" * 500, calls)
    assert put(states, 1, "y" * 500, calls) == Commit(True, 2)
    assert load(states, calls) == State(2, "y" * 500)


def test_a_directory_that_went_is_made_again_and_a_foreign_one_is_refused(
    states: str, calls: Any, tmp_path: Path
) -> None:
    put(states, 0, "one", calls)
    main(states).unlink()
    os.rmdir(states)
    assert put(states, 0, "two", calls) == Commit(True, 1)
    os.rename(states, tmp_path / "away")
    os.symlink(tmp_path / "away", states)
    found = put(states, 1, "three", calls)
    assert found[:3] == (False, 1, "Failed to persist extension state")
    assert "Unsafe intercom socket directory" in found.cause
    with pytest.raises(UnsafePlace):
        statefiles.open_states(states, calls)
