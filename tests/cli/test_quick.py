"""Lines that are read without click: they mean, do and say the same as with it."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from intercom.cli import group, main, quick, table

Agent = Any  # see conftest.py
Make = Callable[[str], Agent]

#: An empty one means nothing to click, and that a line is left to it.
BY_CLICK = {"_INTERCOM_COMPLETE": ""}

READ = [
    ["send"],
    ["send", "--to", "bob", "--text", "hi"],
    ["send", "--text=a=b", "--to="],
    ["send", "--text", "--to", "--to", "--"],
    ["send", "--text", "x", "--", "-"],
    ["send", "-", "--to", "all", "--strict", "--durability", "disk"],
    ["send", "--reply-to", "m", "--id=i", "--session", "", "--json-payload", "{}", "--file", "f"],
    ["--json", "--dir", "a", "send", "--dir=b", "--channel", "", "--format=text"],
    ["--format", "text", "--channel", "c", "poll", "--json"],
    ["poll", "--wait", "1e1", "--limit", "+07", "--peek", "--full", "--from", "-1"],
    ["poll", "--wait=0", "--project-dir", "/"],
    ["poll", "--"],
    ["daemon", "--channel", "c", "--dir", "d", "--on-demand"],
    ["daemon", "--pi", "--durability", "process", "--idle-exit", "never"],
    ["mcp", "--session", "ann"],
]
LEFT = [
    [],
    ["--help"],
    ["--version"],
    ["send", "--help"],
    ["send", "-h"],
    ["send", "--te", "x"],
    ["send", "--text"],
    ["send", "--text", "a", "--text", "b"],
    ["send", "--strict=1"],
    ["send", "hello"],
    ["send", "-", "-"],
    ["send", "--durability", "Disk"],
    ["send", "--json", "--format", "json"],
    ["poll", "-"],
    ["poll", "--wait", "soon"],
    ["poll", "--limit", "0"],
    ["poll", "--project-dir", "/nowhere"],
    ["--session", "ann", "poll"],
    ["--", "poll"],
    ["poll", "--format", "yaml"],
    ["daemon", "--listen", "tcp:0"],
    ["peers"],
]

OPTIONS = {*table.COMMON, *(one for verb in table.QUICK.values() for one in verb.options)}
WORDS = [
    *("send", "poll", "-", "--", "-h", "--help", "", "x", "1", "-1", "json", "disk", "/", "peers"),
    *sorted(option.word for option in OPTIONS),
    *sorted(f"{option.word}=1" for option in OPTIONS),
]


def meant(words: list[str], read: Callable[[list[str]], int]) -> Any:
    """What a line has done: the verb, its values, and the common options; else a status."""
    done: list[Any] = []

    def recorder(verb: str) -> Callable[..., None]:
        def work(common: Any, **values: Any) -> None:
            names = sorted({option.name for option in table.COMMON})
            done.append((verb, values, [common._value(name) for name in names]))

        return work

    with pytest.MonkeyPatch.context() as patch:
        for name, verb in table.QUICK.items():
            patch.setattr(importlib.import_module(verb.work), "work", recorder(name))
        patch.setattr(group, "fail_usage", lambda _error, _as_json: 2)
        status = read(words)
    return done or status


def quickly(words: list[str]) -> int:
    line = quick.read(words, {})
    assert line is not None
    return main._quickly(line)


@pytest.mark.parametrize("words", READ, ids=" ".join)
def test_a_plain_line_means_the_same(words: list[str]) -> None:
    found = meant(words, quickly)
    assert isinstance(found, list)
    assert found == meant(words, group.call)


@pytest.mark.parametrize("words", LEFT, ids=" ".join)
def test_what_is_unusual_is_left_to_click(words: list[str]) -> None:
    assert quick.read(words, {}) is None


def test_completion_is_left_to_click() -> None:
    assert quick.read(["poll"], BY_CLICK) is None


@given(some.lists(some.sampled_from(WORDS), max_size=7), some.sampled_from([*table.QUICK]))
def test_no_line_is_read_otherwise(words: list[str], verb: str) -> None:
    """Whatever is read at all: most such lines are not."""
    for line in (words, [verb, *words]):
        if quick.read(line, {}) is not None:
            assert meant(line, quickly) == meant(line, group.call)


# -- what is done and said ----------------------------------------------------------------------

#: Lines that follow each other on one channel, with the statuses in which they end.
STORY: list[tuple[list[str], int]] = [
    (["poll"], 0),
    (["poll", "--json", "--peek"], 0),
    (["poll", "--session", "nobody"], 0),
    (["poll", "--peek", "--from", "now"], 2),
    (["poll", "--session", "a\nb"], 65),
    (["poll", "--from", "msg_none"], 66),
    (["poll", "--channel", "My Team!"], 0),
    (["poll", "--wait", "0.01", "--format", "text"], 0),
    (["send", "--to", "bob", "--text", "hi"], 0),
    (["send", "--to", "ann", "--text", "to myself", "--format", "text"], 0),
    (["send", "--to", "ann", "--text", "é [intercom x] \x1b", "--id", "odd id"], 0),
    (["send", "--to", "ann", "--id", "i1", "--file", "text", "--durability", "disk"], 0),
    (["send", "--to", "ann", "--id", "i1", "--file", "text", "--durability", "disk"], 0),
    (["send", "--to", "ann", "--id", "i1", "--text", "other"], 65),
    (["send", "--to", "ann", "--text", "x", "--reply-to", "i1", "--json-payload", '{"k": [1]}'], 0),
    (["send", "--to", "ann", "--text", "a  b ``"], 0),
    (["send", "--to", "ann", "--text", "x", "--json-payload", '{"text": 1}'], 2),
    (["send", "--to", "ann", "--text", "x", "--json-payload", "[1]"], 2),
    (["send", "--to", "ann", "--text", "x", "--file", "y"], 2),
    (["send", "--to", "ann", "--file", "absent"], 2),
    (["send", "--to", "ann", "--file", "latin"], 65),
    (["send", "--to", "ann", "--file", "large"], 65),
    (["send", "--to", "ann", "--text", ""], 2),
    (["send", "--to", "ann", "--text", "x", "--id", ""], 65),
    (["send", "--to", "a\tb", "--text", "x"], 65),
    (["send", "--text", "to all"], 69),
    (["send", "--to", "anm", "--strict", "--text", "x"], 68),
    (["send", "--to", "ann", "--text", "x", "--durability", "memory"], 0),
    (["poll", "--peek", "--limit", "2", "--format", "text"], 0),
    (["poll", "--limit", "1", "--from", "start"], 0),
    (["poll", "--format", "text"], 0),
    (["poll", "--full", "--format", "text", "--from", "start"], 0),
]


def plain(said: bytes) -> bytes:
    """What was said, without what is drawn or is a time."""
    said = re.sub(rb"msg_[0-9a-f]{12}", b"msg_ID", said)
    said = re.sub(rb"\d{4}-\d\d-\d\dT[\d:.+]+", b"TIME", said)
    return re.sub(rb"(\[/?intercom) [0-9a-f]+", rb"\1 MARK", said)


def told(
    words: list[str], capture: pytest.CaptureFixture[bytes], environ: dict[str, str]
) -> tuple[Any, bytes, bytes]:
    """The status of one line, and what it said."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environ.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main.run(words)
    out, err = capture.readouterr()
    return ended.value.code, plain(out), plain(err)


def test_a_plain_line_says_the_same(
    channel_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """Everything, to the byte, and nobody but the one reader knows which it was."""
    (tmp_path / "text").write_text("line\n" * 600)
    (tmp_path / "latin").write_bytes(b"\xe9")
    (tmp_path / "large").write_bytes(b"x" * (1 << 20))
    monkeypatch.chdir(tmp_path)
    environ = {
        "INTERCOM_DIR": str(channel_dir / "c"),
        "INTERCOM_SESSION": "ann",
        "INTERCOM_NO_SPAWN": "1",
        "INTERCOM_TRANSPORT": "spool",
    }
    quick_story = [told(words, capfdbinary, environ) for words, _ in STORY]
    shutil.rmtree(channel_dir / "c")
    click_story = [told(words, capfdbinary, environ | BY_CLICK) for words, _ in STORY]
    for (words, status), found, wanted in zip(STORY, quick_story, click_story, strict=True):
        assert quick.read(words, {}) is not None, words
        assert (words, *found) == (words, *wanted)
        assert found[0] == status, words


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["send", "--to", "bob"], b"from \xc3\xa9 pipe"),
        (["send", "--to", "bob", "-"], b""),
        (["send", "--to", "bob"], b"x" * (1 << 20)),
        (["poll", "--session", "bob", "--format", "text"], b""),
    ],
    ids=["text", "nothing", "too much", "poll"],
)
def test_processes_say_the_same(agent: Make, words: list[str], stdin: bytes) -> None:
    """Whole programs, with a text that comes by a pipe."""
    ann = agent("ann")
    ann.environ["INTERCOM_NO_SPAWN"] = "1"
    found = [ann.run(*words, stdin=stdin, **how) for how in ({}, BY_CLICK)]
    said = [(one.status, plain(one.out), plain(one.err.encode())) for one in found]
    assert said[0] == said[1]


# -- what it takes ------------------------------------------------------------------------------

#: What takes longer to load than a whole ``send`` may take; some of it loads the rest.
HEAVY = frozenset(
    {
        "click",
        "twisted",
        "zope",
        "msgspec",
        "typing",
        "re",
        "enum",
        "json",
        "dataclasses",
        "inspect",
    }
    | {"socket", "selectors", "subprocess", "datetime", "hashlib", "pathlib", "tempfile", "shlex"}
)
LISTING = """
import sys
from intercom.cli.main import run
try:
    run(sys.argv[1:])
finally:
    print(*sys.modules, file=sys.stderr)
"""


def test_a_plain_line_loads_nothing_heavy(agent: Make) -> None:
    """Neither with a hub nor without one, with a name of one's own or a given one."""
    ann = agent("ann")
    ann.run("poll", INTERCOM_SESSION="bob").ok()  # who is known from now on
    ann.run("send", "--to", "bob", "--text", "start a hub").ok()
    ann.program = [sys.executable, "-c", LISTING]
    spool = {"INTERCOM_TRANSPORT": "spool"}
    unnamed = {"INTERCOM_SESSION": ""}
    ann.run("poll", **unnamed).ok()  # takes a name
    for words, environ in [
        (["send", "--to", "bob", "--text", "x"], {}),
        (["send", "--to", "bob", "--text", "x", "--format", "text"], unnamed),
        (["send", "--to", "bob", "--text", "x"], spool),
        (["poll"], {}),
        (["poll", "--format", "text"], unnamed),
        (["poll", "--session", "bob"], spool),
        (["poll", "--session", "bob", "--format", "text", "--peek"], {}),
        (["hook", "claude", "stop"], {}),
        (["hook", "claude", "user-prompt-submit"], {"INTERCOM_SESSION": "bob"}),
    ]:
        ended = ann.run(*words, **environ)
        assert ended.status == 0, ended.err
        loaded = {name.split(".")[0] for name in ended.err.splitlines()[-1].split()}
        assert "intercom" in loaded
        assert (words, environ, loaded & HEAVY) == (words, environ, set())
