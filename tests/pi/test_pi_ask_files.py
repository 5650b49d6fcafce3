"""Pending asks on disk: names and content as pi-intercom's own broker has them."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intercom.errors import SpoolError, UnsafePlace
from intercom.pi import askfiles
from intercom.pi.askfiles import Ask, ask_name, scope_hash

NOW = 1_800_000_000_000
ASK = Ask(
    message_id="q-1",
    asker="ann",
    asker_name="Ann",
    target="bob",
    target_name=None,
    question='Which "one"?\n\u2028é \ud800',
    created_at=NOW,
    expires_at=NOW + 600_000,
)
#: What Node.js printed for that ask.
PRINTED = """{
  "askId": "q-1",
  "messageId": "q-1",
  "asker": {
    "sessionId": "ann",
    "name": "Ann"
  },
  "target": {
    "sessionId": "bob",
    "name": null
  },
  "question": "Which \\"one\\"?\\n\u2028é \\ud800",
  "createdAt": 1800000000000,
  "expiresAt": 1800000600000
}
"""
SCOPE = hashlib.sha256("team é".encode()).hexdigest()


@pytest.fixture
def asks(private: str) -> str:
    """A directory that does not exist yet."""
    return os.path.join(private, "pending-asks")


def names(asks: str) -> list[str]:
    return sorted(os.listdir(asks))


def test_a_file_is_the_seeds_byte_for_byte(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK, calls)
    path = Path(asks, "q-1.json")
    assert path.read_bytes() == PRINTED.encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(asks).st_mode) == 0o700
    assert askfiles.load(asks, NOW, calls).asks == (ASK,)
    assert askfiles.load(asks, NOW, calls).asks == (ASK,)
    askfiles.remove(asks, "q-1", None, calls)
    assert names(asks) == []
    askfiles.remove(asks, "q-1", None, calls)


@pytest.mark.parametrize(
    ("message_id", "scope", "name"),
    [
        ("aZ09-_.!~*'()", None, "aZ09-_.!~*'().json"),
        (" /é😀%@+,", None, "%20%2F%C3%A9%F0%9F%98%80%25%40%2B%2C.json"),
        ("\ud83d\ude00", None, "%F0%9F%98%80.json"),
        ("..", None, "...json"),
        ("", None, ".json"),
        ("a:b", SCOPE, f"{SCOPE}-a%3Ab.json"),
        ("x" * 250, None, "x" * 250 + ".json"),
    ],
)
def test_names_are_the_seeds(message_id: str, scope: str | None, name: str) -> None:
    assert ask_name(message_id, scope) == name


def test_a_scope_is_hashed() -> None:
    assert scope_hash("team é") == SCOPE
    assert scope_hash(None) is None
    assert scope_hash("\ud800") != scope_hash("\ud801")


ODD = [
    ("x" * 251, None),
    ("x" * 187, SCOPE),
    ("é" * 2000, None),
    ("é" * 2000, SCOPE),
    ("\ud800", None),
    ("\udc00" * 300, SCOPE),
    (f"{SCOPE}-q-1", None),
    ("", SCOPE),
    (".", None),
    ("a/../../b", None),
    ("nul\0", None),
]


@pytest.mark.parametrize(("message_id", "scope"), ODD)
def test_every_id_is_an_id(asks: str, calls: Any, message_id: str, scope: str | None) -> None:
    ask = ASK._replace(message_id=message_id, scope=scope)
    askfiles.save(asks, ask, calls)
    askfiles.save(asks, ASK, calls)
    assert set(askfiles.load(asks, NOW, calls).asks) == {ask, ASK}
    askfiles.remove(asks, message_id, scope, calls)
    assert askfiles.load(asks, NOW, calls).asks == (ASK,)


def test_no_ask_has_anothers_file() -> None:
    """Not even where somebody chose the id for it."""
    long = "x" * 400
    taken = ask_name(long, None).removesuffix(".json")
    ids = [long, taken, "x" * 401, f"{SCOPE}-a", "a", taken.removeprefix("@")]
    made = {ask_name(one, scope) for one in ids for scope in (None, SCOPE)}
    assert len(made) == 2 * len(ids)


@given(
    st.lists(
        st.tuples(st.text(st.characters(codec=None), max_size=300), st.sampled_from([None, SCOPE])),
        unique=True,
        max_size=6,
    )
)
def test_names_are_names_of_files_and_differ(pairs: list[tuple[str, str | None]]) -> None:
    joined = {
        (one.encode("utf-16-le", "surrogatepass"), scope): ask_name(one, scope)
        for one, scope in pairs
    }
    assert len(set(joined.values())) == len(joined)
    for name in joined.values():
        assert name.isascii()
        assert len(name) <= 255
        assert "/" not in name
        assert name.endswith(".json")


# -- loading ----------------------------------------------------------------------------------


def damaged() -> dict[str, bytes]:
    """Contents that the seed removes."""
    good = json.loads(PRINTED)
    bad: dict[str, Any] = {
        "array": [good],
        "asker": {**good, "asker": "ann"},
        "nameless": {**good, "asker": {"sessionId": "ann"}},
        "numbered": {**good, "target": {"sessionId": 7, "name": None}},
        "question": {**good, "question": None},
        "fraction": {**good, "createdAt": NOW + 0.5},
        "unsafe": {**good, "expiresAt": 2**53},
        "text": {**good, "createdAt": "1"},
        "truth": {**good, "createdAt": True},
        "backwards": {**good, "expiresAt": NOW - 1},
        "expired": {**good, "expiresAt": NOW + 4},
        "askless": {name: value for name, value in good.items() if name != "askId"},
    }
    found = {name: json.dumps(value).encode() for name, value in bad.items()}
    found |= {"empty": b"", "cut": PRINTED.encode()[:-9], "binary": b"\xff\xfe", "nul": b"\0" * 99}
    return found | {"deep": b"[" * 100_000, "large": b"[" + b"0," * (3 << 20) + b"0]"}


def test_damaged_and_expired_ones_are_removed_and_others_are_left(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK._replace(expires_at=NOW + 5), calls)
    for name, content in damaged().items():
        Path(asks, f"{name}.json").write_bytes(content)
    Path(asks, "notes.txt").write_bytes(b"")
    Path(asks, "d.json").mkdir()
    Path(asks, "l.json").symlink_to("/etc/hostname")
    found = askfiles.load(asks, NOW + 5, calls)
    assert found == askfiles.Sweep((ASK._replace(expires_at=NOW + 5),), len(damaged()), ())
    assert names(asks) == ["d.json", "l.json", "notes.txt", "q-1.json"]
    assert askfiles.prune(asks, NOW + 6, calls).removed == 1
    assert names(asks) == ["d.json", "l.json", "notes.txt"]


def test_numbers_are_those_of_javascript(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK, calls)
    text = PRINTED.replace("1800000000000", "1.8e12").replace("1800000600000", "1800000600000.0")
    Path(asks, "q-1.json").write_text(text)
    (ask,) = askfiles.load(asks, NOW, calls).asks
    assert ask == ASK
    assert isinstance(ask.created_at, int)


def test_the_longest_timeout_does_not_make_a_damaged_file(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK._replace(expires_at=NOW + 2**53 - 1), calls)
    (ask,) = askfiles.load(asks, NOW, calls).asks
    assert ask.expires_at == 2**53 - 1


def test_the_oldest_comes_first(asks: str, calls: Any) -> None:
    for at, message_id in ((3, "a"), (1, "c"), (2, "b")):
        askfiles.save(asks, ASK._replace(created_at=at, message_id=message_id), calls)
    assert [ask.message_id for ask in askfiles.load(asks, NOW, calls).asks] == ["c", "b", "a"]


def test_a_file_under_a_name_that_is_not_its_own_stays_until_it_expires(
    asks: str, calls: Any
) -> None:
    """Nobody could remove it by its id, and so it would come back with each start."""
    askfiles.load(asks, NOW, calls)
    Path(asks, "copy.json").write_text(PRINTED)
    assert askfiles.load(asks, NOW, calls) == askfiles.Sweep((), 0, ())
    assert names(asks) == ["copy.json"]
    assert askfiles.load(asks, NOW + 600_001, calls).removed == 1


def test_what_cannot_be_read_is_reported_and_stays(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK, calls)
    calls.failing["read"] = errno.EIO
    found = askfiles.load(asks, NOW, calls)
    assert found == askfiles.Sweep((), 0, ((f"{asks}/q-1.json", "Input/output error"),))
    calls.failing.clear()
    assert askfiles.load(asks, NOW, calls).asks == (ASK,)


def test_what_cannot_be_removed_is_reported(asks: str, calls: Any) -> None:
    askfiles.save(asks, ASK, calls)
    calls.failing["unlink"] = errno.EPERM
    found = askfiles.prune(asks, NOW + 600_001, calls)
    assert found.failed == ((f"{asks}/q-1.json", "Operation not permitted"),)
    assert found.asks == ()
    with pytest.raises(SpoolError, match="cannot remove"):
        askfiles.remove(asks, "q-1", None, calls)
    assert names(asks) == ["q-1.json"]


def test_a_file_with_a_second_name_is_reported_and_stays(
    asks: str, calls: Any, tmp_path: Path
) -> None:
    askfiles.save(asks, ASK, calls)
    os.link(Path(asks, "q-1.json"), tmp_path / "second")
    found = askfiles.load(asks, NOW, calls)
    assert found.asks == ()
    assert [path for path, why in found.failed if "second name" in why] == [f"{asks}/q-1.json"]
    assert names(asks) == ["q-1.json"]


def test_a_directory_that_cannot_be_listed_is_an_error(asks: str, calls: Any) -> None:
    calls.failing["names"] = errno.EMFILE
    with pytest.raises(SpoolError, match="cannot list"):
        askfiles.load(asks, NOW, calls)
    del calls.failing["names"]
    os.rmdir(asks)
    assert askfiles.prune(asks, NOW, calls) == askfiles.Sweep((), 0, ())
    Path(asks).symlink_to("/tmp")
    with pytest.raises(UnsafePlace, match="Unsafe intercom socket directory"):
        askfiles.load(asks, NOW, calls)
    with pytest.raises(UnsafePlace):
        askfiles.save(asks, ASK, calls)


# -- failures ---------------------------------------------------------------------------------


def test_short_writes_and_reads_are_continued(asks: str, calls: Any) -> None:
    calls.short = 7
    askfiles.save(asks, ASK, calls)
    assert askfiles.load(asks, NOW, calls).asks == (ASK,)
    calls.short = 0
    with pytest.raises(SpoolError, match="cannot write"):
        askfiles.save(asks, ASK._replace(question="new"), calls)


def test_each_step_that_fails_leaves_the_old_one(asks: str, broken: Any) -> None:
    new = ASK._replace(question="new")
    askfiles.save(asks, ASK, broken())
    at = 0
    while True:
        calls = broken()
        calls.fail_at = at
        try:
            askfiles.save(asks, new, calls)
            break
        except SpoolError:
            assert names(asks) == ["q-1.json"]
            assert askfiles.load(asks, NOW, broken()).asks == (ASK,)
        at += 1
    assert at == len(calls.log) == 4
    assert askfiles.load(asks, NOW, broken()).asks == (new,)


def test_a_crash_at_each_step_leaves_the_old_or_the_new(
    asks: str, broken: Any, crash: type[BaseException]
) -> None:
    new = ASK._replace(question="new")
    askfiles.save(asks, ASK, broken())
    at, left = 0, 0
    while True:
        calls = broken()
        calls.die_at = at
        try:
            askfiles.save(asks, new, calls)
            break
        except crash:
            left += len(names(asks)) - 1
            assert askfiles.load(asks, NOW, broken()) == askfiles.Sweep((ASK,), 0, ())
            assert names(asks) == ["q-1.json"]
        at += 1
    assert at == 4
    assert left == 3  # the file is not there yet when the first step begins
    assert askfiles.load(asks, NOW, broken()).asks == (new,)
